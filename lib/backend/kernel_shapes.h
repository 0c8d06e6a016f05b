// Shapes that the specs of several kernels share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/kernel_fields.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

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
  MESHTRAIN_FIELDS(dtype, input, output, cells, strides, dilations, pads, channels, filters,
                   groups);
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
  MESHTRAIN_FIELDS(dtype, input, output, cells, strides, dilations, pads, channels);
};

// Operands and results are contiguous; x is seen as (outer, size, inner).
struct ScanShape {
  int64_t outer = 1, size = 1, inner = 1;
  DType dtype = DType::kFloat32;
  MESHTRAIN_FIELDS(outer, size, inner, dtype);
};

// ids: `num_ids` int32. The shard holds rows [start, start + rows) of `global_rows`
// (ir/ops/gather.cc says what a shard computes).
struct LookupShape {
  int64_t num_ids = 0;
  int64_t rows = 0, row_elements = 1;
  int64_t start = 0, global_rows = 0;
  DType dtype = DType::kFloat32;
  MESHTRAIN_FIELDS(num_ids, rows, row_elements, start, global_rows, dtype);
};

// A shard of a random tensor: element (i, j, ...) has the global index
// first + i * index_strides[0] + j * index_strides[1] + ...; a stride of 0 shares numbers.
struct RandomShard {
  Shape shape;
  uint64_t first = 0;
  std::vector<int64_t> index_strides;
  uint64_t seed = 0;
  uint32_t stream = 0;
  const std::byte* step = nullptr;  // int64, read at every run
  MESHTRAIN_FIELDS(shape, first, index_strides, seed, stream, step);
};

enum class WarpFill : uint8_t { kConstant, kNearest, kWrap, kReflect, kMirror };
WarpFill warp_fill(std::string_view name);

// Contiguous (images, height, width, channels) of floats.
struct WarpShape {
  int64_t images = 0, height = 0, width = 0, channels = 0;
  DType dtype = DType::kFloat32;
  bool nearest = false;  // else bilinear
  WarpFill fill = WarpFill::kConstant;
  double fill_value = 0;
  int64_t terms =
      6;  // of a transform: 6 affine, 8 projective; 0: a column and a row for each pixel
  int64_t numbers() const { return terms == 0 ? 2 * height * width : terms; }  // of an image
  MESHTRAIN_FIELDS(images, height, width, channels, dtype, nearest, fill, fill_value, terms);
};

// A shard of an attention (ir/ops/attention.cc): all arrays are contiguous.
struct AttentionShape {
  DType dtype = DType::kFloat32;
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, groups = 0, head_size = 0, value_size = 0;
  double scale = 1;
  bool causal = false;
  int64_t window = 0;
  bool mask_has_batch = false, mask_has_heads = false;  // else its dimension has size 1
  // Where the shard begins, and the sizes that the indices of dropout are made of.
  int64_t batch_start = 0, head_start = 0, query_start = 0;
  int64_t global_heads = 0, global_queries = 0;
  double rate = 0;
  uint64_t seed = 0;
  uint32_t stream = 0;

  int64_t readers() const { return heads / groups; }
  // Index of the pair of query 0 and key 0 of a head, among those of dropout.
  uint64_t first_index(int64_t b, int64_t h) const {
    return static_cast<uint64_t>(
        (((b + batch_start) * global_heads + h + head_start) * global_queries + query_start) *
        keys);
  }
  MESHTRAIN_FIELDS(dtype, batch, queries, keys, heads, groups, head_size, value_size, scale, causal,
                   window, mask_has_batch, mask_has_heads, batch_start, head_start, query_start,
                   global_heads, global_queries, rate, seed, stream);
};

// Operands that an attention may have; null: absent.
struct AttentionMasks {
  const std::byte* step = nullptr;  // int64, read at every run
  const std::byte* query_mask = nullptr;
  const std::byte* key_mask = nullptr;
  const std::byte* query_segments = nullptr;
  const std::byte* key_segments = nullptr;
  const std::byte* query_positions = nullptr;
  const std::byte* key_positions = nullptr;
  const std::byte* mask = nullptr;
  MESHTRAIN_FIELDS(step, query_mask, key_mask, query_segments, key_segments, query_positions,
                   key_positions, mask);
};

// Contiguous (batch, steps, heads, size); angles (batch or 1, steps, size / 2).
struct RotaryShape {
  DType dtype = DType::kFloat32;
  int64_t batch = 0, steps = 0, heads = 0, size = 0;
  bool has_batch = false;  // of the angles
  bool inverse = false;
  MESHTRAIN_FIELDS(dtype, batch, steps, heads, size, has_batch, inverse);
};

// Rows of logits, `row` elements apart, each with the classes [start, start + classes) of
// global_classes.
struct CrossEntropyShape {
  DType dtype = DType::kFloat32;
  int64_t tokens = 0, classes = 0, row = 0;
  int64_t start = 0, global_classes = 0;

  // Of the results.
  DType loss_dtype() const { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }
  MESHTRAIN_FIELDS(dtype, tokens, classes, row, start, global_classes);
};

// A recurrent cell over time (ir/ops/rnn.cc). Activations: of the new content, and of the gates.
// Cells with pixels have a recurrent kernel (window..., units, columns), else (units, columns).
enum class RnnCell : uint8_t { kSimple, kLstm, kGru, kGruResetAfter };
enum class RnnActivation : uint8_t {
  kTanh,
  kSigmoid,
  kRelu,
  kLinear,
  kHardSigmoid,
  kRelu6,
  kSoftplus,
  kSoftsign,
  kElu,
  kSelu,
  kLeakyRelu,
  kExponential,
  kHardTanh,
};

struct RnnShape {
  DType dtype = DType::kFloat32;
  RnnCell cell = RnnCell::kSimple;
  RnnActivation activation = RnnActivation::kTanh, recurrent = RnnActivation::kSigmoid;
  int64_t batch = 0, steps = 0, units = 0;
  std::array<int64_t, 3> space{1, 1, 1}, window{1, 1, 1};

  int64_t columns() const {
    return units * (cell == RnnCell::kSimple ? 1 : cell == RnnCell::kLstm ? 4 : 3);
  }
  int64_t gate_columns() const {  // of what a step keeps for the gradient
    return cell == RnnCell::kGruResetAfter ? 4 * units : columns();
  }
  int64_t pixels() const { return space[0] * space[1] * space[2]; }
  int64_t kernel_elements() const { return window[0] * window[1] * window[2] * units * columns(); }
  // Of all batch items and pixels: a state, at one step.
  int64_t state_elements() const { return batch * pixels() * units; }
  MESHTRAIN_FIELDS(dtype, cell, activation, recurrent, batch, steps, units, space, window);
};

// Arrays of a recurrent cell; null: the cell has none, or the pass does not use it.
struct RnnArrays {
  const std::byte *x = nullptr, *kernel = nullptr, *h0 = nullptr, *c0 = nullptr, *bias = nullptr;
  const std::byte *mask = nullptr, *drop = nullptr;
  std::byte *h = nullptr, *c = nullptr, *gates = nullptr;  // results; operands of the gradient
  const std::byte *dh = nullptr, *dc = nullptr;
  std::byte *dx = nullptr, *dh0 = nullptr, *dc0 = nullptr, *extra = nullptr;
  MESHTRAIN_FIELDS(x, kernel, h0, c0, bias, mask, drop, h, c, gates, dh, dc, dx, dh0, dc0, extra);
};

}  // namespace meshtrain
