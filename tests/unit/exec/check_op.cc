#include "check_op.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "one_step.h"
#include "support/instrumented.h"
#include "support/interpreter.h"
#include "support/splitmix.h"

namespace meshtrain::testing {
namespace {

HostTensor make_values(const Operand& operand, uint64_t seed) {
  HostTensor x(operand.dtype, operand.shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint64_t index = static_cast<uint64_t>(i);
    const double number = test::splitmix_signed(seed, index, 2.0F);
    switch (operand.values) {
      case Values::kSigned:
        x.set(i, number);
        break;
      case Values::kPositive:
        x.set(i, std::abs(number) + 0.1);
        break;
      case Values::kLarge:
        x.set(i, std::abs(number) + 4.1);
        break;
      case Values::kSmallIds:
        x.set(i, static_cast<double>(test::splitmix_below(seed, index, 12)) - 2);
        break;
      case Values::kBool:
        x.set(i, number > 0);
        break;
      case Values::kStep:
        x.set(i, 5);
        break;
      case Values::kSmallIntegers:
        x.set(i, static_cast<double>(test::splitmix_below(seed, index, 5)));
        break;
    }
  }
  return x;
}

struct Global {
  Graph graph;
  std::vector<HostTensor> operands;
  std::vector<HostTensor> results;
};

Global run_global(const Case& c) {
  Global out;
  Builder b(out.graph);
  std::vector<ValueId> inputs;
  std::map<std::string, const HostTensor*> values;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    out.operands.push_back(make_values(c.operands[i], 17 * i + 3));
    inputs.push_back(b.input(std::to_string(i), c.operands[i].shape, c.operands[i].dtype, false));
  }
  for (size_t i = 0; i < c.operands.size(); ++i)
    values[std::to_string(i)] = &out.operands[i];
  b.add_node(c.op, inputs, c.attrs);
  Interpretation run = interpret(out.graph, values, {});
  for (ValueId v : out.graph.nodes.back().outputs)
    out.results.push_back(std::move(run.values[v]));
  return out;
}

// Made once for each number of workers: their threads take longer to start than most cases to
// compute.
std::shared_ptr<WorkerPool> pool_of(int workers) {
  static std::map<int, std::shared_ptr<WorkerPool>> pools;
  std::shared_ptr<WorkerPool>& pool = pools[workers];
  if (!pool)
    pool = make_worker_pool(workers);
  return pool;
}

std::vector<HostTensor> run_split(const Case& c, const Global& global, const StepShardings& lay,
                                  const DeviceMesh& mesh, int workers) {
  const Node& node = global.graph.nodes.back();
  ProgramBuilder builder(mesh);
  std::vector<int> inputs, outputs;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    inputs.push_back(builder.input(c.operands[i].shape, c.operands[i].dtype, lay.operands[i]));
  }
  for (size_t r = 0; r < node.outputs.size(); ++r) {
    const Value& value = global.graph.values[node.outputs[r]];
    outputs.push_back(builder.buffer(value.shape, value.dtype, lay.results[r]));
  }
  builder.step(c.op, inputs, outputs, node.attrs);
  for (int b : outputs)
    builder.output(b);
  VariableStore store(mesh, {});
  Executor executor(builder.take(), pool_of(workers), store);
  for (size_t i = 0; i < c.operands.size(); ++i) {
    executor.set_input(static_cast<int>(i), global.operands[i].bytes(),
                       global.operands[i].num_bytes());
  }
  executor.run();
  executor.run();  // a second run finds nothing left over from the first
  std::vector<HostTensor> results;
  for (size_t r = 0; r < outputs.size(); ++r)
    results.push_back(executor.output(static_cast<int>(r)));
  return results;
}

double largest(const HostTensor& x) {
  double out = 1;
  for (int64_t i = 0; i < x.size(); ++i) {
    if (std::isfinite(x.at(i)))
      out = std::max(out, std::abs(x.at(i)));
  }
  return out;
}

void check_close(const HostTensor& got, const HostTensor& want, double tolerance,
                 const std::string& what) {
  REQUIRE(got.shape() == want.shape());
  REQUIRE(got.dtype() == want.dtype());
  const double limit = is_floating(want.dtype()) ? tolerance * largest(want) : 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const bool both_nan = std::isnan(got.at(i)) && std::isnan(want.at(i));
    if (both_nan || got.at(i) == want.at(i))
      continue;
    if (!(std::abs(got.at(i) - want.at(i)) <= limit)) {
      FAIL_CHECK(what << ": element " << i << " is " << got.at(i) << ", not " << want.at(i));
      return;
    }
  }
}

// 16 bits are computed with in float32 and rounded once, as the interpreter rounds its doubles: one
// unit in the last place where a float32 lies near the middle of two. Shards of a partial sum are
// rounded each.
double tolerance_of(const Case& c, const Sharding& result) {
  const auto found = std::find_if(c.operands.begin(), c.operands.end(), [](const Operand& operand) {
    return is_floating(operand.dtype);
  });
  const DType dtype = found == c.operands.end() ? DType::kFloat32 : found->dtype;
  const double terms = result.partial == 0 ? 1 : 2;
  switch (dtype) {
    case DType::kFloat64:
      return 1e-12;
    case DType::kBFloat16:
      return 0x1p-7 * terms;
    case DType::kFloat16:
      return 0x1p-10 * terms;
    default:
      return c.tolerance;
  }
}

void check_case(const Case& c, const DeviceMesh& mesh) {
  const Global global = run_global(c);
  const Node& node = global.graph.nodes.back();
  const ShardingRule rule = sharding_rule(global.graph, node);
  const std::vector<FactorAxes> ways = ways_to_split(rule, mesh);
  for (size_t way = 0; way < ways.size(); ++way) {
    const StepShardings lay = shardings_of(rule, ways[way]);
    std::string what = c.op;
    for (const Sharding& s : lay.operands)
      what += " " + sharding_string(s, mesh);
    const std::vector<HostTensor> one = run_split(c, global, lay, mesh, 1);
    for (size_t r = 0; r < one.size(); ++r) {
      check_close(one[r], global.results[r], tolerance_of(c, lay.results[r]), what);
    }
    // What two workers share out is part of what three do; whether it is the same is left to the
    // release build.
    const std::vector<int> several = test::kIsInstrumented ? std::vector{3} : std::vector{2, 3};
    for (int workers : several) {
      const std::vector<HostTensor> more = run_split(c, global, lay, mesh, workers);
      for (size_t r = 0; r < one.size(); ++r) {
        CHECK_MESSAGE(std::memcmp(one[r].bytes(), more[r].bytes(), one[r].num_bytes()) == 0,
                      what << " with " << workers << " workers");
      }
    }
  }
}

}  // namespace

void check_everywhere(const Case& c) {
  const DeviceMesh line({8}, {"data"});
  const DeviceMesh grid({2, 4}, {"data", "model"});
  check_case(c, line);
  check_case(c, grid);
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    // The code of both 16-bit types is one; what differs is left to the release build.
    if (test::kIsInstrumented && dtype == DType::kFloat16)
      continue;
    Case other = c;
    bool has_float = false;
    for (Operand& operand : other.operands) {
      has_float = has_float || operand.dtype == DType::kFloat32;
      const bool changes =
          operand.dtype == DType::kFloat32 && (!operand.is_float32 || dtype == DType::kFloat64);
      operand.dtype = changes ? dtype : operand.dtype;
    }
    if (has_float)
      check_case(other, grid);
  }
}

}  // namespace meshtrain::testing
