// SmallVector: a vector with its first N elements inside of it, so that short lists need no heap.
//
// The sharding passes spend their time on lists of one to four elements (operands of a node, axes
// of a dimension). The interface is the subset of std::vector's that they use. Iterators are
// pointers. Moving a list on the heap takes over its memory; moving a short list moves its
// elements.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace meshtrain {

template <class T, size_t N>
class SmallVector {
 public:
  using value_type = T;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using iterator = T*;
  using const_iterator = const T*;
  using reverse_iterator = std::reverse_iterator<iterator>;
  using const_reverse_iterator = std::reverse_iterator<const_iterator>;

  SmallVector() noexcept {}
  explicit SmallVector(size_t count) { resize(count); }
  SmallVector(size_t count, const T& value) { assign(count, value); }
  SmallVector(std::initializer_list<T> list) { append(list.begin(), list.end()); }
  template <std::forward_iterator It>
  SmallVector(It first, It last) {
    append(first, last);
  }
  SmallVector(const std::vector<T>& from) { append(from.begin(), from.end()); }  // NOLINT
  SmallVector(const SmallVector& from) { append(from.begin(), from.end()); }
  SmallVector(SmallVector&& from) noexcept { take(from); }
  ~SmallVector() { release(); }

  SmallVector& operator=(const SmallVector& from) {
    if (this != &from) {
      assign(from.begin(), from.end());
    }
    return *this;
  }
  SmallVector& operator=(SmallVector&& from) noexcept {
    if (this != &from) {
      release();
      take(from);
    }
    return *this;
  }
  SmallVector& operator=(std::initializer_list<T> list) {
    assign(list.begin(), list.end());
    return *this;
  }
  operator std::vector<T>() const { return std::vector<T>(begin(), end()); }  // NOLINT

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  size_t capacity() const { return capacity_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  iterator begin() { return data_; }
  iterator end() { return data_ + size_; }
  const_iterator begin() const { return data_; }
  const_iterator end() const { return data_ + size_; }
  reverse_iterator rbegin() { return reverse_iterator(end()); }
  reverse_iterator rend() { return reverse_iterator(begin()); }
  const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
  const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t count) {
    if (count > capacity_) {
      move_to_heap(count);
    }
  }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }
  void resize(size_t count) {
    reserve(count);
    if (count < size_) {
      std::destroy(data_ + count, end());
    } else {
      std::uninitialized_value_construct(end(), data_ + count);
    }
    size_ = static_cast<uint32_t>(count);
  }
  void assign(size_t count, const T& value) {
    const T copy = value;  // which may be one of the elements
    clear();
    reserve(count);
    std::uninitialized_fill_n(data_, count, copy);
    size_ = static_cast<uint32_t>(count);
  }
  template <std::forward_iterator It>  // not of this list
  void assign(It first, It last) {
    clear();
    append(first, last);
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  template <class... Args>
  T& emplace_back(Args&&... args) {
    if (size_ == capacity_) {
      T value(std::forward<Args>(args)...);  // before its source moves
      move_to_heap(2 * size_t{capacity_});
      return *new (data_ + size_++) T(std::move(value));
    }
    return *new (data_ + size_++) T(std::forward<Args>(args)...);
  }
  void pop_back() {
    --size_;
    std::destroy_at(end());
  }
  iterator insert(const_iterator at, T value) {
    const ptrdiff_t index = at - begin();
    emplace_back(std::move(value));
    std::rotate(begin() + index, end() - 1, end());
    return begin() + index;
  }
  template <std::forward_iterator It>  // not of this list
  iterator insert(const_iterator at, It first, It last) {
    const ptrdiff_t index = at - begin();
    const ptrdiff_t before = static_cast<ptrdiff_t>(size_);
    append(first, last);
    std::rotate(begin() + index, begin() + before, end());
    return begin() + index;
  }
  iterator erase(const_iterator at) { return erase(at, at + 1); }
  iterator erase(const_iterator first, const_iterator last) {
    iterator to = begin() + (first - begin());
    iterator kept = std::move(begin() + (last - begin()), end(), to);
    std::destroy(kept, end());
    size_ = static_cast<uint32_t>(kept - begin());
    return to;
  }

  bool operator==(const SmallVector& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
  auto operator<=>(const SmallVector& other) const {
    return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(storage_); }
  bool is_inline() const { return data_ == reinterpret_cast<const T*>(storage_); }

  template <class It>
  void append(It first, It last) {
    const size_t count = static_cast<size_t>(std::distance(first, last));
    reserve(size_ + count);
    std::uninitialized_copy(first, last, end());
    size_ += static_cast<uint32_t>(count);
  }
  void move_to_heap(size_t capacity) {
    T* fresh = std::allocator<T>().allocate(capacity);
    std::uninitialized_move(begin(), end(), fresh);
    const uint32_t size = size_;
    release();
    data_ = fresh;
    size_ = size;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  // The elements of `from`, which is empty afterwards; this list holds none yet.
  void take(SmallVector& from) noexcept {
    if (from.is_inline()) {
      std::uninitialized_move(from.begin(), from.end(), data_);
      size_ = from.size_;
      from.clear();
    } else {
      data_ = std::exchange(from.data_, from.inline_data());
      size_ = std::exchange(from.size_, 0);
      capacity_ = std::exchange(from.capacity_, static_cast<uint32_t>(N));
    }
  }
  // Back to the state of an empty list.
  void release() {
    clear();
    if (!is_inline()) {
      std::allocator<T>().deallocate(data_, capacity_);
      data_ = inline_data();
      capacity_ = N;
    }
  }

  T* data_ = inline_data();
  uint32_t size_ = 0;
  uint32_t capacity_ = N;
  alignas(T) std::byte storage_[N * sizeof(T)];
};

// As std::erase_if for vectors.
template <class T, size_t N, class Predicate>
size_t erase_if(SmallVector<T, N>& list, Predicate predicate) {
  const size_t before = list.size();
  list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
  return before - list.size();
}

}  // namespace meshtrain
