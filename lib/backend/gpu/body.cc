#include <fmt/format.h>

#include "backend/gpu/command.h"
#include "base/checksum.h"
#include "base/hash.h"

namespace meshtrain::gpu {

KernelBodyPtr make_body(std::string_view kind, std::string text, unsigned shared_bytes,
                        bool has_barriers) {
  const uint64_t hash =
      hash_mix(hash_mix(hash_text(text), shared_bytes), static_cast<uint64_t>(has_barriers));
  return std::make_shared<const KernelBody>(KernelBody{
      fmt::format("{}_{}", kind, hex64(hash)), std::move(text), shared_bytes, has_barriers});
}

}  // namespace meshtrain::gpu
