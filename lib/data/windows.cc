#include "data/windows.h"

#include "base/text.h"

namespace meshtrain {
namespace {

// Window i is ids [first + i stride, + length).
class WindowRows final : public Rows {
 public:
  WindowRows(IdsPtr ids, Shape shape, int64_t first, int64_t stride)
      : ids_(std::move(ids)),
        shape_(std::move(shape)),
        first_(first),
        stride_(stride),
        length_(shape_.size() == 1 ? 1 : shape_[1]) {}

  DType dtype() const override { return DType::kInt32; }
  const Shape& shape() const override { return shape_; }
  // Windows overlap: kept anywhere else they would take more than the ids do.
  Cost cost() const override { return Cost::kMemory; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    auto* out = reinterpret_cast<int32_t*>(to);
    for (const int64_t row : order) {
      MESHTRAIN_CHECK(row >= 0 && row < size(), "window {} of {}", row, size());
      ids_->read(first_ + row * stride_, {out, static_cast<size_t>(length_)});
      out += length_;
    }
  }

 private:
  IdsPtr ids_;
  Shape shape_;
  int64_t first_, stride_, length_;
};

}  // namespace

void add_windows(const IdsPtr& ids, int64_t begin, int64_t end, const WindowSettings& settings,
                 const SourceLoc& loc, Dataset& dataset) {
  const int64_t needed = settings.length + (settings.target ? 1 : 0);
  if (end - begin < needed) {
    throw ConfigError(
        "E316", loc,
        fmt::format("{}: {} ids are too few for one window, which takes {}", dataset.description,
                    format_thousands(end - begin), format_thousands(needed)));
  }
  const int64_t count = (end - begin - needed) / settings.stride + 1;
  const auto rows = [&](Shape shape, int64_t first) {
    return std::make_shared<WindowRows>(ids, std::move(shape), first, settings.stride);
  };
  dataset.inputs.push_back({"x", rows({count, settings.length}, begin)});
  if (settings.target == WindowTarget::kSequence) {
    dataset.targets.push_back({"y", rows({count, settings.length}, begin + 1)});
  } else if (settings.target == WindowTarget::kLast) {
    dataset.targets.push_back({"y", rows({count}, begin + settings.length)});
  }
}

}  // namespace meshtrain
