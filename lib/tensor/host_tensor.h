// A tensor in host memory: contiguous, row-major, 64-byte aligned, owned.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

class HostTensor {
 public:
  HostTensor() = default;  // an empty float32 tensor of shape (0,)
  // Zero-filled. Throws RuntimeFailure (exit 4) when allocation fails.
  HostTensor(DType dtype, Shape shape);
  HostTensor(HostTensor&&) = default;
  HostTensor& operator=(HostTensor&&) = default;
  HostTensor clone() const;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return size_; }  // elements
  size_t num_bytes() const { return static_cast<size_t>(size_) * dtype_size(dtype_); }

  std::byte* bytes() { return data_.get(); }
  const std::byte* bytes() const { return data_.get(); }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(data_.get());
  }
  template <class T>
  std::span<const T> span() const {
    return {data<T>(), static_cast<size_t>(size_)};
  }

  // Returns element `index` as a double, for every dtype (float16 and bfloat16 included).
  double at(int64_t index) const;
  // Stores `value` converted to the dtype.
  void set(int64_t index, double value);
  // A copy in another dtype, converted element by element.
  HostTensor cast(DType dtype) const;
  // Another shape of the same rank: elements outside of it are dropped, new ones are zeros.
  HostTensor resized(Shape shape) const;
  // The same elements under another shape of equal size.
  void reshape(Shape shape);

 private:
  struct Free {
    void operator()(std::byte* pointer) const;
  };
  DType dtype_ = DType::kFloat32;
  Shape shape_ = {0};
  int64_t size_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

// A tensor with these values: tensor_of<float>({2, 2}, {1, 2, 3, 4}).
template <class T>
HostTensor tensor_of(DType dtype, Shape shape, const std::vector<T>& values) {
  HostTensor out(dtype, std::move(shape));
  MESHTRAIN_CHECK(out.size() == static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    out.set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  }
  return out;
}

// A tensor of a weight file or archive.
struct NamedTensor {
  std::string name;  // "d1/kernel"
  HostTensor tensor;
};

}  // namespace meshtrain
