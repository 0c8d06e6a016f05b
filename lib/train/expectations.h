// Expectations: `expect` of a config, which tests itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "engine/hook.h"
#include "engine/setup.h"

namespace meshtrain {

// Reports (E113) bounds of logs that there are not, with those there are. `validates`: there are
// validation data; `evaluates`: data are evaluated after fit.
void check_expectations(const Setup& setup, bool validates, bool evaluates,
                        Diagnostics& diagnostics);

// Remembers the logs that are judged; a resumed run has those of before.
class Expectations : public Hook {
 public:
  explicit Expectations(const ExpectConfig& expected) : expected_(expected) {}

  bool is_any() const;  // whether anything is expected
  // The bounds that do not hold (E520), at their places. `load`: the config, trained again for some
  // steps where meshes are compared.
  Diagnostics failures(const LoadOptions& load) const;

  void on_epoch_end(EpochReport& report) override;
  void on_pass_end(const PassPosition& position, const EvaluateReport& report) override;
  std::string state_name() const override { return "expect"; }
  std::string save_state() const override;
  void load_state(const std::string& json) override;

 private:
  const ExpectConfig& expected_;
  Logs epoch_, evaluation_;
  std::vector<double> ms_per_step_;
};

}  // namespace meshtrain
