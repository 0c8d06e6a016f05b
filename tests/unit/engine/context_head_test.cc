// Head and loss as one op under the preset `context`: the rule for the output of the table of
// tokens must not keep the logits of a tied head from being one with their loss.
#include <doctest/doctest.h>

#include "engine/setup.h"
#include "support/engine_case.h"
#include "support/language_models.h"

using namespace meshtrain;
using namespace meshtrain::test;

TEST_CASE("head loss: the preset context leaves no logits of a tied head") {
  for (const bool ties_head : {false, true}) {
    CAPTURE(ties_head);
    const Config config = config_from(
        yaml_of({.ties_head = ties_head}) +
        "distribution: {device_mesh: {shape: [2, 4], axis_names: [data, seq]}, layout_map: "
        "context}\n");
    const Setup setup(config, nullptr);
    const Graph graph = setup.compile(StepKind::kTrain, 8).graph;
    int64_t heads = 0, logits = 0;
    for (const Node& node : graph.nodes) {
      heads += node.op->name.starts_with("linear_cross_entropy") ? 1 : 0;
      for (const ValueId output : node.outputs) {
        logits += graph.shape(output) == Shape{8, kModelSteps, kModelIds} ? 1 : 0;
      }
    }
    CHECK(heads == 1);
    CHECK(logits == 0);
  }
}
