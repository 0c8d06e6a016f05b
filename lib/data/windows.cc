#include "data/windows.h"

#include <cstring>

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

enum class DocumentArray : uint8_t { kSegments, kPositions, kWeights };

// What a window's separators say, of each of its ids.
class DocumentRows final : public Rows {
 public:
  DocumentRows(RowsPtr windows, int32_t separator, DocumentArray array)
      : windows_(std::move(windows)), separator_(separator), array_(array) {}

  DType dtype() const override {
    return array_ == DocumentArray::kWeights ? DType::kFloat32 : DType::kInt32;
  }
  const Shape& shape() const override { return windows_->shape(); }
  Cost cost() const override { return Cost::kMemory; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    windows_->read(order, to);  // ids, of 4 bytes as what replaces them
    const auto length = static_cast<size_t>(shape()[1]);
    for (size_t i = 0; i < order.size(); ++i, to += length * sizeof(int32_t)) {
      replace(to, length);
    }
  }

 private:
  void replace(std::byte* at, size_t length) const {
    int32_t segment = 1, position = 0;
    for (size_t i = 0; i < length; ++i, at += sizeof(int32_t)) {
      int32_t id;
      std::memcpy(&id, at, sizeof(id));
      const bool ends = id == separator_;
      const float weight = ends ? 0 : 1;
      const int32_t number = array_ == DocumentArray::kSegments ? segment : position;
      std::memcpy(at,
                  array_ == DocumentArray::kWeights ? static_cast<const void*>(&weight)
                                                    : static_cast<const void*>(&number),
                  sizeof(id));
      segment += ends ? 1 : 0;
      position = ends ? 0 : position + 1;
    }
  }

  RowsPtr windows_;
  int32_t separator_;
  DocumentArray array_;
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
  const RowsPtr windows = rows({count, settings.length}, begin);
  dataset.inputs.push_back({"x", windows});
  if (settings.separator) {
    const auto documents = [&](DocumentArray array) {
      return std::make_shared<DocumentRows>(windows, static_cast<int32_t>(*settings.separator),
                                            array);
    };
    dataset.inputs.push_back({"segments", documents(DocumentArray::kSegments), {}, true});
    dataset.inputs.push_back({"positions", documents(DocumentArray::kPositions), {}, true});
    dataset.sample_weight = documents(DocumentArray::kWeights);
  }
  if (settings.target == WindowTarget::kSequence) {
    dataset.targets.push_back({"y", rows({count, settings.length}, begin + 1)});
  } else if (settings.target == WindowTarget::kLast) {
    dataset.targets.push_back({"y", rows({count}, begin + settings.length)});
  }
}

}  // namespace meshtrain
