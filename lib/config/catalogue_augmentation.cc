// Random changes of images while training: Keras 3.16
// keras/src/layers/preprocessing/image_preprocessing.
#include <algorithm>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

// A number f is an interval around 0 (see each layer); two numbers are its ends.
Spec factor(const char* name, const char* help) {
  return make_spec(name, ValueKind::kFloatOrList, "", help).required();
}

Spec share(const char* name, const char* otherwise, const char* help) {
  return make_spec(name, ValueKind::kFloatOrList, otherwise, help);
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
      layer_class("RandomShear", "slants images",
                  warp_args({share("x_factor", "0.0", "along the width; f = [-f, f]"),
                             share("y_factor", "0.0", "along the height; f = [-f, f]")})),
      layer_class("RandomPerspective", "images seen from the side, by moved corners",
                  {share("factor", "1.0", "probability; f = [0, f]"),
                   number("scale", "1.0", "corners move by up to half of it, in parts of the sides")
                       .least(0)
                       .most(1),
                   choice("interpolation", {"bilinear", "nearest"}, "bilinear",
                          "how values between pixels are made"),
                   number("fill_value", "0.0", "of what lies outside of the image"), seed_arg(),
                   data_format_arg()}),
      layer_class("RandomElasticTransform", "each pixel from a place near its own",
                  {share("factor", "1.0", "probability; f = [0, f]"),
                   share("scale", "1.0", "strength; f = [0, f]"),
                   choice("interpolation", {"bilinear", "nearest"}, "bilinear",
                          "how values between pixels are made"),
                   choice("fill_mode", {"reflect", "mirror", "wrap", "constant", "nearest"},
                          "reflect", "what lies outside of the image"),
                   number("fill_value", "0.0", "of fill_mode constant"), value_range(), seed_arg(),
                   data_format_arg()}),
      layer_class("RandomContrast", "more or less contrast",
                  {factor("factor", "[lo, hi]: factors from 1 - lo to 1 + hi; f = [0, f]"),
                   value_range(), seed_arg(), data_format_arg()}),
      layer_class("RandomBrightness", "brighter or darker images",
                  {factor("factor", "parts of the range that are added; f = [-f, f]"),
                   value_range(), seed_arg(), data_format_arg()}),
      layer_class("RandomSaturation", "duller or stronger colours",
                  {factor("factor", "0: grey, 0.5: as it is, 1: full; f = [0, f]"), value_range(),
                   data_format_arg(), seed_arg()}),
      layer_class("RandomHue", "colours turned to either side",
                  {factor("factor", "parts of half of the circle of hues; f = [0, f]"),
                   value_range(), data_format_arg(), seed_arg()}),
      layer_class("RandomColorJitter", "brightness, contrast, saturation and hue, in this order",
                  {value_range(), share("brightness_factor", "null", "as RandomBrightness"),
                   share("contrast_factor", "null", "as RandomContrast"),
                   share("saturation_factor", "null", "as RandomSaturation"),
                   share("hue_factor", "null", "as RandomHue"), seed_arg(), data_format_arg()}),
      layer_class("RandomColorDegeneration", "colours mixed with their grey",
                  {factor("factor", "parts of grey; f = [0, f]"), value_range(), data_format_arg(),
                   seed_arg()}),
      layer_class("RandomGrayscale", "grey images, of as many channels",
                  {number("factor", "0.5", "part of the images").least(0).most(1),
                   data_format_arg(), seed_arg()}),
      layer_class("RandomInvert", "negatives",
                  {share("factor", "1.0", "probability; f = [0, f]"), value_range(), seed_arg(),
                   data_format_arg()}),
      layer_class("RandomPosterization", "fewer bits for each pixel",
                  {factor("factor",
                          "bits that are kept, 1 to 8; f = [1, f]; the last is drawn "
                          "only when both are equal"),
                   value_range(), data_format_arg(), seed_arg()}),
      layer_class("RandomSharpness", "smoother or sharper images",
                  {factor("factor", "0: smoothed, 0.5: as it is, 1: sharpened; f = [0, f]"),
                   value_range(), data_format_arg(), seed_arg()}),
      layer_class("RandomGaussianBlur", "blurred images",
                  {share("factor", "1.0", "probability; f = [0, f]"),
                   make_spec("kernel_size", ValueKind::kIntOrList, "3", "odd; [width, height]"),
                   share("sigma", "1.0", "width of the kernel in pixels, at most 1; f = [0, f]"),
                   value_range(), data_format_arg(), seed_arg()}),
      layer_class(
          "RandomErasing", "fills a rectangle",
          {share("factor", "1.0", "probability; f = [0, f]"),
           share("scale", "null", "squares of the sides' parts of the image; null = [0.02, 0.33]"),
           share("fill_value", "null",
                 "one number, or one per channel; null = normal "
                 "numbers times the largest value"),
           value_range(), seed_arg(), data_format_arg()}),
      layer_class("Solarization", "adds to pixels and inverts those above a threshold",
                  {share("addition_factor", "0.0", "parts of the range; f = [0, f]"),
                   share("threshold_factor", "0.0", "parts of the range; f = [0, f]"),
                   value_range(), seed_arg(), data_format_arg()}),
      layer_class("AutoContrast", "each channel over the whole range, also at inference",
                  {value_range(), data_format_arg()}),
      layer_class("Equalization",
                  "each channel's values spread evenly, by one histogram of a batch",
                  {value_range(), integer("bins", "256", "of the histogram").least(2).most(65536),
                   data_format_arg()}),
      layer_class("ContrastLimitedAdaptiveHistogramEqualization",
                  "each channel's values spread evenly by tiles, also at inference",
                  {value_range(),
                   number("clip_limit", "4.0",
                          "most in a bin, in parts of the mean; the rest goes to all; 0 = none"),
                   make_spec("tile_grid_size", ValueKind::kIntOrList, "null",
                             "tiles along height and width; null = [8, 8]"),
                   data_format_arg()}),
      layer_class(
          "AugMix", "mixes images with chains of changes, drawn for each batch",
          {value_range(), integer("num_chains", "3", "chains that are mixed").least(1).most(16),
           integer("chain_depth", "3", "changes of a chain, some of which are none")
               .least(0)
               .most(16),
           share("factor", "0.3", "strength of the changes; f = [0, f]"),
           number("alpha", "1.0", "of the distributions of the weights; large: all alike").above(0),
           boolean("all_ops", "true", "false: no brightness, colour, contrast and sharpness"),
           choice("interpolation", {"bilinear", "nearest"}, "bilinear",
                  "how values between pixels are made"),
           seed_arg(), data_format_arg()}),
      layer_class("RandAugment", "some of eleven changes, drawn for each batch",
                  {value_range(),
                   integer("num_ops", "2", "how many changes follow each other").least(0).most(64),
                   share("factor", "0.5", "strength of the changes; f = [0, f]"),
                   choice("interpolation", {"bilinear", "nearest"}, "bilinear",
                          "how values between pixels are made"),
                   seed_arg(), data_format_arg()}),
  };
}

// The same arguments; masks and weights of pixels follow the images.
std::vector<ClassSpec> moving_transform_classes() {
  static constexpr std::string_view kOfLayers[] = {"name", "trainable", "dtype",
                                                   "activity_regularizer", "inputs"};
  static constexpr std::string_view kMoving[] = {
      "RandomFlip",  "RandomRotation",    "RandomTranslation",     "RandomZoom",
      "RandomShear", "RandomPerspective", "RandomElasticTransform"};
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  std::vector<ClassSpec> out;
  for (ClassSpec& spec : augmentation_layer_classes()) {
    if (!is_in(kMoving, spec.name)) {
      continue;
    }
    std::erase_if(spec.args, [&](const Spec& arg) { return is_in(kOfLayers, arg.name); });
    spec.changes_batches = true;
    spec.help = "in training, masks alike: " + spec.help;
    out.push_back(std::move(spec));
  }
  return out;
}

}  // namespace meshtrain
