// Networks of keras.applications as templates: configs/applications, and their sizes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "templates.h"

namespace meshtrain {

std::span<const Template> application_templates();  // the files, sorted by name

// Names of all networks, in the order of keras.applications.
std::vector<std::string> application_names();
// The config of a network; nothing for another name.
std::optional<std::string> application_config(std::string_view name);

}  // namespace meshtrain
