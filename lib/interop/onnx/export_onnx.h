// A model as an ONNX file: the predict step's graph, op by op, with any number of samples.
#pragma once

#include <string>
#include <vector>

#include "engine/setup.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// The bytes of the file (ONNX IR version 8, operator set 17). `weights` are all of the model's, by
// path. Inputs and outputs have the names of the model's; the dimension of samples is "batch".
// Throws ConfigError E417 (exit 6) with every layer whose ops ONNX has not, and for weights of 2
// GiB and more, which one file of protocol buffers cannot hold.
std::string onnx_image(const Setup& setup, const std::vector<NamedTensor>& weights);

}  // namespace meshtrain
