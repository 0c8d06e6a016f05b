#include "config/interval.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

constexpr double kMaxCount = 1e15;  // beyond it a double loses whole numbers soon

struct Named {
  std::string_view name;
  double value;
};
constexpr Named kTimes[] = {{"s", 1},       {"sec", 1},     {"second", 1},   {"seconds", 1},
                            {"m", 60},      {"min", 60},    {"minute", 60},  {"minutes", 60},
                            {"h", 3600},    {"hour", 3600}, {"hours", 3600}, {"d", 86400},
                            {"day", 86400}, {"days", 86400}};
constexpr Named kSizes[] = {{"", 1},
                            {"b", 1},
                            {"kb", 1e3},
                            {"mb", 1e6},
                            {"gb", 1e9},
                            {"tb", 1e12},
                            {"kib", 1024.0},
                            {"mib", 1024.0 * 1024},
                            {"gib", 1024.0 * 1024 * 1024},
                            {"tib", 1024.0 * 1024 * 1024 * 1024}};

// Takes a positive number and the word behind it off the front of `text`.
struct Quantity {
  double number = 0;
  std::string unit;  // in lower case
};
std::optional<Quantity> take_quantity(std::string_view& text) {
  text = trim(text);
  Quantity out;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), out.number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(out.number) || out.number <= 0 ||
      out.number > kMaxCount) {
    return std::nullopt;
  }
  text = trim(text.substr(static_cast<size_t>(end - text.data())));
  size_t letters = 0;
  while (letters < text.size() && std::isalpha(static_cast<unsigned char>(text[letters])) != 0) {
    ++letters;
  }
  out.unit = to_lower(text.substr(0, letters));
  text = trim(text.substr(letters));
  return out;
}

template <size_t N>
std::optional<double> value_of(const Named (&table)[N], std::string_view name) {
  for (const Named& entry : table) {
    if (entry.name == name) {
      return entry.value;
    }
  }
  return std::nullopt;
}

bool is_whole(double value) {
  return value == std::floor(value);
}

}  // namespace

std::optional<double> parse_duration(std::string_view text) {
  double seconds = 0;
  bool first = true;
  text = trim(text);
  do {
    const std::optional<Quantity> part = take_quantity(text);
    if (!part) {
      return std::nullopt;
    }
    const bool alone = first && text.empty();  // "90": seconds
    const std::optional<double> unit =
        part->unit.empty() && alone ? std::optional(1.0) : value_of(kTimes, part->unit);
    if (!unit) {
      return std::nullopt;
    }
    seconds += part->number * *unit;
    first = false;
  } while (!text.empty());
  return seconds;
}

std::optional<Interval> parse_interval(std::string_view text) {
  const std::string word = to_lower(trim(text));
  if (word == "never" || word == "epoch") {
    return word == "never" ? Interval{} : Interval{.unit = Interval::Unit::kEpochs, .count = 1};
  }
  std::string_view rest = text;
  const std::optional<Quantity> part = take_quantity(rest);
  if (!part || part->unit.empty()) {
    return std::nullopt;
  }
  const bool steps = part->unit == "step" || part->unit == "steps";
  if (steps || part->unit == "epoch" || part->unit == "epochs") {
    if (!rest.empty() || !is_whole(part->number)) {
      return std::nullopt;
    }
    return Interval{.unit = steps ? Interval::Unit::kSteps : Interval::Unit::kEpochs,
                    .count = part->number};
  }
  const std::optional<double> seconds = parse_duration(text);
  return seconds ? std::optional(Interval{.unit = Interval::Unit::kSeconds, .count = *seconds})
                 : std::nullopt;
}

std::string interval_text(const Interval& interval) {
  switch (interval.unit) {
    case Interval::Unit::kNever:
      return "never";
    case Interval::Unit::kSteps:
      return fmt::format("{:.0f} steps", interval.count);
    case Interval::Unit::kEpochs:
      return interval.count == 1 ? "epoch" : fmt::format("{:.0f} epochs", interval.count);
    case Interval::Unit::kSeconds:
      return format_shortest(interval.count) + " s";
  }
  return {};
}

std::optional<Interval> parse_save_freq(std::string_view text) {
  if (const auto batches = try_integer(text)) {
    return *batches > 0 ? std::optional(Interval{.unit = Interval::Unit::kSteps,
                                                 .count = static_cast<double>(*batches)})
                        : std::nullopt;
  }
  const std::optional<Interval> interval = parse_interval(text);
  return interval && interval->unit != Interval::Unit::kNever ? interval : std::nullopt;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  const std::optional<Quantity> part = take_quantity(text);
  const std::optional<double> unit = part ? value_of(kSizes, part->unit) : std::nullopt;
  if (!unit || !text.empty() || part->number * *unit < 1 || part->number * *unit > 9e18) {
    return std::nullopt;
  }
  return static_cast<int64_t>(part->number * *unit);
}

}  // namespace meshtrain
