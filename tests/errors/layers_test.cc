// Every layer of the catalogue with inputs of every rank, of unknown and of too small sizes, and
// with arguments that no schema can judge: it is built with a shape that makes sense, or refused
// with an error that names the layer, its line, its input's shape and a way out. Nothing else
// happens. The cases are made from the catalogue, so that a new layer has them too.
#include <fmt/format.h>

#include <set>

#include "config/cells.h"
#include "config/load.h"
#include "doctest/doctest.h"
#include "errors/probe.h"
#include "nn/model.h"

namespace meshtrain {
namespace {

struct Built {
  Diagnostics found;
  std::string fault;  // what should not have happened
  bool is_refused = false;
};

bool is_sensible(const Shape& shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](int64_t size) { return size == kUnknownDim || size >= 1; });
}

// The model of `probe`, built; what is not as it should be is in `fault`.
Built build(const Probe& probe) {
  Built built;
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{"probe.yaml", probe.config});
  try {
    const Config config = load_config(options);
    const Model model(config.model, DType::kFloat32, built.found);
    built.is_refused = built.found.has_errors();
    for (const Model::Call& call : model.calls()) {
      if (!built.is_refused && !is_sensible(call.output_shape)) {
        built.fault = "has the output " + shape_string(call.output_shape);
      }
    }
    for (const Weight* weight : model.weights()) {
      if (!built.is_refused && !is_sensible(weight->shape)) {
        built.fault = "has the weight " + shape_string(weight->shape);
      }
    }
  } catch (const ConfigError& e) {
    built.found = e.diagnostics();
    built.is_refused = true;
  } catch (const std::exception& e) {
    built.fault = fmt::format("ends with `{}`", e.what());
  }
  return built;
}

// "" when every error names the layer and its line, and the first one helps.
std::string fault_of(const Built& built, const Probe& probe, const std::string& shape = {}) {
  if (!built.fault.empty() || !built.is_refused) {
    return built.fault;
  }
  if (built.found.exit_code() != ExitCode::kConfig) {
    return "has another exit code:\n" + built.found.render();
  }
  for (const Diagnostic& d : built.found.list()) {
    if (d.severity != Severity::kError) {
      continue;
    }
    if (d.loc.line != probe.line) {
      return "is blamed on another line:\n" + built.found.render();
    }
    const bool is_of_part = says(d, "`probe/");  // it gets a shape of its own
    if (d.code == "E120" && !is_of_part &&
        (!says(d, "`probe`") || (!shape.empty() && !says(d, shape)))) {
      return "does not name the layer and the shape:\n" + built.found.render();
    }
    if (d.code == "E120" && d.notes.empty() && d.label.empty()) {
      return "does not say what to do:\n" + built.found.render();
    }
  }
  return "";
}

bool is_probed(const ClassSpec& spec) {
  return spec.name != "Input" && spec.name != "Call" && spec.name != "Repeat" &&
         !is_cell_class(spec.name);
}

// No shape of kShapes suits: the inputs of a MaskedLMHead have different ranks, windows of signals
// are longer, and MergeSteps and SplitSteps need each other.
bool is_never_built(const ClassSpec& spec) {
  return spec.name == "MaskedLMHead" || spec.name == "STFTSpectrogram" ||
         spec.name == "MelSpectrogram" || spec.name == "MergeSteps" || spec.name == "SplitSteps";
}

const char* const kShapes[] = {"[]",        "[6]",          "[6, 6]",         "[6, 6, 2]",
                               "[6, 6, 3]", "[6, 6, 6, 2]", "[3, 3, 3, 3, 2]"};

std::string shown(std::string shape) {  // "[6, 6]" -> "(None, 6, 6)"
  const std::string inner = shape.substr(1, shape.size() - 2);
  return inner.empty() ? "(None,)" : "(None, " + inner + ")";
}

}  // namespace

TEST_CASE("Layers: inputs of every rank are taken or refused with their shape") {
  size_t num_refused = 0;
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    bool is_ever_built = false;
    for (const char* shape : kShapes) {
      if (!is_probed(spec)) {
        continue;
      }
      const Probe probe = make_probe(spec, {}, "", shape);
      const Built built = build(probe);
      const std::string fault = fault_of(built, probe, shown(shape));
      CHECK_MESSAGE(fault.empty(), fmt::format("{} of {} {}", spec.name, shape, fault));
      num_refused += built.is_refused ? 1 : 0;
      is_ever_built = is_ever_built || !built.is_refused;
    }
    CHECK_MESSAGE((is_ever_built || !is_probed(spec) || is_never_built(spec)), spec.name);
  }
  CHECK(num_refused > 100);
}

TEST_CASE("Layers: sizes that are not known and sizes of one") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    if (!is_probed(spec)) {
      continue;
    }
    for (const char* shape :
         {"[null]", "[null, 2]", "[6, null]", "[null, null, 2]", "[6, 6, null]", "[null, 6, 6, 2]",
          "[null, null, null, null]", "[1]", "[1, 1]", "[1, 1, 1]", "[1, 1, 1, 1]"}) {
      const Probe probe = make_probe(spec, {}, "", shape);
      const std::string fault = fault_of(build(probe), probe);
      CHECK_MESSAGE(fault.empty(), fmt::format("{} of {} {}", spec.name, shape, fault));
    }
  }
}

TEST_CASE("Layers: whole numbers that only shapes can judge") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    for (const Spec& arg : spec.args) {
      const bool is_list = arg.kind == ValueKind::kIntOrList || arg.kind == ValueKind::kShape;
      if (!is_probed(spec) || (arg.kind != ValueKind::kInt && !is_list)) {
        continue;
      }
      std::vector<std::string> values = {"1", "3", "7", "1000", "-1", "-7", "-1000", "2147483647"};
      if (is_list) {
        values.insert(values.end(),
                      {"[1, 2]", "[2, 1]", "[1, 1, 1]", "[3, 2, 1]", "[1, 2, 3, 4, 5]", "[-1, -2]",
                       "[100, 100]", "[0, 0]", "[1, 1]", "[0, 1, 2]"});
      }
      for (const std::string& value : values) {
        for (const char* shape : kShapes) {
          const Probe probe = make_probe(spec, {{arg.name, value}}, "", shape);
          const std::string fault = fault_of(build(probe), probe);
          CHECK_MESSAGE(fault.empty(), fmt::format("{} {}: {} of {} {}", spec.name, arg.name, value,
                                                   shape, fault));
        }
      }
    }
  }
}

TEST_CASE("Layers: choices and flags with every shape") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    for (const Spec& arg : spec.args) {
      std::vector<std::string> values = arg.kind == ValueKind::kEnum ? arg.allowed
                                        : arg.kind == ValueKind::kBool
                                            ? std::vector<std::string>{"true", "false"}
                                            : std::vector<std::string>{};
      for (const std::string& value : values) {
        for (const char* shape : kShapes) {
          if (is_probed(spec)) {
            const Probe probe = make_probe(spec, {{arg.name, value}}, "", shape);
            const std::string fault = fault_of(build(probe), probe);
            CHECK_MESSAGE(fault.empty(), fmt::format("{} {}: {} of {} {}", spec.name, arg.name,
                                                     value, shape, fault));
          }
        }
      }
    }
  }
}

TEST_CASE("Layers: two inputs that do not fit each other are named with both shapes") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    if (!takes_two_inputs(spec.name)) {
      continue;
    }
    Probe probe = make_probe(spec, {{"inputs", "[x, y]"}}, "", "[4, 3, 2]");
    const std::string second = "    - Identity: {name: before}\n";
    const size_t at = probe.config.find(second);
    REQUIRE(at != std::string::npos);
    probe.config.replace(at, second.size(), "    - Input: {name: y, shape: [5, 3, 7]}\n");
    const Built built = build(probe);
    REQUIRE_MESSAGE(built.is_refused, spec.name);
    const std::string fault = fault_of(built, probe, "(None, 4, 3, 2)");
    CHECK_MESSAGE(fault.empty(), fmt::format("{} {}", spec.name, fault));
    CHECK(says(built.found.list()[0], "(None, 5, 3, 7)"));
    CHECK(says(built.found.list()[0], spec.name));
  }
}

TEST_CASE("Layers: one input where several are wanted and several where one is") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    if (!is_probed(spec)) {
      continue;
    }
    if (spec.name == "MultiHeadAttention" || spec.name == "GroupQueryAttention") {
      continue;  // one to three inputs
    }
    const bool two = takes_two_inputs(spec.name);
    const Probe probe = make_probe(spec,
                                   {{"inputs", !two             ? "[x, before]"
                                               : spec.has_roles ? "before"
                                                                : "x"}},
                                   "", "[6, 6, 2]");
    const Built built = build(probe);
    CHECK_MESSAGE(built.is_refused, spec.name);
    const std::string fault = fault_of(built, probe);
    CHECK_MESSAGE(fault.empty(), fmt::format("{} {}", spec.name, fault));
    CHECK(says(built.found.list()[0], "`probe`"));
  }
}

TEST_CASE("Layers: inputs that are unknown or lead back are refused for every class") {
  for (const ClassSpec& spec : classes(Category::kLayer)) {
    if (!is_probed(spec)) {
      continue;
    }
    for (const char* name : {"nowhere", "probe"}) {
      const std::string inputs =
          takes_two_inputs(spec.name) ? fmt::format("[x, {}]", name) : std::string(name);
      const Probe probe = make_probe(spec, {{"inputs", inputs}});
      const Built built = build(probe);
      CHECK_MESSAGE(built.is_refused, spec.name);
      const std::string fault = fault_of(built, probe);
      CHECK_MESSAGE(fault.empty(), fmt::format("{} of `{}` {}", spec.name, name, fault));
      CHECK(says(built.found.list()[0], "`probe`"));
    }
  }
}

TEST_CASE("Layers: a shape that does not fit within a block names the block's line and its use") {
  const Probe probe = {R"(blocks:
  Unit:
    params: {size}
    layers:
      - Conv2D: {name: conv, filters: 2, kernel_size: =size}
model:
  layers:
    - Input: {shape: [6, 6, 2]}
    - Repeat: {times: 3, name: "unit_{i}", block: Unit, with: {size: 3}}
compile: {loss: mse}
data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}
)",
                       5};
  const Built built = build(probe);
  REQUIRE(built.is_refused);
  const Diagnostic& d = built.found.list()[0];
  CHECK(d.code == "E120");
  CHECK(d.loc.line == 5);
  CHECK(says(d, "`unit_2/conv`"));
  CHECK(says(d, "(None, 2, 2, 2)"));
  CHECK(built.found.render().find("note: in block `Unit`, used as `unit_2` at probe.yaml:9:7") !=
        std::string::npos);
}

}  // namespace meshtrain
