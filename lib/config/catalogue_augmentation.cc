// Random changes of images while training: Keras 3.16
// keras/src/layers/preprocessing/image_preprocessing.
#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

// A number f is an interval around 0 (see each layer); two numbers are its ends.
Spec factor(const char* name, const char* help) {
  return make_spec(name, ValueKind::kFloatOrList, "", help).required();
}

Args warp_args(Args first) {
  for (Spec& spec :
       Args{choice("fill_mode", {"reflect", "wrap", "constant", "nearest"}, "reflect",
                   "what lies outside of the image"),
            choice("interpolation", {"bilinear", "nearest"}, "bilinear",
                   "how values between pixels are made"),
            seed_arg(), number("fill_value", "0.0", "of fill_mode constant"), data_format_arg()}) {
    first.push_back(std::move(spec));
  }
  return first;
}

Spec value_range() {
  return make_spec("value_range", ValueKind::kFloatOrList, "null",
                   "smallest and largest value of a pixel; null = [0, 255]");
}

}  // namespace

std::vector<ClassSpec> augmentation_layer_classes() {
  return {
      layer_class("RandomFlip", "mirrors half of the images",
                  {choice("mode", {"horizontal_and_vertical", "horizontal", "vertical"},
                          "horizontal_and_vertical", "left and right, top and bottom, or both"),
                   seed_arg(), data_format_arg()}),
      layer_class("RandomCrop", "a part of each image at a random place; the middle at inference",
                  {size_arg("height", "of the result"), size_arg("width", "of the result"),
                   seed_arg(), data_format_arg()}),
      layer_class("RandomRotation", "turns images",
                  warp_args({factor("factor", "parts of a full turn; f = [-f, f]")})),
      layer_class("RandomTranslation", "shifts images",
                  warp_args({factor("height_factor", "parts of the height; f = [-f, f]"),
                             factor("width_factor", "parts of the width; f = [-f, f]")})),
      layer_class(
          "RandomZoom", "zooms out (above 0) and in",
          warp_args({factor("height_factor", "f = [-f, f]; 0.2: 20% smaller"),
                     make_spec("width_factor", ValueKind::kFloatOrList, "null",
                               "of the width; null = as the height, which keeps the shape")})),
      layer_class("RandomContrast", "more or less contrast",
                  {factor("factor", "[lo, hi]: factors from 1 - lo to 1 + hi; f = [0, f]"),
                   value_range(), seed_arg(), data_format_arg()}),
      layer_class("RandomBrightness", "brighter or darker images",
                  {factor("factor", "parts of the range that are added; f = [-f, f]"),
                   value_range(), seed_arg(), data_format_arg()}),
  };
}

}  // namespace meshtrain
