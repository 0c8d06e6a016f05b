// A model of sequences as the program of its next steps: what generates a text a token at a time.
//
// The graph that predicts from (B, T) ids becomes one for (B, C) ids at positions p .. p + C - 1,
// with the earlier steps in variables: keys and values of attention, states of recurrent cells,
// what windows of convolutions begin with. The sharding rules say what a dimension of steps
// becomes: an op for which it is a pass factor treats each step by itself. What such an op reads
// beside it from a table of T rows, as an embedding of positions, is cut to its C rows. Attention
// and convolutions must be causal; any other op that joins steps is an obstacle.
#pragma once

#include <span>
#include <string>

#include "ir/graph.h"

namespace meshtrain {

// Inputs of the new graph beside that of ids: the position of the first step, an int32 scalar, and
// where rows are reordered, the row (B,) whose earlier steps each row continues.
inline constexpr const char* kPositionInput = "position";
inline constexpr const char* kRowsInput = "rows";

struct IncrementalGraph {
  Graph graph;           // its caches are variables behind those of the whole graph
  std::string obstacle;  // why there is none: "`lstm/reverse` (reverse) joins steps"; else ""
  // False for a model that knows no positions: its sequences have no greatest length.
  bool is_bounded = false;
};

// What an input (B, T) of int32 is: the tokens, their positions from 0 on, or the number of the
// document, which is 1, as a mask of padding is.
enum class SequenceInput { kIds, kPositions, kSegments };

// `whole`: outputs of a model without gradients, T > 1; `inputs` are those of its inputs in order,
// kIds once. Returns a graph of `steps` steps a run, with the outputs (B, steps, ...). Equal whole
// graphs give equal variables for any number of steps. Caches are zeros at the start of a sequence,
// and dimension 0 of `batch_layout` splits them.
IncrementalGraph make_incremental(const Graph& whole, std::span<const SequenceInput> inputs,
                                  int64_t steps, bool reorders_rows, const Sharding& batch_layout);

}  // namespace meshtrain
