#include "base/json.h"

namespace meshtrain {

template <typename J>
J parse_json(std::string_view text) {
  return J::parse(text, nullptr, false);
}

template <typename J>
std::string json_text(const J& value, int indent, typename J::error_handler_t bytes) {
  return value.dump(indent, ' ', false, bytes);
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);
template std::string json_text(const nlohmann::json&, int, nlohmann::json::error_handler_t);
template std::string json_text(const nlohmann::ordered_json&, int,
                               nlohmann::ordered_json::error_handler_t);

}  // namespace meshtrain
