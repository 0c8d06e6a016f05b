#include "train/callbacks/swap_ema_weights.h"

#include "base/json.h"

namespace meshtrain {

void SwapEmaWeights::have_averages(bool wanted) {
  if (swapped_ != wanted) {
    context().runner.swap_averages();
    swapped_ = wanted;
  }
}

void SwapEmaWeights::on_epoch_begin(const EpochStart& start) {
  if (!start.is_resumed) {
    have_averages(false);
  }
}
void SwapEmaWeights::on_pass_begin(const PassPosition& position) {
  if (position.pass == Pass::kValidation) {
    have_averages(true);
  }
}
void SwapEmaWeights::on_pass_end(const PassPosition& position, const EvaluateReport& /*report*/) {
  if (position.pass == Pass::kValidation) {
    have_averages(false);
  }
}
void SwapEmaWeights::on_epoch_end(EpochReport& /*report*/) {
  have_averages(swaps_on_epoch_);
}
void SwapEmaWeights::before_finalize() {
  have_averages(false);  // finalize_weights() takes them from their own place
}

std::string SwapEmaWeights::save_state() const {
  return json_text(nlohmann::json({{"swapped", swapped_}}));
}
void SwapEmaWeights::load_state(const std::string& json) {
  swapped_ = parse_json(json).at("swapped");
}

void SwapEmaWeights::undo(const std::string& json, StepRunner& runner) {
  if (parse_json(json).at("swapped").get<bool>()) {
    runner.swap_averages();
  }
}

}  // namespace meshtrain
