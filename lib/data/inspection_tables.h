// Tables of `meshtrain data inspect` for files without a config: columns of a table, characters.
#pragma once

#include <string>

#include "base/json.h"
#include "data/table_profile.h"

namespace meshtrain {

std::string columns_text(const TableProfile& table);
std::string characters_text(const TextProfile& text);
nlohmann::ordered_json profile_json(const TableProfile& table);
nlohmann::ordered_json profile_json(const TextProfile& text);

// A character as people read it: a, `\n`, a blank in quotes.
std::string shown_character(std::string_view character);

}  // namespace meshtrain
