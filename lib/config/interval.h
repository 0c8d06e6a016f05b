// Lengths as people write them: "23h30m", "200 steps", "30 min", "1.5 GiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshtrain {

// How often something happens.
struct Interval {
  enum class Unit : uint8_t { kNever, kSteps, kEpochs, kSeconds };
  Unit unit = Unit::kNever;
  double count = 0;  // > 0; whole for steps and epochs

  bool operator==(const Interval&) const = default;
};

// Seconds of "90", "90s", "30 min", "23h30m", "1d"; nothing for other texts and for 0.
std::optional<double> parse_duration(std::string_view text);
// "never", "epoch", "3 epochs", "200 steps", or a duration with a unit.
std::optional<Interval> parse_interval(std::string_view text);
// As parse_interval() reads it: "epoch", "200 steps", "90 s".
std::string interval_text(const Interval& interval);
// `save_freq` of Keras' callbacks: "200" is batches; the rest as above, but never "never".
std::optional<Interval> parse_save_freq(std::string_view text);
// Bytes of "4096", "64 KiB", "1.5 GiB", "2 GB"; nothing for other texts and for 0.
std::optional<int64_t> parse_bytes(std::string_view text);

}  // namespace meshtrain
