// Helpers of all parts of the catalogue.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/catalogue.h"

namespace meshtrain {

using Args = std::vector<Spec>;

inline ClassSpec make_class(std::string name, std::string help, Args args,
                            std::vector<std::string> aliases = {}) {
  ClassSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.args = std::move(args);
  spec.aliases = std::move(aliases);
  return spec;
}

inline Spec own_name() {
  return text("name", "null", "name in the logs");
}
inline Spec own_dtype() {
  return choice("dtype", {"float32", "float64"}, "null", "type it is computed in");
}
// Of a Lambda: its expression, and the numbers in it that other keys give.
inline Args with_function(Args args) {
  args.push_back(
      make_spec("constants", ValueKind::kMap, "", "names in `function` and their numbers"));
  args.insert(args.begin(), text("function", "", "an expression").required());
  return args;
}
inline Spec seed_arg() {
  return integer("seed", "null", "own seed; the config's when null");
}
// Of short-time Fourier transforms.
inline Spec stft_window_arg() {
  return choice("window",
                {"boxcar", "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop",
                 "bartlett", "triang", "cosine"},
                "hann", "factor on the samples, by SciPy's name")
      .nullable();
}
inline Spec stft_scaling_arg() {
  return choice("scaling", {"density", "spectrum"}, "density",
                "divided by the window's L2 or L1 norm")
      .nullable();
}
inline Spec stft_periodic_arg() {
  return boolean("periodic", "false", "the window of a signal that repeats");
}
inline Spec from_logits() {
  return boolean("from_logits", "false", "predictions are logits, not probabilities");
}
inline Spec label_smoothing() {
  return number("label_smoothing", "0.0", "how far targets move towards uniform").least(0).most(1);
}
inline Spec class_axis() {
  return integer("axis", "-1", "axis of the classes");
}

// Transforms of columns (catalogue_preprocessing.cc).
std::vector<ClassSpec> column_transform_classes();
std::vector<ClassSpec> image_column_classes();      // Image and Mask
std::vector<ClassSpec> moving_transform_classes();  // layers that move pixels of images

}  // namespace meshtrain
