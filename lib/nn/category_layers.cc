// CategoryEncoding and Discretization. Source: Keras 3 layers/preprocessing.
#include "nn/category_layers.h"

#include <algorithm>

#include "nn/arguments.h"

namespace meshtrain {
namespace {

// Ids as rows of numbers, as the argument `output_mode` says.
class IdEncoding {
 public:
  IdEncoding(const ConfigObject& config, int64_t depth)
      : mode_(config.string("output_mode")), depth_(depth) {}

  bool keeps_ids() const { return mode_ == "int"; }
  // A single id of a sample has no dimension of its own in `one_hot`.
  Shape shape(Shape ids) const {
    if (keeps_ids()) {
      return ids;
    }
    if (mode_ != "one_hot") {
      ids.erase(ids.begin() + 1);  // as Keras: dimension 1, also of several
    } else if (ids.size() > 1 && ids.back() == 1) {
      ids.pop_back();
    }
    ids.push_back(depth_);
    return ids;
  }
  ValueId encode(Builder& b, ValueId ids, DType dtype) const {
    if (keeps_ids()) {
      return ids;
    }
    const Shape out = shape(b.shape(ids));
    const ValueId rows = b.one_hot(ids, depth_, dtype);
    if (mode_ == "one_hot") {
      return b.reshape(rows, out);
    }
    const std::vector<int64_t> places = {1};
    return mode_ == "count" ? b.reduce_sum(rows, places) : b.reduce_max(rows, places);
  }

 private:
  const std::string& mode_;
  int64_t depth_;
};

// A layer of one input whose output is an IdEncoding.
class IdLayer : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  DType output_dtype(std::span<const DType>) const override {
    return config_.string("output_mode") == "int" ? DType::kInt32 : dtype;
  }
  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const std::string& mode = config_.string("output_mode");
    if ((mode == "multi_hot" || mode == "count") && inputs[0].size() < 2) {
      shape_error(diagnostics, inputs,
                  fmt::format("`output_mode: {}` needs several ids of a sample", mode))
          .help("write `output_mode: one_hot`, or an Input with `shape: [1]`");
      return failed_shape();
    }
    return encoding().shape(inputs[0]);
  }

 protected:
  virtual int64_t depth() const = 0;
  IdEncoding encoding() const { return {config_, depth()}; }
};

class CategoryEncoding final : public IdLayer {
 public:
  using IdLayer::IdLayer;
  bool casts_inputs() const override { return false; }

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (inputs.size() == 2 && config_.string("output_mode") != "count") {
      argument_error(diagnostics, "output_mode", "is not count, which weights of ids need")
          .help("write `output_mode: count`, or leave the second input out");
      return failed_shape();
    }
    if (inputs.size() == 2 && inputs[0] != inputs[1]) {
      shape_error(diagnostics, inputs, "each id needs a weight")
          .help("write `inputs: [ids, weights]`, both of one shape");
      return failed_shape();
    }
    return IdLayer::build(inputs.size() == 2 ? inputs.first(1) : inputs, diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId ids = b.cast(inputs[0], DType::kInt32);
    if (inputs.size() == 1) {
      return encoding().encode(b, ids, context.compute_dtype);
    }
    const ValueId rows = b.one_hot(ids, depth(), context.compute_dtype);
    const ValueId weights = b.cast(inputs[1], context.compute_dtype);
    return b.reduce_sum(b.mul(rows, b.expand_dims(weights, static_cast<int>(b.shape(ids).size()))),
                        {1});
  }

 protected:
  int64_t depth() const override { return config_.integer("num_tokens"); }
};

// The number of boundaries at or below x. Without given ones they are a weight, which the trainer
// takes from the training data (engine/adapt.h) or a weight file holds.
class Discretization final : public IdLayer {
 public:
  using IdLayer::IdLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (has_boundaries() == config_.has("num_bins")) {
      argument_error(
          diagnostics, "bin_boundaries",
          has_boundaries() ? "and `num_bins` exclude each other" : "and `num_bins` are missing")
          .help("`num_bins` takes the boundaries from the training data");
      return failed_shape();
    }
    const std::vector<double> given =
        has_boundaries() ? numbers_of(config_.arg("bin_boundaries")) : std::vector<double>();
    if (has_boundaries() && (given.empty() || !std::is_sorted(given.begin(), given.end()))) {
      argument_error(diagnostics, "bin_boundaries", given.empty() ? "is empty" : "do not ascend")
          .help("write the smallest first");
      return failed_shape();
    }
    const Shape output = IdLayer::build(inputs, diagnostics);
    if (!is_failed(output) && !has_boundaries()) {
      boundaries_ =
          add_weight("bin_boundaries", {depth() - 1}, variable_dtype, filled_with(0), false);
    }
    return output;
  }
  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    const ValueId x = to_float32(context, inputs[0]);
    Shape wide = b.shape(x);
    wide.push_back(1);
    const ValueId boundaries =
        has_boundaries() ? vector_of(b, numbers_of(config_.arg("bin_boundaries")), b.dtype(x))
                         : b.cast(context.weight(boundaries_), b.dtype(x));
    const ValueId is_above = b.binary("ge", b.reshape(x, wide), boundaries);
    const ValueId count = b.reduce_sum(b.cast(is_above, b.dtype(x)), {last_axis(b, is_above)});
    return encoding().encode(b, b.cast(count, DType::kInt32), context.compute_dtype);
  }
  bool casts_weights() const override { return false; }

 protected:
  int64_t depth() const override {
    return has_boundaries()
               ? static_cast<int64_t>(numbers_of(config_.arg("bin_boundaries")).size()) + 1
               : integer_or(config_, "num_bins", 1);  // missing: build() refuses it
  }

 private:
  bool has_boundaries() const { return !value_or_null(config_, "bin_boundaries").is_null(); }

  int boundaries_ = kNone;
};

}  // namespace

std::vector<LayerEntry> category_layers() {
  return {{"CategoryEncoding", make_as<CategoryEncoding>},
          {"Discretization", make_as<Discretization>}};
}

}  // namespace meshtrain
