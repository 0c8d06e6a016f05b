// A convolution and its transpose in x as one thing: every result pixel is a sum over cells of
// source pixels times a packed kernel. The transpose of a convolution with strides falls into
// phases, one per remainder of the pixel's index, each of which has its own cells.
#pragma once

#include "backend/cpu/conv.h"
#include "backend/cpu/conv_region.h"

namespace meshtrain::cpu {

// Along one dimension, result t of a phase is at first + t * result_step, and cell `index` of it
// meets the source at t * source_step + offset.
struct ConvPhase {
  struct Cell {
    int64_t index, offset;
  };
  int64_t first = 0, count = 0;
  std::vector<Cell> cells;  // by offset
};
struct ConvDimension {
  int64_t result_step = 1, source_step = 1;
  std::vector<ConvPhase> phases;
  int64_t low = 0, high = 0;  // smallest and largest offset

  int64_t count() const;  // of the phase with the most results
  // Source indices from the first to the last that `count` results read.
  int64_t source_size(int64_t count) const { return (count - 1) * source_step + high - low + 1; }
};

// One phase per dimension together.
struct ConvPass {
  Index3 first, count;
  int64_t num_cells = 1;
  int64_t length = 0;               // terms of a run
  std::vector<int64_t> offsets;     // of each run in the source box, in elements
  std::vector<int64_t> pack_lines;  // of each run: its first line in the packed kernel
  int64_t pack_begin = 0;           // elements from the beginning of the packed kernel
  std::vector<int64_t> cells;       // of the kernel, row-major, in the order of the lines
};

struct ConvPlan {
  ConvShape shape;
  bool transposed = false;
  bool depthwise = false;
  std::array<ConvDimension, 3> dims;
  std::vector<ConvPass> passes;
  int64_t lanes = 1, panel = 1;  // of the loops, in elements
  int64_t source_channels = 1;   // of a group; of all of them where depthwise
  int64_t result_channels = 1;   // the same
  int64_t groups = 1;            // 1 where depthwise
  int64_t packed_columns = 1;    // result_channels in whole vectors
  int64_t packed_elements = 0;   // of one kernel
  Index3 result_image{1, 1, 1};
  // Results are computed in boxes: `chunk` of them along `chunk_dim`, all along the others.
  size_t chunk_dim = 2;
  int64_t chunk = 1, num_chunks = 1;
  Index3 largest{1, 1, 1};  // box of the source
  BoxReader reader;

  ConvPlan(const ConvShape& shape, bool transposed, int64_t num_images);
  int64_t lines(const ConvPass& pass) const {
    return pass.num_cells * (depthwise ? 1 : source_channels);
  }

 private:
  void choose_channels();
  void choose_chunks(int64_t num_images);
  void choose_reader();
  void add_passes();
  void add_runs(ConvPass& pass, const std::array<const ConvPhase*, 3>& phases);
};

}  // namespace meshtrain::cpu
