// Initializers, activations, host-side transforms: Keras 3.16 keras/src/initializers,
// keras/src/activations/activations.py.
#include <algorithm>

#include "config/catalogue_args.h"
#include "config/refused.h"

namespace meshtrain {

std::vector<ClassSpec> initializer_classes() {
  const Spec mean = number("mean", "0.0", "mean of the values");
  const Spec stddev = number("stddev", "0.05", "standard deviation").least(0);
  const Spec gain = number("gain", "1.0", "factor on the matrix");
  std::vector<ClassSpec> out = {
      make_class("Zeros", "zeros", {}, {"zero"}),
      make_class("Ones", "ones", {}, {"one"}),
      make_class("Constant", "one value", {number("value", "0.0", "the value")}),
      make_class("Identity", "the identity matrix", {gain}, {"IdentityInitializer"}),
      make_class("RandomNormal", "normal", {mean, stddev, seed_arg()}, {"normal"}),
      make_class("RandomUniform", "uniform",
                 {number("minval", "-0.05", "lower end"), number("maxval", "0.05", "upper end"),
                  seed_arg()},
                 {"uniform"}),
      make_class("TruncatedNormal", "normal, drawn again beyond two deviations",
                 {mean, stddev, seed_arg()}),
      make_class("VarianceScaling", "variance scale / fan",
                 {number("scale", "1.0", "factor on the variance").above(0),
                  choice("mode", {"fan_in", "fan_out", "fan_avg"}, "fan_in", "which fan"),
                  choice("distribution", {"truncated_normal", "untruncated_normal", "uniform"},
                         "truncated_normal", "of the values"),
                  seed_arg()}),
      make_class("Orthogonal", "an orthogonal matrix", {gain, seed_arg()},
                 {"OrthogonalInitializer"}),
      make_class("STFT", "a short-time Fourier transform's cosines or sines",
                 {choice("side", {"real", "imag"}, "real", "cosines or sines"), stft_window_arg(),
                  stft_scaling_arg(), stft_periodic_arg()},
                 {"stft", "STFTInitializer"}),
  };
  for (const char* family : {"Glorot", "He", "Lecun"}) {
    for (const char* distribution : {"Uniform", "Normal"}) {
      out.push_back(make_class(std::string(family) + distribution,
                               "VarianceScaling as its authors proposed", {seed_arg()}));
    }
  }
  return out;
}

std::vector<ClassSpec> activation_classes() {
  const Spec axis = integer("axis", "-1", "axis of the rows");
  const Spec alpha = number("alpha", "1.0", "scale below 0").above(0);
  const Spec half = number("threshold", "0.5", "where the zero ends").least(0);
  return {
      make_class("linear", "x", {}),
      make_class("relu", "max(x, 0)",
                 {number("negative_slope", "0.0", "slope below the threshold"),
                  number("max_value", "null", "upper limit").least(0),
                  number("threshold", "0.0", "where the identity begins")}),
      make_class("leaky_relu", "x above 0, slope below",
                 {number("negative_slope", "0.2", "slope below 0")}),
      make_class("relu6", "min(max(x, 0), 6)", {}),
      make_class("elu", "x above 0, alpha (e^x - 1) below", {alpha}),
      make_class("celu", "x above 0, alpha (e^(x/alpha) - 1) below", {alpha}),
      make_class("selu", "scaled elu", {}),
      make_class("softplus", "log(1 + e^x)", {}),
      make_class("softsign", "x / (1 + |x|)", {}),
      make_class("squareplus", "(x + sqrt(x^2 + b)) / 2",
                 {number("b", "4", "smoothness").above(0)}),
      make_class("soft_shrink", "towards 0 by the threshold", {half}),
      make_class("hard_shrink", "0 within the threshold", {half}),
      make_class("tanh_shrink", "x - tanh x", {}),
      make_class("sparse_plus", "0 below -1, x above 1, a parabola between", {}),
      make_class("silu", "x sigmoid(x)", {}, {"swish"}),
      make_class("gelu", "x times the normal distribution function",
                 {boolean("approximate", "false", "the tanh form")}),
      make_class("glu", "first half times sigmoid of the second", {axis}),
      make_class("tanh", "hyperbolic tangent", {}),
      make_class("sigmoid", "1 / (1 + e^-x)", {}),
      make_class("exponential", "e^x", {}),
      make_class("sparse_sigmoid", "clip((x + 1) / 2, 0, 1)", {}),
      make_class("hard_sigmoid", "relu6(x + 3) / 6", {}),
      make_class("hard_silu", "x hard_sigmoid(x)", {}, {"hard_swish"}),
      make_class("hard_tanh", "clip(x, -1, 1)", {}),
      make_class("mish", "x tanh(softplus x)", {}),
      make_class("log_sigmoid", "-softplus(-x)", {}),
      make_class("softmax", "exponentials that sum to 1", {axis}),
      make_class("log_softmax", "logarithm of softmax", {axis}),
      make_class("sparsemax", "projection onto the simplex", {axis}),
      make_class("threshold", "x above the threshold, else a constant",
                 {number("threshold", "", "where x begins").required(),
                  number("default_value", "", "the constant").required()}),
  };
}

namespace {

void check_masked_lm(const ClassScope& scope) {
  const ConfigObject& given = scope.object;
  const auto is_known = [&](std::string_view argument) {
    return !is_refused(scope.diagnostics, given, argument);
  };
  const int64_t vocabulary = given.integer("vocabulary_size");
  if (given.integer("mask_token_id") >= vocabulary && is_known("mask_token_id") &&
      is_known("vocabulary_size")) {
    scope.diagnostics
        .error("E113", given.loc_of("mask_token_id"),
               fmt::format("`mask_token_id` is {}, but ids are below `vocabulary_size: {}`",
                           given.integer("mask_token_id"), vocabulary))
        .help("where the mask has no id in the data, count one more id");
  }
  if (given.number("mask_token_rate") + given.number("random_token_rate") > 1 + 1e-9) {
    scope.diagnostics
        .error("E113", given.loc_of("random_token_rate"),
               fmt::format("`mask_token_rate` {} and `random_token_rate` {} are more than 1",
                           given.number("mask_token_rate"), given.number("random_token_rate")))
        .help("the rest up to 1 leaves tokens as they are");
  }
}

// Arguments in the order of Keras Hub.
ClassSpec masked_lm() {
  ClassSpec spec = make_class(
      "MaskedLMMaskGenerator",
      "hides tokens: inputs `token_ids` and `mask_positions`, target `mask_ids`, weights",
      {integer("vocabulary_size", "", "random tokens are below")
           .required()
           .least(1)
           .most(INT32_MAX),
       number("mask_selection_rate", "", "part of the selectable tokens that is hidden")
           .required()
           .above(0)
           .most(1),
       integer("mask_token_id", "", "what stands for a hidden token").required().least(0),
       integer("mask_selection_length", "null",
               "most hidden tokens of a sample, and size of the outputs; as many as the rate "
               "selects when null")
           .least(1)
           .most(1000000),
       make_spec("unselectable_token_ids", ValueKind::kIntOrList, "0", "tokens that stay").least(0),
       number("mask_token_rate", "0.8", "part of hidden tokens that become `mask_token_id`")
           .least(0)
           .most(1),
       number("random_token_rate", "0.1", "part that become a random token; the rest stays")
           .least(0)
           .most(1)});
  spec.check = check_masked_lm;
  return spec;
}

void check_cut_mix(const ClassScope& scope) {
  const ConfigValue& factor = scope.object.arg("factor");
  const std::vector<double> ends =
      factor.is_list() ? factor.numbers() : std::vector<double>{factor.number()};
  const bool is_inside =
      std::all_of(ends.begin(), ends.end(), [](double end) { return end >= 0 && end <= 1; });
  if (!is_inside || (factor.is_list() && ends.size() != 2)) {
    scope.diagnostics
        .error("E113", factor.loc, "`factor` of `CutMix` is not one or two numbers from 0 to 1")
        .help("write 1.0, or [0.5, 1.0]");
  }
}

ClassSpec mix_up() {
  ClassSpec spec = make_class(
      "MixUp", "in training: each sample and its targets mixed with another of the batch",
      {number("alpha", "0.2", "of the distribution of shares; 1: all shares alike").above(0),
       choice("data_format", {"channels_last", "channels_first"}, "null",
              "mixes both in the same way"),
       seed_arg()});
  spec.changes_batches = true;
  return spec;
}

ClassSpec cut_mix() {
  Spec data_format = choice("data_format", {"channels_last", "channels_first"}, "null",
                            "where the channels are; null = channels_last");
  ClassSpec spec = make_class(
      "CutMix", "in training: a part of each image from another of the batch, targets mixed alike",
      {make_spec("factor", ValueKind::kFloatOrList, "1.0",
                 "of the distribution of sizes, drawn for a batch; f = [0, f]"),
       seed_arg(), std::move(data_format)});
  spec.check = check_cut_mix;
  spec.changes_batches = true;
  return spec;
}

}  // namespace

bool changes_batches(const ConfigObject& transform) {
  return class_of_object(Category::kTransform, transform).changes_batches;
}

bool is_mixing(const ConfigObject& transform) {
  return transform.class_name == "MixUp" || transform.class_name == "CutMix";
}

std::vector<ClassSpec> transform_classes() {
  std::vector<ClassSpec> out = {
      make_class("Rescaling", "x scale + offset",
                 {make_spec("scale", ValueKind::kFloatOrList, "", "factor").required(),
                  make_spec("offset", ValueKind::kFloatOrList, "0.0", "added")}),
      make_class("Reshape", "to another shape of a sample",
                 {make_spec("target_shape", ValueKind::kShape, "", "sizes without the batch")
                      .required()
                      .infer_ok()
                      .empty_ok()}),
      masked_lm(),
      mix_up(),
      cut_mix(),
  };
  for (ClassSpec& spec : moving_transform_classes()) {
    out.push_back(std::move(spec));
  }
  for (const auto& classes : {column_transform_classes(), image_column_classes()}) {
    out.insert(out.end(), classes.begin(), classes.end());
  }
  return out;
}

}  // namespace meshtrain
