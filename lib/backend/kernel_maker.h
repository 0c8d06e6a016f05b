// KernelMaker: what a backend can compute. exec turns every step of a Program into calls of it, so
// that shapes, pieces and strides are decided once for all backends.
//
// Pointers are addresses in the backend's memory and are not followed when kernels are made.
// Kernels run in the order in which they are made; those of a group do not depend on each other.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "backend/message.h"
#include "backend/rules.h"
#include "backend/view.h"

namespace meshtrain {

// One instruction of a tape. Arguments: i < number of operands: operand i; otherwise the result of
// instruction i - number of operands.
struct TapeInstruction {
  std::string_view op;  // name of an elementwise op (tape_ops), "cast", "constant", or "copy"
  std::vector<int> args;
  DType dtype = DType::kFloat32;  // of the result
  double low = 0, high = 0;       // of clamp; low is the value of a constant
};

struct TapeResult {
  int instruction = 0;
  View view;  // contiguous, of the tape's shape
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
  };
  std::vector<Batch> batches;
};

// x (input..., channels), kernel (cells..., channels / groups, filters), y (output..., filters):
// cell j of output i is x[i * stride + j * dilation - pad]. Missing spatial dimensions have size 1.
struct ConvShape {
  DType dtype = DType::kFloat32;
  std::array<int64_t, 3> input{1, 1, 1}, output{1, 1, 1}, cells{1, 1, 1};
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};
  int64_t channels = 1, filters = 1, groups = 1;

  int64_t item_size() const { return static_cast<int64_t>(dtype_size(dtype)); }
  int64_t input_bytes() const;  // of one image of x
  int64_t output_bytes() const;
  int64_t kernel_elements() const;
  bool is_depthwise() const { return groups == channels && groups > 1; }
};

// One image through one kernel. Images of several devices are jobs beside each other.
struct ConvJob {
  const std::byte* from = nullptr;
  const std::byte* kernel = nullptr;
  std::byte* to = nullptr;
};

// The gradient of one kernel, summed over these images of x and of y's gradient.
struct WgradJob {
  struct Images {
    const std::byte* x = nullptr;
    const std::byte* dy = nullptr;
  };
  std::vector<Images> images;
  std::byte* to = nullptr;
};

// x (input..., channels), y (output..., channels); cell j of output i is
// x[i * stride + j * dilation - pad]. Missing spatial dimensions have size 1.
struct PoolShape {
  DType dtype = DType::kFloat32;
  std::array<int64_t, 3> input{1, 1, 1}, output{1, 1, 1}, cells{1, 1, 1};
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, pads{0, 0, 0};
  int64_t channels = 1;

  int64_t input_bytes() const;  // of one image
  int64_t output_bytes() const;
};

// One image; those that the op does not have are null.
struct PoolJob {
  const std::byte* x = nullptr;   // kMax, kAverage, kMaxGrad
  const std::byte* dy = nullptr;  // the gradients
  std::byte* to = nullptr;        // y, or the gradient of x
};

// out (2, channels) float64: the sums of u and of u * v over all rows of all parts.
struct ChannelSumsJob {
  struct Part {
    const std::byte* u = nullptr;
    const std::byte* v = nullptr;  // may be u
  };
  std::vector<Part> parts;  // `rows` x `channels` each
  std::byte* out = nullptr;
};

// Operands and results are contiguous; x is seen as (outer, size, inner).
struct ScanShape {
  int64_t outer = 1, size = 1, inner = 1;
  DType dtype = DType::kFloat32;
};

// ids: `num_ids` int32. The piece holds rows [start, start + rows) of `global_rows`
// (ir/ops/gather.cc says what a piece computes).
struct LookupShape {
  int64_t num_ids = 0;
  int64_t rows = 0, row_elements = 1;
  int64_t start = 0, global_rows = 0;
  DType dtype = DType::kFloat32;
};

// A piece of a random tensor: element (i, j, ...) has the global index
// first + i * index_strides[0] + j * index_strides[1] + ...; a stride of 0 shares numbers.
struct RandomPiece {
  Shape shape;
  uint64_t first = 0;
  std::vector<int64_t> index_strides;
  uint64_t seed = 0;
  uint32_t stream = 0;
  const std::byte* step = nullptr;  // int64, read at every run
};

enum class WarpFill : uint8_t { kConstant, kNearest, kWrap, kReflect };
WarpFill warp_fill(std::string_view name);

// Contiguous (images, height, width, channels) of floats.
struct WarpShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  DType dtype = DType::kFloat32;
  bool nearest = false;  // else bilinear
  WarpFill fill = WarpFill::kConstant;
  double fill_value = 0;
};

// A contiguous range of a variable (formulas: ir/ops/optimizer.cc).
struct OptimizerSpec {
  OptimizerRule rule = OptimizerRule::kSgd;
  DType dtype = DType::kFloat32;
  int64_t num_elements = 0;
  OptimizerArgs args;                // pointers and fixed scalars
  const std::byte* rate = nullptr;   // scalars of `dtype`, read at every run
  const std::byte* decay = nullptr;  // may be absent
};

// A box of a result: to[i...] = sources[0][i...] + sources[1][i...] + ... . All sources have the
// same strides; the last dimension of either side is adjacent.
struct Region {
  std::byte* to = nullptr;
  std::vector<const std::byte*> sources;
  Shape shape;
  std::vector<int64_t> to_strides, from_strides;  // in elements
};

class KernelMaker {
 public:
  virtual ~KernelMaker() = default;

  // Memory for intermediate results, which holds until the next step begins.
  virtual void begin_step(std::string_view path) = 0;  // for messages
  virtual std::byte* scratch(int64_t bytes) = 0;
  // What is made in between does not depend on each other; one call makes one kernel there. Only
  // for: tape, copy, fill, iota, scans, lookups, random numbers, warps, optimizer, combine.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
  // Tapes, reductions, copies and one_hots in between may be computed together, a row of their
  // arrays at a time. Of their results only those at `read_later` need to be written; no result
  // lies over an operand that a later one of them reads.
  virtual void begin_rows() {}
  virtual void end_rows(const std::vector<const std::byte*>& /*read_later*/) {}

  // Operands have strides over the tape's shape (0 where they broadcast). A result may be exactly
  // one of the operands in memory, where that operand has the result's shape and size of elements.
  virtual void tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results) = 0;
  // to[i...] = from[i...], of one shape and dtype. The views must not overlap.
  virtual void copy(const View& from, const View& to) = 0;
  // Every element of `to`, which must be contiguous, becomes `value`.
  virtual void fill(const View& to, double value) = 0;
  // to[i...] = start + i[axis] for every element; `to` contiguous.
  virtual void iota(const View& to, size_t axis, int64_t start) = 0;

  // `out` is contiguous, of x's shape without the dimensions marked in `reduced` (or with size 1
  // there).
  virtual void reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
                      const View& out) = 0;
  virtual void matmul(const MatmulSpec& spec) = 0;

  // out (outer, inner) int32: index of the first of the largest; a NaN counts as the largest.
  virtual void argmax(const ScanShape& shape, const std::byte* x, std::byte* out) = 0;
  // out (outer, size, inner): inclusive running sum.
  virtual void cumsum(const ScanShape& shape, const std::byte* x, std::byte* out) = 0;
  // values and int32 indices (outer, k) of the k largest of each row, largest first, the first of
  // equals first; inner must be 1.
  virtual void top_k(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values,
                     std::byte* indices) = 0;

  // from: images of x, to: of y.
  virtual void conv(const ConvShape& shape, const std::vector<ConvJob>& jobs) = 0;
  // The transpose. from: images of y's gradient, to: of x's.
  virtual void conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs) = 0;
  // All jobs have the same number of images.
  virtual void conv_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs) = 0;
  virtual void channel_sums(DType dtype, int64_t rows, int64_t channels,
                            const std::vector<ChannelSumsJob>& jobs) = 0;
  virtual void pool(PoolOp op, const PoolShape& shape, const std::vector<PoolJob>& jobs) = 0;

  // out (num_ids, row_elements) = rows of table (rows, row_elements) at clamp(id, 0, global_rows -
  // 1); zeros where that row is in another piece.
  virtual void gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                           std::byte* out) = 0;
  // out (rows, row_elements) = zeros plus updates (num_ids, row_elements) at their ids, in order;
  // ids that are not in the piece are dropped.
  virtual void scatter_add_rows(const LookupShape& shape, const std::byte* updates,
                                const std::byte* ids, std::byte* out) = 0;
  // out (num_ids, rows): 1 at id - start where that is in the piece, else 0.
  virtual void one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out) = 0;

  // out: contiguous uint32.
  virtual void random_bits(const RandomPiece& piece, std::byte* out) = 0;
  // out = x scaled by 1 / (1 - rate), or 0 with probability `rate`; both contiguous, out may be x.
  virtual void dropout(const RandomPiece& piece, DType dtype, double rate, const std::byte* x,
                       std::byte* out) = 0;
  // transforms: float64 (images, 6), contiguous (ir/ops/warp.cc says what is computed).
  virtual void affine_warp(const WarpShape& shape, bool transposed, const std::byte* x,
                           const std::byte* transforms, std::byte* out) = 0;

  virtual void optimizer(const OptimizerSpec& spec) = 0;
  // Collectives between the devices of one process: each region is copied from the piece that holds
  // it, or combined from the pieces that hold its terms, in this order. Regions must not overlap.
  virtual void combine(Reduction reduction, DType dtype, const std::vector<Region>& regions) = 0;
  // Between processes, which all make theirs in the same order. At most one message to and one from
  // each peer; what one sends, the other receives with the same number of bytes.
  virtual void exchange(const std::vector<Message>& sends,
                        const std::vector<Message>& receives) = 0;
  // In place over these processes, this one among them, the same list on each; the order of
  // additions is the library's.
  virtual void all_reduce(Reduction reduction, DType dtype, std::byte* data, int64_t elements,
                          const std::vector<int>& ranks) = 0;
  // Whether there are the two below: on GPUs. MPI on processors has exchanges in their place.
  virtual bool has_gathers() const { return false; }
  // `bytes` of each of these processes to all of them: what the n-th of the list has at `from` will
  // be at to + n * bytes. `from` is outside of that, or the own place there.
  virtual void all_gather(const std::byte* from, std::byte* to, int64_t bytes,
                          const std::vector<int>& ranks);
  // `elements` for each of these processes are at `from`, in the order of the list: those for this
  // one, combined from all of them, will be at `to`, outside of `from` or in the own place there.
  virtual void reduce_scatter(Reduction reduction, DType dtype, const std::byte* from,
                              std::byte* to, int64_t elements, const std::vector<int>& ranks);
};

// Place in MESHTRAIN_ELEMENT_OPS; -1 where it is none of them.
int find_element_op(std::string_view name);
// Whether a tape can hold this op.
bool is_tape_op(std::string_view op);

// out[labels] = sum over the labels that it lacks of the product of the one or two operands, as
// copies, reductions and matrix products. Labels of the operands that `out` has must be of its
// sizes; every label of `out` is in an operand.
void make_einsum(const std::vector<LabelledView>& operands, const LabelledView& out,
                 KernelMaker& maker);

}  // namespace meshtrain
