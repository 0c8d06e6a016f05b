// The files of configs/, built into the program.
#pragma once

#include <span>
#include <string_view>

namespace meshtrain {

struct Template {
  std::string_view name;  // of the file, without ".yaml"
  std::string_view text;
};

std::span<const Template> templates();  // sorted by name

}  // namespace meshtrain
