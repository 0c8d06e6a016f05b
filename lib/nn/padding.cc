// Positions added, dropped and repeated: ZeroPadding, Cropping, UpSampling. Source: Keras 3
// layers/reshaping.
#include "nn/arguments.h"
#include "nn/resizing.h"
#include "nn/spatial.h"

namespace meshtrain {
namespace {

class ZeroPadding : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  bool keeps_integers() const override { return true; }

  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const auto padding = pairs("padding", diagnostics);
    if (!padding) {
      return failed_shape();
    }
    padding_ = *padding;
    Shape output = input;
    for (size_t d = 0; d < rank(); ++d) {
      output[d + 1] += padding_[d].first + padding_[d].second;
    }
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    for (size_t d = 0; d < rank(); ++d) {
      x = context.builder.pad(x, static_cast<int>(d) + 1, padding_[d].first, padding_[d].second);
    }
    return x;
  }

 private:
  Pairs padding_;
};

class Cropping : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  bool keeps_integers() const override { return true; }

  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const auto cropping = pairs("cropping", diagnostics);
    if (!cropping) {
      return failed_shape();
    }
    cropping_ = *cropping;
    Shape output = input;
    for (size_t d = 0; d < rank(); ++d) {
      const auto [before, after] = cropping_[d];
      output[d + 1] -= before + after;
      if (output[d + 1] < 1) {
        input_error(diagnostics,
                    fmt::format("cropping {} and {} leaves nothing of its dimension of {}", before,
                                after, input[d + 1]))
            .help("crop less");
        return failed_shape();
      }
    }
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    for (size_t d = 0; d < rank(); ++d) {
      const auto [before, after] = cropping_[d];
      x = b.slice(x, static_cast<int>(d) + 1, before, b.shape(x)[d + 1] - after);
    }
    return x;
  }

 private:
  Pairs cropping_;
};

class UpSampling : public SpatialLayer {
 public:
  using SpatialLayer::SpatialLayer;

 protected:
  bool keeps_integers() const override { return is_nearest(); }

  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const auto size = per_dimension("size", diagnostics);
    if (!size) {
      return failed_shape();
    }
    size_ = *size;
    Shape output = input;
    for (size_t d = 0; d < rank(); ++d) {
      output[d + 1] *= size_[d];
    }
    return output;
  }

  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    if (!is_nearest()) {
      const Shape shape = b.shape(x);
      return resize(b, x, shape[1] * size_[0], shape[2] * size_[1], config_.string("interpolation"),
                    false);
    }
    for (size_t d = 0; d < rank(); ++d) {
      x = size_[d] > 1 ? repeated(b, x, d + 1, size_[d]) : x;
    }
    return x;
  }

 private:
  bool is_nearest() const { return string_or(config_, "interpolation", "nearest") == "nearest"; }

  // Each position of the axis `times` times in a row.
  static ValueId repeated(Builder& b, ValueId x, size_t axis, int64_t times) {
    Shape merged = b.shape(x);
    Shape split = merged;
    split.insert(split.begin() + static_cast<std::ptrdiff_t>(axis) + 1, times);
    merged[axis] *= times;
    return b.reshape(b.broadcast_to(b.expand_dims(x, static_cast<int>(axis) + 1), split), merged);
  }

  std::vector<int64_t> size_;
};

}  // namespace

std::vector<LayerEntry> padding_layers() {
  return {{"ZeroPadding1D", make_as<ZeroPadding>}, {"ZeroPadding2D", make_as<ZeroPadding>},
          {"ZeroPadding3D", make_as<ZeroPadding>}, {"Cropping1D", make_as<Cropping>},
          {"Cropping2D", make_as<Cropping>},       {"Cropping3D", make_as<Cropping>},
          {"UpSampling1D", make_as<UpSampling>},   {"UpSampling2D", make_as<UpSampling>},
          {"UpSampling3D", make_as<UpSampling>}};
}

}  // namespace meshtrain
