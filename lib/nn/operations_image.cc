// Operations on images (batch, height, width, channels). Source: Keras 3.15 ops/image.py.
#include <algorithm>
#include <cmath>

#include "nn/colors.h"
#include "nn/conv.h"
#include "nn/graph_parts.h"
#include "nn/operations.h"
#include "nn/resizing.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

// `function` of the images with their channels last; the result is laid out as they were.
template <class F>
ValueId of_images(Context& c, ValueId x, const F& function) {
  if (c.rank(x) != 4) {
    operation_error(
        fmt::format("it takes images of 4 dimensions, not {}", shape_string(c.b.shape(x))));
  }
  if (!c.channels_first()) {
    return function(x);
  }
  return move_axis(c.b, function(move_axis(c.b, x, 1, 3)), 3, 1);
}

void check_colours(Context& c, ValueId x) {
  if (c.b.shape(x)[3] != 3) {
    operation_error(fmt::format("images of 3 channels, not {}", c.b.shape(x)[3]),
                    "red, green and blue; data_format='channels_first' where they come first");
  }
}

ValueId rgb_to_grayscale(Context& c) {
  return of_images(c, c.floating(0), [&](ValueId x) {
    if (c.b.shape(x)[3] != 1) {
      check_colours(c, x);
    }
    return grayscale(c.b, x);
  });
}

template <ValueId (*convert)(Builder&, ValueId)>
ValueId colours(Context& c) {
  const ValueId given = c.tensor(0);
  if (!is_floating(c.b.dtype(given))) {
    operation_error("it takes floats in [0, 1]", "divide integers by 255");
  }
  return of_images(c, given, [&](ValueId x) {
    check_colours(c, x);
    return convert(c.b, x);
  });
}

ValueId resize_images(Context& c) {
  const std::vector<int64_t> size = c.integers("size");
  const std::string method = c.text("interpolation");
  const bool crops = c.boolean("crop_to_aspect_ratio"), pads = c.boolean("pad_to_aspect_ratio");
  const char* const methods[] = {"nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"};
  if (size.size() != 2 || size[0] < 1 || size[1] < 1) {
    operation_error("`size` must be [height, width]");
  }
  if (std::find(std::begin(methods), std::end(methods), method) == std::end(methods)) {
    operation_error(fmt::format("there is no `interpolation` \"{}\"", method),
                    fmt::format("one of {}", fmt::join(methods, ", ")));
  }
  if ((crops && pads) || c.text("fill_mode") != "constant") {
    operation_error("set crop_to_aspect_ratio or pad_to_aspect_ratio; `fill_mode` is \"constant\"");
  }
  return of_images(c, c.floating(0), [&](ValueId x) {
    x = crops  ? crop_to_aspect_ratio(c.b, x, size[0], size[1])
        : pads ? pad_to_aspect_ratio(c.b, x, size[0], size[1], c.number("fill_value"))
               : x;
    return resize(c.b, x, size[0], size[1], method, c.boolean("antialias"));
  });
}

// Two of (before, after, target) say how much is on each side of an axis.
struct Sides {
  int64_t before, after;
};

// `sign`: 1 where the target is larger than the size, -1 where it is smaller.
Sides sides_of(Context& c, int64_t size, int64_t sign, std::string_view before,
               std::string_view after, std::string_view target) {
  const int given = !c.is_null(before) + !c.is_null(after) + !c.is_null(target);
  if (given != 2) {
    operation_error(fmt::format("give two of {}, {} and {}", before, after, target));
  }
  const int64_t change = c.is_null(target) ? 0 : sign * (c.integer(target) - size);
  const Sides out{c.is_null(before) ? change - c.integer(after) : c.integer(before),
                  c.is_null(after) ? change - c.integer(before) : c.integer(after)};
  if (out.before < 0 || out.after < 0 || (sign < 0 && out.before + out.after >= size)) {
    operation_error(fmt::format("{} and {} would be {} and {} of a size of {}", before, after,
                                out.before, out.after, size));
  }
  return out;
}

ValueId pad_images(Context& c) {
  return of_images(c, c.tensor(0), [&](ValueId x) {
    const Shape shape = c.b.shape(x);
    const Sides rows = sides_of(c, shape[1], 1, "top_padding", "bottom_padding", "target_height");
    const Sides columns = sides_of(c, shape[2], 1, "left_padding", "right_padding", "target_width");
    return c.b.pad(c.b.pad(x, 1, rows.before, rows.after), 2, columns.before, columns.after);
  });
}

ValueId crop_images(Context& c) {
  return of_images(c, c.tensor(0), [&](ValueId x) {
    const Shape shape = c.b.shape(x);
    const Sides rows =
        sides_of(c, shape[1], -1, "top_cropping", "bottom_cropping", "target_height");
    const Sides columns =
        sides_of(c, shape[2], -1, "left_cropping", "right_cropping", "target_width");
    x = c.b.slice(x, 1, rows.before, shape[1] - rows.after);
    return c.b.slice(x, 2, columns.before, shape[2] - columns.after);
  });
}

// Each channel with the same weights (rows, columns) around every pixel; 0 lies outside.
ValueId filtered_with(Context& c, ValueId x, const std::vector<double>& weights, int64_t rows,
                      int64_t columns) {
  const int64_t channels = c.b.shape(x)[3];
  const ValueId kernel =
      c.b.broadcast_to(c.b.reshape(vector_of(c.b, weights, c.b.dtype(x)), {rows, columns, 1, 1}),
                       {rows, columns, channels, 1});
  return depthwise(c.b, x, kernel,
                   {{1, 1}, {1, 1}, {(rows - 1) / 2, (columns - 1) / 2}, {rows / 2, columns / 2}});
}

// exp(-i^2 / 2 s^2) around the middle, of sum 1.
std::vector<double> gaussian(int64_t size, double sigma) {
  std::vector<double> out;
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const double place = (static_cast<double>(i) - static_cast<double>(size - 1) / 2) / sigma;
    out.push_back(std::exp(-0.5 * place * place));
    sum += out.back();
  }
  std::transform(out.begin(), out.end(), out.begin(), [&](double w) { return w / sum; });
  return out;
}

// As in Keras, the first size and sigma are those of the columns.
ValueId gaussian_blur(Context& c) {
  const std::vector<int64_t> size = c.integers("kernel_size");
  const std::vector<double> sigma = c.numbers("sigma");
  if (sigma.size() != 2 || !(sigma[0] > 0 && sigma[1] > 0)) {
    operation_error("`sigma` must be two numbers above 0");
  }
  if (size.size() != 2 || size[0] < 1 || size[1] < 1 || size[0] > 4096 / size[1]) {
    operation_error("`kernel_size` must be two numbers, of 4,096 pixels at most");
  }
  const std::vector<double> columns = gaussian(size[0], sigma[0]),
                            rows = gaussian(size[1], sigma[1]);
  std::vector<double> weights;
  for (const double row : rows) {
    for (const double column : columns) {
      weights.push_back(row * column);
    }
  }
  return of_images(c, c.floating(0),
                   [&](ValueId x) { return filtered_with(c, x, weights, size[1], size[0]); });
}

// (..., 2): the derivatives along the rows and along the columns.
ValueId sobel_edges(Context& c) {
  const std::vector<double> down = {-1, -2, -1, 0, 0, 0, 1, 2, 1},
                            right = {-1, 0, 1, -2, 0, 2, -1, 0, 1};
  const ValueId x = c.floating(0);
  const auto edges = [&](const std::vector<double>& weights) {
    const auto filter = [&](ValueId images) { return filtered_with(c, images, weights, 3, 3); };
    return c.b.expand_dims(of_images(c, x, filter), 4);
  };
  const ValueId rows = edges(down), columns = edges(right);
  return c.b.concat({rows, columns}, 4);
}

}  // namespace

std::vector<Operation> image_operations() {
  constexpr std::string_view kFormat = "data_format='channels_last'";
  return {
      {"rgb_to_grayscale", "RGBToGrayscale", "image", "images", kFormat, rgb_to_grayscale},
      {"rgb_to_hsv", "RGBToHSV", "image", "images", kFormat, colours<rgb_to_hsv>},
      {"hsv_to_rgb", "HSVToRGB", "image", "images", kFormat, colours<hsv_to_rgb>},
      {"resize", "Resize", "image", "images",
       "size, interpolation='bilinear', antialias=False, crop_to_aspect_ratio=False, "
       "pad_to_aspect_ratio=False, fill_mode='constant', fill_value=0.0, "
       "data_format='channels_last'",
       resize_images},
      {"pad_images", "PadImages", "image", "images",
       "top_padding=None, left_padding=None, bottom_padding=None, right_padding=None, "
       "target_height=None, target_width=None, data_format='channels_last'",
       pad_images},
      {"crop_images", "CropImages", "image", "images",
       "top_cropping=None, left_cropping=None, bottom_cropping=None, right_cropping=None, "
       "target_height=None, target_width=None, data_format='channels_last'",
       crop_images},
      {"gaussian_blur", "GaussianBlur", "image", "images",
       "kernel_size=(3, 3), sigma=(1.0, 1.0), data_format='channels_last'", gaussian_blur},
      {"sobel_edges", "SobelEdges", "image", "images", kFormat, sobel_edges},
  };
}

}  // namespace meshtrain
