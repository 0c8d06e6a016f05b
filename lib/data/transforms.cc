#include "data/transforms.h"

#include <algorithm>
#include <vector>

#include "config/source_classes.h"
#include "data/checks.h"
#include "data/masked_lm.h"
#include "data/with_type.h"

namespace meshtrain {
namespace {

std::vector<double> numbers_of(const ConfigValue& value) {
  return value.is_list() ? value.numbers() : std::vector<double>{value.number()};
}

// x scale + offset in `Out`, of one number for all elements or of one for each channel.
template <class Out>
struct Scaling {
  std::vector<Out> scale, offset;

  template <class T>
  void apply(const T* from, Out* to, size_t count) const {
    if (scale.size() == 1) {
      const Out factor = scale[0];
      const Out shift = offset[0];
      for (size_t i = 0; i < count; ++i) {
        to[i] = static_cast<Out>(from[i]) * factor + shift;
      }
      return;
    }
    for (size_t begin = 0; begin < count; begin += scale.size()) {
      for (size_t c = 0; c < scale.size(); ++c) {
        to[begin + c] = static_cast<Out>(from[begin + c]) * scale[c] + offset[c];
      }
    }
  }
};

template <class Out>
Scaling<Out> make_scaling(const std::vector<double>& scale, const std::vector<double>& offset) {
  Scaling<Out> scaling;
  for (size_t c = 0; c < std::max(scale.size(), offset.size()); ++c) {
    scaling.scale.push_back(static_cast<Out>(scale[c % scale.size()]));
    scaling.offset.push_back(static_cast<Out>(offset[c % offset.size()]));
  }
  return scaling;
}

class RescaledRows final : public Rows {
 public:
  RescaledRows(RowsPtr rows, const std::vector<double>& scale, const std::vector<double>& offset)
      : rows_(std::move(rows)),
        single_(make_scaling<float>(scale, offset)),
        double_(make_scaling<double>(scale, offset)) {}

  DType dtype() const override {
    return rows_->dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  const Shape& shape() const override { return rows_->shape(); }
  Cost cost() const override { return rows_->cost(); }

  std::optional<RowCounts> row_counts(int64_t begin, int64_t end) const override {
    std::optional<RowCounts> counted = rows_->row_counts(begin, end);
    if (counted) {
      auto rescaled = std::make_shared<RescaledRows>(*this);
      rescaled->rows_ = std::move(counted->rows);
      counted->rows = std::move(rescaled);
    }
    return counted;
  }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    const size_t count = rows_->row_bytes() / dtype_size(rows_->dtype());  // elements of a row
    if (const HostTensor* tensor = rows_->tensor()) {
      for (size_t i = 0; i < order.size(); ++i) {
        check_row(order[i]);
        convert(tensor->bytes() + static_cast<size_t>(order[i]) * rows_->row_bytes(), count,
                to + i * row_bytes());
      }
      return;
    }
    std::vector<std::byte> own(order.size() * rows_->row_bytes());
    rows_->read(order, own.data());
    convert(own.data(), order.size() * count, to);
  }

 private:
  void convert(const std::byte* from, size_t count, std::byte* to) const {
    if (rows_->dtype() == DType::kFloat64) {
      double_.apply(reinterpret_cast<const double*>(from), reinterpret_cast<double*>(to), count);
      return;
    }
    float* const out = reinterpret_cast<float*>(to);
    const bool typed = with_type(rows_->dtype(), [&](auto tag) {
      single_.apply(reinterpret_cast<const decltype(tag)*>(from), out, count);
    });
    if (!typed) {  // 16-bit floats
      HostTensor halves(rows_->dtype(), {static_cast<int64_t>(count)});
      std::copy_n(from, halves.num_bytes(), halves.bytes());
      single_.apply(halves.cast(DType::kFloat32).data<float>(), out, count);
    }
  }

  RowsPtr rows_;
  Scaling<float> single_;
  Scaling<double> double_;
};

RowsPtr rescaled(const ConfigObject& transform, RowsPtr rows, const std::string& name) {
  const std::vector<double> scale = numbers_of(transform.arg("scale"));
  const std::vector<double> offset = numbers_of(transform.arg("offset"));
  const Shape& shape = rows->shape();
  const size_t channels = shape.size() > 1 ? static_cast<size_t>(shape.back()) : 1;
  for (const auto& [values, arg] : {std::pair(&scale, "scale"), std::pair(&offset, "offset")}) {
    if (values->size() != 1 && values->size() != channels) {
      throw ConfigError("E304", transform.loc_of(arg),
                        fmt::format("`{}` has {} numbers; the last dimension of `{}` {} has {}",
                                    arg, values->size(), name, shape_string(shape), channels));
    }
  }
  return std::make_shared<RescaledRows>(std::move(rows), scale, offset);
}

RowsPtr reshaped(const ConfigObject& transform, RowsPtr rows, const std::string& name) {
  Shape shape = transform.arg("target_shape").integers();
  const Shape old_sample = without_first(rows->shape());
  const int64_t elements = num_elements(old_sample);
  int64_t known = 1;
  int64_t* unknown = nullptr;
  bool fits = true;
  for (int64_t& size : shape) {
    if (size == kUnknownDim) {
      fits = fits && unknown == nullptr;
      unknown = &size;
    } else {
      fits = fits && size >= 0 && !__builtin_mul_overflow(known, size, &known);
    }
  }
  if (fits && unknown != nullptr) {
    fits = known > 0 && elements % known == 0;
    *unknown = fits ? elements / known : kUnknownDim;
  } else {
    fits = fits && known == elements;
  }
  if (!fits) {
    throw ConfigError("E304", transform.loc_of("target_shape"),
                      fmt::format("samples of `{}` are {}, {} elements; they cannot become {}",
                                  name, shape_string(old_sample), elements, shape_string(shape)));
  }
  return reshape_rows(std::move(rows), shape);
}

class OneHotRows final : public Rows {
 public:
  // Of one label each, (..., classes) of labels (...) or (..., 1).
  OneHotRows(RowsPtr labels, int64_t num_classes)
      : labels_(std::move(labels)), shape_(labels_->shape()), classes_(num_classes) {
    if (shape_.size() > 1 && shape_.back() == 1) {
      shape_.pop_back();
    }
    shape_.push_back(num_classes);
  }

  DType dtype() const override { return DType::kFloat32; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return labels_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    Shape shape = labels_->shape();
    shape[0] = static_cast<int64_t>(order.size());
    HostTensor labels(labels_->dtype(), shape);
    labels_->read(order, labels.bytes());
    auto* row = reinterpret_cast<float*>(to);
    std::fill_n(row, labels.size() * classes_, 0.0F);
    for (int64_t i = 0; i < labels.size(); ++i, row += classes_) {
      row[static_cast<int64_t>(labels.at(i))] = 1.0F;
    }
  }

 private:
  RowsPtr labels_;
  Shape shape_;
  int64_t classes_;
};

}  // namespace

RowsPtr apply_transform(const ConfigObject& transform, RowsPtr rows, const std::string& name) {
  if (transform.class_name == "Rescaling") {
    return rescaled(transform, std::move(rows), name);
  }
  MESHTRAIN_CHECK(transform.class_name == "Reshape", "no transform {}", transform.class_name);
  return reshaped(transform, std::move(rows), name);
}

RowsPtr one_hot(RowsPtr labels, int64_t num_classes, const std::string& name,
                const SourceLoc& loc) {
  const Shape& shape = labels->shape();
  if (shape.size() == 2 && shape[1] != 1) {
    throw ConfigError("E304", loc,
                      fmt::format("`label.one_hot` needs one label a sample; `{}` has the shape {}",
                                  name, shape_string(shape)));
  }
  return std::make_shared<OneHotRows>(check_label_range(labels, {num_classes}, name, loc),
                                      num_classes);
}

void transform_dataset(Dataset& dataset, const DataConfig& data) {
  for (const ConfigObject& transform : data.transform) {
    if (changes_batches(transform)) {
      continue;  // in the training step
    }
    if (transform.class_name == "MaskedLMMaskGenerator") {
      mask_tokens(masked_lm_options(transform), static_cast<uint64_t>(data.seed), transform.loc,
                  dataset);
      continue;
    }
    for (Dataset::Array& input : dataset.inputs) {
      input.rows = apply_transform(transform, std::move(input.rows), input.name);
    }
  }
  if (data.one_hot > 0) {
    for (Dataset::Array& target : dataset.targets) {
      target.rows = one_hot(std::move(target.rows), data.one_hot, target.name, dataset.loc);
    }
  }
}

}  // namespace meshtrain
