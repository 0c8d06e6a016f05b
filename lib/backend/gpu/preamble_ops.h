// The part of preamble() that says what each elementwise op computes.
#pragma once

#include <string_view>

namespace meshtrain::gpu {

// mt_NAME for every op of MESHTRAIN_ELEMENT_OPS, and mt_cast_bool.
std::string_view preamble_ops();

}  // namespace meshtrain::gpu
