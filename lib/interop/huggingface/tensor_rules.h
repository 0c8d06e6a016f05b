// Which of our weights a tensor of a Hugging Face model is, and what changes on the way.
#pragma once

#include <string>
#include <vector>

#include "interop/huggingface/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// kTranspose: a Linear's (out, in) is our (in, out). kImages: a convolution's (out, in, height,
// width) is our (height, width, in, out). GPT-2's Conv1D is (in, out) as ours: kNone.
enum class TensorChange { kNone, kTranspose, kImages };

struct TensorRule {
  std::string theirs;  // "h.0.attn.c_attn.weight", without the prefix of the base model
  Shape shape;         // of theirs
  TensorChange change = TensorChange::kNone;
  // Our weights: equal parts of the changed tensor's last dimension, each in its own shape.
  std::vector<std::string> ours;
  bool in_base = true;  // behind the prefix, where the file has it
};

// All tensors of the model, in the order of its graph.
std::vector<TensorRule> tensor_rules(const HuggingFaceModel& model);

// "transformer.", "model.", "bert." or "vit.": before the names of the tensors of a base model in
// the files of a model with a head.
std::string base_prefix(HuggingFaceFamily family);
// The name in a file that transformers writes.
std::string file_name_of(const TensorRule& rule, const HuggingFaceModel& model);

// Our parts of their tensor; `shapes` are those of rule.ours.
std::vector<HostTensor> to_ours(const TensorRule& rule, HostTensor theirs,
                                const std::vector<Shape>& shapes);
// Their tensor of our parts.
HostTensor to_theirs(const TensorRule& rule, const std::vector<const HostTensor*>& ours);

}  // namespace meshtrain
