#include "data/checks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "base/text.h"
#include "data/with_type.h"

namespace meshtrain {
namespace {

constexpr double kInfiniteAsFloat32 = 0x1.ffffffp127;  // from here on, by rounding

// Looks at rows: `row(i)` is the number of the i-th one in its array. Throws where they are wrong.
using Check =
    std::function<void(const HostTensor& rows, const std::function<int64_t(int64_t)>& row)>;

// Checks rows whenever they are read.
class CheckedRows final : public Rows {
 public:
  CheckedRows(RowsPtr rows, Check check) : rows_(std::move(rows)), check_(std::move(check)) {}

  DType dtype() const override { return rows_->dtype(); }
  const Shape& shape() const override { return rows_->shape(); }
  Cost cost() const override { return rows_->cost(); }

  void read(std::span<const int64_t> order, std::byte* to) const override {
    Shape part = shape();
    part[0] = static_cast<int64_t>(order.size());
    HostTensor rows(dtype(), part);
    rows_->read(order, rows.bytes());
    check_(rows, [&](int64_t i) { return order[static_cast<size_t>(i)]; });
    std::copy_n(rows.bytes(), rows.num_bytes(), to);
  }
  RowsPtr in_pass(int64_t pass) const override {
    RowsPtr rows = rows_->in_pass(pass);
    return rows ? std::make_shared<CheckedRows>(std::move(rows), check_) : nullptr;
  }

 private:
  RowsPtr rows_;
  Check check_;
};

// The numbers that are wrong so far: of the first one its sample and value, and the largest.
struct WrongNumbers {
  int64_t count = 0;
  int64_t sample = 0;
  double first = 0;
  double largest = -INFINITY;
  bool has_zero = false;  // among all numbers
};

template <class IsRight>
void find_wrong(const HostTensor& numbers, const IsRight& is_right,
                const std::function<int64_t(int64_t)>& row, WrongNumbers& wrong) {
  const auto check = [&](int64_t i, double number) {
    wrong.has_zero = wrong.has_zero || number == 0;
    if (is_right(number)) {
      return;
    }
    if (wrong.count++ == 0) {
      wrong.sample = row(i / (numbers.size() / numbers.shape()[0]));
      wrong.first = number;
    }
    wrong.largest = std::max(wrong.largest, number);
  };
  const bool typed = with_type(numbers.dtype(), [&](auto tag) {
    const auto* values = numbers.data<decltype(tag)>();
    for (int64_t i = 0; i < numbers.size(); ++i) {
      check(i, static_cast<double>(values[i]));
    }
  });
  for (int64_t i = 0; !typed && i < numbers.size(); ++i) {
    check(i, numbers.at(i));
  }
}

// `refuse` throws for numbers that are not right.
template <class IsRight, class Refuse>
RowsPtr check_numbers(RowsPtr rows, const IsRight& is_right, const Refuse& refuse) {
  if (!is_checked_ahead(*rows)) {
    return std::make_shared<CheckedRows>(
        std::move(rows), [=](const HostTensor& read, const std::function<int64_t(int64_t)>& row) {
          WrongNumbers wrong;
          find_wrong(read, is_right, row, wrong);
          if (wrong.count > 0) {
            refuse(wrong);
          }
        });
  }
  WrongNumbers wrong;
  rows->for_each_block([&](int64_t begin, const HostTensor& block) {
    find_wrong(
        block, is_right, [&](int64_t i) { return begin + i; }, wrong);
  });
  if (wrong.count > 0) {
    refuse(wrong);
  }
  return rows;
}

[[noreturn]] void refuse_labels(const WrongNumbers& wrong, int64_t num_classes,
                                const std::string& name, const SourceLoc& loc) {
  const std::string classes =
      num_classes == kUnknownDim ? "classes are whole numbers from 0 on"
      : num_classes == 1
          ? "the only class is 0"
          : fmt::format("the {} classes are the whole numbers 0..{}", num_classes, num_classes - 1);
  ConfigError problem("E312", loc,
                      fmt::format("`{}`: sample {} has the label {}; {}", name, wrong.sample,
                                  format_shortest(wrong.first), classes));
  if (wrong.count > 1) {
    problem.note(fmt::format("{} more labels are no classes", format_thousands(wrong.count - 1)));
  }
  const auto largest = static_cast<int64_t>(std::clamp(wrong.largest, -1.0, 1e9));
  if (num_classes != kUnknownDim && wrong.largest == static_cast<double>(num_classes) &&
      !wrong.has_zero) {
    problem.help("labels count from 0; are these counted from 1?");
  } else if (num_classes == 1) {
    problem.help(
        "one output is for two classes: `loss: binary_crossentropy`; else it takes an output "
        "for each class");
  } else if (wrong.first == -1 && wrong.largest == -1 && !wrong.has_zero) {
    problem.help(
        "labels of -1 and 1 are the classes 0 and 1 with `categorical: [NAME]` of a csv; "
        "`ignore_class: -1` of the loss would leave the first out");
  } else if (largest == 255 || wrong.first < 0) {
    problem.help(fmt::format("`ignore_class: {}` of the loss leaves such labels out",
                             wrong.first < 0 ? format_shortest(wrong.first) : "255"));
  } else if (num_classes != kUnknownDim && largest >= num_classes &&
             wrong.largest == std::floor(wrong.largest)) {
    problem.help(fmt::format("classes up to {} take {} outputs", largest, largest + 1));
  }
  throw problem;
}

[[noreturn]] void refuse_yes_no(const WrongNumbers& wrong, const std::string& loss,
                                const std::string& name, const SourceLoc& loc) {
  ConfigError problem("E312", loc,
                      fmt::format("`{}`: sample {} has the label {}; `{}` takes labels from 0 to 1",
                                  name, wrong.sample, format_shortest(wrong.first), loss));
  if (wrong.count > 1) {
    problem.note(fmt::format("{} more labels are outside", format_thousands(wrong.count - 1)));
  }
  problem.help("write the two classes as 0 and 1; `categorical` of a csv numbers them so");
  throw problem;
}

[[noreturn]] void refuse_ids(const WrongNumbers& wrong, int64_t num_rows, const std::string& layer,
                             const std::string& name, const SourceLoc& loc) {
  ConfigError problem("E314", loc,
                      fmt::format("`{}`: sample {} has the id {}; `{}` has the rows 0..{}", name,
                                  wrong.sample, format_shortest(wrong.first), layer, num_rows - 1));
  if (wrong.count > 1) {
    problem.note(fmt::format("{} more ids have no row", format_thousands(wrong.count - 1)));
  }
  if (std::isfinite(wrong.largest) && wrong.largest < 0) {
    problem.help("ids count from 0; none is counted from the end");
  } else if (wrong.largest < 0x7fffffff) {  // of int32, which ids become
    const auto largest = static_cast<int64_t>(wrong.largest);
    problem.help(
        fmt::format("`input_dim: {}` gives `{}` a row for the id {}", largest + 1, layer, largest));
  }
  throw problem;
}

// A number is NaN or infinite when all bits of its exponent are set. Blocks of fixed length without
// branches, which compilers vectorize.
template <class Bits>
int64_t first_with_exponent(const Bits* values, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 1024;
  const auto find = [&](int64_t begin, int64_t end) -> int64_t {
    for (int64_t i = begin; i < end; ++i) {
      if ((values[i] & exponent) == exponent) {
        return i;
      }
    }
    return -1;
  };
  int64_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    Bits any = 0;
    for (int64_t i = 0; i < kBlock; ++i) {
      any |= static_cast<Bits>(-static_cast<Bits>((values[begin + i] & exponent) == exponent));
    }
    if (any != 0) {
      return find(begin, begin + kBlock);
    }
  }
  return find(begin, count);
}

int64_t first_beyond_float32(const HostTensor& tensor) {
  const double* const values = tensor.data<double>();
  const double* const end = values + tensor.size();
  const double* const found = std::find_if_not(
      values, end, [](double value) { return std::abs(value) < kInfiniteAsFloat32; });
  return found == end ? -1 : found - values;
}

}  // namespace

bool is_checked_ahead(const Rows& rows) {
  return rows.tensor() != nullptr || (rows.cost() != Rows::Cost::kComputed &&
                                      static_cast<int64_t>(rows.row_bytes()) <=
                                          kCheckedAhead / std::max<int64_t>(1, rows.size()));
}

int64_t first_nonfinite(const HostTensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kFloat16:
      return first_with_exponent<uint16_t>(tensor.data<uint16_t>(), tensor.size(), 0x7c00);
    case DType::kBFloat16:
      return first_with_exponent<uint16_t>(tensor.data<uint16_t>(), tensor.size(), 0x7f80);
    case DType::kFloat32:
      return first_with_exponent<uint32_t>(tensor.data<uint32_t>(), tensor.size(), 0x7f800000);
    case DType::kFloat64:
      return first_with_exponent<uint64_t>(tensor.data<uint64_t>(), tensor.size(),
                                           0x7ff0000000000000);
    default:
      return -1;
  }
}

RowsPtr check_label_range(RowsPtr labels, const LabelRange& range, const std::string& name,
                          const SourceLoc& loc) {
  const double num_classes =
      range.num_classes == kUnknownDim ? INFINITY : static_cast<double>(range.num_classes);
  const double ignored = range.ignored ? static_cast<double>(*range.ignored) : NAN;
  // Written so that NaN is out of range, too.
  const auto is_right = [=](double label) {
    return (label >= 0 && label < num_classes && label == std::floor(label)) || label == ignored;
  };
  return check_numbers(std::move(labels), is_right, [=](const WrongNumbers& wrong) {
    refuse_labels(wrong, range.num_classes, name, loc);
  });
}

RowsPtr check_yes_no_range(RowsPtr labels, const std::string& loss, const std::string& name,
                           const SourceLoc& loc) {
  const auto is_right = [](double label) { return !(label < 0 || label > 1); };
  return check_numbers(std::move(labels), is_right,
                       [=](const WrongNumbers& wrong) { refuse_yes_no(wrong, loss, name, loc); });
}

RowsPtr check_id_range(RowsPtr ids, int64_t num_rows, const std::string& layer,
                       const std::string& name, const SourceLoc& loc) {
  // Embedding cuts fractions off. NaN is out of range.
  const auto is_right = [limit = static_cast<double>(num_rows)](double id) {
    return id > -1 && id < limit;
  };
  return check_numbers(std::move(ids), is_right, [=](const WrongNumbers& wrong) {
    refuse_ids(wrong, num_rows, layer, name, loc);
  });
}

RowsPtr check_fits_int64(RowsPtr rows, const std::string& name, const std::string& owner,
                         const SourceLoc& loc) {
  if (rows->dtype() != DType::kUInt64) {
    return rows;
  }
  const auto is_right = [](double number) { return number < 0x1p63; };
  return check_numbers(std::move(rows), is_right, [=](const WrongNumbers& wrong) {
    ConfigError problem(
        "E303", loc,
        fmt::format("{}: `{}`: sample {} has the uint64 {:.6g}; whole numbers are read up to 2^63",
                    owner, name, wrong.sample, wrong.first));
    if (wrong.count > 1) {
      problem.note(fmt::format("{} more are as large", format_thousands(wrong.count - 1)));
    }
    throw problem.help(
        "convert the array: `x.astype(\"float64\")` keeps 15 digits; ids need smaller numbers");
  });
}

RowsPtr check_finite(RowsPtr rows, bool is_for_float64, const std::string& name,
                     const std::string& owner, const SourceLoc& loc, const char* sample) {
  const DType dtype = rows->dtype();
  if (dtype != DType::kFloat16 && dtype != DType::kBFloat16 && dtype != DType::kFloat32 &&
      dtype != DType::kFloat64) {
    return rows;
  }
  const Check check = [=](const HostTensor& block, const std::function<int64_t(int64_t)>& row) {
    const int64_t index = dtype == DType::kFloat64 && !is_for_float64 ? first_beyond_float32(block)
                                                                      : first_nonfinite(block);
    if (index < 0) {
      return;
    }
    const int64_t features = block.size() / block.shape()[0];
    const double value = block.at(index);
    throw ConfigError(
        "E315", loc,
        fmt::format("{}: `{}`: {} {}{} is {}", owner, name, sample, row(index / features),
                    features == 1 ? "" : fmt::format(" feature {}", index % features),
                    std::isfinite(value) ? format_shortest(value) + ", infinite as float32"
                    : std::isnan(value)  ? "NaN"
                    : value > 0          ? "inf"
                                         : "-inf"))
        .help("`data.nonfinite: allow` takes such numbers as they are");
  };
  if (!is_checked_ahead(*rows)) {
    return std::make_shared<CheckedRows>(std::move(rows), check);
  }
  rows->for_each_block([&](int64_t begin, const HostTensor& block) {
    check(block, [&](int64_t i) { return begin + i; });
  });
  return rows;
}

}  // namespace meshtrain
