// Model: the config's layers with shapes inferred, variables named as Keras names them, and the
// functions that put forward pass, loss, metrics and optimizer into a Graph.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/precision.h"
#include "ir/builder.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

struct TensorProgram;  // tensor_program.h

// How a weight gets its first values: a pure function of (seed, path, global shape), never of the
// mesh. Normal draws go through a fixed inverse CDF, so they are the same on every machine.
using Initializer = std::function<HostTensor(const Shape& shape, DType dtype, uint64_t seed,
                                             std::string_view path)>;

// Low-rank factors A and B of a weight W, which reads as W + alpha / rank * A B (Hu et al. 2021,
// arXiv:2106.09685). They train in its place. A has the first `inputs` dimensions of W and then
// `rank`, B `rank` and then the other dimensions.
struct Lora {
  int64_t rank = 0;  // 0: none
  double alpha = 0;
  size_t inputs = 0;
  int a = kNone, b = kNone;  // weights of the same layer

  double scale() const { return alpha / static_cast<double>(rank); }
};

// A weight as a layer multiplies by it: W and, where it has them, the factors; in the dtype that
// the layer computes in.
struct FactoredWeight {
  ValueId base = kNone;
  ValueId a = kNone, b = kNone;
  double scale = 1;
};

// A weight of a layer.
struct Weight {
  std::string path;  // "d1/kernel", Keras' rules
  Shape shape;
  DType dtype = DType::kFloat32;
  bool trainable = true;
  Initializer initializer;
  // Keras 3 regularizers.py and constraints.py; null: none.
  std::shared_ptr<const ConfigObject> regularizer = nullptr, constraint = nullptr;
  // The dimension that counts experts: its layout holds in products, too, over the batch's axes.
  int expert_dim = kNone;
  // The dimension that `pad_to` of a layer fills up with zeros, so that a mesh divides it: in the
  // memory of a run it is a multiple of pad_to. Files have `shape`.
  int pad_dim = kNone;
  int64_t pad_to = 1;
  // Model::set_shards(); empty before.
  Shape shards = {};
  Lora lora = {};
  // Of a low-rank factor: the weight of the same layer that it belongs to.
  int factor_of = kNone;

  Shape stored_shape() const {
    Shape out = shape;
    if (pad_dim != kNone) {
      int64_t& size = out[static_cast<size_t>(pad_dim)];
      size = (size + pad_to - 1) / pad_to * pad_to;
    }
    return out;
  }
};

// A value of a layer with experts whose layout follows from that of the experts' weights: their
// axes split `expert_dim`, the batch's other axes `batch_dim`. Without an `expert_dim` all axes of
// the batch split `batch_dim`.
struct ExpertPin {
  std::string key;  // behind the layer's name: "experts/hidden"
  size_t rank = 0;
  int batch_dim = 0;
  int expert_dim = kNone;
  bool only_moves = false;  // needed only where experts and batch share an axis
};

// One use of a layer, as the config writes it.
struct LayerUse {
  // What each input is ("query", "value"), where `inputs` is a map; else empty.
  std::vector<std::string> roles = {};
  // The layer's arguments, or those of the Call that uses it again; null: a layer without any.
  std::shared_ptr<const ConfigObject> arguments = nullptr;

  // A field of the argument `call`; null where there is none.
  const ConfigValue* call_argument(std::string_view name) const;
  bool call_flag(std::string_view name) const;  // false where it is not given
};

// The context of a layer's `call`.
struct CallContext {
  Builder& builder;
  bool training = false;
  ValueId step = kNone;  // int64 scalar: raw optimizer iterations; only when training
  int64_t seed = 0;
  DType compute_dtype = DType::kFloat32;
  // The weight's value in its compute layout (a fresh var_use in each call of it), or what `update`
  // gave it before in this step; in compute_dtype where the layer casts_weights().
  std::function<ValueId(int weight_index)> weight;
  // The same in parts, for weighted_einsum() (lora.h); empty where `weight` gives something else.
  std::function<FactoredWeight(int weight_index)> factored = {};
  // The value that a weight which does not train takes at the end of the step; only when training.
  std::function<void(int weight_index, ValueId value)> update;
  // Of each input: its mask (batch, steps), bool, or kNone.
  std::span<const ValueId> masks;
  // Takes an output beside the first, in the order of Layer::further_shapes().
  std::function<void(ValueId value)> also;
  // An output of a part of the layer, which the argument activity_regularizer may penalize.
  std::function<void(ValueId part)> regularize;
  // Takes a scalar that is added to the loss, as Keras' add_loss.
  std::function<void(ValueId loss)> add_loss;
  // The value under the layout of the ExpertPin with that key; the value itself where it has none.
  std::function<ValueId(std::string_view key, ValueId value)> pin;
  // Above 1: steps come in the head-tail order of so many shards (base/head_tail.h).
  int64_t head_tail = 1;
  // Text is generated: an output must not depend on how many steps the graph has.
  bool generating = false;
  // As `weight`, of Layer::tied.
  std::function<ValueId(int weight_index)> tied_weight = {};
};

// A layer: shapes in, shapes out; states its weights when built; adds its ops when called.
class Layer {
 public:
  virtual ~Layer() = default;
  // Dimension 0 is the batch (kUnknownDim). Checks the shapes (E120 naming layer, line, shapes,
  // fix) and returns the output shape; may append weights through `add_weight` (returns their
  // index).
  virtual Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) = 0;
  virtual ValueId call(CallContext& context, std::span<const ValueId> inputs) = 0;
  // Shapes of outputs beside the first, by the names of further_outputs() (layer_names.h); after
  // build(). They have the dtype of the first and no mask.
  virtual std::vector<Shape> further_shapes() const { return {}; }
  // The dtype of the output; by default the policy's. Layers that only move elements keep integers.
  virtual DType output_dtype(std::span<const DType> inputs) const;
  // Whether floating inputs, and weights, are cast to the compute dtype before `call` sees them:
  // Keras' autocast of a layer and of a variable.
  virtual bool casts_inputs() const { return true; }
  virtual bool casts_weights() const { return true; }
  // Whether activity_regularizer is of the layer's outputs; else `call` names the parts.
  virtual bool regularizes_output() const { return true; }
  // Masks of steps (masks.h). Whether the layer makes a mask, and that mask, of shape (batch,
  // steps); the input whose mask a layer passes on.
  virtual bool makes_mask() const { return false; }
  virtual ValueId make_mask(CallContext&, std::span<const ValueId>) const { return kNone; }
  virtual size_t masked_input() const { return 0; }
  // Rows of the output's batch for each sample, given those of the inputs; 0 where the inputs do
  // not go together. Above 1 between MergeSteps and SplitSteps alone.
  virtual int64_t rows_per_sample(std::span<const int64_t> inputs) const;
  // The operations of Keras that exports write for a built layer; null for a layer of Keras.
  virtual const TensorProgram* program() const { return nullptr; }
  // What `call` pins.
  virtual std::vector<ExpertPin> expert_pins() const { return {}; }
  // The arguments as configured; null for a layer that keeps none.
  virtual const ConfigObject* config() const { return nullptr; }
  // Those of the layer that computes the output: config(), or the inner layer's of a wrapper that
  // changes only its weights.
  virtual const ConfigObject* acting() const { return config(); }
  std::string_view acting_class() const;

  std::string name;
  std::string class_name;
  SourceLoc loc;
  DType dtype = DType::kFloat32;           // policy: of the computation and the output
  DType variable_dtype = DType::kFloat32;  // policy: of the weights
  bool trainable = true;                   // false: none of its weights trains
  std::vector<Weight> weights;             // trainable first, in Keras' creation order
  LayerUse use;                            // what build() or call() is for
  const Layer* tied = nullptr;             // whose weights call() uses beside its own
  int tied_index = kNone;                  // of `tied` in the model

 protected:
  // Index of the new weight "<layer name>/<weight name>". A layer that is built again (Call) gets
  // the index of its earlier weight; throws ConfigError E120 when that has another shape. Its
  // regularizer and constraint are the layer's arguments `<weight name>_regularizer` and
  // `_constraint`; those of `depthwise_kernel` may be called `depthwise_regularizer`, and so on.
  int add_weight(std::string_view weight_name, Shape shape, DType dtype, Initializer initializer,
                 bool trainable = true);
  std::string path_prefix_;  // "d1/"
  friend class Model;
  friend std::unique_ptr<Layer> make_layer(const LayerConfig& config, const DTypePolicy& policy);
};

// Creates a layer with this policy, unless its `dtype` overrides it.
std::unique_ptr<Layer> make_layer(const LayerConfig& config, const DTypePolicy& policy);

class Model {
 public:
  // Builds every layer; all problems go to `diagnostics`.
  Model(const ModelConfig& config, const DTypePolicy& policy, Diagnostics& diagnostics);
  Model(Model&&) = default;

  struct Call {               // one use of a layer, in order
    std::string name;         // of the entry in the config: the layer's, or that of the Call
    int layer = 0;            // kNone for an Input
    std::vector<int> inputs;  // indices of earlier calls
    LayerUse use;
    // Of an output beside a call's first, which stands as an entry of its own after it: that call,
    // and which of its further outputs. Else kNone.
    int result_of = kNone, result = 0;
    Shape output_shape;     // with kUnknownDim for the batch
    bool is_input = false;  // an Input: fed by the data
    bool has_mask = false;  // of steps (masks.h)
    int64_t rows = 1;       // Layer::rows_per_sample()
    DType dtype = DType::kFloat32;
  };
  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }
  const std::vector<Call>& calls() const { return calls_; }
  // The call that computes entry `call`: itself, but for a further output.
  int computing(int call) const {
    return calls_[call].result_of == kNone ? call : calls_[call].result_of;
  }
  const std::vector<int>& inputs() const { return inputs_; }    // calls that are inputs
  const std::vector<int>& outputs() const { return outputs_; }  // calls that are outputs
  const std::vector<std::string>& output_names() const { return output_names_; }
  // All weights in Keras order: layer by layer.
  const std::vector<const Weight*>& weights() const { return weights_; }
  int64_t num_params(bool trainable_only = false) const;
  // Beside weights(): the index of the weight whose low-rank factor it is, else kNone.
  std::vector<int> factors_of() const;
  // `shards`, beside weights(): in how many parts the mesh has each dimension. Before apply(), so
  // that layers choose a way to compute that keeps these parts.
  void set_shards(std::span<const Shape> shards);

  // Adds the forward pass. `parameters[i]` is the graph parameter of weights()[i]; `pinned` is
  // called with "<layer path>/output" and the value after every layer, and with the keys of
  // expert_pins(), and returns the value to use (the pin, or the value itself). Returns the
  // outputs. `penalties`, when given, receives the scalars that regularizers and layers add to the
  // loss; `updates`, beside weights(), the values that layers
  // give their moving averages in a training step, kNone elsewhere; `masks` those of the outputs.
  // `head_tail`, `generating`: CallContext.
  std::vector<ValueId> apply(Builder& builder, std::span<const ValueId> inputs,
                             std::span<const ValueId> parameters, bool training, ValueId step,
                             int64_t seed,
                             const std::function<ValueId(const std::string&, ValueId)>& pinned,
                             std::vector<ValueId>* penalties = nullptr,
                             std::vector<ValueId>* updates = nullptr,
                             std::vector<ValueId>* masks = nullptr, int64_t head_tail = 1,
                             bool generating = false) const;

 private:
  void prepare(Layer& layer, const Call& call) const;
  std::string name_;
  DTypePolicy policy_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<Call> calls_;
  std::vector<int> inputs_, outputs_;
  std::vector<std::string> output_names_;
  std::vector<const Weight*> weights_;
  std::vector<int> first_weight_;  // of each layer, in weights_
  friend class ModelBuilder;
};

}  // namespace meshtrain
