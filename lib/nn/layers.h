// The families of layers, and what their implementations share. A layer class is one entry of its
// family's table; make_layer (layer.cc) finds it by the Keras class name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/graph_parts.h"
#include "nn/model.h"

namespace meshtrain {

struct LayerEntry {
  std::string_view class_name;
  std::unique_ptr<Layer> (*make)(const ConfigObject& config);
  bool is_part = false;  // of another layer only: no class of a config
};

std::vector<LayerEntry> core_layers();                 // core.cc
std::vector<LayerEntry> einsum_dense_layers();         // einsum_dense.cc
std::vector<LayerEntry> embedding_layers();            // embedding.cc
std::vector<LayerEntry> shape_layers();                // shape_layers.cc
std::vector<LayerEntry> activation_layers();           // activation_layers.cc
std::vector<LayerEntry> preprocessing_layers();        // preprocessing.cc
std::vector<LayerEntry> merge_layers();                // merge.cc
std::vector<LayerEntry> merged_steps_layers();         // merged_steps.cc
std::vector<LayerEntry> lambda_layers();               // lambda.cc
std::vector<LayerEntry> dot_layers();                  // dot.cc
std::vector<LayerEntry> attention_layers();            // attention.cc
std::vector<LayerEntry> recurrent_layers();            // recurrent.cc
std::vector<LayerEntry> application_layers();          // application_layers.cc
std::vector<LayerEntry> wrapper_layers();              // wrappers.cc
std::vector<LayerEntry> score_attention_layers();      // score_attention.cc
std::vector<LayerEntry> transformer_layers();          // transformer_blocks.cc
std::vector<LayerEntry> mixture_layers();              // sparse_moe.cc
std::vector<LayerEntry> position_layers();             // positions.cc
std::vector<LayerEntry> conv_layers();                 // conv.cc
std::vector<LayerEntry> conv_transpose_layers();       // conv_transpose.cc
std::vector<LayerEntry> pooling_layers();              // pooling.cc
std::vector<LayerEntry> padding_layers();              // padding.cc
std::vector<LayerEntry> resizing_layers();             // resizing.cc
std::vector<LayerEntry> batch_normalization_layers();  // batch_normalization.cc
std::vector<LayerEntry> normalization_layers();        // normalization.cc
std::vector<LayerEntry> spectral_layers();             // spectral_normalization.cc
std::vector<LayerEntry> spectrogram_layers();          // spectrogram.cc
std::vector<LayerEntry> noise_layers();                // noise.cc
std::vector<LayerEntry> augmentation_layers();         // augmentation.cc
std::vector<LayerEntry> color_layers();                // color_layers.cc
std::vector<LayerEntry> filter_layers();               // filter_layers.cc
std::vector<LayerEntry> warp_layers();                 // warp_layers.cc
std::vector<LayerEntry> equalization_layers();         // equalization.cc
std::vector<LayerEntry> rand_augment_layers();         // rand_augment.cc

template <class L>
std::unique_ptr<Layer> make_as(const ConfigObject& config) {
  return std::make_unique<L>(config);
}

// A layer that keeps its arguments.
class ConfiguredLayer : public Layer {
 public:
  explicit ConfiguredLayer(const ConfigObject& config) : config_(config) {}
  const ConfigObject* config() const override { return &config_; }

 protected:
  // E120 at the layer's line: "layer `d1` (Dense) gets (None, 28, 28): <what>".
  Diagnostic& shape_error(Diagnostics& diagnostics, std::span<const Shape> inputs,
                          std::string_view what) const;
  // E113 at the argument's place.
  Diagnostic& argument_error(Diagnostics& diagnostics, std::string_view argument,
                             std::string_view what) const;
  // Whether there is exactly one input; reports it when not.
  bool takes_one(std::span<const Shape> inputs, Diagnostics& diagnostics) const;
  // The output's shape after the argument `activation` is applied to `shape`.
  Shape activated_shape(std::span<const Shape> inputs, const Shape& shape,
                        Diagnostics& diagnostics) const;
  using Layer::add_weight;
  // A weight of the layer's variable dtype that begins as the argument "<weight name>_initializer"
  // says.
  int add_weight(std::string_view weight_name, Shape shape, bool trainable = true);
  // Lets the argument `pad_to` fill up a dimension of a weight.
  void pad_weight(int weight, int dim);
  // The argument `seed`, else the run's.
  int64_t seed(const CallContext& context) const;

  ConfigObject config_;
};

// A layer with one input that computes floats of the input's shape, element by element or row by
// row.
class FloatLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override;
};

// A layer whose argument `axis` names one or several dimensions beside the batch; null: none.
class AxesLayer : public FloatLayer {
 public:
  using FloatLayer::FloatLayer;
  // As FloatLayer; reports (E120, E113) what is no dimension beside the batch, there twice, or of
  // unknown size.
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override;

 protected:
  // Whether the dimensions' sizes must be known.
  virtual bool needs_sizes() const { return true; }
  // Counted from 0, ascending; after build() succeeded.
  std::vector<int64_t> axes(size_t rank) const;
  // The sizes of these dimensions of `shape`, and the same with 1 for every other one.
  Shape sizes(const Shape& shape) const;
  Shape spread_sizes(const Shape& shape) const;
};

// Returned by build() after an error, so that later layers are not blamed for it.
inline Shape failed_shape() {
  return {kUnknownDim, 0};
}
inline bool is_failed(const Shape& shape) {
  return shape == failed_shape();
}

// The initializer of weights that begin as one number, whatever the config says.
Initializer filled_with(double value);
// x in the dtype that the layer computes in.
ValueId to_compute(CallContext& context, ValueId x);
// x in at least float32: that dtype, or float32 where it has 16 bits.
ValueId to_float32(CallContext& context, ValueId x);
// Product of the sizes after the batch; kUnknownDim when one is unknown.
int64_t elements_per_sample(const Shape& shape);
// Whether the product of the sizes, unknown ones aside, is above 2^48 (kMaxElements).
bool is_too_large(const Shape& shape);

}  // namespace meshtrain
