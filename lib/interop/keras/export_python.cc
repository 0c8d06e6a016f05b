#include "interop/keras/export_python.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "config/cells.h"
#include "config/optimizer_members.h"
#include "interop/keras/export_call.h"
#include "interop/keras/export_model.h"
#include "interop/keras/export_objects.h"
#include "interop/keras/layer_order.h"
#include "interop/keras/python_values.h"
#include "interop/keras/weights.h"
#include "nn/expression_text.h"
#include "nn/tensor_program.h"

namespace meshtrain {
namespace {

class ScriptWriter {
 public:
  ScriptWriter(const Config& config, const Model& model, const KerasDistribution& distribution)
      : config_(config),
        model_(model),
        distribution_(distribution),
        names_(model),
        configs_(config.model, model) {}

  std::string write(const std::string& source, const std::string& weights) {
    std::string out = fmt::format(
        "\"\"\"{} as a Keras script. Written by meshtrain; needs Keras 3.14 or later with "
        "JAX.\"\"\"\n",
        source);
    out += imports();
    if (is_distributed()) {
      out += "\n" + distribution();
    }
    out += "\n\n" + build_model() + "\n\nmodel = build_model()\n" + compile();
    if (!weights.empty()) {
      out += fmt::format(
          "model.load_weights(os.path.join(os.path.dirname(os.path.abspath(__file__)), {}))\n",
          python_text(weights));
    }
    return out + fit();
  }

 private:
  bool is_distributed() const {
    return std::any_of(distribution_.mesh_shape.begin(), distribution_.mesh_shape.end(),
                       [](int64_t size) { return size > 1; });
  }
  bool is_double() const { return config_.dtype_policy.value == "float64"; }

  std::string imports() const {
    std::string out = "import os\n\nos.environ.setdefault(\"KERAS_BACKEND\", \"jax\")\n";
    if (is_distributed()) {
      int64_t devices = 1;
      for (const int64_t size : distribution_.mesh_shape) {
        devices *= size;
      }
      out += fmt::format(
          "# As many virtual devices, where there are no others.\n"
          "os.environ.setdefault(\"XLA_FLAGS\", \"--xla_force_host_platform_device_count={}\")\n",
          devices);
    }
    out += "\nimport keras\n" + further_imports() + "\n";
    if (is_double()) {
      out +=
          "import jax\n\njax.config.update(\"jax_enable_x64\", True)\n"
          "keras.config.set_floatx(\"float64\")\n";
    } else if (config_.dtype_policy.value != "float32") {
      out += fmt::format("keras.config.set_dtype_policy({})\n",
                         python_text(config_.dtype_policy.value));
    }
    return out + fmt::format("keras.utils.set_random_seed({})\n", config_.seed.value);
  }

  // Keras Hub, and modules of Keras that `import keras` leaves out.
  std::string further_imports() const {
    std::set<std::string> modules;
    for (const auto& layer : model_.layers()) {
      if (const std::string module = module_of_layer(layer->class_name); module != "keras.layers") {
        modules.insert(module == "keras_hub.layers" ? "keras_hub" : module);
      }
    }
    std::string out;
    for (const std::string& module : modules) {
      out += "import " + module + "\n";
    }
    return out;
  }

  std::string distribution() const {
    std::vector<std::string> sizes, axes;
    for (size_t i = 0; i < distribution_.mesh_shape.size(); ++i) {
      sizes.push_back(fmt::format("{}", distribution_.mesh_shape[i]));
      axes.push_back(python_text(distribution_.axis_names[i]));
    }
    std::string out;
    for (const std::string& note : distribution_.notes) {
      out += "# " + note + "\n";
    }
    out += fmt::format("mesh = keras.distribution.DeviceMesh(({},), [{}])\n", join(sizes, ", "),
                       join(axes, ", "));
    if (config_.distribution.type != DistributionType::kModelParallel) {
      return out +
             "keras.distribution.set_distribution("
             "keras.distribution.DataParallel(device_mesh=mesh))\n";
    }
    out += "layout_map = keras.distribution.LayoutMap(mesh)\n";
    const std::string prefix =
        is_keras_sequential(config_.model, model_) ? model_.name() + "/" : "";
    for (const KerasDistribution::Layout& layout : distribution_.layouts) {
      std::vector<std::string> dims;
      for (const std::string& axis : layout.axes) {
        dims.push_back(axis.empty() ? "None" : python_text(axis));
      }
      out += fmt::format("layout_map[{}] = ({},){}\n", python_text(prefix + layout.path),
                         join(dims, ", "), layout.rule.empty() ? "" : "  # " + layout.rule);
    }
    return out + fmt::format(
                     "keras.distribution.set_distribution(\n    keras.distribution.ModelParallel("
                     "layout_map=layout_map, batch_dim_name={})\n)\n",
                     python_text(distribution_.batch_axis));
  }

  // --- model -----------------------------------------------------------------------------------

  std::string build_model() {
    std::string out = "def build_model():\n";
    if (is_keras_sequential(config_.model, model_)) {
      out += "    return keras.Sequential(\n        [\n";
      for (size_t i = 0; i < model_.calls().size(); ++i) {
        out += fmt::format("            {},\n", constructor(static_cast<int>(i)));
      }
      return out + fmt::format("        ],\n        name={},\n    )\n", python_text(model_.name()));
    }
    std::map<int, int> uses;
    for (const Model::Call& call : model_.calls()) {
      if (call.result_of == kNone) {
        uses[call.is_input ? -1 : call.layer]++;
      }
    }
    for (const auto& layer : model_.layers()) {
      if (layer->tied_index != kNone) {
        uses[layer->tied_index]++;
      }
    }
    std::map<int, std::string>& shared = layer_variables_;  // used more than once
    std::vector<std::string> variables;
    for (size_t i = 0; i < model_.calls().size(); ++i) {
      const Model::Call& call = model_.calls()[i];
      if (call.result_of != kNone) {
        continue;  // named with the call
      }
      variables.push_back(identifier(call.name));
      if (call.is_input) {
        out += fmt::format("    {} = {}\n", variables[i], constructor(static_cast<int>(i)));
        continue;
      }
      if (const TensorProgram* program = model_.layers()[call.layer]->program()) {
        out += operations(*program, i, variables);
        continue;
      }
      std::string layer = constructor(static_cast<int>(i));
      if (uses[call.layer] > 1 && !shared.contains(call.layer)) {
        shared[call.layer] = identifier(call.name + "_layer");
        out += fmt::format("    {} = {}\n", shared[call.layer], layer);
      }
      if (shared.contains(call.layer)) {
        layer = shared[call.layer];
      }
      std::string results = variables[i];
      std::vector<int> further;
      for (size_t j = i + 1; j < model_.calls().size() &&
                             model_.computing(static_cast<int>(j)) == static_cast<int>(i);
           ++j) {
        variables.push_back(identifier(model_.calls()[j].name));
        further.push_back(static_cast<int>(j));
      }
      for (const std::vector<int>& each :
           further.empty() ? std::vector<std::vector<int>>()
                           : nested_states(*model_.layers()[call.layer]->config(), further)) {
        results += ", " + list_of(each, variables);
      }
      out += fmt::format("    {} = {}({})\n", results, layer, arguments(i, variables));
    }
    return out + fmt::format("    return keras.Model({}, {}, name={})\n", inputs(variables),
                             outputs(variables), python_text(model_.name()));
  }

  // A Lambda as calls of keras.ops, a line each.
  std::string operations(const TensorProgram& program, size_t call,
                         std::vector<std::string>& variables) {
    std::vector<std::string> names;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      names.push_back(variables[model_.calls()[call].inputs[i]]);
    }
    std::string out;
    for (const TensorProgram::Call& operation : program.calls) {
      const bool is_result = static_cast<int>(names.size()) == program.result;
      const std::string name =
          is_result ? variables[call]
                    : identifier(fmt::format("{}_{}", variables[call], operation.operation->name));
      out += fmt::format("    {} = {}\n", name, call_text(operation, names, "keras.ops."));
      names.push_back(name);
    }
    variables[call] = names[static_cast<size_t>(program.result)];
    return out;
  }

  // One name, or a list of several.
  static std::string list_of(const std::vector<int>& calls,
                             const std::vector<std::string>& variables) {
    std::vector<std::string> names;
    for (const int call : calls) {
      names.push_back(variables[call]);
    }
    return names.size() == 1 ? names[0] : "[" + join(names, ", ") + "]";
  }

  std::string arguments(size_t at, const std::vector<std::string>& variables) const {
    const CallArguments call = call_arguments(model_, static_cast<int>(at));
    std::vector<std::string> out;
    for (const int input : call.args) {
      out.push_back(variables[input]);
    }
    if (call.as_list) {
      out = {"[" + join(out, ", ") + "]"};
    }
    for (const auto& [name, from] : call.tensors) {
      out.push_back(name + "=" + variables[from]);
    }
    for (const auto& [name, is_set] : call.flags) {
      out.push_back(name + (is_set ? "=True" : "=False"));
    }
    std::vector<std::string> states;
    for (const std::vector<int>& each : call.initial_state) {
      states.push_back(list_of(each, variables));
    }
    if (!states.empty()) {
      out.push_back("initial_state=[" + join(states, ", ") + "]");
    }
    return join(out, ", ");
  }

  std::string inputs(const std::vector<std::string>& variables) const {
    std::vector<std::string> out;
    for (const int call : model_.inputs()) {
      out.push_back(variables[call]);
    }
    return out.size() == 1 ? out[0] : "[" + join(out, ", ") + "]";
  }

  std::string outputs(const std::vector<std::string>& variables) const {
    std::vector<std::string> out;
    const bool named = has_named_outputs(model_);
    for (size_t i = 0; i < model_.outputs().size(); ++i) {
      const std::string& variable = variables[model_.outputs()[i]];
      out.push_back(named ? python_text(model_.output_names()[i]) + ": " + variable : variable);
    }
    return named             ? "{" + join(out, ", ") + "}"
           : out.size() == 1 ? out[0]
                             : "[" + join(out, ", ") + "]";
  }

  // "keras.layers.Dense(units=10, name="d2")"
  std::string constructor(int call) {
    const Model::Call& entry = model_.calls()[call];
    const ConfigObject& object = configs_.of_call(call);
    std::vector<std::string> parts;
    if (entry.is_input) {
      std::vector<std::string> sizes;
      for (size_t i = 1; i < entry.output_shape.size(); ++i) {
        const int64_t size = entry.output_shape[i];
        sizes.push_back(size == kUnknownDim ? "None" : fmt::format("{}", size));
      }
      parts.push_back(fmt::format("shape=({}{})", join(sizes, ", "), sizes.size() == 1 ? "," : ""));
      if (object.has("batch_size")) {
        parts.push_back(fmt::format("batch_size={}", object.integer("batch_size")));
      }
      parts.push_back(fmt::format("dtype=\"{}\"", dtype_name(entry.dtype)));
    } else {
      for (const auto& [spec, value] : keras_args(object, Category::kLayer, false)) {
        if (spec->name != "name") {
          parts.push_back(fmt::format("{}={}", spec->name, python_argument(*value, *spec)));
        }
      }
      const Layer& layer = *model_.layers()[entry.layer];
      if (tied_embedding(model_, layer) != kNone) {
        parts.push_back("token_embedding=" + layer_variables_.at(layer.tied_index));
      }
    }
    parts.push_back(fmt::format("name={}", python_text(names_.of_call(call))));
    return fmt::format("{}.{}({})", entry.is_input ? "keras" : module_of_layer(object.class_name),
                       object.class_name, join(parts, ", "));
  }

  // A name that Python accepts for a variable, used once.
  std::string identifier(const std::string& name) {
    std::string out = python_identifier(name);
    const std::string base = out;
    for (int i = 1; !identifiers_.insert(out).second; ++i) {
      out = fmt::format("{}_{}", base, i);
    }
    return out;
  }

  // --- compile ---------------------------------------------------------------------------------

  std::string compile() const {
    const CompileConfig& compile = config_.compile;
    const ConfigObject optimizer = keras_optimizer(config_, model_);
    std::string out =
        fmt::format("optimizer = {}\n", python_object(optimizer, Category::kOptimizer));
    const std::vector<OptimizerMember> members = optimizer_members(optimizer);
    for (size_t i = 0; i < members.size(); ++i) {
      if (!members[i].config->has("exclude_from_weight_decay")) {
        continue;
      }
      // Keras has the default one behind the others.
      const size_t place = (i + members.size() - 1) % members.size();
      out += fmt::format("optimizer{}.exclude_from_weight_decay(var_names={})\n",
                         members.size() == 1 ? "" : fmt::format(".optimizers[{}]", place),
                         python_value(members[i].config->arg("exclude_from_weight_decay"), Spec()));
    }
    out += "model.compile(\n    optimizer=optimizer,\n";
    const auto add = [&](const char* name, const std::string& value) {
      out += value.empty() ? "" : fmt::format("    {}={},\n", name, value);
    };
    add("loss", per_output(compile.loss, Category::kLoss, false));
    add("loss_weights", loss_weights());
    add("metrics", per_output(compile.metrics, Category::kMetric, true));
    add("weighted_metrics", per_output(compile.weighted_metrics, Category::kMetric, true));
    return out + ")\n";
  }

  std::string per_output(const std::vector<OutputObject>& entries, Category category,
                         bool as_lists) const {
    const std::vector<std::string> outputs = keras_outputs(model_, names_);
    std::vector<std::string> parts;
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::vector<std::string> list;
      for (const ConfigObject* object : objects_of(entries, model_.output_names()[i])) {
        const std::string name = bare_name(*object, category);
        list.push_back(name.empty() ? python_object(*object, category) : python_text(name));
      }
      if (!list.empty()) {
        const std::string value = as_lists ? "[" + join(list, ", ") + "]" : list[0];
        parts.push_back(outputs.size() == 1 ? value : python_text(outputs[i]) + ": " + value);
      } else if (!entries.empty() && !as_lists) {  // Keras wants a loss or None for each
        parts.push_back(python_text(outputs[i]) + ": None");
      }
    }
    return outputs.size() == 1 || parts.empty() ? join(parts, ", ") : "{" + join(parts, ", ") + "}";
  }

  std::string loss_weights() const {
    const bool is_one = model_.outputs().size() == 1;
    std::vector<std::string> parts;
    for (const auto& [output, weight] : keras_loss_weights(config_.compile, model_, names_)) {
      parts.push_back((is_one ? "" : python_text(output) + ": ") + format_shortest(weight));
    }
    if (parts.empty()) {
      return "";
    }
    return is_one ? "[" + parts[0] + "]" : "{" + join(parts, ", ") + "}";
  }

  std::string fit() const {
    return fmt::format("# model.fit(x, y, batch_size={}, epochs={})\n",
                       config_.fit.batch_size.value, config_.fit.epochs.value);
  }

  const Config& config_;
  const Model& model_;
  const KerasDistribution& distribution_;
  KerasNames names_;
  LayerConfigs configs_;
  std::set<std::string> identifiers_;
  std::map<int, std::string> layer_variables_;  // of layers that are named, by their index
};

}  // namespace

std::string keras_script(const Config& config, const Model& model,
                         const KerasDistribution& distribution, const std::string& source,
                         const std::string& weights) {
  return ScriptWriter(config, model, distribution).write(source, weights);
}

}  // namespace meshtrain
