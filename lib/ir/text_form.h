// Words of the text form that print.cc writes and parse.cc reads.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ir/graph.h"

namespace meshtrain {

std::string_view short_dtype(DType dtype);  // "f32"
std::optional<DType> parse_short_dtype(std::string_view text);
std::string_view role_name(VariableRole role);  // "weight"
std::optional<VariableRole> parse_role(std::string_view text);
std::optional<Phase> parse_phase(std::string_view text);

// "text" with \" \\ and \n escaped.
std::string in_quotes(std::string_view text);
// Whether a path needs no quotes.
bool is_plain_path(std::string_view path);

// The layouts of a variable by name.
inline constexpr std::pair<std::string_view, Sharding VariableLayout::*> kLayouts[] = {
    {"storage", &VariableLayout::storage},
    {"compute", &VariableLayout::compute},
    {"grad", &VariableLayout::grad},
    {"state", &VariableLayout::state},
};

}  // namespace meshtrain
