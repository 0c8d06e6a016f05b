// Sharding rules and linearity, proved by running ops on shards.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "op/op_case.h"
#include "op/rule_oracle.h"

namespace meshtrain {
namespace {

const DeviceMesh kMeshes[] = {DeviceMesh({2, 2}, {"a", "b"}), DeviceMesh({2, 3}, {"a", "b"}),
                              DeviceMesh({2, 2, 3}, {"a", "b", "c"})};

// The first problem of a rule on any mesh, and how many assignments were tried.
struct Verdict {
  std::optional<std::string> problem;
  int tried = 0;
};

Verdict judge(const Graph& graph, const ShardingRule& rule,
              const std::vector<HostTensor>& operands) {
  const Node& node = case_node(graph);
  const std::vector<HostTensor> expected = interpret_case(graph, operands);
  Verdict verdict;
  for (const DeviceMesh& mesh : kMeshes) {
    for (const FactorAxes& axes : assignments(rule, mesh)) {
      ++verdict.tried;
      verdict.problem = rule_problem(graph, node, rule, axes, mesh, operands, expected);
      if (verdict.problem) {
        return verdict;
      }
    }
  }
  return verdict;
}

TEST_CASE("Every op has a case or nothing to compute") {
  std::set<std::string_view> covered;
  for (const OpCase& op_case : all_cases()) {
    covered.insert(find_op(op_case.op).name);
  }
  for (const OpDef* op : all_ops()) {
    const bool computes =
        op->kind != OpKind::kInput && op->kind != OpKind::kParameter && !op->collective;
    CHECK_MESSAGE(covered.contains(op->name) == computes, op->name);
  }
}

TEST_CASE("Each kind and each move is that of one op") {
  std::set<OpKind> kinds;
  std::set<MoveKind> moves;
  for (const OpDef* op : all_ops()) {
    CHECK_MESSAGE((op->kind == OpKind::kOther || kinds.insert(op->kind).second), op->name);
    CHECK_MESSAGE((!op->move || moves.insert(*op->move).second), op->name);
    CHECK_MESSAGE(op->collective == (op->move || op->kind == OpKind::kReshard), op->name);
  }
  CHECK(kinds.size() == static_cast<size_t>(OpKind::kReshard));  // the last one
  CHECK(moves.size() == 6);
  for (const MoveKind move : moves) {
    CHECK(collective_op(move).move == move);
  }
}

TEST_CASE("The factors of every rule make up the dimensions of its tensors") {
  for (const OpCase& op_case : all_cases()) {
    const Graph graph = case_graph(op_case);
    const Node& node = case_node(graph);
    const auto problem = rule_form_problem(graph, node, sharding_rule(graph, node));
    CHECK_MESSAGE(!problem, op_case.name, ": ", problem.value_or(""));
  }
}

TEST_CASE("Shards put together as the rule says are the whole") {
  int tried = 0;
  for (const OpCase& op_case : all_cases()) {
    const Graph graph = case_graph(op_case);
    const ShardingRule rule = sharding_rule(graph, case_node(graph));
    const Verdict verdict = judge(graph, rule, operand_values(op_case));
    CHECK_MESSAGE(!verdict.problem, op_case.name, ": ", verdict.problem.value_or(""));
    tried += verdict.tried;
  }
  CHECK(tried > 2000);
}

// The oracle must find rules that are wrong.
TEST_CASE("The oracle finds a dimension that may not be split") {
  for (const OpCase& op_case : all_cases()) {
    const bool must_be_whole = op_case.op == "cumsum" || op_case.op == "reverse" ||
                               op_case.name == "concat of equal halves" || op_case.op == "argmax";
    if (!must_be_whole) {
      continue;
    }
    const Graph graph = case_graph(op_case);
    ShardingRule rule = sharding_rule(graph, case_node(graph));
    // One pass factor for the dimension in all tensors.
    int shared = kNone;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].kind == FactorKind::kGather) {
        shared = shared == kNone ? static_cast<int>(f) : shared;
        rule.factors[f].kind = FactorKind::kPass;
      }
    }
    for (auto* tensors : {&rule.operands, &rule.results}) {
      for (TensorFactors& tensor : *tensors) {
        for (FactorList& dim : tensor) {
          for (int& factor : dim) {
            if (rule.factors[factor].size == rule.factors[shared].size) {
              factor = factor > shared ? shared : factor;
            }
          }
        }
      }
    }
    CHECK_MESSAGE(judge(graph, rule, operand_values(op_case)).problem, op_case.name);
  }
}

TEST_CASE("The oracle finds a wrong combination") {
  const OpCase op_case{"reduce_max",
                       "reduce_max",
                       {{{4, 6}}},
                       {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}};
  const Graph graph = case_graph(op_case);
  ShardingRule rule = sharding_rule(graph, case_node(graph));
  CHECK(!judge(graph, rule, operand_values(op_case)).problem);
  for (Factor& factor : rule.factors) {
    factor.combine = Combine::kSum;
  }
  CHECK(judge(graph, rule, operand_values(op_case)).problem);
}

TEST_CASE("The oracle finds factors in the wrong order") {
  const OpCase op_case{"reshape", "reshape", {{{4, 6}}}, {{"shape", Shape{24}}}};
  const Graph graph = case_graph(op_case);
  ShardingRule rule = sharding_rule(graph, case_node(graph));
  std::swap(rule.results[0][0][0], rule.results[0][0][1]);
  CHECK(judge(graph, rule, operand_values(op_case)).problem);
}

// --- reshapes
// ---------------------------------------------------------------------------------------

int count_shared(const Shape& from, const Shape& to) {
  const Graph graph = case_graph({"reshape", "reshape", {{from}}, {{"shape", to}}});
  int count = 0;
  for (const Factor& factor : sharding_rule(graph, case_node(graph)).factors) {
    count += factor.kind == FactorKind::kPass ? 1 : 0;
  }
  return count;
}

TEST_CASE("Merging and splitting dimensions keeps every factor") {
  CHECK(count_shared({4, 6}, {24}) == 2);
  CHECK(count_shared({24}, {4, 6}) == 2);
  CHECK(count_shared({8, 16, 12, 64}, {8, 16, 768}) == 4);
  CHECK(count_shared({2, 3, 4}, {2, 12}) == 3);
}

TEST_CASE("Sizes without a common divisor leave nothing to split there") {
  CHECK(count_shared({2, 3}, {3, 2}) == 0);
  CHECK(count_shared({4, 6}, {6, 4}) == 1);
  CHECK(count_shared({5, 4, 6}, {5, 24}) == 3);
}

// --- linearity
// ----------------------------------------------------------------------------------------

// Splits `whole` into two terms.
std::pair<HostTensor, HostTensor> terms_of(const HostTensor& whole) {
  HostTensor first(whole.dtype(), whole.shape());
  HostTensor second(whole.dtype(), whole.shape());
  for (int64_t i = 0; i < whole.size(); ++i) {
    first.set(i, 0.3 * whole.at(i) + 0.01 * static_cast<double>(i));
    second.set(i, whole.at(i) - first.at(i));
  }
  return {std::move(first), std::move(second)};
}

// Whether the op of a sum of terms (in the operands of `mask`) is the sum of the op of the terms.
bool is_linear_in(const Graph& graph, const std::vector<HostTensor>& operands, uint32_t mask) {
  std::vector<HostTensor> first, second;
  for (size_t i = 0; i < operands.size(); ++i) {
    if ((mask >> i & 1) != 0) {
      auto [a, b] = terms_of(operands[i]);
      first.push_back(std::move(a));
      second.push_back(std::move(b));
    } else {
      first.push_back(operands[i].clone());
      second.push_back(operands[i].clone());
    }
  }
  const auto whole = interpret_case(graph, operands);
  const auto term1 = interpret_case(graph, first);
  const auto term2 = interpret_case(graph, second);
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int64_t j = 0; j < whole[i].size(); ++j) {
      if (std::abs(whole[i].at(j) - term1[i].at(j) - term2[i].at(j)) > 1e-10) {
        return false;
      }
    }
  }
  return true;
}

TEST_CASE("Ops that may read partial sums are linear") {
  int checked = 0;
  for (const OpCase& op_case : all_cases()) {
    const Graph graph = case_graph(op_case);
    const Linearity declared = linearity(case_node(graph));
    const std::vector<HostTensor> operands = operand_values(op_case);
    std::vector<uint32_t> masks;
    for (uint32_t i = 0; i < 32; ++i) {
      if ((declared.any_one >> i & 1) != 0) {
        masks.push_back(1u << i);
      }
    }
    if (declared.all != 0) {
      masks.push_back(declared.all);
    }
    for (uint32_t mask : masks) {
      CHECK(mask < (uint64_t{1} << operands.size()));
      bool all_float = true;
      for (size_t i = 0; i < operands.size(); ++i) {
        all_float = all_float && ((mask >> i & 1) == 0 || is_floating(operands[i].dtype()));
      }
      if (all_float) {
        ++checked;
        CHECK_MESSAGE(is_linear_in(graph, operands, mask), op_case.name);
      }
    }
  }
  CHECK(checked > 50);
}

TEST_CASE("Biases and constants must not be added to partial sums") {
  const Linearity add = find_op("add").linearity({});
  CHECK(add.any_one == 0);
  CHECK(add.all == 0b11);
  for (const char* op : {"max", "min", "pow", "relu", "exp", "abs", "sqrt", "reduce_max"}) {
    const OpDef& def = find_op(op);
    const Linearity none = def.linearity ? def.linearity({}) : Linearity{};
    CHECK_MESSAGE((none.any_one == 0 && none.all == 0), op);
  }
  CHECK(find_op("div").linearity({}).any_one == 0b01);
}

}  // namespace
}  // namespace meshtrain
