#include <fmt/format.h>
#include <fmt/ranges.h>

#include "op/op_case.h"

namespace meshtrain {
namespace {

void add_reductions(std::vector<OpCase>& cases) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min"}) {
    for (const std::vector<int64_t>& axes :
         std::vector<std::vector<int64_t>>{{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}, {0, 1, 2}}) {
      for (int64_t keepdims : {0, 1}) {
        cases.push_back({fmt::format("{} over [{}]{}", op, fmt::join(axes, ", "),
                                     keepdims != 0 ? " keeping them" : ""),
                         op,
                         {{{4, 6, 2}}},
                         {{"axes", axes}, {"keepdims", keepdims}}});
      }
    }
  }
  cases.push_back({"reduce_sum of int32",
                   "reduce_sum",
                   {{{4, 6}, DType::kInt32, -5, 5}},
                   {{"axes", std::vector<int64_t>{0}}, {"keepdims", int64_t{0}}}});
}

OpCase einsum(const std::string& equation, std::vector<OperandSpec> operands) {
  return {"einsum " + equation, "einsum", std::move(operands), {{"equation", equation}}};
}

}  // namespace

std::vector<OpCase> reduce_cases() {
  std::vector<OpCase> cases;
  add_reductions(cases);
  for (int64_t axis : {0, 1}) {
    cases.push_back({fmt::format("argmax along {}", axis), "argmax", {{{4, 6}}}, {{"axis", axis}}});
    cases.push_back({fmt::format("cumsum along {}", axis), "cumsum", {{{4, 6}}}, {{"axis", axis}}});
  }
  for (int64_t k : {1, 2, 6}) {
    cases.push_back({fmt::format("top_k of {}", k), "top_k", {{{4, 6}}}, {{"k", k}}});
  }
  cases.push_back({"top_k of a vector", "top_k", {{{6}}}, {{"k", int64_t{3}}}});
  cases.push_back(einsum("bi,io->bo", {{{4, 6}}, {{6, 2}}}));
  cases.push_back(einsum("bi,oi->bo", {{{4, 6}}, {{2, 6}}}));
  cases.push_back(einsum("bhqd,bhkd->bhqk", {{{2, 4, 2, 6}}, {{2, 4, 2, 6}}}));
  cases.push_back(einsum("bsd,dhk->bshk", {{{2, 4, 6}}, {{6, 2, 2}}}));
  cases.push_back(einsum("bsd,bsf->df", {{{2, 4, 6}}, {{2, 4, 2}}}));
  cases.push_back(einsum("ij->ji", {{{4, 6}}}));
  cases.push_back(einsum("ij->j", {{{4, 6}}}));
  cases.push_back(einsum("ij->", {{{4, 6}}}));
  cases.push_back(einsum("ijk->ki", {{{4, 2, 6}}}));
  cases.push_back(einsum("i,j->ij", {{{4}}, {{6}}}));
  cases.push_back(einsum(",i->i", {{{}}, {{6}}}));
  cases.push_back(einsum("i,i->", {{{6}}, {{6}}}));
  cases.push_back(einsum("b,bk->b", {{{4}}, {{4, 6}}}));
  cases.push_back(einsum("ab,cd->ac", {{{2, 4}}, {{2, 6}}}));
  return cases;
}

}  // namespace meshtrain
