// Layers that are made of other layers: TransformerEncoder, LSTM, Bidirectional, TimeDistributed.
#pragma once

#include <memory>
#include <string>

#include "nn/layers.h"

namespace meshtrain {

// One of the layers that another one is made of.
struct Part {
  std::string name;  // in paths, after the whole layer's: "forward_lstm"
  std::unique_ptr<Layer> layer = nullptr;
  int first_weight = 0;  // its weights stand from here on in the whole layer's
};

class CompositeLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool casts_weights() const override { return false; }  // each part casts its own

 protected:
  // Builds the part and takes its weights; a layer that is built again has the part already.
  Shape build_part(Part& part, const ConfigObject& object, std::span<const Shape> inputs,
                   LayerUse part_use, Diagnostics& diagnostics);
  // Reports what a layer within another one, the argument `argument`, cannot have.
  bool takes_layer(const char* argument, const ConfigObject& layer, Diagnostics& diagnostics) const;
  bool takes_layer(const char* argument, Diagnostics& diagnostics) const {
    return takes_layer(argument, config_.arg(argument).object(), diagnostics);
  }
  // Reports an argument that stands for other layers or for a part of one: Call, Repeat, a cell.
  bool is_whole_layer(const char* argument, Diagnostics& diagnostics) const;
  // `masks`: of the inputs, or none. `further` receives the part's outputs beside its first.
  ValueId call_part(CallContext& context, const Part& part, std::span<const ValueId> inputs,
                    std::span<const ValueId> masks = {},
                    std::vector<ValueId>* further = nullptr) const;
  ValueId call_part(CallContext& context, const Part& part, ValueId x) const {
    return call_part(context, part, {&x, 1});
  }
};

std::vector<LayerEntry> hub_layers();  // hub_layers.cc

// Hidden states (..., output_dim) -> logits (..., input_dim) of an Embedding or ReversibleEmbedding
// called with `reverse`. `weight`: of that layer. In embedding.cc.
ValueId reversed_embedding(CallContext& context, const Layer& embedding,
                           const std::function<ValueId(int)>& weight, ValueId states);

}  // namespace meshtrain
