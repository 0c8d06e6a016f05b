#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/command.h"
#include "base/checksum.h"
#include "base/hash.h"

namespace meshtrain::gpu {
namespace {

// Two spaces for every open brace, for those who read modules.
std::string indented(std::string_view text) {
  std::string out;
  int depth = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1);
    std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const auto closed = std::count(line.begin(), line.end(), '}');
    const auto opened = std::count(line.begin(), line.end(), '{');
    const int own = line.front() == '}' ? depth - 1 : line.front() == '#' ? 0 : depth;
    out.append(static_cast<size_t>(std::max(own, 0)) * 2, ' ').append(line);
    depth += static_cast<int>(opened - closed);
  }
  return out;
}

}  // namespace

KernelBodyPtr make_body(std::string_view kind, std::string text, unsigned shared_bytes,
                        bool has_barriers, std::string_view device, bool needs_registers) {
  text = indented(text);
  const uint64_t flags = (has_barriers ? 1 : 0) + (needs_registers ? 2 : 0);
  const uint64_t hash = hash_mix(hash_mix(hash_text(text), shared_bytes), flags);
  return std::make_shared<const KernelBody>(KernelBody{fmt::format("{}_{}", kind, hex64(hash)),
                                                       std::move(text), shared_bytes, has_barriers,
                                                       device, needs_registers});
}

}  // namespace meshtrain::gpu
