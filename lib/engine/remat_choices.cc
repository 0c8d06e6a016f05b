#include "engine/remat_choices.h"

#include <algorithm>

#include "base/text.h"

namespace meshtrain {

std::vector<RematChoice> remat_choices(const ModelConfig& model) {
  std::vector<ModelConfig::Remat> parts = model.remat;
  const bool has_lists = std::any_of(parts.begin(), parts.end(),
                                     [](const auto& part) { return !part.kept_parts.empty(); });
  std::vector<RematChoice> out = {{"none", {}}};
  if (has_lists) {
    out.push_back({"given", parts});
  }
  if (parts.empty()) {
    for (const auto& [block, layer] : model.block_outputs) {
      const bool is_inner =
          std::any_of(model.block_outputs.begin(), model.block_outputs.end(),
                      [&](const auto& other) { return starts_with(block, other.first + "/"); });
      if (!is_inner) {
        parts.push_back({block});
      }
    }
  }
  for (const bool keeps_products : {true, false}) {
    for (ModelConfig::Remat& part : parts) {
      part = {part.prefix, keeps_products, {}};
    }
    if (!parts.empty()) {
      out.push_back({keeps_products ? "dots" : "block", parts});
    }
  }
  return out;
}

}  // namespace meshtrain
