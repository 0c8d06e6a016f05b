// STFTSpectrogram and MelSpectrogram: short-time Fourier transforms as convolutions with cosines
// and sines. Source: Keras 3 layers/preprocessing.
#include <bit>
#include <cmath>

#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/operations.h"
#include "nn/spatial.h"

namespace meshtrain {
namespace {

constexpr double kLeastPower = 1e-7;  // Keras' epsilon: below it powers and lengths count as it

// The window's kernels are weights, which may train: real_kernel and imag_kernel (frame_length, 1,
// bands). Each channel is a signal of its own.
class StftSpectrogram final : public WindowLayer {
 public:
  explicit StftSpectrogram(const ConfigObject& config) : WindowLayer(config, 1) {}

 protected:
  bool keeps_rank() const override { return false; }  // the output has an order of its own

  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    if (!read_frames(diagnostics)) {
      return failed_shape();
    }
    const Shape frames = fit_window(input, bands_, diagnostics);
    if (is_failed(frames)) {
      return failed_shape();
    }
    const Shape kernel = {cells_[0], 1, bands_};
    const std::string mode = config_.string("mode");
    real_ = mode == "imag" ? kNone : add_kernel("real", kernel);
    imaginary_ = mode == "real" ? kNone : add_kernel("imag", kernel);
    const int64_t columns = mode == "stft" ? 2 * bands_ : bands_;
    return ordered_shape({input[0], input[2], frames[1], columns});
  }

  // x (batch, steps, channels).
  ValueId call_last(CallContext& context, ValueId x) override {
    Builder& b = context.builder;
    const Shape shape = b.shape(x);
    const ValueId signals =
        b.reshape(b.transpose(x, {0, 2, 1}), {shape[0] * shape[2], shape[1], 1});
    const auto transformed = [&](int kernel) {
      return kernel == kNone ? kNone
                             : b.conv(signals, context.weight(kernel), window_at(b.shape(signals)));
    };
    const ValueId y = output_of(b, transformed(real_), transformed(imaginary_));
    const Shape found = b.shape(y);
    return ordered(b, b.reshape(y, {shape[0], shape[2], found[1], found[2]}));
  }

 private:
  bool read_frames(Diagnostics& diagnostics) {
    if (!read_window("frame_length", diagnostics)) {
      return false;
    }
    const int64_t length = cells_[0];
    strides_ = {integer_or(config_, "frame_step", length / 2)};
    const int64_t whole = integer_or(
        config_, "fft_length", static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(length))));
    bands_ = whole / 2 + 1;
    bool ok = true;
    if (strides_[0] < 1 || strides_[0] > length) {
      argument_error(diagnostics, "frame_step",
                     fmt::format("is {}, and `frame_length` {}", strides_[0], length))
          .help("write a step from 1 to `frame_length`; null is half of it");
      ok = false;
    }
    if (whole < length || bands_ < 2) {
      argument_error(diagnostics, "fft_length",
                     fmt::format("is {}, and `frame_length` {}", whole, length))
          .help("write `fft_length` of at least 2, and of at least `frame_length`");
      ok = false;
    }
    return ok;
  }

  // The initializer STFT with this layer's arguments.
  int add_kernel(const char* side, const Shape& shape) {
    ConfigObject stft;
    stft.class_name = "STFT";
    stft.args["side"].data = std::string(side);
    for (const char* argument : {"window", "scaling", "periodic"}) {
      stft.args[argument] = config_.arg(argument);
    }
    ConfigValue value;
    value.loc = loc;
    value.data = std::make_shared<ConfigObject>(std::move(stft));
    return add_weight(fmt::format("{}_kernel", side), shape, variable_dtype,
                      make_initializer(value));
  }

  // What `mode` makes of both parts (signals, frames, bands).
  ValueId output_of(Builder& b, ValueId real, ValueId imaginary) const {
    const std::string& mode = config_.string("mode");
    if (real == kNone || imaginary == kNone) {
      return real == kNone ? imaginary : real;
    }
    if (mode == "stft") {
      return b.concat({real, imaginary}, 2);
    }
    if (mode == "angle") {
      return full_angle(b, imaginary, real);
    }
    const ValueId power = b.add(b.square(real), b.square(imaginary));
    if (mode == "psd") {  // but the first and the last, bands count for those of negative frequency
      return bands_ == 2 ? power : b.add(power, b.pad(b.slice(power, 2, 1, bands_ - 1), 2, 1, 1));
    }
    const ValueId magnitude = b.sqrt(b.maximum(power, kLeastPower));
    return mode == "magnitude" ? magnitude : b.log(b.maximum(magnitude, kLeastPower));
  }

  // (batch, channels, frames, bands) in the order that `data_format` and `expand_dims` ask for.
  std::vector<int64_t> order() const {
    const bool expands = config_.boolean("expand_dims");
    return channels_first()
               ? (expands ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0, 1, 3, 2})
               : (expands ? std::vector<int64_t>{0, 2, 3, 1} : std::vector<int64_t>{0, 2, 1, 3});
  }
  Shape ordered_shape(const Shape& y) const {
    Shape out;
    for (const int64_t axis : order()) {
      out.push_back(y[static_cast<size_t>(axis)]);
    }
    if (!config_.boolean("expand_dims")) {  // channels and their bands are one dimension
      const size_t first = channels_first() ? 1 : 2;
      out[first] *= out[first + 1];
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    }
    return out;
  }
  ValueId ordered(Builder& b, ValueId y) const {
    const Shape shape = ordered_shape(b.shape(y));
    return b.reshape(b.transpose(y, order()), shape);
  }

  int64_t bands_ = 0;
  int real_ = kNone, imaginary_ = kNone;
};

// Power of the windows' Fourier transforms, (batch, mel bins, windows), perhaps in decibels below
// the largest of the batch. It has no weights: kernels are made of positions.
class MelSpectrogram final : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics) || !read_sizes(diagnostics)) {
      return failed_shape();
    }
    const Shape& x = inputs[0];
    if (x.size() != 2 || x[1] == kUnknownDim || x[1] <= length_ / 2) {
      shape_error(diagnostics, inputs,
                  fmt::format("it takes (batch, samples), of more than {} samples", length_ / 2))
          .help("half of `fft_length` samples are mirrored at both ends of the signal");
      return failed_shape();
    }
    const int64_t padded = x[1] + 2 * (length_ / 2);
    return {x[0], config_.integer("num_mel_bins"), (padded - length_) / stride_ + 1};
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    const ValueId power = spectrum(b, mirrored(b, x));
    ValueId y = b.einsum("btf,fm->bmt", {power, mel_weights(b, b.dtype(x))});
    if (config_.boolean("power_to_db")) {
      y = decibels(b, y);
    }
    return to_compute(context, y);
  }

 private:
  bool read_sizes(Diagnostics& diagnostics) {
    length_ = config_.integer("fft_length");
    stride_ = config_.integer("sequence_stride");
    window_ = integer_or(config_, "sequence_length", length_);
    if (window_ > length_) {
      argument_error(diagnostics, "sequence_length",
                     fmt::format("is {}, above an `fft_length` of {}", window_, length_))
          .help("write `fft_length` or less");
      return false;
    }
    return true;
  }
  int64_t bands() const { return length_ / 2 + 1; }

  // Both ends continued by their mirror images, without the end itself.
  ValueId mirrored(Builder& b, ValueId x) const {
    const int64_t size = b.shape(x)[1], half = length_ / 2;
    return half == 0 ? x
                     : b.concat({b.reverse(b.slice(x, 1, 1, half + 1), 1), x,
                                 b.reverse(b.slice(x, 1, size - half - 1, size - 1), 1)},
                                1);
  }

  // Factors of the samples of a window in the middle of `fft_length`, (fft_length, 1, 1): the first
  // factor of a periodic cosine, or ones.
  ValueId window_factors(Builder& b, DType dtype) const {
    const std::string name = string_or(config_, "window", "");
    const ValueId i =
        b.sub(b.iota({length_, 1, 1}, 0, dtype), static_cast<double>((length_ - window_) / 2));
    const ValueId inside = b.binary("logical_and", b.binary("ge", i, constant_like(b, i, 0)),
                                    b.binary("lt", i, constant_like(b, i, window_)));
    const double mean = name.empty() ? 1 : name == "hann" ? 0.5 : 0.54;
    const ValueId wave = b.unary("cos", b.mul(i, 2 * kPi / static_cast<double>(window_)));
    const ValueId inner = b.add(b.mul(wave, mean - 1), mean);
    // Without a window Keras takes the whole of `fft_length`.
    return name.empty() ? constant_like(b, i, 1) : b.select(inside, inner, constant_like(b, i, 0));
  }

  // |F|^mag_exp of each window's Fourier transform F: (batch, windows, bands).
  ValueId spectrum(Builder& b, ValueId x) const {
    const Shape shape = b.shape(x), kernel = {length_, 1, bands()};
    const DType dtype = b.dtype(x);
    const auto whole = static_cast<double>(length_);
    const ValueId turns = b.mul(b.iota(kernel, 0, dtype), b.iota(kernel, 2, dtype));
    const ValueId part =  // of the last turn: exact, so that long windows keep their precision
        b.sub(turns, b.mul(b.unary("floor", b.div(turns, whole)), whole));
    const ValueId angle = b.mul(part, 2 * kPi / whole), factors = window_factors(b, dtype);
    const ValueId signal = b.reshape(x, {shape[0], shape[1], 1});
    const auto transformed = [&](const char* wave) {
      return b.conv(signal, b.mul(b.unary(wave, angle), factors), {{stride_}, {1}, {0}, {0}});
    };
    const ValueId power = b.add(b.square(transformed("cos")), b.square(transformed("sin")));
    const double exponent = config_.number("mag_exp");
    return exponent == 2 ? power
                         : b.binary("pow", b.sqrt(power), constant_like(b, power, exponent));
  }

  // Triangles over the bands, of equal width on the mel scale: (bands, mel bins).
  ValueId mel_weights(Builder& b, DType dtype) const {
    const int64_t bins = config_.integer("num_mel_bins");
    const double rate = config_.number("sampling_rate"), least = mel(config_.number("min_freq"));
    const double most = mel(number_or(config_, "max_freq", std::floor(rate / 2)));
    const double step = (most - least) / static_cast<double>(bins + 1);
    const Shape shape = {bands(), bins};
    const ValueId frequency =
        b.mul(b.iota(shape, 0, dtype), rate / 2 / static_cast<double>(bands() - 1));
    const ValueId at = b.mul(b.log(b.add(b.mul(frequency, 1 / kBreak), 1.0)), kQuality);
    // In widths from the left end of the first triangle; a triangle's own begins at its number.
    const ValueId place = b.sub(b.mul(b.sub(at, least), 1 / step), b.iota(shape, 1, dtype));
    const ValueId height = b.minimum(place, b.sub(constant_like(b, place, 2), place));
    const ValueId zero = constant_like(b, place, 0);
    return b.select(b.binary("eq", b.iota(shape, 0, dtype), zero), zero, b.maximum(height, 0.0));
  }
  static double mel(double frequency) { return kQuality * std::log(1 + frequency / kBreak); }

  ValueId decibels(Builder& b, ValueId power) const {
    const double least = config_.number("min_power");
    const double reference = std::max(std::abs(config_.number("ref_power")), least);
    const ValueId tenth = b.mul(b.log(b.maximum(power, least)), 10 / std::log(10.0));
    const ValueId level = b.sub(tenth, 10 * std::log10(reference));
    const ValueId largest = b.reduce_max(level, {0, 1, 2});
    return b.binary("max", level, b.sub(largest, config_.number("top_db")));
  }

  static constexpr double kPi = 3.141592653589793;
  static constexpr double kQuality = 1127, kBreak = 700;  // of HTK's mel scale; the latter in hertz
  int64_t length_ = 0, stride_ = 0, window_ = 0;
};

}  // namespace

std::vector<LayerEntry> spectrogram_layers() {
  return {{"STFTSpectrogram", make_as<StftSpectrogram>},
          {"MelSpectrogram", make_as<MelSpectrogram>}};
}

}  // namespace meshtrain
