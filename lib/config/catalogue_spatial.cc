// Layers that move, add or drop positions: Keras 3.16
// keras/src/layers/reshaping and preprocessing.
#include <fmt/format.h>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

Spec amounts(const char* name, const char* default_text, const char* help) {
  return per_dimension(name, default_text, help, 0).nested_ok();
}

ClassSpec zero_padding(int rank) {
  return layer_class(fmt::format("ZeroPadding{}D", rank), "zeros around the positions",
                     {amounts("padding", "1", "one for all; or per dimension, or [before, after]"),
                      data_format_arg()});
}

ClassSpec cropping(int rank) {
  Args args = {amounts("cropping", rank == 2 ? "0" : "1",
                       "one for all; or per dimension, or [before, after]")};
  if (rank > 1) {
    args.push_back(data_format_arg());
  }
  return layer_class(fmt::format("Cropping{}D", rank), "drops positions at the edges", args);
}

ClassSpec up_sampling(int rank) {
  Args args = {rank == 1 ? integer("size", "2", "factor").least(1).most(kMaxSize)
                         : per_dimension("size", "2", "factors")};
  if (rank > 1) {
    args.push_back(data_format_arg());
  }
  if (rank == 2) {
    args.push_back(choice("interpolation",
                          {"nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"}, "nearest",
                          "nearest repeats positions"));
  }
  return layer_class(fmt::format("UpSampling{}D", rank), "repeats positions", args);
}

}  // namespace

std::vector<ClassSpec> spatial_layer_classes() {
  std::vector<ClassSpec> out;
  for (int rank = 1; rank <= 3; ++rank) {
    out.push_back(zero_padding(rank));
    out.push_back(cropping(rank));
    out.push_back(up_sampling(rank));
  }
  out.push_back(layer_class("RepeatVector", "(batch, features) to (batch, n, features)",
                            {size_arg("n", "how many times")}));
  out.push_back(layer_class(
      "Resizing", "images of another size",
      {size_arg("height", "of the result"), size_arg("width", "of the result"),
       choice("interpolation", {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"},
              "bilinear", "how values between pixels are made"),
       boolean("crop_to_aspect_ratio", "false", "cut the longer side instead of squeezing it"),
       boolean("pad_to_aspect_ratio", "false", "fill the shorter side instead of stretching it"),
       choice("fill_mode", {"constant"}, "constant", "what pad_to_aspect_ratio fills with"),
       number("fill_value", "0.0", "of the fill"),
       boolean("antialias", "false", "smooth before making images smaller"), data_format_arg()}));
  out.push_back(layer_class("CenterCrop", "the middle of an image",
                            {size_arg("height", "of the result"),
                             size_arg("width", "of the result"), data_format_arg()}));
  return out;
}

}  // namespace meshtrain
