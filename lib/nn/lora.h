// Low-rank adaptation: a weight keeps its value, and two small factors train. Source: Hu et al.
// 2021 (arXiv:2106.09685); names, initial values and arguments as in Keras 3 layers/core/dense.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "nn/model.h"

namespace meshtrain {

// "d1/kernel" -> "d1/lora_kernel_a" or "d1/lora_kernel_b".
std::string lora_path(std::string_view weight, char factor);
// Whether the path is that of a factor.
bool is_lora_path(std::string_view path);

// Gives the weights of `layers` that a rule of model.lora matches, or whose layer has `lora_rank`,
// their factors, as further weights of these layers. The weights themselves do not train from then
// on. Reports rules that match nothing (E121), and constraints of weights with factors (E113).
void add_lora_factors(const std::vector<std::unique_ptr<Layer>>& layers,
                      const std::vector<ModelConfig::Lora>& rules, Diagnostics& diagnostics);

// W + scale * A B, in the shape of W.
ValueId merged_weight(Builder& builder, const FactoredWeight& weight);

// einsum(equation, {x, weight}), "ab,bc->ac". With factors it is x W + scale * (x A) B, so that no
// gradient has the size of W, and 16 bits do not round a small A B away.
ValueId weighted_einsum(CallContext& context, const std::string& equation, ValueId x,
                        int weight_index);

// Whether a weight of the model has factors.
bool has_lora(const Model& model);
// The config of the same model without factors.
Config without_lora(Config config);
// `weights` of `model` without factors: each W that has them becomes W + scale * A B, summed in
// double precision.
std::vector<NamedTensor> merge_lora(const Model& model, std::vector<NamedTensor> weights);

}  // namespace meshtrain
