#include "engine/class_names.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/text.h"

namespace meshtrain {
namespace {

std::string shown_names(const std::vector<std::string>& names) {
  const std::vector<std::string> some(names.begin(),
                                      names.begin() + std::min<std::ptrdiff_t>(10, names.size()));
  return join(some, ", ") + (some.size() < names.size() ? ", ..." : "");
}

// The names of `from` that `among` lacks.
std::vector<std::string> names_without(const std::vector<std::string>& from,
                                       const std::vector<std::string>& among) {
  const std::set<std::string_view> there(among.begin(), among.end());
  std::vector<std::string> out;
  std::copy_if(from.begin(), from.end(), std::back_inserter(out),
               [&](const std::string& name) { return !there.contains(name); });
  return out;
}

}  // namespace

bool check_classes(const Dataset& dataset, const std::vector<std::string>& wanted,
                   const std::string& parts, Diagnostics& diagnostics) {
  const std::vector<std::string>& have = dataset.class_names;
  if (have.empty() || wanted.empty() || have == wanted) {
    return true;
  }
  const auto both = static_cast<std::ptrdiff_t>(std::min(have.size(), wanted.size()));
  const bool same_numbers = std::equal(have.begin(), have.begin() + both, wanted.begin());
  Diagnostic& problem = diagnostics.error(
      "E324", dataset.loc,
      fmt::format("{} {}: {}; {}", parts,
                  same_numbers ? "have different classes" : "number their classes differently",
                  shown_names(have), shown_names(wanted)));
  const std::vector<std::string> missing = names_without(wanted, have);
  const std::vector<std::string> added = names_without(have, wanted);
  if (!missing.empty()) {
    problem.note("missing: " + shown_names(missing));
    problem.help("in an `image_folder`, an empty folder keeps the number of a class");
  }
  if (!added.empty()) {
    problem.note("new: " + shown_names(added));
    problem.help("the model has no output for a new class: take its folder away, or train anew");
  }
  return false;
}

void check_model_names(const Dataset& dataset, const std::vector<std::string>& model_names,
                       const std::string& part, Diagnostics& diagnostics) {
  const std::vector<std::string>& have = dataset.class_names;
  for (size_t i = 0; i < have.size() && dataset.targets.size() == 1; ++i) {
    const auto named = std::find(model_names.begin(), model_names.end(), have[i]);
    const auto number = static_cast<size_t>(named - model_names.begin());
    if (named != model_names.end() && number != i) {
      diagnostics
          .error("E324", dataset.loc,
                 fmt::format("`{}` is class {} of {}, and class {} of `model.class_names`", have[i],
                             i, part, number))
          .help(fmt::format("`vocabulary: {{LABEL: [{0}]}}` of a csv, or `class_names: [{0}]` of a "
                            "folder, numbers the labels as the model does",
                            shown_names(model_names)))
          .help("a model that is trained anew needs no `model.class_names`");
      return;
    }
  }
}

}  // namespace meshtrain
