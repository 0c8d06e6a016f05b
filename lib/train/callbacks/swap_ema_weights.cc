#include "train/callbacks/swap_ema_weights.h"

#include "base/json.h"
#include "base/text.h"

namespace meshtrain {

void SwapEmaWeights::have_averages(bool wanted) {
  if (swapped_ != wanted) {
    context().runner.swap_averages();
    swapped_ = wanted;
  }
}

void SwapEmaWeights::on_epoch_begin(int64_t /*epoch*/) {
  have_averages(false);
}
void SwapEmaWeights::on_test_begin() {
  have_averages(true);
}
void SwapEmaWeights::on_test_end(const Logs& /*logs*/) {
  have_averages(false);
}
void SwapEmaWeights::on_epoch_end(int64_t /*epoch*/, Logs& /*logs*/) {
  have_averages(swaps_on_epoch_);
}
void SwapEmaWeights::on_epochs_end() {
  have_averages(false);  // finalize_weights() takes them from their own place
}

std::string SwapEmaWeights::save_state() const {
  return json_text(nlohmann::json({{"swapped", swapped_}}));
}
void SwapEmaWeights::load_state(const std::string& json) {
  swapped_ = parse_json(json).at("swapped");
}

bool SwapEmaWeights::has_swapped(const std::string& name, const std::string& json) {
  return starts_with(name, "SwapEMAWeights") && parse_json(json).at("swapped").get<bool>();
}

}  // namespace meshtrain
