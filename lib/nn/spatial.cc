#include "nn/spatial.h"

#include <algorithm>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

size_t rank_of_name(std::string_view class_name) {
  const size_t digit = class_name.find_first_of("123");
  return digit == std::string_view::npos ? 2 : static_cast<size_t>(class_name[digit] - '0');
}

}  // namespace

SpatialLayer::SpatialLayer(const ConfigObject& config)
    : ConfiguredLayer(config), rank_(rank_of_name(config.class_name)) {}

bool SpatialLayer::channels_first() const {
  return string_or(config_, "data_format", "channels_last") == "channels_first";
}

Diagnostic& SpatialLayer::input_error(Diagnostics& diagnostics, std::string_view what) const {
  return shape_error(diagnostics, std::span(&written_input_, 1), what);
}

Shape SpatialLayer::build(std::span<const Shape> inputs, Diagnostics& diagnostics) {
  if (!takes_one(inputs, diagnostics)) {
    return failed_shape();
  }
  written_input_ = inputs[0];
  if (written_input_.size() != rank_ + 2) {
    const char* const names[] = {"steps", "height, width", "depth, height, width"};
    input_error(diagnostics, fmt::format("it takes {} dimensions, batch included", rank_ + 2))
        .help(fmt::format("give it (batch, {0}{1}{2}); Reshape adds a missing dimension",
                          channels_first() ? "channels, " : "", names[rank_ - 1],
                          channels_first() ? "" : ", channels"));
    return failed_shape();
  }
  if (std::find(written_input_.begin() + 1, written_input_.end(), kUnknownDim) !=
      written_input_.end()) {
    input_error(diagnostics, "all sizes but the batch must be known")
        .help("write them in the Input's `shape`");
    return failed_shape();
  }
  const size_t last = rank_ + 1;
  const size_t channels = channels_first() ? 1 : last;
  const Shape output = build_last(move_axis(written_input_, channels, last), diagnostics);
  return keeps_rank() && !is_failed(output) ? move_axis(output, last, channels) : output;
}

DType SpatialLayer::output_dtype(std::span<const DType> inputs) const {
  return keeps_integers() && !is_floating(inputs[0]) ? inputs[0] : dtype;
}

ValueId SpatialLayer::call(CallContext& context, std::span<const ValueId> inputs) {
  Builder& b = context.builder;
  const size_t last = rank_ + 1;
  const size_t channels = channels_first() ? 1 : last;
  const ValueId x = keeps_integers() ? inputs[0] : to_compute(context, inputs[0]);
  const ValueId y = call_last(context, move_axis(b, x, channels, last));
  return keeps_rank() ? move_axis(b, y, last, channels) : y;
}

std::optional<std::vector<int64_t>> SpatialLayer::per_dimension(std::string_view argument,
                                                                Diagnostics& diagnostics) const {
  const ConfigValue& value = value_or_null(config_, argument);
  if (value.is_null()) {
    return std::vector<int64_t>();
  }
  if (value.is_list() && value.list().size() != rank_) {
    argument_error(diagnostics, argument,
                   fmt::format("has {} numbers for {} spatial dimension{}", value.list().size(),
                               rank_, rank_ == 1 ? "" : "s"))
        .help(fmt::format("write one number, or a list of {}", rank_));
    return std::nullopt;
  }
  return value.is_list() ? value.integers() : std::vector<int64_t>(rank_, value.integer());
}

std::optional<SpatialLayer::Pairs> SpatialLayer::pairs(std::string_view argument,
                                                       Diagnostics& diagnostics) const {
  const ConfigValue& value = value_or_null(config_, argument);
  if (!value.is_list()) {
    return Pairs(rank_, {value.integer(), value.integer()});
  }
  const ConfigValue::List& list = value.list();
  const bool numbers = std::all_of(list.begin(), list.end(),
                                   [](const ConfigValue& entry) { return entry.is_int(); });
  if (rank_ == 1 && numbers && list.size() == 2) {
    return Pairs{{list[0].integer(), list[1].integer()}};
  }
  Pairs out;
  for (const ConfigValue& entry : list) {
    if (entry.is_int()) {
      out.emplace_back(entry.integer(), entry.integer());
    } else if (entry.is_list() && entry.list().size() == 2 && entry.list()[0].is_int() &&
               entry.list()[1].is_int()) {
      out.emplace_back(entry.list()[0].integer(), entry.list()[1].integer());
    }
  }
  if (out.size() != list.size() || out.size() != rank_ || (rank_ == 1 && numbers)) {
    argument_error(diagnostics, argument, "does not fit its spatial dimensions")
        .help(rank_ == 1 ? "write one number, or [before, after]"
                         : fmt::format("write one number, or {} entries: a number, or "
                                       "[before, after], for each spatial dimension",
                                       rank_));
    return std::nullopt;
  }
  return out;
}

AxisWindow axis_window(std::string_view padding, int64_t size, int64_t cells, int64_t stride,
                       int64_t dilation) {
  const int64_t reach = (cells - 1) * dilation + 1;
  AxisWindow out;
  if (padding == "same") {
    out.outputs = (size + stride - 1) / stride;
    const int64_t total = std::max<int64_t>((out.outputs - 1) * stride + reach - size, 0);
    out.before = total / 2;
    out.after = total - out.before;
    return out;
  }
  if (padding == "causal") {
    out.before = reach - 1;
  }
  const int64_t room = size + out.before - reach;
  out.outputs = room < 0 ? 0 : room / stride + 1;
  return out;
}

bool WindowLayer::read_window(std::string_view cells, Diagnostics& diagnostics) {
  const auto sizes = per_dimension(cells, diagnostics);
  const auto strides = per_dimension("strides", diagnostics);
  const auto dilations = per_dimension("dilation_rate", diagnostics);
  if (!sizes || !strides || !dilations) {
    return false;
  }
  cells_argument_ = cells;
  cells_ = *sizes;
  strides_ = strides->empty() ? cells_ : *strides;
  dilations_ = dilations->empty() ? std::vector<int64_t>(rank(), 1) : *dilations;
  return true;
}

Shape WindowLayer::fit_window(const Shape& input, int64_t channels,
                              Diagnostics& diagnostics) const {
  Shape output = {input[0]};
  for (size_t d = 0; d < rank(); ++d) {
    const AxisWindow axis =
        axis_window(config_.string("padding"), input[d + 1], cells_[d], strides_[d], dilations_[d]);
    if (axis.outputs < 1) {
      input_error(diagnostics,
                  fmt::format("a window of {} cells is larger than its dimension of {}",
                              (cells_[d] - 1) * dilations_[d] + 1, input[d + 1]))
          .help(fmt::format("use `padding: same`, or a smaller {}", cells_argument_));
      return failed_shape();
    }
    output.push_back(axis.outputs);
  }
  output.push_back(channels);
  return output;
}

Window WindowLayer::window_at(const Shape& input) const {
  Window window{strides_, dilations_, {}, {}};
  for (size_t d = 0; d < rank(); ++d) {
    const AxisWindow axis =
        axis_window(config_.string("padding"), input[d + 1], cells_[d], strides_[d], dilations_[d]);
    window.pads_before.push_back(axis.before);
    window.pads_after.push_back(axis.after);
  }
  return window;
}

}  // namespace meshtrain
