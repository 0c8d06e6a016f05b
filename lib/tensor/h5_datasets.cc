#include "tensor/h5_datasets.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>

#include "base/printable.h"
#include "tensor/h5_server.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr uint64_t kChildMemory = uint64_t{2} << 30;  // the largest chunk twice

void check_signature(const std::string& path) {
  constexpr unsigned char kSignature[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
  const InputFile file = open_input(path, "E300", "E300");
  std::byte begin[sizeof(kSignature)];
  const auto count = static_cast<size_t>(std::min<uint64_t>(sizeof(begin), file.size()));
  file.read_at(0, begin, count);
  if (count < sizeof(begin) || std::memcmp(begin, kSignature, sizeof(begin)) != 0) {
    read_error("E320", path, "not an HDF5 file (first bytes {})",
               count == 0 ? "missing" : hex_bytes({begin, count}));
  }
}

}  // namespace

H5Datasets::H5Datasets(const std::string& path) : path_(path) {
  check_signature(path);
  IsolateLimits limits;
  limits.memory_bytes = kChildMemory;
  limits.cpu_seconds = INT_MAX;  // the child watches the time of each request
  process_ = std::make_unique<IsolatedProcess>(
      limits, [&](const IsolatedProcess::Send& send, const IsolatedProcess::Receive& receive) {
        serve_h5(path, send, receive);
      });
  expect('N');
  names_.resize(number(kMaxH5Objects));
  for (std::string& name : names_) {
    name = text();
  }
  std::sort(names_.begin(), names_.end());
}

void H5Datasets::fail() const {
  const std::string reason = process_->finish();
  read_error("E320", path_, "the HDF5 file is damaged: {}",
             reason.empty() ? "its reader stopped early" : reason);
}

void H5Datasets::need(void* to, size_t count) const {
  if (!process_->receive(to, count)) {
    fail();
  }
}

uint64_t H5Datasets::number(uint64_t limit) const {
  uint64_t value = 0;
  need(&value, sizeof(value));
  if (value > limit) {
    read_error("E320", path_, "the HDF5 file is damaged: its reader lost its way");
  }
  return value;
}

std::string H5Datasets::text() const {
  std::string out(number(kMaxH5Text), '\0');
  need(out.data(), out.size());
  return without_controls(out);
}

void H5Datasets::expect(char kind) const {
  char got = 0;
  need(&got, 1);
  if (got == 'E') {
    read_error("E320", path_, "{}", text());
  }
  if (got != kind) {
    read_error("E320", path_, "the HDF5 file is damaged: its reader lost its way");
  }
}

H5Dataset H5Datasets::open(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const uint64_t size = std::min<size_t>(name.size(), kMaxH5Text);
  if (!process_->send("O", 1) || !process_->send(&size, sizeof(size)) ||
      !process_->send(name.data(), size)) {
    fail();
  }
  expect('D');
  H5Dataset dataset;
  dataset.id = num_open_++;
  dataset.dtype = static_cast<DType>(number(static_cast<uint64_t>(DType::kFloat64)));
  dataset.is_chunked = number(1) == 1;
  dataset.shape.resize(number(kMaxH5Rank));
  uint64_t bytes = dtype_size(dataset.dtype);
  for (int64_t& dim : dataset.shape) {
    dim = static_cast<int64_t>(number(INT64_MAX));
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) {
      bytes = UINT64_MAX;
    }
  }
  if (dataset.shape.empty() || bytes > static_cast<uint64_t>(INT64_MAX)) {
    read_error("E320", path_, "the HDF5 file is damaged: its reader lost its way");
  }
  return dataset;
}

void H5Datasets::read(const H5Dataset& dataset, std::span<const int64_t> order,
                      std::byte* to) const {
  const std::lock_guard lock(mutex_);
  if (!dataset.is_chunked || std::is_sorted(order.begin(), order.end())) {
    request(dataset, order, [&](size_t /*first*/, size_t count, size_t row_bytes) {
      need(to, count * row_bytes);
      to += count * row_bytes;
    });
    return;
  }
  // In the order of the file no chunk is unpacked twice.
  std::vector<size_t> places(order.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::sort(places.begin(), places.end(), [&](size_t a, size_t b) { return order[a] < order[b]; });
  std::vector<int64_t> sorted;
  for (const size_t place : places) {
    sorted.push_back(order[place]);
  }
  request(dataset, sorted, [&](size_t first, size_t count, size_t row_bytes) {
    for (size_t i = first; i < first + count; ++i) {
      need(to + places[i] * row_bytes, row_bytes);
    }
  });
}

template <class Take>
void H5Datasets::request(const H5Dataset& dataset, std::span<const int64_t> order,
                         Take&& take) const {
  uint64_t row_bytes = dtype_size(dataset.dtype);
  for (size_t i = 1; i < dataset.shape.size(); ++i) {
    row_bytes *= static_cast<uint64_t>(dataset.shape[i]);
  }
  for (const int64_t row : order) {
    MESHTRAIN_CHECK(row >= 0 && row < dataset.shape[0], "row {} of {}", row, dataset.shape[0]);
  }
  const auto id = static_cast<uint64_t>(dataset.id);
  const uint64_t size = order.size();
  if (!process_->send("R", 1) || !process_->send(&id, sizeof(id)) ||
      !process_->send(&size, sizeof(size)) || !process_->send(order.data(), order.size_bytes())) {
    fail();
  }
  for (size_t at = 0; at < order.size();) {
    const size_t count = h5_run(order.subspan(at), row_bytes);
    expect('K');
    take(at, count, row_bytes);
    at += count;
  }
}

}  // namespace meshtrain
