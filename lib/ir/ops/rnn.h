// Which operands and results scan_rnn and scan_rnn_grad nodes have; rnn.cc says what they compute.
#pragma once

#include <span>
#include <string_view>

#include "ir/graph.h"

namespace meshtrain {

// Indices among the operands (results); -1: absent.
struct RnnOperands {
  explicit RnnOperands(const Node& node);

  int x = 0, kernel = 1, h0 = 2, c0 = -1, bias = -1, mask = -1, drop = -1;
  int size = 3;                               // of all operands of scan_rnn
  int h = -1, c = -1, dh = -1, dc = -1;       // of the gradient, behind those
  int dx = 0, dh0 = 1, dc0 = -1, extra = -1;  // results of the gradient
  int kept = -1;                              // the gates among the results of scan_rnn
  int gates = 1;
  int gate_columns = 1;  // of what is kept, in units
  int results = 1;
  bool is_lstm = false, is_gru = false, is_reset_after = false;
};

// Activations that scan_rnn has, with Keras' names and default arguments, in the order of
// RnnActivation (backend/kernel_shapes.h).
std::span<const std::string_view> rnn_activations();

}  // namespace meshtrain
