#include "backend/gpu/kernel_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace meshtrain::gpu {

uint64_t blocks_for(int64_t elements, int64_t of_thread) {
  const int64_t of_block = of_thread * kThreads;
  return static_cast<uint64_t>(
      std::clamp<int64_t>((elements + of_block - 1) / of_block, 1, kMaxBlocks));
}

int largest_pack(int64_t item_size) {
  return static_cast<int>(std::min<int64_t>(16 / item_size, 8));
}

int64_t common_word(std::vector<int64_t> bytes) {
  int64_t word = 16;
  for (int64_t each : bytes) {
    while (each % word != 0)
      word /= 2;
  }
  return word;
}

std::string word_type(int64_t bytes) {
  switch (bytes) {
    case 1:
      return "unsigned char";
    case 2:
      return "unsigned short";
    case 4:
      return "unsigned";
    case 8:
      return "unsigned long long";
    default:
      return "mt_pack<unsigned, 4>";
  }
}

Indices::Indices(const StridedLoop& loop) : loop_(loop) {
  constexpr int64_t kLimit = int64_t{1} << 30;
  is_wide_ = num_elements(loop.sizes) > kLimit;
  for (const std::vector<int64_t>& strides : loop.strides) {
    int64_t reach = 0;
    for (size_t d = 0; d < loop.rank(); ++d)
      reach += (loop.sizes[d] - 1) * std::abs(strides[d]);
    is_wide_ = is_wide_ || reach > kLimit;
  }
}

std::string Indices::number(int64_t value) const {
  return fmt::format("{}{}", value, is_wide_ ? "ull" : "u");
}

std::string Indices::split(std::string_view index, const std::vector<size_t>& arrays) const {
  const auto moves = [&](size_t d) {
    return std::any_of(arrays.begin(), arrays.end(),
                       [&](size_t a) { return loop_.strides[a][d] != 0; });
  };
  size_t first = 0;
  while (first < loop_.rank() && !moves(first))
    ++first;
  std::string text;
  std::string rest(index);
  for (size_t d = loop_.rank(); d-- > first;) {
    const std::string size = number(loop_.sizes[d]);
    if (moves(d)) {
      text += fmt::format("const {} c{} = {};\n", type(), d,
                          d == 0 ? rest : fmt::format("{} % {}", rest, size));
    }
    if (d > first) {
      text += fmt::format("const {} q{} = {} / {};\n", type(), d, rest, size);
      rest = fmt::format("q{}", d);
    }
  }
  return text;
}

std::string Indices::offset(size_t array) const {
  std::string text;
  for (size_t d = 0; d < loop_.rank(); ++d) {
    const int64_t stride = loop_.strides[array][d];
    if (stride == 0)
      continue;
    text += fmt::format("{}({})c{}", text.empty() ? "" : " + ", offset_type(), d);
    if (stride != 1)
      text += fmt::format(" * {}", stride);
  }
  return text.empty() ? "0" : text;
}

}  // namespace meshtrain::gpu
