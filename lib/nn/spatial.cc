#include "nn/spatial.h"

#include <algorithm>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

size_t rank_of_name(std::string_view class_name) {
  const size_t digit = class_name.find_first_of("123");
  return digit == std::string_view::npos ? 2 : static_cast<size_t>(class_name[digit] - '0');
}

// The permutation that brings dimension 1 last, and its inverse.
std::vector<int64_t> permutation(size_t rank, bool to_last) {
  std::vector<int64_t> out = {0};
  if (!to_last) {
    out.push_back(static_cast<int64_t>(rank) - 1);
  }
  for (size_t i = to_last ? 2 : 1; i < (to_last ? rank : rank - 1); ++i) {
    out.push_back(static_cast<int64_t>(i));
  }
  if (to_last) {
    out.push_back(1);
  }
  return out;
}

Shape permuted(const Shape& shape, bool to_last) {
  Shape out;
  for (const int64_t d : permutation(shape.size(), to_last)) {
    out.push_back(shape[static_cast<size_t>(d)]);
  }
  return out;
}

}  // namespace

SpatialLayer::SpatialLayer(const ConfigObject& config)
    : ConfiguredLayer(config), rank_(rank_of_name(config.class_name)) {}

bool SpatialLayer::channels_first() const {
  return string_or(&config_, "data_format", "channels_last") == "channels_first";
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
  const bool first = channels_first();
  const Shape output =
      build_last(first ? permuted(written_input_, true) : written_input_, diagnostics);
  return first && keeps_rank() && !is_failed(output) ? permuted(output, false) : output;
}

DType SpatialLayer::output_dtype(std::span<const DType> inputs) const {
  return keeps_integers() && !is_floating(inputs[0]) ? inputs[0] : dtype;
}

ValueId SpatialLayer::call(CallContext& context, std::span<const ValueId> inputs) {
  Builder& b = context.builder;
  ValueId x = keeps_integers() ? inputs[0] : to_compute(context, inputs[0]);
  if (!channels_first()) {
    return call_last(context, x);
  }
  x = call_last(context, b.transpose(x, permutation(rank_ + 2, true)));
  return keeps_rank() ? b.transpose(x, permutation(rank_ + 2, false)) : x;
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

std::vector<int64_t> SpatialLayer::per_dimension(std::string_view argument) const {
  Diagnostics unused;
  return per_dimension(argument, unused).value();
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

}  // namespace meshtrain
