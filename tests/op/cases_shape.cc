#include <fmt/format.h>
#include <fmt/ranges.h>

#include "op/op_case.h"

namespace meshtrain {
namespace {

OpCase reshape(Shape from, Shape to) {
  return {fmt::format("reshape of {} to {}", shape_string(from), shape_string(to)),
          "reshape",
          {{from}},
          {{"shape", to}}};
}

OpCase slice(Shape from, int64_t axis, int64_t begin, int64_t end, int64_t stride) {
  return {fmt::format("slice {} of {} [{}:{}:{}]", axis, shape_string(from), begin, end, stride),
          "slice",
          {{from}},
          {{"axis", axis}, {"begin", begin}, {"end", end}, {"stride", stride}}};
}

OpCase transpose(Shape from, std::vector<int64_t> permutation) {
  return {fmt::format("transpose by [{}]", fmt::join(permutation, ", ")),
          "transpose",
          {{from}},
          {{"permutation", permutation}}};
}

OpCase broadcast(Shape from, Shape to) {
  return {fmt::format("broadcast of {} to {}", shape_string(from), shape_string(to)),
          "broadcast",
          {{from}},
          {{"shape", to}}};
}

OpCase pad(int64_t axis, int64_t before, int64_t after, double value) {
  return {fmt::format("pad {} by {} and {} with {}", axis, before, after, value),
          "pad",
          {{{4, 6}}},
          {{"axis", axis}, {"before", before}, {"after", after}, {"value", value}}};
}

}  // namespace

std::vector<OpCase> shape_cases() {
  const Attrs declared = {{"shape", Shape{4, 6}}, {"dtype", std::string("float64")}};
  Attrs constant = declared;
  constant["value"] = 2.5;
  Attrs rows = declared;
  rows["axis"] = int64_t{0};
  Attrs columns = declared;
  columns["axis"] = int64_t{1};
  const Attrs axis0 = {{"axis", int64_t{0}}};
  const Attrs axis1 = {{"axis", int64_t{1}}};
  OpCase stopped{"stop_gradient", "stop_gradient", {{{4, 6}}}};
  stopped.has_gradient = false;  // differences see what derivatives do not
  return {
      std::move(stopped),
      {"var_use", "var_use", {{{4, 6}}}},
      {"constant", "constant", {}, constant},
      {"iota of rows", "iota", {}, rows},
      {"iota of columns", "iota", {}, columns},
      broadcast({6}, {4, 6}),
      broadcast({4, 1}, {4, 6}),
      broadcast({}, {4, 6}),
      broadcast({1, 6}, {2, 4, 6}),
      transpose({4, 6}, {1, 0}),
      transpose({2, 4, 6}, {2, 0, 1}),
      reshape({4, 6}, {24}),
      reshape({24}, {4, 6}),
      reshape({4, 6}, {2, 2, 6}),
      reshape({4, 6}, {4, 1, 6, 1}),
      reshape({4, 6}, {6, 4}),
      reshape({4, 6}, {2, 12}),
      reshape({4, 6}, {3, 8}),
      reshape({2, 3, 4}, {6, 2, 2}),
      reshape({4, 3, 4}, {3, 4, 4}),
      reshape({1, 4, 6}, {4, 6}),
      reshape({1, 1}, {}),
      reshape({8, 3}, {4, 2, 3}),
      slice({4, 6}, 0, 1, 3, 1),
      slice({4, 6}, 1, 2, 6, 1),
      slice({4, 6}, 1, 1, 6, 2),
      slice({4, 6}, 1, 0, 6, 2),
      slice({4, 7}, 1, 1, 5, 3),
      slice({4, 6}, 1, 5, 6, 4),
      pad(0, 1, 2, 0),
      pad(1, 0, 2, 0),
      pad(1, 3, 0, 1.5),
      {"concat of rows", "concat", {{{4, 6}}, {{2, 6}}}, axis0},
      {"concat of columns", "concat", {{{4, 6}}, {{4, 2}}, {{4, 4}}}, axis1},
      {"concat of equal halves", "concat", {{{4, 6}}, {{4, 6}}}, axis1},
      {"reverse of rows", "reverse", {{{4, 6}}}, axis0},
      {"reverse of columns", "reverse", {{{4, 6}}}, axis1},
  };
}

}  // namespace meshtrain
