// einsum: products summed over the letters that the result lacks.
//
//   op      operands  attributes
//   einsum  x[, y]    equation, without spaces: "bi,io->bo", "bhqd,bhkd->bhqk", "ij->j", ",i->i"
//
// Letters may be in any order in each tensor, lower or upper case; no letter occurs twice in one
// tensor; all sizes of a letter are equal. float32 sums of float32 operands: kernels may sum in any
// fixed order. Letters in both operands and the result are batch dimensions.
#include "ir/ops/einsum.h"

#include <algorithm>
#include <map>

#include "ir/ops/helpers.h"
#include "ir/ops/ops.h"

namespace meshtrain {

std::string EinsumEquation::to_string() const {
  return fmt::format("{}->{}", fmt::join(operands, ","), result);
}

EinsumEquation parse_einsum(std::string_view text) {
  const size_t arrow = text.find("->");
  MESHTRAIN_CHECK(arrow != std::string_view::npos, "einsum `{}` has no ->", text);
  EinsumEquation equation;
  equation.result = text.substr(arrow + 2);
  std::string_view rest = text.substr(0, arrow);
  while (true) {
    const size_t comma = rest.find(',');
    equation.operands.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  MESHTRAIN_CHECK(equation.operands.size() <= 2, "einsum `{}` has more than two operands", text);
  std::string all;
  for (const std::string& letters : equation.operands) {
    all += letters;
  }
  std::vector<std::string> tensors = equation.operands;
  tensors.push_back(equation.result);
  for (const std::string& letters : tensors) {
    for (size_t i = 0; i < letters.size(); ++i) {
      const char c = letters[i];
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      MESHTRAIN_CHECK(is_letter, "einsum `{}`: `{}` is no letter", text, c);
      MESHTRAIN_CHECK(letters.find(c, i + 1) == std::string::npos,
                      "einsum `{}`: `{}` is twice in one tensor", text, c);
      MESHTRAIN_CHECK(all.find(c) != std::string::npos, "einsum `{}`: `{}` is in no operand", text,
                      c);
    }
  }
  return equation;
}

namespace {

using Types = std::vector<ValueType>;
using Sizes = std::map<char, int64_t>;

Sizes letter_sizes(const Node& node, const EinsumEquation& equation,
                   std::span<const Shape> operands) {
  MESHTRAIN_OP_CHECK(node, operands.size() == equation.operands.size(), "{} operands for {}",
                     operands.size(), equation.to_string());
  Sizes sizes;
  for (size_t t = 0; t < operands.size(); ++t) {
    const std::string& letters = equation.operands[t];
    MESHTRAIN_OP_CHECK(node, letters.size() == operands[t].size(), "operand {} is {}, for {}", t,
                       shape_string(operands[t]), equation.to_string());
    for (size_t i = 0; i < letters.size(); ++i) {
      const int64_t known = sizes.emplace(letters[i], operands[t][i]).first->second;
      MESHTRAIN_OP_CHECK(node, known == operands[t][i], "`{}` is {} and {} in {}", letters[i],
                         known, operands[t][i], equation.to_string());
    }
  }
  return sizes;
}

Types infer_einsum(const Node& node, std::span<const ValueType> operands) {
  const EinsumEquation equation = parse_einsum(node.attr_string("equation"));
  std::vector<Shape> shapes;
  for (const ValueType& operand : operands) {
    shapes.push_back(operand.shape);
    MESHTRAIN_OP_CHECK(node, operand.dtype == operands[0].dtype && operand.dtype != DType::kBool,
                       "operands of dtypes {} and {}", dtype_name(operands[0].dtype),
                       dtype_name(operand.dtype));
  }
  const Sizes sizes = letter_sizes(node, equation, shapes);
  Shape result;
  for (char letter : equation.result) {
    result.push_back(sizes.at(letter));
  }
  return {{result, operands[0].dtype}};
}

ShardingRule einsum_rule(const Node& node, std::span<const Shape> operands,
                         std::span<const Shape>) {
  const EinsumEquation equation = parse_einsum(node.attr_string("equation"));
  const Sizes sizes = letter_sizes(node, equation, operands);
  RuleBuilder rule;
  std::map<char, int> factors;
  const auto factors_of = [&](const std::string& letters) {
    TensorFactors dims;
    for (char letter : letters) {
      if (!factors.contains(letter)) {
        const bool kept = equation.result.find(letter) != std::string::npos;
        factors[letter] = kept ? rule.pass(sizes.at(letter)) : rule.reduce(sizes.at(letter));
      }
      dims.push_back({factors[letter]});
    }
    return dims;
  };
  for (const std::string& letters : equation.operands) {
    rule.operand(factors_of(letters));
  }
  rule.result(factors_of(equation.result));
  return rule.take();
}

// The cotangent of one operand: an einsum over the same letters, repeated over the dimensions that
// were summed in this operand alone.
ValueId operand_cotangent(Builder& b, const Node& node, const EinsumEquation& equation,
                          size_t operand, ValueId g) {
  const bool has_other = node.inputs.size() == 2;
  const size_t other = 1 - operand;
  const std::string available =
      equation.result + (has_other ? equation.operands[other] : std::string());
  const Shape full = b.shape(node.inputs[operand]);
  std::string letters;
  Shape with_ones = full;
  for (size_t i = 0; i < full.size(); ++i) {
    const char letter = equation.operands[operand][i];
    if (available.find(letter) != std::string::npos) {
      letters += letter;
    } else {
      with_ones[i] = 1;
    }
  }
  ValueId result = g;
  if (has_other && operand == 0) {
    result = b.einsum(equation.result + "," + equation.operands[1] + "->" + letters,
                      {g, node.inputs[1]});
  } else if (has_other) {
    result = b.einsum(equation.operands[0] + "," + equation.result + "->" + letters,
                      {node.inputs[0], g});
  } else if (letters != equation.result) {
    result = b.einsum(equation.result + "->" + letters, {g});
  }
  return repeat_over(b, result, with_ones, full);
}

double einsum_flops(const Node& node, std::span<const Shape> operands, std::span<const Shape>) {
  double product = 2;
  for (const auto& [letter, size] :
       letter_sizes(node, parse_einsum(node.attr_string("equation")), operands)) {
    product *= static_cast<double>(size);
  }
  return product;
}

}  // namespace

std::vector<OpDef> einsum_ops() {
  OpDef op;
  op.name = "einsum";
  op.is_product = op.sums_over_shards = true;
  op.infer = infer_einsum;
  op.rule = einsum_rule;
  op.linearity = [](const Node& node) {
    return Linearity{.any_one = node.inputs.size() == 2 ? 0b11u : 0b01u};
  };
  op.vjp = [](Builder& b, const Node& node, std::span<const ValueId> g) {
    const EinsumEquation equation = parse_einsum(node.attr_string("equation"));
    std::vector<ValueId> cotangents;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      cotangents.push_back(operand_cotangent(b, node, equation, i, g[0]));
    }
    return cotangents;
  };
  op.flops = einsum_flops;
  return {op};
}

}  // namespace meshtrain
