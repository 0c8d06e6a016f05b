#include "data/csv_dates.h"

#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int64_t kSecondsOfDay = 86400;

// Whether `text` is all of `format`. strptime() takes the 31st of any month; timegm() would move
// it. tm_gmtoff is that of `%z`.
std::optional<std::tm> parse_with(const std::string& text, const char* format) {
  std::tm date = {};
  date.tm_mday = 1;
  const char* const end = strptime(text.c_str(), format, &date);
  if (end == nullptr || *end != '\0') {
    return std::nullopt;
  }
  if (std::string_view(format).find("%s") != std::string_view::npos) {
    const std::time_t seconds = mktime(&date);  // strptime() made it local time
    std::tm utc = {};
    return gmtime_r(&seconds, &utc) == nullptr ? std::nullopt : std::optional(utc);
  }
  std::tm moved = date;
  timegm(&moved);
  if (moved.tm_mday != date.tm_mday || moved.tm_mon != date.tm_mon) {
    return std::nullopt;
  }
  // strptime() also takes "23" for %Y, as the year 23.
  constexpr int kFourDigits = 1000 - 1900;
  if (std::string_view(format).find("%Y") != std::string_view::npos && date.tm_year < kFourDigits) {
    return std::nullopt;
  }
  moved.tm_gmtoff = date.tm_gmtoff;  // timegm() makes it 0
  return moved;                      // with the day of the week and of the year
}

// The text without the fraction of a second and the `Z` at its end.
std::string_view without_fraction(std::string_view text) {
  if (text.ends_with('Z')) {
    text.remove_suffix(1);
  }
  const size_t point = text.rfind('.');
  const bool is_fraction =
      point != std::string_view::npos && text.find(':') < point &&
      text.find_first_not_of("0123456789", point + 1) == std::string_view::npos;
  return is_fraction ? text.substr(0, point) : text;
}

}  // namespace

std::optional<std::tm> parse_date(std::string_view text, const std::string& format) {
  if (!format.empty()) {
    return parse_with(std::string(trim(text)), format.c_str());
  }
  const std::string iso(without_fraction(trim(text)));
  const bool has_form = iso.size() >= 8 && (iso[4] == '-' || iso[4] == '/');
  if (!has_form) {
    return std::nullopt;
  }
  for (const char* form : {"%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                           "%Y-%m-%dT%H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M"}) {
    if (const auto date = parse_with(iso, form)) {
      return date;
    }
  }
  return std::nullopt;
}

double date_part(const std::tm& date, DatePart part) {
  std::tm copy = date;
  const auto seconds = static_cast<int64_t>(timegm(&copy));
  switch (part) {
    case DatePart::kYear:
      return date.tm_year + 1900;
    case DatePart::kMonth:
      return date.tm_mon + 1;
    case DatePart::kDay:
      return date.tm_mday;
    case DatePart::kWeekday:
      return (date.tm_wday + 6) % 7;
    case DatePart::kDayOfYear:
      return date.tm_yday + 1;
    case DatePart::kHour:
      return date.tm_hour;
    case DatePart::kMinute:
      return date.tm_min;
    case DatePart::kSecond:
      return date.tm_sec;
    case DatePart::kDays:
      return static_cast<double>((seconds - (seconds < 0 ? kSecondsOfDay - 1 : 0)) / kSecondsOfDay);
    case DatePart::kTimestamp:
      return static_cast<double>(seconds - date.tm_gmtoff);
  }
  return 0;
}

}  // namespace meshtrain
