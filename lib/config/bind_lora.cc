// model.lora: which weights get low-rank factors.
#include "config/bind.h"
#include "mesh/layout_map.h"

namespace meshtrain {

void bind_lora(const ConfigValue& map, ModelConfig& out, Diagnostics& diagnostics) {
  for (const auto& [pattern, value] : map.dict()) {
    ModelConfig::Lora rule{pattern, value.loc, value.field("rank").integer(), 0};
    const ConfigValue& alpha = value.field("alpha");
    rule.alpha = alpha.is_null() ? static_cast<double>(rule.rank) : alpha.number();
    try {
      (void)Pattern(pattern, value.loc);
      out.lora.push_back(std::move(rule));
    } catch (const ConfigError& error) {
      diagnostics.append(error.diagnostics());
    }
  }
}

}  // namespace meshtrain
