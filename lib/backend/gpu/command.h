// The commands of a step on a GPU, as data: GpuLowering creates them without a GPU, a Device
// (device.h) executes them. Pointers are addresses in the device's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

// Threads of every block of a generated kernel.
constexpr unsigned kThreads = 256;
// The file of device/ with what every body may use.
constexpr std::string_view kElementwise = "elementwise";

// CUDA C++ of one generated function, which computes one block of kThreads threads, in namespace
// mt:
//   static __device__ void NAME(const unsigned long long* arg, unsigned block,
//                               unsigned char* shared) { BODY }
// It may use what device/DEVICE.cuh declares, threadIdx.x, __syncthreads() and warp shuffles. It
// must not use blockIdx or blockDim, so that several bodies fit into one launch, or one after the
// other into one block. A body must not return before a __syncthreads() that other threads reach.
struct KernelBody {
  std::string name;  // unique by text: a word for the kind, then a hash of everything else
  std::string text;  // BODY
  unsigned shared_bytes = 0;
  bool has_barriers = false;  // __syncthreads or shuffles: otherwise threads are independent
  std::string_view device = kElementwise;  // the file of device/ that BODY needs
  // Threads hold many values that they have read ahead. Otherwise the compiler saves registers for
  // other blocks of a multiprocessor, and reads such values one after the other.
  bool needs_registers = false;
};
using KernelBodyPtr = std::shared_ptr<const KernelBody>;

// Name and text hashed together: equal bodies have equal names.
// `device`: the file of device/ that the text needs.
KernelBodyPtr make_body(std::string_view kind, std::string text, unsigned shared_bytes,
                        bool has_barriers, std::string_view device = kElementwise,
                        bool needs_registers = false);

// A word of a launch's arguments: a whole number, or an address of the device. Only addresses move
// to the slots of a plan's steps (Window).
struct LaunchArg {
  LaunchArg(uint64_t number) : value(number) {}
  LaunchArg(const void* address) : value(reinterpret_cast<uint64_t>(address)), is_address(true) {}
  operator uint64_t() const { return value; }
  friend bool operator==(const LaunchArg&, const LaunchArg&) = default;

  uint64_t value;
  bool is_address = false;
};

struct Launch {
  KernelBodyPtr body;
  uint64_t blocks = 1;
  std::vector<LaunchArg> args;
  // Elements read and written: merge_launches() estimates time by them.
  int64_t work = 0;
};

struct Command;

// kGelu is x * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
enum class Activation : uint8_t { kNone, kRelu, kGelu };

// An elementwise epilogue of a product.
struct Epilogue {
  const std::byte* bias = nullptr;  // n elements, added to every row; null: none
  Activation activation = Activation::kNone;
  std::byte* to = nullptr;  // laid out as c, and may be c; otherwise c is undefined afterwards
  // The launch that computes `to` from c, for devices where the plain product is faster.
  std::shared_ptr<const Command> apart;
};

// A product as MatmulSpec has it, whose batches are one constant step apart, in elements.
struct Matmul {
  MatmulSpec spec;  // no batches; pointers of the first
  int64_t batch = 1, a_step = 0, b_step = 0, c_step = 0;
  std::optional<Epilogue> epilogue = std::nullopt;

  // The address of the final elements.
  std::byte* result() const { return epilogue ? epilogue->to : spec.c; }
};

enum class ConvOp { kForward, kDgrad, kWgrad };

// `images` one after the other through one kernel; x, kernel, y by the names of ConvShape. The one
// that `op` computes is written.
struct Conv {
  ConvOp op = ConvOp::kForward;
  ConvShape shape;
  int64_t images = 1;
  const std::byte* x = nullptr;
  const std::byte* kernel = nullptr;
  const std::byte* y = nullptr;
};

// Attention that library_takes(), or its gradient, with the arrays of AttentionSpec or of
// AttentionGradSpec.
struct Attention {
  AttentionShape shape;
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* o = nullptr;
  const std::byte* lse = nullptr;
  // Of a gradient; otherwise null.
  const std::byte* o_cotangent = nullptr;
  const std::byte* dq = nullptr;
  const std::byte* dk = nullptr;
  const std::byte* dv = nullptr;
  const std::byte* sums = nullptr;  // memory for a float32 of each (batch, head, query)
  // Launches that compute the same, for devices where the library does not.
  std::shared_ptr<const std::vector<Command>> apart;

  bool is_grad() const { return dq != nullptr; }
};

// Returns the ranks of a library collective; null for anything else.
template <class... What>
const std::vector<int>* ranks_of(const std::variant<What...>& what) {
  return std::visit(
      [](const auto& one) -> const std::vector<int>* {
        if constexpr (requires { one.ranks; })
          return &one.ranks;
        else
          return nullptr;
      },
      what);
}

// Returns whether a command or a call communicates with other processes.
template <class... What>
bool communicates(const std::variant<What...>& what) {
  return std::holds_alternative<ExchangeSpec>(what) || ranks_of(what) != nullptr;
}

struct Command {
  std::variant<Launch, Matmul, Conv, Attention, ExchangeSpec, AllReduceSpec, AllGatherSpec,
               ReduceScatterSpec>
      what;
  std::vector<Access> accesses;  // decide what may run concurrently
  std::string path;              // of the step, for messages: "dense/matmul"
};

// The traffic of commands to other processes.
struct Traffic {
  int64_t exchanges = 0;
  int64_t gathers = 0;        // all-gathers and reduce-scatters
  int64_t bytes_sent = 0;     // by all these: in a ring each process sends all parts but one
  int64_t bytes_reduced = 0;  // that all-reduces were over

  void add(const Traffic& other, int64_t times);
};
Traffic traffic_of(const std::vector<Command>& commands);

}  // namespace meshtrain::gpu
