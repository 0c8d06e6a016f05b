// Normalization layers and random noise: Keras 3.16
// keras/src/layers/normalization and regularization.
#include <fmt/format.h>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Args gamma_beta_args(Args first, double epsilon) {
  first.push_back(number("epsilon", fmt::format("{}", epsilon), "added to the variance").least(0));
  first.push_back(boolean("center", "true", "whether beta is added"));
  first.push_back(boolean("scale", "true", "whether gamma multiplies"));
  first.push_back(initializer_arg("beta_initializer", "zeros"));
  first.push_back(initializer_arg("gamma_initializer", "ones"));
  add_weight_args(first, "beta");
  add_weight_args(first, "gamma");
  return first;
}

const Section& renorm_limits() {
  static const Section fields{
      "renorm_clipping",
      {number("rmin", "null", "least factor"), number("rmax", "null", "largest factor"),
       number("dmax", "null", "largest shift, either way").least(0)}};
  return fields;
}

ClassSpec batch_normalization() {
  Args args = gamma_beta_args(
      {integer("axis", "-1", "axis of the channels"),
       number("momentum", "0.99", "part of the moving averages that each step keeps")
           .least(0)
           .most(1)},
      1e-3);
  args.push_back(initializer_arg("moving_mean_initializer", "zeros"));
  args.push_back(initializer_arg("moving_variance_initializer", "ones"));
  args.push_back(boolean("renorm", "false", "whether training corrects by moving averages"));
  args.push_back(
      section("renorm_clipping", renorm_limits(), "limits of the correction of renormalization"));
  args.push_back(number("renorm_momentum", "0.99", "part that the averages of renormalization keep")
                     .least(0)
                     .most(1));
  args.push_back(boolean("synchronized", "false",
                         "statistics of the global batch, which they always are here"));
  return layer_class("BatchNormalization", "statistics of each channel over the global batch",
                     args);
}

Spec rate() {
  return number("rate", "", "part that is dropped").required().least(0).most(1);
}

}  // namespace

std::vector<ClassSpec> normalization_layer_classes() {
  std::vector<ClassSpec> out = {
      batch_normalization(),
      layer_class(
          "LayerNormalization", "statistics of each sample over axes",
          gamma_beta_args({axes_arg("axis", "-1", "axis, or axes, of the statistics")}, 1e-3)),
      layer_class("GroupNormalization", "statistics of each sample over groups of channels",
                  gamma_beta_args({integer("groups", "32", "number of groups; -1 = one per channel")
                                       .least(-1)
                                       .most(kMaxSize),
                                   integer("axis", "-1", "axis of the channels")},
                                  1e-3)),
      layer_class("RMSNormalization", "x / root of the mean square, times a scale",
                  {axes_arg("axis", "-1", "axis, or axes, of the mean"),
                   number("epsilon", "1e-06", "added to the mean square").least(0)}),
      layer_class("UnitNormalization", "vectors of length 1",
                  {axes_arg("axis", "-1", "axis, or axes, of the length")}),
      layer_class("GaussianNoise", "adds normal noise while training",
                  {number("stddev", "", "of the noise").required().least(0).most(1), seed_arg()}),
      layer_class("GaussianDropout", "multiplies by normal noise around 1 while training",
                  {rate().below(1), seed_arg()}),
      layer_class("AlphaDropout", "dropout that keeps mean and variance of SELU activations",
                  {rate().below(1), noise_shape_arg(), seed_arg()}),
  };
  for (int rank = 1; rank <= 3; ++rank) {
    Args args = {rate(), seed_arg()};
    if (rank > 1) {
      args.insert(args.begin() + 1, data_format_arg());
    }
    out.push_back(layer_class(fmt::format("SpatialDropout{}D", rank),
                              "zeroes whole channels while training", args));
  }
  return out;
}

}  // namespace meshtrain
