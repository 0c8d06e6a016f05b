// Findings of a config for code scanners and editors: SARIF 2.1.0 (OASIS,
// docs.oasis-open.org/sarif/sarif/v2.1.0), as one JSON object.
#pragma once

#include <string>

#include "base/diagnostic.h"

namespace meshtrain {

std::string sarif_of(const Diagnostics& diagnostics);

}  // namespace meshtrain
