// What generated loops have in common: how many blocks they take, how they count, where the
// elements of strided arrays lie.
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

// Flat indices in a loop over `sizes`, as text. 32 bits where all indices and offsets fit.
class Indices {
 public:
  explicit Indices(const StridedLoop& loop);

  std::string_view type() const { return is_wide_ ? "unsigned long long" : "unsigned"; }
  std::string_view offset_type() const { return is_wide_ ? "long long" : "int"; }
  std::string number(int64_t value) const;  // a literal of type()
  // "const unsigned c1 = i % 5u;...": coordinates in the dimensions where one of these arrays of
  // the loop moves.
  std::string split(std::string_view index, const std::vector<size_t>& arrays) const;
  // Offset of an array's element at these coordinates.
  std::string offset(size_t array) const;

 private:
  StridedLoop loop_;
  bool is_wide_;
};

}  // namespace meshtrain::gpu
