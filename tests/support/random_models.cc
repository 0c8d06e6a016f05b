#include "support/random_models.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "engine/step_graph.h"
#include "support/engine_case.h"

namespace meshtrain::testing {
namespace {

// One entry of `layers` each, in YAML flow style; several are separated by `|`. `@` is the number
// of the draw, which keeps names apart.
using Entries = std::vector<std::string>;

const Entries kImageLayers = {
    "ConvLSTM1D: {filters: 4, kernel_size: 3, padding: same, return_sequences: true}",
    "Conv2D: {filters: 8, kernel_size: 3, padding: same, activation: relu}",
    "Conv2D: {filters: 4, kernel_size: [2, 3], strides: 2, use_bias: false}",
    "Conv2D: {filters: 8, kernel_size: 3, padding: same, groups: 2}",
    "Conv2D: {filters: 4, kernel_size: 2, dilation_rate: 2, padding: same}",
    "DepthwiseConv2D: {kernel_size: 3, depth_multiplier: 2, padding: same}",
    "SeparableConv2D: {filters: 8, kernel_size: 3, strides: 2, padding: same}",
    "Conv2DTranspose: {filters: 4, kernel_size: 3, strides: 2, padding: same}",
    "Conv2D: {filters: 4, kernel_size: 3, padding: same, data_format: channels_first}",
    "MaxPooling2D: {pool_size: 3, strides: 2, padding: same}",
    "AveragePooling2D: {pool_size: 3, strides: 2, padding: same}",
    "AdaptiveMaxPooling2D: {output_size: [3, 2]}",
    "AdaptiveAveragePooling2D: {output_size: 4}",
    "ZeroPadding2D: {padding: [[1, 0], [0, 2]]}",
    "Cropping2D: {cropping: [[1, 0], [0, 1]]}",
    "UpSampling2D: {size: [1, 2]}",
    "UpSampling2D: {size: 2, interpolation: bilinear}",
    "Resizing: {height: 4, width: 6}",
    "Resizing: {height: 6, width: 3, interpolation: bicubic, crop_to_aspect_ratio: true}",
    "CenterCrop: {height: 3, width: 4}",
    "BatchNormalization",
    "BatchNormalization: {axis: 1, momentum: 0.5}",
    "BatchNormalization: {renorm: true, renorm_clipping: {rmax: 3, dmax: 5}}",
    "LayerNormalization: {axis: [1, 3]}",
    "RMSNormalization",
    "GroupNormalization: {groups: 2}",
    "UnitNormalization: {axis: [1, 2]}",
    "SpatialDropout2D: 0.3",
    "Dropout: 0.3",
    "GaussianNoise: 0.3",
    "GaussianDropout: 0.3",
    "AlphaDropout: {rate: 0.3, noise_shape: [null, 1, null, null]}",
    "PReLU: {shared_axes: [1, 2], alpha_initializer: ones}",
    "ELU",
    "RandomFlip",
    "RandomCrop: {height: 3, width: 4}",
    "RandomRotation: 0.3",
    "RandomTranslation: {height_factor: 0.4, width_factor: 0.3, fill_mode: wrap}",
    "RandomZoom: {height_factor: 0.4, fill_mode: constant}",
    "RandomContrast: {factor: 0.5, value_range: [-2, 2]}",
    "RandomBrightness: {factor: 0.2, value_range: [-2, 2]}",
    "RandomShear: {x_factor: 0.3, y_factor: 0.2}",
    "RandomPerspective: {scale: 0.4, factor: 0.8}",
    "Equalization: {value_range: [-2, 2], bins: 16}|RandAugment: {value_range: [-2, 2]}|AugMix: "
    "{value_range: [-2, 2], num_chains: 2}",
    "RandomElasticTransform: {value_range: [-2, 2]}",
    "ContrastLimitedAdaptiveHistogramEqualization: {value_range: [-2, 2], tile_grid_size: [2, "
    "3]}|RandomElasticTransform: {value_range: [-2, 2], factor: 0.5}",
    "RandomInvert: {value_range: [-2, 2]}",
    "RandomPosterization: {factor: 6, value_range: [-2, 2]}",
    "Resizing: {height: 4, width: 6}|Conv2D: {filters: 4, kernel_size: 1}|ViTPatchingAndEmbedding: "
    "{image_size: [4, 6], patch_size: [2, 3], hidden_dim: 4, num_channels: 4}|Reshape: "
    "{target_shape: [1, 5, 4]}",
    "RandomSharpness: {factor: 1, value_range: [-2, 2]}",
    "RandomGaussianBlur: {kernel_size: [5, 3], value_range: [-2, 2]}",
    "RandomErasing: {value_range: [-2, 2]}",
    "Solarization: {addition_factor: 0.2, threshold_factor: 0.5, value_range: [-2, 2]}",
    "AutoContrast: {value_range: [-2, 2]}",
    "Dense: {units: 3, activation: sigmoid}|RandomSaturation: {factor: 0.9, value_range: [0, 1]}",
    "Dense: {units: 3, activation: sigmoid}|RandomHue: {factor: 0.5, value_range: [0, 1]}",
    "Dense: {units: 3, activation: sigmoid}|RandomColorJitter: {brightness_factor: 0.2, "
    "contrast_factor: 0.3, saturation_factor: 0.9, hue_factor: 0.4, value_range: [0, 1]}",
    "Dense: {units: 3}|RandomColorDegeneration: {factor: 0.7, value_range: [-2, 2]}",
    "Dense: {units: 3}|RandomGrayscale",
    "Dense: {units: 4, activation: tanh}",
};
const Entries kStepLayers = {
    "Conv1D: {filters: 8, kernel_size: 3, padding: causal, dilation_rate: 2}",
    "Conv1D: {filters: 4, kernel_size: 2, strides: 2}",
    "DepthwiseConv1D: {kernel_size: 3, padding: same}",
    "SeparableConv1D: {filters: 8, kernel_size: 3, padding: same, depth_multiplier: 2}",
    "Conv1DTranspose: {filters: 4, kernel_size: 2, strides: 3}",
    "MaxPooling1D: {pool_size: 2, padding: same}",
    "AveragePooling1D: {pool_size: 3, strides: 1, padding: same}",
    "AdaptiveMaxPooling1D: {output_size: 3}",
    "AdaptiveAveragePooling1D: {output_size: 2}",
    "ZeroPadding1D: {padding: [2, 0]}",
    "Cropping1D",
    "UpSampling1D: {size: 2}",
    "SpatialDropout1D: 0.3",
    "BatchNormalization: {scale: false}",
    "LayerNormalization",
    "Softmax: {axis: 1}",
    "Permute: {dims: [2, 1]}",
    "Reshape: {target_shape: [-1, 2]}",
    "Activation: softplus",
    "Identity",
    "LeakyReLU",
    "ReLU: {max_value: 1.0, negative_slope: 0.1}",
    "Rescaling: {scale: 0.5, offset: 0.1}",
    "Lambda: {function: '=x * exp(-abs(x)) + mean(x, axis=-1, keepdims=true)'}",
    "Normalization: {mean: 0.1, variance: 2.0}",
    "EinsumDense: {equation: '...x,xy->...y', output_shape: [4], bias_axes: y}",
    "PReLU: {name: a@}|Call: {layer: a@}",
    "ELU: {name: a@}|ReLU: {name: b@}|Add: {inputs: [a@, b@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|Subtract: {inputs: [a@, b@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|Multiply: {inputs: [a@, b@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|Average: {inputs: [a@, b@]}",
    "ELU: {name: a@}|LeakyReLU: {name: b@}|Maximum: {inputs: [a@, b@]}",
    "ELU: {name: a@}|LeakyReLU: {name: b@}|Minimum: {inputs: [a@, b@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|Concatenate: {axis: 1, inputs: [a@, b@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|Dot: {axes: 2, inputs: [a@, b@]}",
    "MultiHeadAttention: {num_heads: 4, key_dim: 3, call: {use_causal_mask: true}}",
    "MultiHeadAttention: {num_heads: 2, key_dim: 3, dropout: 0.3, use_gate: true}",
    "ELU: {name: a@}|MultiHeadAttention: {num_heads: 2, key_dim: 4, inputs: {query: a@, value: "
    "a@}}",
    "GroupQueryAttention: {head_dim: 4, num_query_heads: 4, num_key_value_heads: 2, "
    "rotary: {RotaryEmbedding: {}}, call: {use_causal_mask: true}}",
    "GroupQueryAttention: {head_dim: 2, num_query_heads: 4, num_key_value_heads: 1, "
    "sliding_window: 3}",
    "MultiHeadAttention: {name: a@, num_heads: 2, key_dim: 3, dropout: 0.3, call: "
    "{use_causal_mask: true, return_attention_scores: true}}|Lambda: {function: '=mean(x, "
    "axis=1)', "
    "inputs: a@.attention_scores}",
    "ELU: {name: a@}|Attention: {use_scale: true, dropout: 0.2, inputs: [a@, a@]}",
    "ELU: {name: a@}|ReLU: {name: b@}|AdditiveAttention: {inputs: [a@, b@]}",
    "ELU: {name: a@}|PositionEmbedding: {name: b@, sequence_length: 64}|Add: {inputs: [a@, b@]}",
    "ELU: {name: a@}|SinePositionEncoding: {name: b@}|Add: {inputs: [a@, b@]}",
    "RotaryEmbedding",
    "Dense: {units: 4}|TransformerEncoder: {intermediate_dim: 6, num_heads: 2, dropout: 0.2}",
    "Dense: {name: a@, units: 4}|TransformerDecoder: {intermediate_dim: 6, num_heads: 2, dropout: "
    "0.2, normalize_first: true, inputs: [a@, a@]}",
    "Dense: {units: 4}|Dropout: 0.2|SparseMoE: {num_experts: 4, intermediate_dim: 6}",
    "Dense: {units: 4}|SparseMoE: {num_experts: 2, intermediate_dim: 4, top_k: 1}|SparseMoE: "
    "{num_experts: 4, intermediate_dim: 3, capacity_factor: 0.75}",
    "Masking: {mask_value: 0.5}|SparseMoE: {num_experts: 3, intermediate_dim: 4, capacity_factor: "
    "1}",
    "Masking: {mask_value: 0.5}",
    "ActivityRegularization: {l1: 0.1, l2: 0.2}",
    "SimpleRNN: {units: 4, return_sequences: true, activation: relu}",
    "LSTM: {units: 4, return_sequences: true, dropout: 0.3}",
    "LSTM: {units: 3, return_sequences: true, go_backwards: true}",
    "Masking: {mask_value: 0.5}|GRU: {units: 4, return_sequences: true}",
    "GRU: {units: 3, return_sequences: true, reset_after: false}",
    "Masking: {mask_value: 0.5}|Bidirectional: {layer: {LSTM: {units: 2, return_sequences: true}}}",
    "Bidirectional: {layer: {GRU: {units: 4, return_sequences: true}}, merge_mode: sum}",
    "LSTM: {units: 3, return_sequences: true, dropout: 0.2, recurrent_dropout: 0.4}",
    "GRU: {units: 4, return_sequences: true, reset_after: false, recurrent_dropout: 0.3}",
    "Masking: {mask_value: 0.5}|RNN: {cell: [{LSTMCell: {units: 4, recurrent_dropout: 0.3}}, "
    "{SimpleRNNCell: 3}], return_sequences: true}",
    "Bidirectional: {layer: {RNN: {cell: {GRUCell: {units: 4, dropout: 0.3}}, return_sequences: "
    "true}}}",
    "TimeDistributed: {layer: {Dense: {units: 4, activation: tanh}}}",
    "Dense: {units: 4}|LayerScale: {init_values: 0.5, projection_dim: 4}|StochasticDepth: 0.4",
    "ELU: {name: a@}|Dropout: {name: b@, rate: 0.2}|CustomScaleLayer: {scale: 0.3, inputs: [a@, "
    "b@]}",
    "TimeDistributed: {layer: {BatchNormalization: {}}}",
    "Masking: {name: a@, mask_value: 0.5}|MergeSteps|Dense: {units: 4, activation: tanh}|Dropout: "
    "0.3|BatchNormalization: {name: b@}|SplitSteps: {inputs: [b@, a@]}|GRU: {units: 4, "
    "return_sequences: true}",
    "SpectralNormalization: {layer: {Dense: {units: 4, activation: tanh}}}",
    "STFTSpectrogram: {mode: real, frame_length: 4, frame_step: 2, fft_length: 4}",
    "Flatten|MelSpectrogram: {num_mel_bins: 4, sampling_rate: 64, sequence_stride: 4, "
    "fft_length: 8, min_freq: 4}",
    "LSTM: {name: a@, units: 4, return_sequences: true, return_state: true}|RepeatVector: {n: 3, "
    "inputs: a@.state_c}|LSTM: {units: 4, return_sequences: true, inputs: [repeat_vector, "
    "a@.state_h, "
    "a@.state_c]}",
    "Dense: {name: a@, units: 4}|Lambda: {name: b@, inputs: a@, function: \"=x[:, :3, 0] * "
    "2\"}|MaskedLMHead: {vocabulary_size: 4, inputs: [a@, b@]}",
    "Discretization: {bin_boundaries: [-1, 0.2, 1]}|CategoryEncoding: {num_tokens: 4}",
    "Dense: {units: 4}|ReversibleEmbedding: {input_dim: 6, output_dim: 4, call: {reverse: true}}",
};
// The first dimension is also one of steps.
const Entries kVolumeLayers = {
    "Conv3D: {filters: 4, kernel_size: 2, padding: same}",
    "Conv3D: {filters: 4, kernel_size: [2, 1, 2], strides: 2, groups: 2}",
    "Conv3DTranspose: {filters: 2, kernel_size: 2, strides: [1, 2, 1]}",
    "MaxPooling3D: {pool_size: 2, strides: 1}",
    "AveragePooling3D: {pool_size: 2, padding: same}",
    "AdaptiveMaxPooling3D: {output_size: [2, 1, 2]}",
    "AdaptiveAveragePooling3D: {output_size: 2}",
    "ZeroPadding3D: {padding: [1, 0, 1]}",
    "Cropping3D: {cropping: [[1, 0], [0, 1], [0, 0]]}",
    "UpSampling3D: {size: [1, 2, 1]}",
    "SpatialDropout3D: 0.3",
    "BatchNormalization",
    "ELU: {name: a@}|MergeSteps|Conv2D: {filters: 4, kernel_size: 2, padding: same}|"
    "BatchNormalization: {name: b@}|SplitSteps: {inputs: [b@, a@]}",
    "ELU: {name: a@}|MergeSteps|MergeSteps|LSTM: {units: 4, return_sequences: true}|SplitSteps: "
    "{steps: 3, name: b@}|SplitSteps: {inputs: [b@, a@]}",
    "ConvLSTM2D: {filters: 4, kernel_size: [2, 3], padding: same, return_sequences: true}",
    "Reshape: [2, 2, 3, 4, 4]|ConvLSTM3D: {filters: 4, kernel_size: 2, padding: same, "
    "return_sequences: true}|Reshape: [4, 3, 4, 4]",
    "ConvLSTM2D: {filters: 3, kernel_size: 2, padding: same, strides: [1, 2], dropout: 0.3, "
    "recurrent_dropout: 0.2, return_sequences: true}",
    "Bidirectional: {layer: {ConvLSTM2D: {filters: 2, kernel_size: 1, return_sequences: true}}, "
    "merge_mode: ave}",
};

struct Family {
  const char* shape;
  const Entries& layers;
  Entries ends;  // to (batch, features)
};

const Family kFamilies[] = {
    {"[8, 6, 4]", kImageLayers, {"GlobalAveragePooling2D", "GlobalMaxPooling2D", "Flatten"}},
    {"[8, 4]", kStepLayers, {"GlobalAveragePooling1D", "GlobalMaxPooling1D", "Flatten"}},
    {"[4, 3, 4, 4]", kVolumeLayers, {"GlobalAveragePooling3D", "GlobalMaxPooling3D", "Flatten"}},
};

struct RandomModel {
  std::string yaml;
  std::vector<std::string> class_names;
};

RandomModel random_model(Random& random) {
  const Family& family = kFamilies[random.chance(50) ? 0 : random.chance(60) ? 1 : 2];
  RandomModel out;
  std::string layers = fmt::format("    - Input: {{shape: {}}}\n", family.shape);
  int64_t draws = 0;
  const auto add = [&](const std::string& entries) {
    for (std::string entry : split(entries, '|')) {
      entry = join(split(entry, '@'), std::to_string(draws));
      layers += "    - " + entry + "\n";
      out.class_names.push_back(entry.substr(0, entry.find(':')));
    }
    ++draws;
  };
  const int64_t count = 1 + random.below(4);
  for (int64_t i = 0; i < count; ++i) {
    add(family
            .layers[static_cast<size_t>(random.below(static_cast<int64_t>(family.layers.size())))]);
  }
  add(family.ends[static_cast<size_t>(random.below(3))]);
  if (random.chance(20)) {
    add("RepeatVector: 2");
  }
  add("Dense: {units: 4, name: head}");
  out.yaml = fmt::format(
      "dtype_policy: float64\nseed: {}\nmodel:\n  layers:\n{}compile: {{loss: mse, "
      "optimizer: sgd}}\n",
      random.below(1000), layers);
  return out;
}

// The training step of a model, or nothing when its layers do not fit together.
std::optional<LayoutCase> training_step(const RandomModel& random_model, Random& random) {
  const Config config = test::config_from(random_model.yaml);
  Diagnostics diagnostics;
  const Model model(config.model, DType::kFloat64, diagnostics);
  if (diagnostics.has_errors()) {
    return std::nullopt;
  }
  std::map<std::string, Sharding> pins;
  for (const auto& layer : model.layers()) {
    if (random.chance(30)) {
      pins[layer->name + "/output"] = Sharding();
    }
  }
  const auto without_batch = [](const Shape& shape) {
    return Shape(shape.begin() + 1, shape.end());
  };
  DataSpec data;
  data.inputs.push_back({without_batch(model.calls().front().output_shape), DType::kFloat64});
  data.targets.push_back({without_batch(model.calls().back().output_shape), DType::kFloat64});
  const Optimizer optimizer(config.compile.optimizer);
  const StepGraphs graphs(config, model, optimizer, data, DType::kFloat64, pins, diagnostics);
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  return layout_case(graphs.train(8, true));
}

}  // namespace

LayerStep random_layer_step(Random& random) {
  RandomModel model;
  std::optional<LayoutCase> step;
  while (!step) {  // layers may not fit together
    model = random_model(random);
    step = training_step(model, random);
  }
  return {std::move(model.yaml), std::move(model.class_names), std::move(*step)};
}

}  // namespace meshtrain::testing
