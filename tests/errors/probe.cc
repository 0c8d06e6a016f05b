#include "errors/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"

namespace meshtrain {
namespace {

// A right value of an argument that must be given.
std::string right_value(const ClassSpec& spec, const Spec& arg) {
  static const std::map<std::string, std::string, std::less<>> kValues = {
      {"Lambda.function", "\"=x * 2\""},
      {"EinsumDense.equation", "\"abcd,de->abce\""},
      {"EinsumDense.output_shape", "[6, 6, 3]"},
      {"Reshape.target_shape", "[-1]"},
      {"Bidirectional.layer", "{LSTM: 2}"},
      {"Bidirectional.backward_layer", "{GRU: {units: 2, go_backwards: true}}"},
      {"TimeDistributed.layer", "{Dense: 2}"},
      {"SpectralNormalization.layer", "{Dense: 2}"},
      {"RNN.cell", "{LSTMCell: 2}"},
      {"StackedRNNCells.cells", "[{LSTMCell: 2}]"},
      {"Permute.dims", "[2, 1, 3]"},
      {"Dot.axes", "1"},
      {"PositionEmbedding.sequence_length", "6"},
      {"TokenAndPositionEmbedding.sequence_length", "6"},
      {"ViTPatchingAndEmbedding.image_size", "[6, 6]"},
      {"ViTPatchingAndEmbedding.patch_size", "[2, 2]"},
      {"Call.layer", "before"},
      {"Repeat.layers", "[ReLU]"},
      {"PiecewiseConstantDecay.boundaries", "[10, 20]"},
      {"PiecewiseConstantDecay.values", "[0.1, 0.05, 0.01]"},
      {"LossScaleOptimizer.inner_optimizer", "sgd"},
      {"target_class_ids", "[0]"},
      {"activation", "relu"},
      {"RandomPosterization.factor", "4"},
      {"factor", "0.2"},
      {"height_factor", "0.2"},
      {"width_factor", "0.2"},
      {"rate", "0.5"},
      {"stddev", "0.5"},
  };
  const auto own = kValues.find(fmt::format("{}.{}", spec.name, arg.name));
  const auto any = kValues.find(arg.name);
  if (own != kValues.end() || any != kValues.end()) {
    return own != kValues.end() ? own->second : any->second;
  }
  switch (arg.kind) {
    case ValueKind::kFloat:
    case ValueKind::kFloatOrObject:
    case ValueKind::kFloatOrList:
      return "0.5";
    case ValueKind::kShape:
      return "[2]";
    case ValueKind::kObject:
      return class_names(arg.category).front();
    case ValueKind::kText:
      return "a";
    case ValueKind::kEnum:
      return arg.allowed.front();
    default:
      return "2";
  }
}

std::string arguments_of(const ClassSpec& spec, const ProbeArguments& given,
                         const std::string& left_out) {
  std::vector<std::string> parts;
  std::set<std::string> done;
  for (const auto& [name, value] : given) {
    parts.push_back(fmt::format("{}: {}", name, value));
    done.insert(name);
  }
  std::vector<Spec> needed;
  for (const Spec& arg : spec.args) {
    const bool is_wanted = arg.is_required || (spec.name == "Repeat" && arg.name == "layers");
    if (is_wanted && arg.name != left_out && !done.contains(arg.name)) {
      parts.push_back(fmt::format("{}: {}", arg.name, right_value(spec, arg)));
    }
  }
  if (spec.category == Category::kLayer) {
    if (!done.contains("name") && spec.name != "Repeat" && spec.find("name") != nullptr) {
      parts.push_back("name: probe");
    }
    if (spec.name == "GroupNormalization" && !done.contains("groups")) {
      parts.push_back("groups: 2");  // the default of 32 divides few channels
    }
    if (spec.name == "Discretization" && !done.contains("bin_boundaries") &&
        !done.contains("num_bins") && left_out != "num_bins") {
      parts.push_back("num_bins: 3");
    }
    if (takes_two_inputs(spec.name) && !done.contains("inputs")) {
      parts.push_back("inputs: [x, before]");
    }
  }
  return "{" + join(parts, ", ") + "}";
}

// The config around one line, whose place is marked with `@`.
constexpr const char* kFrame = R"(model:
  layers:
    - Input: {{name: x, shape: {shape}}}
    - Identity: {{name: before}}
    {layer}
compile:
  loss: {loss}
  metrics: [{metric}]
  optimizer: {optimizer}
data: {{train: {{source: random, samples: 8, shape: [4], labels: [2]}}}}
)";

}  // namespace

bool says(const Diagnostic& d, const std::string& part) {
  const auto has = [&](const std::string& text) { return text.find(part) != std::string::npos; };
  return has(d.message) || has(d.label) || std::any_of(d.notes.begin(), d.notes.end(), has);
}

bool takes_two_inputs(const std::string& class_name) {
  static const std::set<std::string> kNames = {
      "Add",       "Subtract",          "Multiply",         "Average",
      "Maximum",   "Minimum",           "Concatenate",      "Dot",
      "Attention", "AdditiveAttention", "CustomScaleLayer", "MaskedLMHead"};
  return kNames.contains(class_name);
}

Probe make_probe(const ClassSpec& spec, const ProbeArguments& given, const std::string& left_out,
                 const std::string& shape) {
  std::string layer = "- Identity: {name: probe}";
  std::string loss = "mse";
  std::string metric = "mse";
  std::string optimizer = "sgd";
  const std::string use = fmt::format("{{{}: {}}}", spec.name, arguments_of(spec, given, left_out));
  int line = 5;
  switch (spec.category) {
    case Category::kLayer:
      // An Input takes nothing: what is above it needs another user.
      layer = "- " + use + (spec.name == "Input" ? "\n    - Add: {inputs: [before, probe]}" : "");
      break;
    case Category::kLoss:
      loss = use;
      line = 7;
      break;
    case Category::kMetric:
      metric = use;
      line = 8;
      break;
    case Category::kOptimizer:
      optimizer = use;
      line = 9;
      break;
    case Category::kSchedule:
      optimizer = fmt::format("{{SGD: {{learning_rate: {}}}}}", use);
      line = 9;
      break;
    case Category::kInitializer:
      layer = fmt::format("- Dense: {{name: probe, units: 2, kernel_initializer: {}}}", use);
      break;
    case Category::kRegularizer:
      layer = fmt::format("- Dense: {{name: probe, units: 2, kernel_regularizer: {}}}", use);
      break;
    case Category::kConstraint:
      layer = fmt::format("- Dense: {{name: probe, units: 2, kernel_constraint: {}}}", use);
      break;
    default:
      layer = fmt::format("- Dense: {{name: probe, units: 2, activation: {}}}", use);
  }
  return {fmt::format(kFrame, fmt::arg("shape", shape), fmt::arg("layer", layer),
                      fmt::arg("loss", loss), fmt::arg("metric", metric),
                      fmt::arg("optimizer", optimizer)),
          line};
}

}  // namespace meshtrain
