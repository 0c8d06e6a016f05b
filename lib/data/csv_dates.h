// Dates in the fields of CSV files.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "config/source_classes.h"

namespace meshtrain {

// Returns the date and time of day in `text`. Without a format it is ISO 8601: 2024-03-01, also
// with slashes, and 2024-03-01 12:30:00 or with a T; fractions of seconds and a `Z` are left out.
// `format` is that of strptime(). Nothing for other texts and for days that no month has.
std::optional<std::tm> parse_date(std::string_view text, const std::string& format);

// Returns a number of the date, which is taken as UTC.
double date_part(const std::tm& date, DatePart part);

}  // namespace meshtrain
