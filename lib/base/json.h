// Between JSON values and text. Here and not with nlohmann's own functions: its parser and its
// writer would be compiled again in every file that calls them, for seconds each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace meshtrain {

// J: nlohmann::json or nlohmann::ordered_json. A text that is no JSON gives a value that
// is_discarded(), on which at() throws nlohmann::json::exception.
template <typename J = nlohmann::json>
J parse_json(std::string_view text);

// On one line without an indent. Bytes that are no UTF-8 throw nlohmann::json::exception, or with
// `replace` become U+FFFD.
template <typename J>
std::string json_text(const J& value, int indent = -1,
                      typename J::error_handler_t bytes = J::error_handler_t::strict);

}  // namespace meshtrain
