// Every argument of every class that a config may name, given wrongly in every way that its kind
// knows: an error, exit code 2, that names class and argument, stands in their line and says what
// is right. The cases are made from the catalogue, so that a new class has them too.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "config/catalogue.h"
#include "config/cells.h"
#include "config/load.h"
#include "doctest/doctest.h"
#include "errors/probe.h"

namespace meshtrain {
namespace {

// Values that `spec` cannot have, as YAML.
std::vector<std::string> wrong_values(const Spec& spec) {
  std::vector<std::string> out;
  const auto bounds = [&] {
    if (std::isfinite(spec.minimum)) {
      out.push_back(fmt::format("{}", spec.above_minimum ? spec.minimum : spec.minimum - 1));
    }
    if (std::isfinite(spec.maximum)) {
      out.push_back(fmt::format("{:.0f}", spec.below_maximum ? spec.maximum : spec.maximum + 1));
    }
  };
  switch (spec.kind) {
    case ValueKind::kBool:
      return {"maybe", "3", "[true]", "{a: true}", "\"true\"", "yes"};
    case ValueKind::kInt:
      out = {"many", "1.5", "[1]", "{a: 1}", "\"1\"", "99999999999999999999"};
      bounds();
      return out;
    case ValueKind::kFloat:
      out = {"many", "[0.5]", "{a: 1}", "\"0.5\"", "nan", ".inf", "1e999"};
      bounds();
      return out;
    case ValueKind::kText:
      return {"[a]", "{a: b}", "\"\""};
    case ValueKind::kEnum:
      return {"nothing_like_it", "[a]", "{a: b}"};
    case ValueKind::kPath:
      return {"[a]", "{a: b}"};
    case ValueKind::kIntOrList:
      out = {"many", "[many]", "[1.5]", "[]", "{a: 1}"};
      bounds();
      return out;
    case ValueKind::kFloatOrList:
      out = {"many", "[many]", "[]", "{a: 1}", "nan"};
      bounds();
      return out;
    case ValueKind::kShape:
      out = {
          "many",        "[many]", "[1.5]", "{a: 1}", "[0]", "[-2]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]",
          "[4294967296]"};
      if (!spec.allows_empty) {
        out.push_back("[]");
      }
      if (!spec.allows_unknown) {
        out.push_back("[null]");
      }
      if (!spec.allows_infer) {
        out.push_back("[-1]");
      }
      return out;
    case ValueKind::kActivation:
    case ValueKind::kObject:
      return {"nothing_like_it", "[relu]", "{NothingLikeIt: {a: 1}}", "{a: 1, b: 2}"};
    case ValueKind::kFloatOrObject:
      return {"nothing_like_it", "[0.1]", "{NothingLikeIt: {a: 1}}"};
    case ValueKind::kPaths:
      return {"[[a]]", "[]", "{a: b}"};
    case ValueKind::kNames:
      return {"[[a]]", "[]", "\"\""};
    case ValueKind::kUnsupported:
      return {"true", "[1]", "{a: 1}", "l2"};
    default:
      return {};
  }
}

Diagnostics problems_of(const std::string& text) {
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"probe.yaml", text});
  try {
    return load_config(options).warnings;
  } catch (const ConfigError& e) {
    return e.diagnostics();
  }
}

// What is missing in the answer to `written` for `argument`; "" when it is a good one.
std::string fault_of(const Diagnostics& found, const std::string& class_name,
                     const std::string& argument, int line) {
  if (!found.has_errors()) {
    return "is taken";
  }
  if (found.exit_code() != ExitCode::kConfig) {
    return "has another exit code";
  }
  for (const Diagnostic& d : found.list()) {
    const bool names = says(d, "`" + class_name + "`") && says(d, "`" + argument + "`");
    const bool helps =
        !d.label.empty() || !d.notes.empty() || d.message.find("must ") != std::string::npos ||
        d.message.find("needs ") != std::string::npos ||
        d.message.find("has ") != std::string::npos || d.message.find("is ") != std::string::npos;
    if (d.severity == Severity::kError && d.loc.line == line && names && helps) {
      return "";
    }
  }
  return "gets no answer that names both and their line:\n" + found.render();
}

void try_all(Category category) {
  size_t tried = 0;
  for (const ClassSpec& spec : classes(category)) {
    for (const Spec& arg : spec.args) {
      for (const std::string& value : wrong_values(arg)) {
        const Probe probe = make_probe(spec, {{arg.name, value}});
        const std::string fault =
            fault_of(problems_of(probe.config), spec.name, arg.name, probe.line);
        CHECK_MESSAGE(fault.empty(),
                      fmt::format("{}: `{}: {}` {}", spec.name, arg.name, value, fault));
        ++tried;
      }
    }
    const Probe probe = make_probe(spec, {{"nothing_like_it", "1"}});
    CHECK_MESSAGE(
        fault_of(problems_of(probe.config), spec.name, "nothing_like_it", probe.line).empty(),
        spec.name);
    for (const Spec& arg : spec.args) {
      if (arg.is_required) {
        const Probe without = make_probe(spec, {}, arg.name);
        const std::string fault =
            fault_of(problems_of(without.config), spec.name, arg.name, without.line);
        CHECK_MESSAGE(fault.empty(), fmt::format("{} without `{}` {}", spec.name, arg.name, fault));
      }
    }
  }
  MESSAGE(category_name(category), ": ", tried, " wrong values");
}

}  // namespace

TEST_CASE("Arguments: the probes themselves are right") {
  for (const Category category : kProbedCategories) {
    for (const ClassSpec& spec : classes(category)) {
      if (category == Category::kLayer && is_cell_class(spec.name)) {
        continue;  // RNN takes it
      }
      const std::string config = make_probe(spec, {}).config;
      const Diagnostics found = problems_of(config);
      CHECK_MESSAGE(!found.has_errors(), config << found.render());
    }
  }
}

TEST_CASE("Arguments: every wrong value of every layer's is refused where it stands") {
  try_all(Category::kLayer);
}
TEST_CASE("Arguments: every wrong value of every loss's and metric's is refused") {
  try_all(Category::kLoss);
  try_all(Category::kMetric);
}
TEST_CASE("Arguments: every wrong value of every optimizer's and schedule's is refused") {
  try_all(Category::kOptimizer);
  try_all(Category::kSchedule);
}
TEST_CASE("Arguments: every wrong value of what weights are given is refused") {
  try_all(Category::kInitializer);
  try_all(Category::kRegularizer);
  try_all(Category::kConstraint);
  try_all(Category::kActivation);
}

}  // namespace meshtrain
