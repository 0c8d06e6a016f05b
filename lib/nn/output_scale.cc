#include "nn/output_scale.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/loss_functions.h"
#include "nn/metric.h"

namespace meshtrain {
namespace {

bool has_part(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The key of the function that a layer ends with: "softmax"; "linear" for none, nothing for a layer
// that is no linear map with an activation.
std::optional<std::string> final_activation(std::string_view name, const ConfigObject* config) {
  if (name == "Softmax") {
    return "softmax";
  }
  if (config == nullptr) {
    return std::nullopt;
  }
  if (name == "TimeDistributed" || name == "SpectralNormalization") {
    const ConfigObject& each = config->arg("layer").object();
    return final_activation(each.class_name, &each);
  }
  const bool is_linear =
      name == "Dense" || name == "EinsumDense" || name == "MaskedLMHead" || has_part(name, "Conv");
  if (!is_linear && name != "Activation") {
    return std::nullopt;
  }
  const std::string key = named_value(value_or_null(*config, "activation")).key;
  return key.empty() ? "linear" : key;
}
std::optional<std::string> final_activation(const Layer& layer) {
  return final_activation(layer.class_name, layer.config());
}

OutputScale scale_of_activation(std::string_view key) {
  static constexpr std::string_view kBounded[] = {"softmax", "sigmoid", "hardsigmoid",
                                                  "sparsesigmoid", "sparsemax"};
  return is_one_of(key, kBounded)                 ? OutputScale::kProbabilities
         : key == "linear" || key == "logsoftmax" ? OutputScale::kLogits
                                                  : OutputScale::kUnknown;
}

// What a layer without an activation makes of inputs of this scale.
OutputScale scale_through(std::string_view class_name, OutputScale input) {
  static constexpr std::string_view kSame[] = {
      "Identity",   "ActivityRegularization", "Flatten", "Reshape", "Permute", "RepeatVector",
      "CenterCrop", "GaussianDropout",        "Average", "Maximum", "Minimum", "Concatenate"};
  static constexpr std::string_view kLinear[] = {"Add", "Subtract"};
  const bool is_same = is_one_of(class_name, kSame) || has_part(class_name, "Dropout") ||
                       has_part(class_name, "Noise") || has_part(class_name, "Pooling") ||
                       has_part(class_name, "Cropping") || has_part(class_name, "Padding") ||
                       has_part(class_name, "UpSampling");
  const bool is_linear = is_one_of(class_name, kLinear) || has_part(class_name, "Normalization");
  return is_same || (is_linear && input == OutputScale::kLogits) ? input : OutputScale::kUnknown;
}

OutputOrigin origin_of(const Model& model, const Model::Call& call,
                       const std::vector<OutputOrigin>& before) {
  if (call.is_input || call.inputs.empty()) {
    return {};
  }
  const Layer& layer = *model.layers()[call.layer];
  const OutputOrigin first = before[static_cast<size_t>(call.inputs[0])];
  if (layer.class_name == "ReversibleEmbedding" && call.use.call_flag("reverse")) {
    return {OutputScale::kLogits, &layer};
  }
  const std::optional<std::string> activation = final_activation(layer);
  if (activation && (layer.class_name != "Activation" || *activation != "linear")) {
    const OutputScale scale = scale_of_activation(*activation);
    return {scale, scale == OutputScale::kUnknown ? nullptr : &layer};
  }
  const bool are_alike = std::all_of(call.inputs.begin(), call.inputs.end(), [&](int input) {
    return before[static_cast<size_t>(input)].scale == first.scale;
  });
  const OutputScale scale = !are_alike   ? OutputScale::kUnknown
                            : activation ? first.scale
                                         : scale_through(layer.acting_class(), first.scale);
  return {scale, scale == OutputScale::kUnknown ? nullptr : first.layer};
}

// What a loss or a metric expects, as configured.
struct Expectation {
  Expects kind = Expects::kAnything;
  std::string class_name;  // to write
  std::string cure;        // arguments with which it takes logits; "" when there are none
};

Expectation expectation_of_loss(const ConfigObject& loss) {
  Expectation out{loss_expects(loss.class_name), loss.class_name, {}};
  const bool has_choice = out.kind == Expects::kProbabilities &&
                          has_part(name_key(loss.class_name), "crossentropy") &&
                          loss.class_name != "CategoricalGeneralizedCrossEntropy";
  if (has_choice) {
    out.cure = "from_logits: true";
    out.kind = boolean_or(loss, "from_logits", false) ? Expects::kLogits : out.kind;
  }
  return out;
}

bool is_given(const ConfigObject& object, std::string_view argument) {
  return object.has(argument) && !object.arg(argument).is_default;
}

Expectation expectation_of_metric(const ConfigObject& metric, const CheckedOutput& output) {
  static constexpr std::string_view kSwept[] = {"sensitivityatspecificity",
                                                "specificityatsensitivity", "precisionatrecall",
                                                "recallatprecision"};
  static constexpr std::string_view kCounts[] = {
      "truepositives", "falsepositives", "truenegatives", "falsenegatives", "precision", "recall"};
  ConfigObject fitting = metric;
  fitting.class_name = metric_class(metric, output.y_true, output.y_pred);
  const std::string key = name_key(fitting.class_name);
  if (is_loss_function(key)) {
    return expectation_of_loss(fitting);
  }
  Expectation out{Expects::kProbabilities, fitting.class_name, {}};
  if (key == "auc" || key == "perplexity" || key == "bitsperbyte") {
    out.cure = "from_logits: true";
    out.kind = boolean_or(metric, "from_logits", false) ? Expects::kLogits : out.kind;
  } else if (is_one_of(key, kCounts)) {
    const bool is_meant = is_given(metric, "thresholds") || metric.has("top_k");
    out = {is_meant ? Expects::kAnything : out.kind, out.class_name, "thresholds: 0"};
  } else if (key == "binaryaccuracy" || key == "binaryiou") {
    const bool is_meant = is_given(metric, "threshold");
    out = {is_meant ? Expects::kAnything : out.kind, out.class_name, "threshold: 0"};
  } else if (!is_one_of(key, kSwept)) {
    out.kind = Expects::kAnything;
  }
  return out;
}

// The activation that gives what is expected.
std::string fitting_activation(const Expectation& expected, const CheckedOutput& output) {
  const std::string key = name_key(expected.class_name);
  const bool is_single = output.y_pred.empty() || output.y_pred.back() == 1;
  const bool is_categorical = has_part(key, "categorical") || key == "kldivergence" ||
                              key == "perplexity" || key == "bitsperbyte";
  const bool is_region = key == "dice" || key == "tversky";
  return expected.kind == Expects::kRates              ? "exponential"
         : is_categorical || (is_region && !is_single) ? "softmax"
                                                       : "sigmoid";
}

void explain_logits(const Expectation& expected, const CheckedOutput& output, Diagnostic& d) {
  const Layer& layer = *output.origin.layer;
  const std::string activation = fitting_activation(expected, output);
  d.note(fmt::format(
      "`{}` is at {} and ends with {}", layer.name, layer.loc.to_string(),
      final_activation(layer).value_or("") == "logsoftmax" ? "`log_softmax`" : "no activation"));
  d.help(output.call.name == layer.name
             ? fmt::format("give `{}` `activation: {}`", layer.name, activation)
             : fmt::format("add `- Activation: {}` after `{}`", activation, output.call.name));
  if (!expected.cure.empty()) {
    d.help(fmt::format("or write `{}: {{{}}}`", expected.class_name, expected.cure));
  }
}

void explain_probabilities(const Expectation& expected, const CheckedOutput& output,
                           Diagnostic& d) {
  const Layer& layer = *output.origin.layer;
  const std::string activation = final_activation(layer).value_or("");
  d.note(fmt::format("`{}` is at {}", layer.name, layer.loc.to_string()));
  d.help(fmt::format("remove the {} of `{}`", activation, layer.name));
  if (!expected.cure.empty()) {
    d.help("or write `from_logits: false`");
  }
}

void warn(const ConfigObject& object, const std::string& what, const Expectation& expected,
          const CheckedOutput& output, Diagnostics& diagnostics) {
  const OutputScale scale = output.origin.scale;
  const bool gets_logits =
      scale == OutputScale::kLogits &&
      (expected.kind == Expects::kRates || expected.kind == Expects::kProbabilities);
  const bool gets_probabilities =
      scale == OutputScale::kProbabilities && expected.kind == Expects::kLogits;
  if (!gets_logits && !gets_probabilities) {
    return;
  }
  const char* expects = gets_probabilities                 ? "logits"
                        : expected.kind == Expects::kRates ? "values above 0"
                                                           : "probabilities";
  const bool is_said = gets_probabilities && is_given(object, "from_logits");
  Diagnostic& d =
      diagnostics.warning("W123", is_said ? object.loc_of("from_logits") : object.loc,
                          fmt::format("{} expects {}, and the output `{}` gives {}", what, expects,
                                      output.call.name, gets_logits ? "logits" : "probabilities"));
  if (gets_logits) {
    explain_logits(expected, output, d);
  } else {
    explain_probabilities(expected, output, d);
  }
}

}  // namespace

std::vector<OutputOrigin> output_origins(const Model& model) {
  std::vector<OutputOrigin> out;
  for (const Model::Call& call : model.calls()) {
    out.push_back(origin_of(model, call, out));
  }
  return out;
}

std::optional<bool> takes_logits(const ConfigObject& loss) {
  const Expects kind = expectation_of_loss(loss).kind;
  return kind == Expects::kLogits || kind == Expects::kProbabilities
             ? std::optional(kind == Expects::kLogits)
             : std::nullopt;
}

void warn_of_loss_scale(const ConfigObject& loss, const CheckedOutput& output,
                        Diagnostics& diagnostics) {
  warn(loss, fmt::format("`{}`", loss.spelled.empty() ? loss.class_name : loss.spelled),
       expectation_of_loss(loss), output, diagnostics);
}

void warn_of_single_class(const ConfigObject& object, const CheckedOutput& output,
                          Diagnostics& diagnostics) {
  const std::string key = name_key(object.class_name);
  const bool is_loss = has_part(key, "crossentropy");
  const bool tells_classes = has_part(key, "categorical") && (is_loss || has_part(key, "accuracy"));
  if (!tells_classes || output.y_pred.size() < 2 || num_classes(object, output.y_pred) != 1) {
    return;
  }
  diagnostics
      .warning("W128", object.loc,
               fmt::format(
                   "`{}` compares classes, and the output `{}` has one: every sample gets the same "
                   "value",
                   object.spelled.empty() ? object.class_name : object.spelled, output.call.name))
      .help(is_loss ? "for yes or no: `binary_crossentropy`, and one unit with a sigmoid"
                    : "for yes or no: `binary_accuracy`, of one unit with a sigmoid")
      .help("else give the last layer a unit for each class");
}

void warn_of_constant_output(const CheckedOutput& output, Diagnostics& diagnostics) {
  const Layer* const layer = output.origin.layer;
  if (layer == nullptr || output.y_pred.size() != 2 || output.y_pred.back() != 1 ||
      final_activation(*layer).value_or("") != "softmax") {
    return;
  }
  diagnostics
      .warning(
          "W124", layer->loc,
          fmt::format("the output `{}` is always 1: softmax over a single value", output.call.name))
      .help("`activation: sigmoid` for yes or no, or a unit for each class");
}

void warn_of_metric_scale(const ConfigObject& metric, const CheckedOutput& output,
                          Diagnostics& diagnostics) {
  if (output.origin.scale == OutputScale::kLogits && !output.is_trained_as_logits) {
    return;
  }
  warn(metric,
       fmt::format("metric `{}`", metric.spelled.empty() ? metric.class_name : metric.spelled),
       expectation_of_metric(metric, output), output, diagnostics);
}

}  // namespace meshtrain
