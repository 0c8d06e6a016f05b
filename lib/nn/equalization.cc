// Equalization, ContrastLimitedAdaptiveHistogramEqualization: values of a channel become their
// ranks. Sources: Keras 3 layers/preprocessing/image_preprocessing; K. Zuiderveld, "Contrast
// limited adaptive histogram equalization", 1994.
#include <algorithm>
#include <limits>

#include "nn/arguments.h"
#include "nn/augmentation.h"

namespace meshtrain {
namespace {

// A value in bytes becomes the part of the batch's values at or below its bin, each channel by
// itself. As in Keras all images of a batch have one histogram, and a channel of one bin stays.
class Equalization : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const int64_t channels = b.shape(x)[3];
    const ValueId wide = b.cast(x, at_least_float32(b.dtype(x)));
    const ValueId bytes = to_range(b, wide, value_range(), kBytes);
    const ValueId counts = histogram(b, bytes);
    const ValueId table = b.reshape(levels(b, counts), {channels * bins()});
    const ValueId places = b.mul(b.div(bytes, 255.0), static_cast<double>(bins() - 1));
    const ValueId equalized = b.cast(b.gather_rows(table, cells(b, places)), b.dtype(wide));
    const ValueId used = b.reduce_sum(
        b.cast(b.binary("gt", counts, constant_like(b, counts, 0)), b.dtype(counts)), {1});
    const ValueId is_flat = b.binary("le", used, constant_like(b, used, 1));
    const ValueId result = b.select(b.reshape(is_flat, {1, 1, 1, channels}), bytes, equalized);
    return b.cast(to_range(b, result, kBytes, value_range()), b.dtype(x));
  }

 private:
  int64_t bins() const { return config_.integer("bins"); }

  // Rows of a table of all channels' bins, for numbers of bins (N, H, W, C), cut to integers.
  ValueId cells(Builder& b, ValueId places) const {
    const ValueId bin = b.cast(b.clamp(places, 0, static_cast<double>(bins() - 1)), DType::kInt32);
    const ValueId channel = b.iota({1, 1, 1, b.shape(places)[3]}, 3, DType::kInt32);
    return b.add(bin, b.mul(channel, b.constant(static_cast<double>(bins()), DType::kInt32)));
  }

  // How many values of each channel are in each bin: float64 (C, bins), which counts exactly.
  ValueId histogram(Builder& b, ValueId bytes) const {
    const ValueId single = b.cast(bytes, DType::kFloat32);  // as Keras, whatever the policy
    const ValueId places = b.div(b.mul(single, static_cast<double>(bins() - 1)), 255.0);
    const int64_t channels = b.shape(bytes)[3];
    const ValueId ones = b.constant(1, DType::kFloat64, b.shape(bytes));
    return b.reshape(b.scatter_add_rows(ones, cells(b, places), channels * bins()),
                     {channels, bins()});
  }

  // What each bin becomes: 0 to 255, by the counts up to it beyond those of the first one.
  ValueId levels(Builder& b, ValueId counts) const {
    const ValueId below = b.cumsum(counts, 1);
    const ValueId most = constant_like(b, below, std::numeric_limits<float>::max());
    const ValueId first = b.reduce_min(
        b.select(b.binary("gt", below, constant_like(b, below, 0)), below, most), {1}, true);
    const ValueId beyond = b.sub(b.slice(below, 1, bins() - 1, bins()), first);
    const ValueId divisor = b.maximum(beyond, 1.0);  // counts are whole: only 0 is below
    return b.clamp(b.unary("round", b.div(b.mul(b.sub(below, first), 255.0), divisor)), 0, 255);
  }
};

// Each tile of an image has a histogram, of which no bin holds more than a limit. A pixel becomes
// the mean of what the four tiles around it make of its value, by its distance to their middles.
class ContrastLimitedEqualization final : public AugmentationLayer {
 public:
  using AugmentationLayer::AugmentationLayer;

 protected:
  Shape build_last(const Shape& input, Diagnostics& diagnostics) override {
    const ConfigValue& given = value_or_null(config_, "tile_grid_size");
    const std::vector<int64_t> tiles =
        given.is_null() ? std::vector<int64_t>{8, 8} : integers_of(given);
    if ((!given.is_null() && !given.is_list()) || tiles.size() != 2 || tiles[0] < 1 ||
        tiles[1] < 1 || tiles[0] > kMostTiles || tiles[1] > kMostTiles) {
      argument_error(diagnostics, "tile_grid_size",
                     fmt::format("is no list of two numbers from 1 to {}", kMostTiles))
          .help("write [rows of tiles, columns of tiles], such as [8, 8]");
      return failed_shape();
    }
    rows_ = {input[1], tiles[0]};
    columns_ = {input[2], tiles[1]};
    return AugmentationLayer::build_last(input, diagnostics);
  }
  ValueId call_last(CallContext& context, ValueId x) override {
    return changed(context, is_floating(context.builder.dtype(x)) ? to_compute(context, x) : x);
  }
  bool keeps_integers() const override { return true; }  // the result is cut to integers again

  ValueId changed(CallContext& context, ValueId x) const override {
    Builder& b = context.builder;
    const PixelRange range = value_range();
    const bool is_bytes = range.low == kBytes.low && range.high == kBytes.high;
    const ValueId single = b.cast(x, DType::kFloat32);  // as Keras, whatever the policy
    const ValueId bytes = is_bytes ? single : to_range(b, single, range, kBytes);
    const ValueId table = beyond_rim(b, beyond_rim(b, levels(b, histograms(b, bytes)), 1), 2);
    const ValueId result = interpolated(b, table, bins_of(b, bytes));
    return b.cast(is_bytes ? result : to_range(b, result, kBytes, range), b.dtype(x));
  }

 private:
  static constexpr int64_t kBins = 256;
  static constexpr int64_t kMostTiles = 1024;  // of a side

  // The tiles along one side of the images.
  struct Side {
    int64_t size = 1, tiles = 1;
    int64_t tile() const { return (size + tiles - 1) / tiles; }  // pixels
  };

  static ValueId bins_of(Builder& b, ValueId bytes) {
    return b.cast(b.clamp(bytes, 0, 255), DType::kInt32);
  }

  // Mirrored with the last pixel, as often as it takes, up to whole tiles.
  static ValueId padded(Builder& b, ValueId x, int axis, const Side& side) {
    const int64_t size = side.tile() * side.tiles;
    for (int64_t have = side.size; have < size;) {
      const int64_t more = std::min(have, size - have);
      x = b.concat({x, b.reverse(b.slice(x, axis, have - more, have), axis)}, axis);
      have += more;
    }
    return x;
  }

  // ((sample, row of tiles, column of tiles, channel, bin)) as one number; each but the last are
  // int32 of the places that they are for.
  ValueId cell(Builder& b, ValueId sample, ValueId row, ValueId column, ValueId channel,
               ValueId bin, int64_t rim, int64_t channels) const {
    const auto next = [&](ValueId all, int64_t count, ValueId index) {
      return b.add(b.mul(all, static_cast<double>(count)), index);
    };
    const ValueId tile = next(next(sample, rows_.tiles + rim, row), columns_.tiles + rim, column);
    return next(next(tile, channels, channel), kBins, bin);
  }

  // float32 (N, rows of tiles, columns of tiles, C, bins).
  ValueId histograms(Builder& b, ValueId bytes) const {
    const Shape shape = b.shape(bytes);
    const ValueId whole = padded(b, padded(b, bytes, 1, rows_), 2, columns_);
    const ValueId bins = b.reshape(bins_of(b, whole), {shape[0], rows_.tiles, rows_.tile(),
                                                       columns_.tiles, columns_.tile(), shape[3]});
    const auto index = [&](int axis) {
      Shape line(6, 1);
      line[static_cast<size_t>(axis)] = b.shape(bins)[static_cast<size_t>(axis)];
      return b.iota(line, axis, DType::kInt32);
    };
    const ValueId ids = cell(b, index(0), index(1), index(3), index(5), bins, 0, shape[3]);
    const Shape result = {shape[0], rows_.tiles, columns_.tiles, shape[3], kBins};
    const ValueId ones = b.constant(1, DType::kFloat32, b.shape(bins));
    return b.reshape(b.scatter_add_rows(ones, ids, num_elements(result)), result);
  }

  // What each bin becomes: 0 to 255. What is beyond the limit is shared by all bins.
  ValueId levels(Builder& b, ValueId counts) const {
    const auto area = static_cast<double>(rows_.tile() * columns_.tile());
    const double limit = config_.number("clip_limit") * area / kBins;
    if (limit > 0) {
      const ValueId clipped = b.minimum(counts, limit);
      const ValueId excess = b.reduce_sum(b.sub(counts, clipped), {4}, true);
      counts = b.add(clipped, b.div(excess, static_cast<double>(kBins)));
    }
    const ValueId below = b.cumsum(counts, 4);
    const ValueId first = b.reduce_min(below, {4}, true);
    const ValueId beyond = b.add(b.neg(first), area);
    const ValueId is_flat = b.binary("eq", beyond, constant_like(b, beyond, 0));
    const ValueId divisor = b.select(is_flat, constant_like(b, beyond, 1), beyond);
    return b.clamp(b.div(b.mul(b.sub(below, first), 255.0), divisor), 0, 255);
  }

  // With the first and the last tile twice.
  static ValueId beyond_rim(Builder& b, ValueId x, int axis) {
    const int64_t size = b.shape(x)[static_cast<size_t>(axis)];
    return b.concat({b.slice(x, axis, 0, 1), x, b.slice(x, axis, size - 1, size)}, axis);
  }

  // The tiles on both sides of the pixels of a line, int32, and how much the second one counts.
  struct Between {
    ValueId low, high, weight;
  };
  static Between between(Builder& b, int axis, const Side& side) {
    Shape line(4, 1);
    line[static_cast<size_t>(axis)] = side.size;
    const auto tile = static_cast<double>(side.tile());
    const ValueId place =
        b.add(b.div(b.sub(b.iota(line, axis, DType::kFloat32), tile / 2), tile), 1.0);
    const ValueId low = b.unary("floor", place);
    const auto tile_at = [&](ValueId index) {
      return b.cast(b.clamp(index, 0, static_cast<double>(side.tiles + 1)), DType::kInt32);
    };
    return {tile_at(low), tile_at(b.add(low, 1.0)), b.sub(place, low)};
  }

  ValueId interpolated(Builder& b, ValueId table, ValueId bins) const {
    const Shape shape = b.shape(bins);
    const ValueId flat = b.reshape(table, {num_elements(b.shape(table))});
    const ValueId sample = b.iota({shape[0], 1, 1, 1}, 0, DType::kInt32);
    const ValueId channel = b.iota({1, 1, 1, shape[3]}, 3, DType::kInt32);
    const Between rows = between(b, 1, rows_), columns = between(b, 2, columns_);
    const auto mean = [&](ValueId low, ValueId high, ValueId weight) {
      return b.add(b.mul(low, b.add(b.neg(weight), 1.0)), b.mul(high, weight));
    };
    const auto along = [&](ValueId row) {
      const auto value = [&](ValueId column) {
        return b.gather_rows(flat, cell(b, sample, row, column, channel, bins, 2, shape[3]));
      };
      return mean(value(columns.low), value(columns.high), columns.weight);
    };
    return mean(along(rows.low), along(rows.high), rows.weight);
  }

  Side rows_, columns_;
};

}  // namespace

std::vector<LayerEntry> equalization_layers() {
  return {{"Equalization", make_as<Equalization>},
          {"ContrastLimitedAdaptiveHistogramEqualization", make_as<ContrastLimitedEqualization>}};
}

}  // namespace meshtrain
