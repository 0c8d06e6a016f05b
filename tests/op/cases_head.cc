#include "op/op_case.h"

namespace meshtrain {
namespace {

struct Head {
  Shape tokens = {4, 6};
  int64_t features = 3, classes = 12;
  bool transposed = false;
  double lowest_id = 0, highest_id = 11;
  int64_t true_classes = 0;  // 0: all
};

OpCase head_case(const Head& head, std::string_view op, size_t weights) {
  OpCase out{
      fmt::format(
          "{} of {} tokens, {} classes{}{}", op, shape_string(head.tokens), head.classes,
          head.transposed ? ", transposed" : "",
          (head.true_classes > 0 ? fmt::format(" of which {} count", head.true_classes) : "") +
              (head.lowest_id < 0 ? ", ids that are no class" : "")),
      std::string(op),
      {}};
  Shape x = head.tokens;
  x.push_back(head.features);
  const Shape table =
      head.transposed ? Shape{head.features, head.classes} : Shape{head.classes, head.features};
  out.operands = {{x}, {table}, {head.tokens, DType::kInt32, head.lowest_id, head.highest_id}};
  out.operands.resize(3 + weights, {head.tokens});
  out.attrs = {{"transposed", int64_t{head.transposed}}};
  if (head.true_classes > 0)
    out.attrs["classes"] = head.true_classes;
  out.has_gradient = weights == 0;
  return out;
}

}  // namespace

std::vector<OpCase> head_cases() {
  std::vector<OpCase> cases;
  for (const Head& head :
       {Head{}, Head{.transposed = true}, Head{.tokens = {6}},
        Head{.lowest_id = -2, .highest_id = 13}, Head{.highest_id = 6, .true_classes = 7},
        Head{.transposed = true, .lowest_id = -2, .highest_id = 13, .true_classes = 5}}) {
    cases.push_back(head_case(head, "linear_cross_entropy", 0));
    cases.push_back(head_case(head, "linear_cross_entropy_grad", 1));
    cases.push_back(head_case(head, "linear_cross_entropy_parts_grad", 2));
    for (const int64_t blocks : {1, 2, 6}) {
      OpCase parts = head_case(head, "linear_cross_entropy_parts", 0);
      parts.name += fmt::format(", {} blocks", blocks);
      parts.attrs["blocks"] = blocks;
      parts.has_gradient = false;
      cases.push_back(std::move(parts));
    }
  }
  return cases;
}

}  // namespace meshtrain
