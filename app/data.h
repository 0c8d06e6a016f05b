// The verbs below `meshtrain data`.
#pragma once

#include "cli.h"

namespace meshtrain {

void add_data_fetch(CLI::App& data, Command command);
void add_data_inspect(CLI::App& data, Command command);

}  // namespace meshtrain
