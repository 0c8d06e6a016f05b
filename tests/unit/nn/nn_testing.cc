#include "nn_testing.h"

#include <cmath>
#include <map>

#include "config/catalogue.h"
#include "support/interpreter.h"

namespace meshtrain::testing {

ConfigObject make_object(Category category, const std::string& spelled, const NamedArgs& args) {
  ConfigObject object = default_object(category, spelled);
  object.spelled = spelled;
  for (const auto& [name, value] : args) {
    REQUIRE_MESSAGE(object.args.contains(name), spelled << " has no argument " << name);
    object.args[name] = value;
  }
  return object;
}

std::set<std::string> names_of(Category category, const std::set<std::string>& without) {
  std::set<std::string> names;
  for (const std::string& name : class_names(category)) {
    if (!without.contains(name)) {
      names.insert(name);
    }
  }
  return names;
}

LayerConfig make_layer_config(const std::string& class_name, const std::string& name,
                              std::vector<std::string> inputs, const NamedArgs& args) {
  LayerConfig config;
  config.object = make_object(Category::kLayer, class_name, args);
  config.name.value = name;
  for (std::string& input : inputs) {
    config.inputs.push_back({std::move(input), {}});
  }
  if (class_name == "Call") {
    config.shared_layer.value = config.object.string("layer");
  }
  return config;
}

ModelConfig make_model_config(std::vector<LayerConfig> layers, std::vector<std::string> outputs) {
  ModelConfig config;
  config.name.value = "model";
  for (size_t i = 1; i < layers.size(); ++i) {
    if (layers[i].inputs.empty() && layers[i].object.class_name != "Input") {
      layers[i].inputs.push_back(layers[i - 1].name);
    }
  }
  config.layers = std::move(layers);
  for (const std::string& name : outputs) {
    config.outputs.push_back({name, {name, {}}});
  }
  return config;
}

HostTensor floats(Shape shape, const std::vector<double>& values) {
  return tensor_of<double>(DType::kFloat32, std::move(shape), values);
}

HostTensor ints(Shape shape, const std::vector<double>& values) {
  return tensor_of<double>(DType::kInt32, std::move(shape), values);
}

std::vector<double> numbers(const HostTensor& tensor) {
  std::vector<double> out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(tensor.at(i));
  }
  return out;
}

std::vector<HostTensor> run(
    const std::vector<const HostTensor*>& inputs,
    const std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>& make) {
  Graph graph;
  Builder builder(graph);
  std::vector<ValueId> values;
  std::map<std::string, const HostTensor*> by_name;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    values.push_back(builder.input(name, inputs[i]->shape(), inputs[i]->dtype(), false));
    by_name[name] = inputs[i];
  }
  const std::vector<ValueId> results = make(builder, values);
  verify(graph);
  const Interpretation run = interpret(graph, by_name, {});
  std::vector<HostTensor> out;
  for (const ValueId result : results) {
    out.push_back(run.values[result].clone());
  }
  return out;
}

std::vector<double> run_one(
    const std::vector<const HostTensor*>& inputs,
    const std::function<ValueId(Builder&, const std::vector<ValueId>&)>& make) {
  return numbers(run(inputs, [&](Builder& b, const std::vector<ValueId>& values) {
    return std::vector<ValueId>{make(b, values)};
  })[0]);
}

HostTensor run_model(const Model& model, const std::vector<const HostTensor*>& inputs,
                     const std::vector<std::pair<std::string, HostTensor>>& weights,
                     bool training) {
  Graph graph;
  Builder b(graph);
  std::map<std::string, const HostTensor*> by_name;
  std::vector<ValueId> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "in" + std::to_string(i);
    values.push_back(b.input(name, inputs[i]->shape(), inputs[i]->dtype(), true));
    by_name[name] = inputs[i];
  }
  const HostTensor step = tensor_of<int>(DType::kInt64, {}, {0});
  by_name["step"] = &step;
  const ValueId step_value = training ? b.input("step", {}, DType::kInt64, false) : kNone;
  std::vector<ValueId> parameters;
  std::vector<HostTensor> stored;
  for (const Weight* weight : model.weights()) {
    parameters.push_back(b.parameter(
        b.add_variable({.path = weight->path, .shape = weight->shape, .dtype = weight->dtype})));
    stored.push_back(weight->initializer(weight->shape, weight->dtype, 1, weight->path));
    for (const auto& [path, value] : weights) {
      if (path == weight->path) {
        stored.back() = value.clone();
      }
    }
  }
  const std::vector<ValueId> outputs =
      model.apply(b, values, parameters, training, step_value, 7, nullptr);
  verify(graph);
  std::vector<const HostTensor*> variables;
  for (const HostTensor& tensor : stored) {
    variables.push_back(&tensor);
  }
  return interpret(graph, by_name, variables).values[outputs[0]].clone();
}

void check_near(const std::vector<double>& found, const std::vector<double>& expected,
                double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CAPTURE(found[i]);
    CAPTURE(expected[i]);
    CHECK(std::abs(found[i] - expected[i]) <= tolerance);
  }
}

}  // namespace meshtrain::testing
