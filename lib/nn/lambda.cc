// Lambda: an expression of its inputs, as operations of the graph.
#include <algorithm>

#include "nn/arguments.h"
#include "nn/layers.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

std::vector<std::string> names_in_config(const ConfigObject& config) {
  if (config.has("names")) {
    return config.arg("names").strings();
  }
  const ConfigValue inputs = value_or_null(config, "inputs");
  if (inputs.is_null()) {
    return {"x"};
  }
  if (!inputs.is_dict()) {
    return inputs.is_string() ? std::vector{inputs.string()} : inputs.strings();
  }
  std::vector<std::string> out;
  for (const auto& [key, name] : inputs.dict()) {
    out.push_back(key);
  }
  return out;
}

class Lambda : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  // Operations of Keras cast nothing.
  bool casts_inputs() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    const std::vector<std::string> names = names_in_config(config_);
    if (inputs.size() != names.size()) {
      shape_error(diagnostics, inputs, fmt::format("its function takes {}", names.size()))
          .help("call it with as many inputs as it is written for");
      return failed_shape();
    }
    shapes_.assign(inputs.begin(), inputs.end());
    try {
      program_ = program_of_object(config_, names_of_inputs(names), names);
      if (!uses_all(inputs, diagnostics)) {
        return failed_shape();
      }
      const TensorType type = infer(std::vector<DType>(inputs.size(), dtype));
      if (type.has_batch) {
        return type.shape;
      }
      shape_error(diagnostics, inputs,
                  fmt::format("its function gives {}, whose first dimension is not the batch",
                              shape_string(type.shape)))
          .help("the batch is axis 0: reduce over other axes, or bring the result back to it");
    } catch (const ExprError& error) {
      expression_error(diagnostics, config_, error, owner());
      program_ = {};
    }
    return failed_shape();
  }

  // Throws ConfigError where the operations do not take these dtypes.
  DType output_dtype(std::span<const DType> inputs) const override {
    if (program_.result == kNone || inputs.size() != shapes_.size()) {
      return dtype;
    }
    try {
      return infer(inputs).dtype;
    } catch (const ExprError& error) {
      throw_expression_error(config_, error, owner());
    }
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    try {
      return run_program(context.builder, program_, inputs, variable_dtype);
    } catch (const ExprError& error) {  // a batch of another size than it takes
      throw_expression_error(config_, error, owner());
    }
  }

  const TensorProgram* program() const override { return &program_; }

 private:
  bool uses_all(std::span<const Shape> inputs, Diagnostics& diagnostics) const {
    std::vector<bool> used(program_.inputs.size(), false);
    for (const UsedInput& one : used_inputs(program_)) {
      used[static_cast<size_t>(one.input)] = true;
    }
    const auto unused = std::find(used.begin(), used.end(), false);
    if (unused != used.end()) {
      const size_t i = static_cast<size_t>(unused - used.begin());
      shape_error(diagnostics, inputs,
                  fmt::format("its function does not use the input `{}`", program_.inputs[i]))
          .help("leave it out of `inputs`, or name it in the function");
    }
    return unused == used.end();
  }

  std::string owner() const { return fmt::format("layer `{}` (Lambda)", name); }

  TensorType infer(std::span<const DType> dtypes) const {
    std::vector<TensorType> types;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      types.push_back({shapes_[i], dtypes[i]});
    }
    return infer_program(program_, types, variable_dtype);
  }

  std::vector<Shape> shapes_;
  TensorProgram program_;
};

}  // namespace

std::vector<LayerEntry> lambda_layers() {
  return {{"Lambda", make_as<Lambda>}};
}

}  // namespace meshtrain
