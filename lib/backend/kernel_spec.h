// KernelSpec: one request for a kernel, as data. exec lowers the steps of a Program to a list of
// them (exec/lower.h). Each backend turns the list into kernels with one visitor (cpu/lowering.h,
// gpu/lowering.h), so that shapes, shards and strides are decided once for all backends.
//
// Addresses point into the backend's memory and are not dereferenced when kernels are created.
// Kernels run in the order of the list. Groups and row fusions are marked by begin and end: the
// list is flat, and no type contains itself.
//
// To add a kernel: a struct, a line in MESHTRAIN_KERNEL_SPECS, and `make` in both visitors, in the
// file of its family. MESHTRAIN_FIELDS names the members of a struct: printing (to_string) and the
// resolution of scratch addresses follow from it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backend/kernel_shapes.h"
#include "backend/message.h"
#include "backend/rules.h"
#include "backend/view.h"

namespace meshtrain {

// --- structure of a list
// --------------------------------------------------------------------------

// A step begins; the scratch of the step before is free again.
struct StepSpec {
  std::string path;  // for messages
  // Memory that no later step reads: a product there need not be stored.
  std::vector<Access> last_reads = {};
  MESHTRAIN_FIELDS(path, last_reads);
};

// Scratch memory of this step. Specs of the list refer to it by the address `name`, which is never
// read or written: each backend maps it to memory of its own.
struct ScratchSpec {
  std::byte* name = nullptr;
  int64_t bytes = 0;
  MESHTRAIN_FIELDS(name, bytes);
};

// The specs between begin and end are independent, and each is one kernel. Allowed: tape, copy,
// fill, iota, scans, lookups, random numbers, warps, attention, optimizer, combine.
struct BeginGroup {
  MESHTRAIN_FIELDS();
};
struct EndGroup {
  MESHTRAIN_FIELDS();
};

// Row fusion: tapes, reductions, copies and one_hots between begin and end may run as one kernel, a
// row of their arrays at a time. Only results at `read_later` must be written; other results may
// have addresses that no memory backs. No result overlaps an operand that a later spec reads.
struct BeginRowFusion {
  MESHTRAIN_FIELDS();
};
struct EndRowFusion {
  std::vector<const std::byte*> read_later;
  MESHTRAIN_FIELDS(read_later);
};

// --- elements ------------------------------------------------------------------------------------

// Returns the index in MESHTRAIN_ELEMENT_OPS; -1 for other ops.
int find_element_op(std::string_view name);
// Returns whether the op can be an instruction of a tape.
bool is_tape_op(std::string_view op);

// One instruction of a tape. Arguments: i < number of operands: operand i; otherwise the result of
// instruction i - number of operands.
struct TapeInstruction {
  std::string_view op;  // name of an elementwise op (is_tape_op), "constant", or "copy"
  std::vector<int> args;
  DType dtype = DType::kFloat32;  // of the result
  double low = 0, high = 0;       // of clamp; low is the value of a constant
  MESHTRAIN_FIELDS(op, args, dtype, low, high);
};

struct TapeResult {
  int instruction = 0;
  View view;  // contiguous, of the tape's shape
  MESHTRAIN_FIELDS(instruction, view);
};

// Operands have strides over the tape's shape (0 where they broadcast). A result may be exactly one
// of the operands in memory, where that operand has the result's shape and size of elements.
struct TapeSpec {
  Shape shape;
  std::vector<View> operands;
  std::vector<TapeInstruction> tape;
  std::vector<TapeResult> results;
  MESHTRAIN_FIELDS(shape, operands, tape, results);
};

// to[i...] = from[i...], of one shape and dtype. The views must not overlap.
struct CopySpec {
  View from, to;
  MESHTRAIN_FIELDS(from, to);
};

// Every element of `to`, which must be contiguous, becomes `value`.
struct FillSpec {
  View to;
  double value = 0;
  MESHTRAIN_FIELDS(to, value);
};

// to[i...] = start + i[axis] for every element; `to` contiguous.
struct IotaSpec {
  View to;
  size_t axis = 0;
  int64_t start = 0;
  MESHTRAIN_FIELDS(to, axis, start);
};

// --- sums, products, scans -----------------------------------------------------------------------

// `out` is contiguous, of x's shape without the dimensions marked in `reduced` (or with size 1
// there).
struct ReduceSpec {
  Reduction reduction = Reduction::kSum;
  View x;
  std::vector<bool> reduced;
  View out;
  MESHTRAIN_FIELDS(reduction, x, reduced, out);
};

// c[i, j] = sum over p of a[i, p] * b[p, j] for every batch; element (i, p) of A is at
// a + offset + i * a_row + p * a_column, all in elements; columns of C are adjacent.
struct MatmulSpec {
  DType dtype = DType::kFloat32;
  const std::byte* a = nullptr;
  const std::byte* b = nullptr;
  std::byte* c = nullptr;
  int64_t m = 1, n = 1, k = 1;
  int64_t a_row = 0, a_column = 0, b_row = 0, b_column = 0, c_row = 0;
  struct Batch {
    int64_t a = 0, b = 0, c = 0;
    MESHTRAIN_FIELDS(a, b, c);
  };
  std::vector<Batch> batches;
  bool accumulate = false;  // the products are added to c: float32 and float64
  MESHTRAIN_FIELDS(dtype, a, b, c, m, n, k, a_row, a_column, b_row, b_column, c_row, batches,
                   accumulate);
};

// Of each row of logits with the token's id, what is not null, and with `weights` the gradients in
// place of the logits (formulas: ir/ops/linear_cross_entropy.cc). Without `lse` the row has all
// classes. Results have one element a token, float64 where logits are, else float32.
struct CrossEntropySpec {
  CrossEntropyShape shape;
  std::byte* logits = nullptr;
  const std::byte* ids = nullptr;
  std::byte* loss = nullptr;
  std::byte* hits = nullptr;
  std::byte* largest = nullptr;
  std::byte* sum = nullptr;
  std::byte* picked = nullptr;
  std::byte* first = nullptr;
  const std::byte* weights = nullptr;
  const std::byte* lse = nullptr;
  MESHTRAIN_FIELDS(shape, logits, ids, loss, hits, largest, sum, picked, first, weights, lse);
};

// out (outer, inner) int32: index of the first of the largest; a NaN counts as the largest.
struct ArgmaxSpec {
  ScanShape shape;
  const std::byte* x = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, x, out);
};

// out (outer, size, inner): inclusive running sum.
struct CumsumSpec {
  ScanShape shape;
  const std::byte* x = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, x, out);
};

// values and int32 indices (outer, k) of the k largest of each row, largest first, the first of
// equals first; inner must be 1.
struct TopKSpec {
  ScanShape shape;
  int64_t k = 1;
  const std::byte* x = nullptr;
  std::byte* values = nullptr;
  std::byte* indices = nullptr;
  MESHTRAIN_FIELDS(shape, k, x, values, indices);
};

// --- images --------------------------------------------------------------------------------------

// One image through one kernel. Images of several devices are jobs beside each other.
struct ConvJob {
  const std::byte* from = nullptr;
  const std::byte* kernel = nullptr;
  std::byte* to = nullptr;
  MESHTRAIN_FIELDS(from, kernel, to);
};

// from: images of x, to: of y.
struct ConvSpec {
  ConvShape shape;
  std::vector<ConvJob> jobs;
  MESHTRAIN_FIELDS(shape, jobs);
};

// The transpose. from: images of y's gradient, to: of x's.
struct ConvDgradSpec {
  ConvShape shape;
  std::vector<ConvJob> jobs;
  MESHTRAIN_FIELDS(shape, jobs);
};

// The gradient of one kernel, summed over these images of x and of y's gradient.
struct WgradJob {
  struct Images {
    const std::byte* x = nullptr;
    const std::byte* dy = nullptr;
    MESHTRAIN_FIELDS(x, dy);
  };
  std::vector<Images> images;
  std::byte* to = nullptr;
  MESHTRAIN_FIELDS(images, to);
};

// All jobs have the same number of images.
struct ConvWgradSpec {
  ConvShape shape;
  std::vector<WgradJob> jobs;
  MESHTRAIN_FIELDS(shape, jobs);
};

// One image; those that the op does not have are null.
struct PoolJob {
  const std::byte* x = nullptr;   // kMax, kAverage, kMaxGrad
  const std::byte* dy = nullptr;  // the gradients
  std::byte* to = nullptr;        // y, or the gradient of x
  MESHTRAIN_FIELDS(x, dy, to);
};

struct PoolSpec {
  PoolOp op = PoolOp::kMax;
  PoolShape shape;
  std::vector<PoolJob> jobs;
  MESHTRAIN_FIELDS(op, shape, jobs);
};

// out (2, channels) float64: the sums of u and of u * v over all rows of all parts.
struct ChannelSumsJob {
  struct Part {
    const std::byte* u = nullptr;
    const std::byte* v = nullptr;  // may be u
    MESHTRAIN_FIELDS(u, v);
  };
  std::vector<Part> parts;  // `rows` x `channels` each
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(parts, out);
};

struct ChannelSumsSpec {
  DType dtype = DType::kFloat32;
  int64_t rows = 0, channels = 1;
  std::vector<ChannelSumsJob> jobs;
  MESHTRAIN_FIELDS(dtype, rows, channels, jobs);
};

// out: x sampled at affine coordinates, or the transpose of that. transforms: float64 (images, 6),
// contiguous (ir/ops/warp.cc says what is computed).
struct AffineWarpSpec {
  WarpShape shape;
  bool transposed = false;
  const std::byte* x = nullptr;
  const std::byte* transforms = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, transposed, x, transforms, out);
};

// --- lookups, random numbers, updates ------------------------------------------------------------

// out (num_ids, row_elements) = rows of table (rows, row_elements) at clamp(id, 0, global_rows -
// 1); zeros where that row is in another shard.
struct GatherRowsSpec {
  LookupShape shape;
  const std::byte* table = nullptr;
  const std::byte* ids = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, table, ids, out);
};

// out (rows, row_elements) = zeros plus updates (num_ids, row_elements) at their ids, in order; ids
// that are not in the shard are dropped.
struct ScatterAddRowsSpec {
  LookupShape shape;
  const std::byte* updates = nullptr;
  const std::byte* ids = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, updates, ids, out);
};

// out (num_ids, rows): 1 at id - start where that is in the shard, else 0.
struct OneHotSpec {
  LookupShape shape;
  const std::byte* ids = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, ids, out);
};

// out: contiguous uint32.
struct RandomBitsSpec {
  RandomShard shard;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shard, out);
};

// out = x scaled by 1 / (1 - rate), or 0 with probability `rate`; both contiguous, out may be x.
struct DropoutSpec {
  RandomShard shard;
  DType dtype = DType::kFloat32;
  double rate = 0;
  const std::byte* x = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shard, dtype, rate, x, out);
};

// o and lse, or dq, dk and dv (formulas: ir/ops/attention.cc). Nothing of queries x keys is stored.
struct AttentionSpec {
  AttentionShape shape;
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  AttentionMasks masks;
  std::byte* o = nullptr;
  std::byte* lse = nullptr;  // float64 where q is, else float32
  MESHTRAIN_FIELDS(shape, q, k, v, masks, o, lse);
};

struct AttentionGradSpec {
  AttentionShape shape;
  const std::byte* q = nullptr;
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;
  const std::byte* o = nullptr;
  const std::byte* lse = nullptr;
  const std::byte* o_cotangent = nullptr;
  const std::byte* lse_cotangent = nullptr;  // may be absent
  AttentionMasks masks;
  std::byte* dq = nullptr;
  std::byte* dk = nullptr;
  std::byte* dv = nullptr;
  MESHTRAIN_FIELDS(shape, q, k, v, o, lse, o_cotangent, lse_cotangent, masks, dq, dk, dv);
};

struct RotarySpec {
  RotaryShape shape;
  const std::byte* x = nullptr;
  const std::byte* cosine = nullptr;
  const std::byte* sine = nullptr;
  std::byte* out = nullptr;
  MESHTRAIN_FIELDS(shape, x, cosine, sine, out);
};

// A recurrent cell over all steps, or its gradient (formulas: ir/ops/rnn.cc).
struct ScanRnnSpec {
  RnnShape shape;
  bool is_gradient = false;
  RnnArrays arrays;
  MESHTRAIN_FIELDS(shape, is_gradient, arrays);
};

// A contiguous range of a variable (formulas: ir/ops/optimizer.cc).
struct OptimizerSpec {
  OptimizerRule rule = OptimizerRule::kSgd;
  DType dtype = DType::kFloat32;
  int64_t num_elements = 0;
  OptimizerArgs args;                // pointers and fixed scalars
  const std::byte* rate = nullptr;   // scalars of `dtype`, read at every run
  const std::byte* decay = nullptr;  // may be absent
  MESHTRAIN_FIELDS(rule, dtype, num_elements, args.param, args.grad, args.new_param, args.slots,
                   args.new_slots, args.scalars, rate, decay);
};

// --- collectives ---------------------------------------------------------------------------------

// A box of a result: to[i...] = sources[0][i...] + sources[1][i...] + ... . All sources have the
// same strides; the last dimension of either side is adjacent.
struct Region {
  std::byte* to = nullptr;
  std::vector<const std::byte*> sources;
  Shape shape;
  std::vector<int64_t> to_strides, from_strides;  // in elements
  MESHTRAIN_FIELDS(to, sources, shape, to_strides, from_strides);
};

// Between the devices of one process: each region is copied from its shard, or combined from the
// shards with its terms, in this order. Regions must not overlap.
struct CombineSpec {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kFloat32;
  std::vector<Region> regions;
  MESHTRAIN_FIELDS(reduction, dtype, regions);
};

// Point-to-point messages between processes. All processes lower their exchanges in the same order;
// exchanges never overlap each other. At most one message to and one from each peer, with equal
// numbers of bytes on both sides.
struct ExchangeSpec {
  std::vector<Message> sends, receives;
  MESHTRAIN_FIELDS(sends, receives);
};

// In-place all-reduce over `ranks`, which includes this process and is the same list on each. The
// library decides the order of additions.
struct AllReduceSpec {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kFloat32;
  std::byte* data = nullptr;
  int64_t elements = 0;
  std::vector<int> ranks;

  int64_t bytes() const { return elements * static_cast<int64_t>(dtype_size(dtype)); }
  MESHTRAIN_FIELDS(reduction, dtype, data, elements, ranks);
};

// All-gather over `ranks`: `bytes` at `from` of the n-th rank are received at to + n * bytes.
// `from` is outside of the result, or in place. On GPUs only, like ReduceScatterSpec; MPI on CPUs
// uses exchanges.
struct AllGatherSpec {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;  // of one process
  std::vector<int> ranks;

  int64_t whole_bytes() const { return bytes * static_cast<int64_t>(ranks.size()); }
  MESHTRAIN_FIELDS(from, to, bytes, ranks);
};

// Reduce-scatter over `ranks`: `from` holds `elements` for each rank, in the order of the list.
// `to` receives the reduced elements of this process; it is outside of `from`, or in place.
struct ReduceScatterSpec {
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kFloat32;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t elements = 0;  // for one process
  std::vector<int> ranks;

  int64_t bytes() const { return elements * static_cast<int64_t>(dtype_size(dtype)); }
  int64_t whole_bytes() const { return bytes() * static_cast<int64_t>(ranks.size()); }
  MESHTRAIN_FIELDS(reduction, dtype, from, to, elements, ranks);
};

// --- all of them ---------------------------------------------------------------------------------

// clang-format off
#define MESHTRAIN_KERNEL_SPECS(X) \
  X(ScratchSpec) X(BeginGroup) X(EndGroup) X(BeginRowFusion) X(EndRowFusion) \
  X(TapeSpec) \
  X(CopySpec) \
  X(FillSpec) \
  X(IotaSpec) \
  X(ReduceSpec) \
  X(MatmulSpec) \
  X(CrossEntropySpec) \
  X(ArgmaxSpec) \
  X(CumsumSpec) \
  X(TopKSpec) \
  X(ConvSpec) \
  X(ConvDgradSpec) \
  X(ConvWgradSpec) \
  X(PoolSpec) \
  X(ChannelSumsSpec) \
  X(AffineWarpSpec) \
  X(GatherRowsSpec) \
  X(ScatterAddRowsSpec) \
  X(OneHotSpec) \
  X(RandomBitsSpec) \
  X(DropoutSpec) \
  X(AttentionSpec) \
  X(AttentionGradSpec) \
  X(RotarySpec) \
  X(ScanRnnSpec) \
  X(OptimizerSpec) \
  X(CombineSpec) \
  X(ExchangeSpec) \
  X(AllReduceSpec) \
  X(AllGatherSpec) \
  X(ReduceScatterSpec)
// clang-format on
#define MESHTRAIN_ALTERNATIVE(Spec) , Spec
using KernelSpec = std::variant<StepSpec MESHTRAIN_KERNEL_SPECS(MESHTRAIN_ALTERNATIVE)>;
#undef MESHTRAIN_ALTERNATIVE
using KernelSpecs = std::vector<KernelSpec>;

// Adds a ScratchSpec of so many bytes and returns its name.
std::byte* add_scratch(KernelSpecs& specs, int64_t bytes);
bool is_scratch_name(const void* address);

// Replaces the names of ScratchSpecs by memory, one step at a time.
class ScratchNames {
 public:
  void clear() { blocks_.clear(); }
  void add(const ScratchSpec& spec, std::byte* memory) { blocks_.push_back({spec, memory}); }
  void resolve(KernelSpec& spec) const;

 private:
  struct Block {
    ScratchSpec spec;
    std::byte* memory;
  };
  std::vector<Block> blocks_;
};

// Returns one line. `name_of` formats an address that is no scratch; by default as a number.
using AddressName = std::function<std::string(const std::byte*)>;
std::string to_string(const KernelSpec& spec, const AddressName& name_of = nullptr);

}  // namespace meshtrain
