// Shared by generated loops over elements: numbers of blocks, index types, widths of accesses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/command.h"

namespace meshtrain::gpu {

constexpr int64_t kMaxBlocks = 132 * 16;  // enough for the largest GPUs; then threads loop
constexpr int kSpread = 4;                // elements of a thread where they are read one by one

// Blocks for `elements`, of which a thread computes `of_thread` at a time.
uint64_t blocks_for(int64_t elements, int64_t of_thread);

inline uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}
inline bool is_aligned(const void* pointer, int64_t bytes) {
  return address(pointer) % static_cast<uint64_t>(bytes) == 0;
}

// Largest power of two, at most 16 / item_size and 8, of elements in one access.
int largest_pack(int64_t item_size);

// Largest power of two of bytes, at most 16, that divides them all.
int64_t common_word(std::vector<int64_t> bytes);
// The type of words of 1, 2, 4, 8 or 16 bytes that are only moved.
std::string word_type(int64_t bytes);

// Returns the reach (text.h) of such a loop, whose threads advance by `step`.
int64_t loop_reach(const StridedLoop& loop, int64_t step);

}  // namespace meshtrain::gpu
