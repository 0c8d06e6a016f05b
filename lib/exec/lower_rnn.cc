// Recurrent cells over all steps, and their gradient (ir/ops/rnn.cc).
#include <algorithm>

#include "exec/lower.h"
#include "ir/ops/rnn.h"

namespace meshtrain {
namespace {

RnnActivation activation_of(std::string_view name) {
  const auto names = rnn_activations();
  return static_cast<RnnActivation>(std::ranges::find(names, name) - names.begin());
}

RnnShape rnn_shape(const StepContext& context, const RnnOperands& at) {
  const Buffer &x = context.input(0), &kernel = context.input(1), &h0 = context.input(2);
  RnnShape out;
  out.dtype = x.dtype;
  out.cell = at.is_lstm          ? RnnCell::kLstm
             : at.is_reset_after ? RnnCell::kGruResetAfter
             : at.is_gru         ? RnnCell::kGru
                                 : RnnCell::kSimple;
  out.activation = activation_of(context.attr_string("activation"));
  out.recurrent = activation_of(context.attr_string("recurrent_activation"));
  out.batch = x.shape[0];
  out.steps = x.shape[1];
  out.units = h0.shape.back();
  for (size_t d = 0; d + 2 < h0.shape.size(); ++d) {
    out.space[d] = h0.shape[d + 1];
    out.window[d] = kernel.shape[d];
  }
  return out;
}

void add_scan(StepContext& context, bool is_gradient) {
  const Node node{.attrs = context.step.attrs};
  const RnnOperands at(node);
  const RnnShape shape = rnn_shape(context, at);
  context.add(BeginGroup{});
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    const auto input = [&](int i) -> std::byte* {
      return i < 0 ? nullptr
                   : const_cast<std::byte*>(context.input_shard(static_cast<size_t>(i), p));
    };
    const auto output = [&](int i) {
      return i < 0 ? nullptr : context.output_shard(static_cast<size_t>(i), p);
    };
    RnnArrays a{input(at.x),    input(at.kernel), input(at.h0),  input(at.c0),
                input(at.bias), input(at.mask),   input(at.drop)};
    if (is_gradient) {
      a.gates = input(at.x);
      a.x = nullptr;
      a.h = input(at.h);
      a.c = input(at.c);
      a.dh = input(at.dh);
      a.dc = input(at.dc);
      a.dx = output(at.dx);
      a.dh0 = output(at.dh0);
      a.dc0 = output(at.dc0);
      a.extra = output(at.extra);
    } else {
      a.h = output(0);
      a.c = at.is_lstm ? output(1) : nullptr;
      a.gates = output(at.kept);
    }
    context.add(ScanRnnSpec{shape, is_gradient, a});
  }
  context.add(EndGroup{});
}

void lower_scan_rnn(StepContext& context) {
  add_scan(context, false);
}
void lower_scan_rnn_grad(StepContext& context) {
  add_scan(context, true);
}

}  // namespace

std::vector<OpLowering> rnn_lowerings() {
  return {{"scan_rnn", lower_scan_rnn}, {"scan_rnn_grad", lower_scan_rnn_grad}};
}

}  // namespace meshtrain
