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
};

OpCase rnn_forward_case(const RnnSetting& s) {
  OpCase out{
      fmt::format("scan_rnn of {}, {} and {}{}{}, {} steps{}", s.cell, s.activation, s.recurrent,
                  s.has_mask ? " with a mask" : "", s.has_drop ? ", states dropped" : "", s.steps,
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
  const Shape state{s.batch, s.units};
  out.operands = {{{s.batch, s.steps, s.gates * s.units}}, {{s.units, s.gates * s.units}}, {state}};
  if (s.cell == "lstm")
    out.operands.push_back({state});
  if (s.cell == "gru_reset_after")
    out.operands.push_back({{s.gates * s.units}});
  if (s.has_mask)
    out.operands.push_back({{s.batch, s.steps}, DType::kBool, 0, 1});
  if (s.has_drop) {
    out.operands.push_back({{s.batch, s.gates * s.units}});
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
  out.operands[0].shape[2] = s.units * (s.cell == "gru_reset_after" ? 4 : s.gates);
  out.operands.resize(out.operands.size() + (s.cell == "lstm" ? 4 : 2),
                      {{s.batch, s.steps, s.units}});
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
          RnnSetting{cell, gates, "tanh", "hard_sigmoid", true, 4, 3, 2, true}}) {
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
