// Recurrent layers as parts of a program: what they communicate, and that time is one op.
#include <doctest/doctest.h>

#include <map>

#include "engine/setup.h"
#include "support/engine_case.h"

using namespace meshtrain;
using namespace meshtrain::test;

namespace {

using CollectiveCounts = std::map<std::string, int>;

struct RecurrentCase {
  std::string layer, mesh = "[2, 2]", rules = "";
  std::string step = "6";  // its shape
};

Compiled recurrent_step(int64_t steps, const RecurrentCase& c) {
  const std::string yaml = fmt::format(R"(
model:
  layers:
    - Input: {{shape: [{}, {}]}}
    - {}
    - Dense: {{name: out, units: 2}}
compile: {{optimizer: sgd, loss: mse}}
distribution: {{device_mesh: {{shape: {}, axis_names: [data, model]}}{}}}
)",
                                       steps, c.step, c.layer, c.mesh, c.rules);
  const Config config = config_from(yaml);
  const Setup setup(config, nullptr);
  return setup.compile(StepKind::kTrain, 8, /*bucket=*/false);
}

// Of the step over 5 time steps, by phase, op and axes.
CollectiveCounts counts_of(const RecurrentCase& c) {
  CollectiveCounts out;
  for (const Node& node : recurrent_step(5, c).graph.nodes) {
    if (node.op->collective && node.op->name != "shard_slice") {
      std::string axes;
      for (const int64_t axis : node.attr_ints("axes"))
        axes += axis == 0 ? " data" : " model";
      ++out[fmt::format("{} {}{}", phase_name(node.phase), node.op->name, axes)];
    }
  }
  return out;
}

const char* const kLstmLayer = "LSTM: {name: r, units: 4}";
const char* const kMasked = "Masking: {}\n    - Bidirectional: {name: r, layer: {GRU: {units: 4}}}";
const char* const kSimpleLayer = "SimpleRNN: {name: r, units: 4}";
const char* const kGruLayer = "GRU: {name: r, units: 4}";
const char* const kDropped = "LSTM: {name: r, units: 4, recurrent_dropout: 0.5}";
const char* const kStack = "RNN: {name: r, cell: [{LSTMCell: 4}, {LSTMCell: 4}]}";
const char* const kImages = "ConvLSTM2D: {name: r, filters: 4, kernel_size: 3}";
const char* const kTwoDirections = "Bidirectional: {name: r, layer: {GRU: {units: 4}}}";

}  // namespace

TEST_CASE("a recurrent layer on a mesh: collectives by what is split") {
  const std::string by_units = ", layout_map: {\"r/.*kernel\": [null, model]}";
  // One sum for each weight of the layer and of the Dense, and that of the loss.
  const CollectiveCounts batch = {{"backward all_reduce data", 5}, {"forward all_reduce data", 1}};
  CHECK(counts_of({kLstmLayer, "[2, 1]"}) == batch);
  CHECK(counts_of({kLstmLayer, "[2, 2]"}) == batch);
  // Columns of the kernels are split: the product of all steps and the recurrent kernel are
  // gathered once before the steps, whatever their number; backward the bias' gradient, which stays
  // whole.
  const CollectiveCounts units = {{"backward all_gather model", 1},
                                  {"forward all_gather model", 2}};
  CHECK(counts_of({kLstmLayer, "[1, 2]", by_units}) == units);
  CollectiveCounts both = batch;
  both.insert(units.begin(), units.end());
  CHECK(counts_of({kLstmLayer, "[2, 2]", by_units}) == both);
  CHECK(counts_of({kSimpleLayer, "[2, 1]"}) == batch);
  CHECK(counts_of({kSimpleLayer, "[1, 2]", by_units}) == units);
  CHECK(counts_of({kSimpleLayer, "[2, 2]", by_units}) == both);
  // A GRU's two biases are summed each, and gathered each.
  CHECK(counts_of({kGruLayer, "[2, 1]"}) ==
        CollectiveCounts{{"backward all_reduce data", 6}, {"forward all_reduce data", 1}});
  CHECK(counts_of({kGruLayer, "[1, 2]", by_units}) ==
        CollectiveCounts{{"backward all_gather model", 2}, {"forward all_gather model", 3}});
  // Each cell of a stack for itself. What the second hands back to the first is a sum over the
  // columns of its kernel.
  CHECK(counts_of({kStack, "[2, 1]"}) ==
        CollectiveCounts{{"backward all_reduce data", 8}, {"forward all_reduce data", 1}});
  CHECK(counts_of({kStack, "[1, 2]", by_units}) ==
        CollectiveCounts{{"backward all_gather model", 2},
                         {"backward all_reduce model", 1},
                         {"forward all_gather model", 4}});
  // Masks of dropped states are drawn where their rows are. The recurrent kernel's gradient is a
  // product for each of the four gates, of gathered cotangents, and each is summed.
  CHECK(counts_of({kDropped, "[2, 2]", by_units}) ==
        CollectiveCounts{{"backward all_gather model", 2},
                         {"backward all_reduce data", 8},
                         {"forward all_gather model", 2},
                         {"forward all_reduce data", 1}});
  // Each direction for itself. A GRU has a second bias, which its steps need and whose row of the
  // gradient is gathered, too.
  CHECK(counts_of({kTwoDirections, "[2, 2]", by_units}) ==
        CollectiveCounts{{"backward all_gather model", 4},
                         {"backward all_reduce data", 10},
                         {"forward all_gather model", 6},
                         {"forward all_reduce data", 1}});
  // Images as features: the convolutions of all steps, and one gathered kernel before the steps.
  const std::string by_filters = ", layout_map: {\"r/.*kernel\": [null, null, null, model]}";
  CHECK(counts_of({kImages, "[2, 1]", "", "5, 4, 6"}) == batch);
  CHECK(counts_of({kImages, "[1, 2]", by_filters, "5, 4, 6"}) == units);
  // A mask of steps is where its rows are.
  CHECK(counts_of({kMasked, "[2, 2]", by_units}) ==
        counts_of({kTwoDirections, "[2, 2]", by_units}));
}

TEST_CASE("ten thousand steps are the program of ten") {
  for (const char* layer : {kLstmLayer, kStack, kTwoDirections,
                            "SimpleRNN: {name: r, units: 4, return_sequences: true}"}) {
    CAPTURE(layer);
    const Compiled few = recurrent_step(10, {layer}), many = recurrent_step(10000, {layer});
    CHECK(few.graph.nodes.size() == many.graph.nodes.size());
    CHECK(few.program.steps.size() == many.program.steps.size());
  }
  const RecurrentCase images = {kImages, "[2, 2]", "", "5, 4, 6"};
  CHECK(recurrent_step(10, images).program.steps.size() ==
        recurrent_step(1000, images).program.steps.size());
}
