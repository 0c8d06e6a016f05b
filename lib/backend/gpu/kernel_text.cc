#include "backend/gpu/kernel_text.h"

#include <algorithm>

#include "backend/gpu/text.h"

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
      return "Pack<unsigned, 4>";
  }
}

int64_t loop_reach(const StridedLoop& loop, int64_t step) {
  int64_t reach = 0;
  for (const std::vector<int64_t>& strides : loop.strides)
    reach = std::max(reach, reach_of(loop.sizes, strides));
  return reach + num_elements(loop.sizes) + step;
}

}  // namespace meshtrain::gpu
