// A Program of one op, laid out by hand, so that the executor can be tested without the passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace meshtrain::testing {

// Buffers one after the other, steps as they are added; inputs "0", "1", ... and outputs the same.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(DeviceMesh mesh) { program_.part = std::move(mesh); }

  int buffer(const Shape& global, DType dtype, const Sharding& sharding);
  int input(const Shape& global, DType dtype, const Sharding& sharding);
  void step(std::string_view op, std::vector<int> inputs, std::vector<int> outputs,
            Attrs attrs = {});
  // The value of a buffer as the host sees it: a collective reduces partial values.
  void output(int buffer);
  Program take();
  Program& program() { return program_; }

 private:
  Program program_;
};

// Axes that a factor of an op's rule is split over.
using FactorAxes = std::vector<AxisList>;  // by factor

// Shardings of operands and results when the factors are split so.
struct StepShardings {
  std::vector<Sharding> operands, results;
};
StepShardings shardings_of(const ShardingRule& rule, const FactorAxes& axes);

// Every way to split one factor over each subset of the mesh axes, and two factors over one axis
// each, that divides the shapes. The first is "nothing split".
std::vector<FactorAxes> ways_to_split(const ShardingRule& rule, const DeviceMesh& mesh);

}  // namespace meshtrain::testing
