// `layout_map: megatron` and the like: names of layouts that become rules for the layers of the
// model, so that `config show` has the rules.
#pragma once

#include <string>
#include <vector>

#include "config/yaml.h"

namespace meshtrain {

struct LayoutPreset {
  std::string name, help;
  bool splits_layers = false;   // attention by heads, feed-forward layers by columns, then by rows
  bool shards_weights = false;  // zero: 3
  bool splits_steps = false;    // embeddings by steps
  bool splits_experts = false;  // experts, and the batch over the same axis, too
};
const std::vector<LayoutPreset>& layout_presets();

// Replaces a preset, alone or as `preset` beside own rules, which win: its rules leave out the
// variables that an own rule matches. Heads of keys and values of GroupQueryAttention are
// replicated where the axis does not divide them. Call it when blocks are layers and expressions
// are values. The model axis is the mesh's last one. E113: an unknown preset, a mesh of one axis,
// or a model without layers that it knows. `context` knows embeddings; the others know attention
// layers, TransformerEncoder and TransformerDecoder, SparseMoE, and Dense layers that are named as
// in Keras Hub (feedforward_intermediate_dense) or up, gate, down, fc1, fc2. Source: Shoeybi et
// al., arXiv:1909.08053, section 3. `expert` knows SparseMoE; it takes a mesh of one axis, too, and
// makes `batch_dim_name` the batch's axis and the experts' where it is not given.
void expand_layout_preset(YamlNode& root, Diagnostics& diagnostics);

}  // namespace meshtrain
