// MergeSteps and SplitSteps: between them a model sees each step as a sample of its own, which
// Keras has as a TimeDistributed of a model. Export writes them as keras.ops.reshape.
#include "nn/arguments.h"
#include "nn/layers.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

class StepsLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;
  bool casts_inputs() const override { return false; }
  DType output_dtype(std::span<const DType> inputs) const override { return inputs[0]; }
  const TensorProgram* program() const override { return &program_; }

 protected:
  // `sizes`: those behind the batch.
  void set_program(std::span<const int64_t> sizes) {
    program_ = trace_expression(fmt::format("reshape(x, (-1, {}))", fmt::join(sizes, ", ")), {"x"},
                                {{{"x", 0}}, {}, {}});
  }

 private:
  TensorProgram program_;
};

// (B, T, ...) -> (B * T, ...).
class MergeSteps : public StepsLayer {
 public:
  using StepsLayer::StepsLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[0];
    if (x.size() < 3 || elements_per_sample(x) == kUnknownDim) {
      shape_error(diagnostics, inputs, "it takes (batch, steps, ...), with known sizes")
          .help("give the Input a shape of two or more sizes, the first that of steps");
      return failed_shape();
    }
    steps_ = x[1];
    Shape out = without_first(x);
    out[0] = x[0] == kUnknownDim ? kUnknownDim : x[0] * x[1];
    set_program(std::span(out).subspan(1));
    return out;
  }

  int64_t rows_per_sample(std::span<const int64_t> inputs) const override {
    return inputs[0] * steps_;
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    const Shape& x = context.builder.shape(inputs[0]);
    Shape out = without_first(x);
    out[0] = x[0] * x[1];
    return context.builder.reshape(inputs[0], out);
  }

 private:
  int64_t steps_ = 1;
};

// (B * T, ...) -> (B, T, ...). A second input has T steps; its mask is that of the output.
class SplitSteps : public StepsLayer {
 public:
  using StepsLayer::StepsLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const bool has_other = inputs.size() == 2 && inputs[1].size() > 1;
    if (inputs.empty() || inputs.size() > 2 || (inputs.size() == 2 && !has_other)) {
      shape_error(diagnostics, inputs, "it takes the merged steps, and what MergeSteps took")
          .help("write `inputs: [merged, before]`");
      return failed_shape();
    }
    steps_ = config_.has("steps") ? config_.integer("steps") : has_other ? inputs[1][1] : 0;
    if (steps_ < 1 || (has_other && inputs[1][1] != steps_)) {
      argument_error(
          diagnostics, "steps",
          has_other ? fmt::format("is {}, and its second input has {} steps", steps_, inputs[1][1])
                    : "is not given")
          .help("write the steps that MergeSteps merged, or its input as a second input");
      return failed_shape();
    }
    if (elements_per_sample(inputs[0]) == kUnknownDim) {
      shape_error(diagnostics, inputs, "it takes known sizes").help("give the Inputs all sizes");
      return failed_shape();
    }
    Shape out = inputs[0];
    out[0] = out[0] == kUnknownDim ? kUnknownDim : out[0] / steps_;
    out.insert(out.begin() + 1, steps_);
    set_program(std::span(out).subspan(1));
    return out;
  }

  int64_t rows_per_sample(std::span<const int64_t> inputs) const override {
    const int64_t rows = inputs[0] % steps_ == 0 ? inputs[0] / steps_ : 0;
    return inputs.size() == 1 || inputs[1] == rows ? rows : 0;
  }

  size_t masked_input() const override { return 1; }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Shape out = context.builder.shape(inputs[0]);
    out[0] /= steps_;
    out.insert(out.begin() + 1, steps_);
    return context.builder.reshape(inputs[0], out);
  }

 private:
  int64_t steps_ = 1;
};

}  // namespace

std::vector<LayerEntry> merged_steps_layers() {
  return {{"MergeSteps", make_as<MergeSteps>}, {"SplitSteps", make_as<SplitSteps>}};
}

}  // namespace meshtrain
