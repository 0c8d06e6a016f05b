// oneDNN's primitives for convolutions: made by shape, called as units of a kernel.
//
// A primitive computes on the thread that calls it, in the scratch of its worker. A call allocates
// a few small blocks within oneDNN (its table of arguments).
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "backend/cpu/conv.h"

namespace meshtrain::cpu {

enum class ConvKind { kForward, kDgrad, kWgrad };

// For a fixed number of images side by side, channels last.
struct ConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc x, kernel, y;
  dnnl::memory::desc scratch;
};

// The kernel as a model has it: (cells..., channels / groups, filters).
dnnl::memory::desc plain_kernel(const ConvShape& shape);

// Nothing where oneDNN has but reference loops or copies into matrix products, or no primitive at
// all. Kernels lie as `kernel` says, or as the primitive likes them best. oneDNN keeps what it
// generated for a shape: the second primitive of a kind costs some 10 us, the first some 200.
std::optional<ConvPrimitive> make_conv_primitive(const ConvShape& shape, ConvKind kind,
                                                 int64_t images, const dnnl::memory::desc* kernel);

// Calls of primitives that may be made in any order.
class PrimitiveCalls final : public Kernel {
 public:
  // An array that a call reads or writes, as which argument of the primitive.
  struct Argument {
    int name;
    const dnnl::memory::desc* desc;
    const std::byte* data;
    bool is_write;
  };

  // `cost`: of all calls together.
  explicit PrimitiveCalls(double cost) : cost_(cost) {}
  // All calls have the same number of arguments.
  void add(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch,
           const std::vector<Argument>& arguments);

  int64_t units() const override { return static_cast<int64_t>(calls_.size()); }
  double cost() const override { return cost_; }
  size_t scratch_bytes() const override { return scratch_bytes_; }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override;
  void run(int64_t begin, int64_t end, std::byte* scratch) const override;

 private:
  struct Call {
    dnnl::primitive primitive;
    std::vector<dnnl::memory> memories;
    std::vector<dnnl_exec_arg_t> arguments;
    std::vector<Access> accesses;
    dnnl::memory scratch;  // empty where none is needed
  };

  std::vector<Call> calls_;
  double cost_;
  size_t scratch_bytes_ = 0;
};

}  // namespace meshtrain::cpu
