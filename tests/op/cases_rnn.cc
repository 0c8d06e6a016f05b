#include "ir/ops/rnn.h"
#include "op/op_case.h"

namespace meshtrain {
namespace {

struct RnnSetting {
  std::string cell;
  int64_t gates;
  std::string activation = "tanh", recurrent = "sigmoid";
  bool has_mask = false;
  int64_t batch = 4, steps = 3, units = 2;
  bool has_drop = false;
  bool keeps_gates = true;
  Shape space = {}, window = {};  // of images
};

// `first`, then `middle`, then `last`.
Shape image_shape(Shape first, const Shape& middle, int64_t last) {
  first.insert(first.end(), middle.begin(), middle.end());
  first.push_back(last);
  return first;
}

OpCase rnn_forward_case(const RnnSetting& s) {
  OpCase out{
      fmt::format("scan_rnn of {}, {} and {}{}{}, {} steps{}{}", s.cell, s.activation, s.recurrent,
                  s.has_mask ? " with a mask" : "", s.has_drop ? ", states dropped" : "", s.steps,
                  s.space.empty() ? "" : " of " + shape_string(s.space),
                  s.keeps_gates ? "" : ", without gates"),
      "scan_rnn",
      {},
      {{"cell", s.cell},
       {"activation", s.activation},
       {"recurrent_activation", s.recurrent},
       {"has_mask", int64_t{s.has_mask}},
       {"has_drop", int64_t{s.has_drop}},
       {"keeps_gates", int64_t{s.keeps_gates && s.gates > 1}}}};
  out.has_gradient = s.keeps_gates;
  out.constant_results = s.keeps_gates && s.gates > 1 ? 1 : 0;
  const int64_t columns = s.gates * s.units;
  const Shape state = image_shape({s.batch}, s.space, s.units);
  out.operands = {{image_shape({s.batch, s.steps}, s.space, columns)},
                  {image_shape(s.window, {s.units}, columns)},
                  {state}};
  if (s.cell == "lstm")
    out.operands.push_back({state});
  if (s.cell == "gru_reset_after")
    out.operands.push_back({{columns}});
  if (s.has_mask)
    out.operands.push_back({{s.batch, s.steps}, DType::kBool, 0, 1});
  if (s.has_drop) {
    out.operands.push_back({image_shape({s.batch}, s.space, columns)});
    out.operands.back().is_constant = true;
  }
  for (OperandSpec& operand : out.operands) {
    if (s.activation == "exponential" && is_floating(operand.dtype)) {  // of itself, at each step
      operand.low = -0.29;
      operand.high = 0.31;
    }
  }
  return out;
}

// States are not those of the other operands here: the formulas do not ask for it.
OpCase rnn_gradient_case(const RnnSetting& s) {
  OpCase out = rnn_forward_case(s);
  out.name = "gradient of " + out.name;
  out.op = "scan_rnn_grad";
  out.operands[0].shape.back() = s.units * (s.cell == "gru_reset_after" ? 4 : s.gates);
  out.operands.resize(out.operands.size() + (s.cell == "lstm" ? 4 : 2),
                      {image_shape({s.batch, s.steps}, s.space, s.units)});
  out.has_gradient = false;
  out.constant_results = 0;
  return out;
}

}  // namespace

std::vector<OpCase> rnn_cases() {
  std::vector<OpCase> cases;
  for (const auto& [cell, gates] : {std::pair("simple", 1), std::pair("lstm", 4),
                                    std::pair("gru", 3), std::pair("gru_reset_after", 3)}) {
    for (const RnnSetting& s :
         {RnnSetting{cell, gates}, RnnSetting{cell, gates, "tanh", "sigmoid", true},
          RnnSetting{cell, gates, "linear", "sigmoid"},
          RnnSetting{cell, gates, "relu", "tanh", false, 4, 1},
          RnnSetting{cell, gates, "tanh", "hard_sigmoid", true, 4, 3, 2, true},
          RnnSetting{cell, gates, "tanh", "sigmoid", false, 4, 3, 2, false, true, {3}, {3}},
          RnnSetting{cell, gates, "relu", "sigmoid", true, 2, 2, 2, true, true, {2, 3}, {3, 2}},
          RnnSetting{
              cell, gates, "tanh", "sigmoid", false, 2, 2, 1, false, true, {2, 2, 3}, {4, 1, 2}}}) {
      cases.push_back(rnn_forward_case(s));
      cases.push_back(rnn_gradient_case(s));
    }
    for (const std::string_view name : rnn_activations()) {
      cases.push_back(rnn_forward_case({cell, gates, std::string(name), "sigmoid"}));
      cases.push_back(rnn_gradient_case({cell, gates, "tanh", std::string(name)}));
    }
    RnnSetting forward_only{cell, gates};
    forward_only.keeps_gates = false;
    cases.push_back(rnn_forward_case(forward_only));
    RnnSetting pixel{cell, gates};  // of which a window sees only itself
    pixel.space = {1};
    pixel.window = {3};
    cases.push_back(rnn_forward_case(pixel));
    cases.push_back(rnn_gradient_case(pixel));
    RnnSetting wide{cell, gates};  // whole vectors and tiles, and what is left of them
    wide.batch = 14;
    wide.steps = 2;
    wide.units = 33;
    cases.push_back(rnn_forward_case(wide));
    cases.back().has_gradient = false;  // too many differences
    cases.push_back(rnn_gradient_case(wide));
  }
  return cases;
}

}  // namespace meshtrain
