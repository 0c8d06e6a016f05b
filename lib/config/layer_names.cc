#include "config/layer_names.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/object_form.h"

namespace meshtrain {

std::string NameCounter::next(const std::string& spelled) {
  const ClassSpec* spec = find_class(Category::kLayer, spelled);
  const std::string& class_name = spec == nullptr ? spelled : spec->name;
  // Keras names a layer by its class, which its exported name need not be.
  const std::string base = class_name == "Input"                 ? "input_layer"
                           : class_name == "GroupQueryAttention" ? "grouped_query_attention"
                                                                 : to_snake_case(class_name);
  const int used = counts_[base]++;
  return used == 0 ? base : fmt::format("{}_{}", base, used);
}

std::vector<std::string> entry_names(const YamlNode& list, Category category) {
  NameCounter counter;
  std::vector<std::string> names;
  for (const YamlNode& entry : list.children) {
    const auto form = object_form(entry, category);
    if (!form) {
      names.emplace_back();
      continue;
    }
    const YamlNode* given = form->args == nullptr ? nullptr : form->args->find("name");
    if (category != Category::kLayer) {
      names.push_back(form->spelled);
    } else if (given != nullptr && given->is_scalar()) {
      names.push_back(given->text);
    } else {
      names.push_back(counter.next(form->spelled));
    }
  }
  return names;
}

}  // namespace meshtrain
