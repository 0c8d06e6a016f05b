// Which operands attention and attention_grad nodes have; attention.cc says what they compute.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "ir/attrs.h"

namespace meshtrain {

// Operands that a node has beside q, k, v (and o, lse, do), in this order.
enum class AttentionOperand : int {
  kStep,
  kQueryMask,
  kKeyMask,
  kQuerySegments,
  kKeySegments,
  kQueryPositions,
  kKeyPositions,
  kMask,
  kLseCotangent,  // of attention_grad only
  kCount
};
constexpr size_t kNumAttentionOperands = static_cast<size_t>(AttentionOperand::kCount);

// The index of each operand among the node's; -1 for an operand that the node does not have.
class AttentionOperands {
 public:
  // `names`: the attribute `operands`, names with a space between them. `first`: the index of the
  // first. Throws InternalError for a name that is unknown or out of order.
  AttentionOperands(std::string_view names, size_t first);
  int operator[](AttentionOperand operand) const { return at_[static_cast<size_t>(operand)]; }
  size_t size() const { return size_; }  // of all operands of the node

 private:
  std::array<int, kNumAttentionOperands> at_;
  size_t size_;
};

constexpr size_t kAttentionInputs = 3;      // q, k, v
constexpr size_t kAttentionGradInputs = 6;  // q, k, v, o, lse, cotangent of o
// The name of an operand in the attribute: "key_mask".
std::string_view attention_operand_name(AttentionOperand operand);

}  // namespace meshtrain
