// oneDNN's primitives as units of a kernel.
//
// A primitive computes on the thread that calls it, in the scratch of its worker. A call allocates
// a few small blocks within oneDNN (its table of arguments).
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>

#include "backend/cpu/kernel.h"

namespace meshtrain::cpu {

const dnnl::engine& dnnl_engine();
// Scratch comes from the worker that calls.
dnnl::primitive_attr own_scratch();
// Returns the oneDNN type of float32 or bfloat16.
dnnl::memory::data_type dnnl_type(DType dtype);

// Primitives are made for as many threads as the maker may use.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Returns the result of make(), an optional; nothing when oneDNN has no such primitive.
template <class Make>
auto try_primitive(Make make) -> decltype(make()) {
  const OneThread guard;
  try {
    return make();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented || error.status == dnnl_invalid_arguments)
      return std::nullopt;
    throw;
  }
}

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
