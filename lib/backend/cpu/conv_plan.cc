#include "backend/cpu/conv_plan.h"

#include <algorithm>

#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kBoxBytes = 256 * 1024;  // of a source box: half of a second-level cache at most
constexpr int64_t kUnits = 16;             // wanted, so that several workers have work
constexpr int64_t kMinResults = 64;        // of a box, rather than more boxes

ConvDimension forward_dimension(const ConvShape& s, size_t d) {
  ConvDimension dim;
  dim.source_step = s.strides[d];
  ConvPhase phase{0, s.output[d], {}};
  for (int64_t j = 0; j < s.cells[d]; ++j)
    phase.cells.push_back({j, j * s.dilations[d] - s.pads[d]});
  dim.phases.push_back(std::move(phase));
  return dim;
}

// x[i] gets y[o] of the cells j with o * stride + j * dilation - pad = i.
ConvDimension transposed_dimension(const ConvShape& s, size_t d) {
  ConvDimension dim;
  const int64_t stride = s.strides[d];
  dim.result_step = stride;
  for (int64_t first = 0; first < std::min(stride, s.input[d]); ++first) {
    ConvPhase phase{first, ceil_div(s.input[d] - first, stride), {}};
    for (int64_t j = s.cells[d]; j-- > 0;) {
      const int64_t distance = first + s.pads[d] - j * s.dilations[d];
      if (distance % stride == 0)
        phase.cells.push_back({j, distance / stride});
    }
    dim.phases.push_back(std::move(phase));
  }
  return dim;
}

void find_offsets(ConvDimension& dim) {
  bool any = false;
  for (const ConvPhase& phase : dim.phases) {
    for (const ConvPhase::Cell& cell : phase.cells) {
      dim.low = any ? std::min(dim.low, cell.offset) : cell.offset;
      dim.high = any ? std::max(dim.high, cell.offset) : cell.offset;
      any = true;
    }
  }
}

bool are_adjacent(const std::vector<ConvPhase::Cell>& cells) {
  for (size_t i = 1; i < cells.size(); ++i) {
    if (cells[i].offset != cells[i - 1].offset + 1)
      return false;
  }
  return true;
}

}  // namespace

int64_t ConvDimension::count() const {
  int64_t most = 0;
  for (const ConvPhase& phase : phases)
    most = std::max(most, phase.count);
  return most;
}

ConvPlan::ConvPlan(const ConvShape& conv, bool is_transposed, int64_t num_images)
    : shape(flattened(conv)), transposed(is_transposed) {
  for (size_t d = 0; d < 3; ++d) {
    dims[d] = transposed ? transposed_dimension(shape, d) : forward_dimension(shape, d);
    find_offsets(dims[d]);
  }
  result_image = transposed ? shape.input : shape.output;
  choose_channels();
  choose_chunks(num_images);
  choose_reader();
  add_passes();
}

void ConvPlan::choose_channels() {
  const TypeIndex type = type_index(shape.dtype);
  lanes = kernels().panel_lanes[type];
  panel = kernels().panel_columns[type];
  // The gradient by x of several filters a channel sums over them: an ordinary convolution.
  depthwise = shape.is_depthwise() && (!transposed || shape.filters == shape.channels);
  groups = depthwise ? 1 : shape.groups;
  source_channels = (transposed ? shape.filters : shape.channels) / groups;
  result_channels = (transposed ? shape.channels : shape.filters) / groups;
  packed_columns = round_up(result_channels, lanes);
}

void ConvPlan::choose_chunks(int64_t num_images) {
  Index3 all{};
  for (size_t d = 0; d < 3; ++d)
    all[d] = dims[d].count();
  chunk_dim = all[0] > 1 ? 0 : all[1] > 1 ? 1 : 2;
  const int64_t size = all[chunk_dim];
  const int64_t others =
      std::max<int64_t>(all[0] * all[1] * all[2] / std::max<int64_t>(size, 1), 1);
  int64_t bytes = source_channels * groups * shape.item_size();
  for (size_t d = 0; d < 3; ++d)
    bytes *= dims[d].source_size(all[d]);
  const int64_t for_workers = std::min(ceil_div(kUnits, std::max<int64_t>(num_images, 1)),
                                       std::max<int64_t>(size * others / kMinResults, 1));
  num_chunks = std::clamp<int64_t>(std::max(ceil_div(bytes, kBoxBytes), for_workers), 1, size);
  chunk = ceil_div(size, num_chunks);
  num_chunks = ceil_div(size, chunk);
  for (size_t d = 0; d < 3; ++d)
    largest[d] = dims[d].source_size(d == chunk_dim ? chunk : all[d]);
}

void ConvPlan::choose_reader() {
  reader.image = transposed ? shape.output : shape.input;
  reader.channels = transposed ? shape.filters : shape.channels;
  reader.item_size = shape.item_size();
  reader.repeat = depthwise && !transposed ? shape.filters / shape.channels : 1;
  reader.pitch = depthwise ? packed_columns : reader.channels;
  reader.in_place = reader.repeat == 1 && reader.pitch == reader.channels;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t last = (dims[d].count() - 1) * dims[d].source_step + dims[d].high;
    reader.in_place = reader.in_place && dims[d].low >= 0 && last < reader.image[d];
  }
}

void ConvPlan::add_passes() {
  for (const ConvPhase& z : dims[0].phases) {
    for (const ConvPhase& y : dims[1].phases) {
      for (const ConvPhase& x : dims[2].phases) {
        ConvPass pass;
        pass.first = {z.first, y.first, x.first};
        pass.count = {z.count, y.count, x.count};
        pass.num_cells = static_cast<int64_t>(z.cells.size() * y.cells.size() * x.cells.size());
        pass.pack_begin = packed_elements;
        add_runs(pass, {&z, &y, &x});
        packed_elements += groups * lines(pass) * packed_columns;
        passes.push_back(std::move(pass));
      }
    }
  }
}

void ConvPlan::add_runs(ConvPass& pass, const std::array<const ConvPhase*, 3>& phases) {
  const Index3 steps = reader.steps(largest);
  const auto& x_cells = phases[2]->cells;
  const int64_t terms = depthwise ? 1 : source_channels;  // of a cell
  // The cells of a row are one run where their pixels are, with nothing between.
  const bool joined = !depthwise && groups == 1 && are_adjacent(x_cells);
  pass.length = joined ? terms * static_cast<int64_t>(x_cells.size()) : terms;
  for (const ConvPhase::Cell& z : phases[0]->cells) {
    for (const ConvPhase::Cell& y : phases[1]->cells) {
      for (size_t i = 0; i < x_cells.size(); ++i) {
        if (i == 0 || !joined) {
          pass.offsets.push_back((z.offset - dims[0].low) * steps[0] +
                                 (y.offset - dims[1].low) * steps[1] +
                                 (x_cells[i].offset - dims[2].low) * steps[2]);
          pass.pack_lines.push_back(static_cast<int64_t>(pass.cells.size()) * terms);
        }
        pass.cells.push_back((z.index * shape.cells[1] + y.index) * shape.cells[2] +
                             x_cells[i].index);
      }
    }
  }
}

}  // namespace meshtrain::cpu
