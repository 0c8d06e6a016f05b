// Message: bytes that one process sends to another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/kernel_fields.h"

namespace meshtrain {

// `bytes` at `data` of this process for, or from, process `peer`.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  MESHTRAIN_FIELDS(peer, data, bytes);
};

}  // namespace meshtrain
