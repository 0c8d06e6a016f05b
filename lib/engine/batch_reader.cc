#include "engine/batch_reader.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <system_error>

#include "base/system_calls.h"

namespace meshtrain {
namespace {

// The first kTimed of every kTimedEvery batches are timed.
constexpr int64_t kTimed = 4;
constexpr int64_t kTimedEvery = 512;

// Whether every array is the same object.
bool has_same_arrays(const Dataset& a, const Dataset& b) {
  const auto same = [](const Dataset::Array& x, const Dataset::Array& y) {
    return x.rows == y.rows;
  };
  return a.sample_weight == b.sample_weight &&
         std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), same) &&
         std::equal(a.targets.begin(), a.targets.end(), b.targets.begin(), b.targets.end(), same);
}

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

// Rows of another array that were read into memory of their own.
class BatchReader::GatheredRows final : public Rows {
 public:
  explicit GatheredRows(const Rows& like) : tensor_(like.dtype(), {0}) {}

  DType dtype() const override { return tensor_.dtype(); }
  const Shape& shape() const override { return tensor_.shape(); }
  const HostTensor* tensor() const override { return &tensor_; }
  Cost cost() const override { return Cost::kMemory; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    for (const int64_t row : order) {
      check_row(row);
      to = std::copy_n(tensor_.bytes() + static_cast<size_t>(row) * row_bytes(), row_bytes(), to);
    }
  }

  void gather(const Rows& from, std::span<const int64_t> order) {
    Shape shape = from.shape();
    shape[0] = static_cast<int64_t>(order.size());
    if (tensor_.shape() != shape) {
      tensor_ = HostTensor(from.dtype(), shape);
    }
    from.read(order, tensor_.bytes());
  }

 private:
  HostTensor tensor_;
};

BatchReader::Gathered::Gathered(const Dataset& like) {
  dataset.description = like.description;
  dataset.loc = like.loc;
  const auto add = [&](const Rows& rows) {
    arrays.push_back(std::make_shared<GatheredRows>(rows));
    return arrays.back();
  };
  for (const Dataset::Array& array : like.inputs) {
    dataset.inputs.push_back({array.name, add(*array.rows)});
  }
  for (const Dataset::Array& array : like.targets) {
    dataset.targets.push_back({array.name, add(*array.rows)});
  }
  if (like.sample_weight) {
    dataset.sample_weight = add(*like.sample_weight);
  }
}

void BatchReader::Gathered::read(const Dataset& from, std::vector<int64_t> batch,
                                 LocalRows local_rows) {
  const std::span<const int64_t> wanted = std::span<const int64_t>(batch).subspan(
      static_cast<size_t>(local_rows.first), static_cast<size_t>(local_rows.count));
  size_t at = 0;
  for (const std::vector<Dataset::Array>* whole : {&from.inputs, &from.targets}) {
    for (const Dataset::Array& array : *whole) {
      arrays[at++]->gather(*array.rows, wanted);
    }
  }
  if (from.sample_weight) {
    arrays[at]->gather(*from.sample_weight, wanted);
  }
  dataset.num_samples = local_rows.count;
  first = local_rows.first;
  whole = wanted.size() == batch.size() ? nullptr : &from;
  if (whole == nullptr) {
    std::iota(batch.begin(), batch.end(), int64_t{0});
  }
  rows = std::move(batch);
}

BatchReader::BatchReader(const Dataset& dataset, int64_t ahead, Clock now, LocalRowsOf local_rows)
    : all_(dataset), ahead_(ahead), now_(std::move(now)), local_rows_(std::move(local_rows)) {
  for (const std::vector<Dataset::Array>* arrays : {&dataset.inputs, &dataset.targets}) {
    for (const Dataset::Array& array : *arrays) {
      is_ready_ = is_ready_ && array.rows->tensor() != nullptr;
    }
  }
  is_ready_ = is_ready_ && (!dataset.sample_weight || dataset.sample_weight->tensor() != nullptr);
}

BatchReader::~BatchReader() {
  stop_thread();
}

void BatchReader::start(EpochOrder order, int64_t batch_size, int64_t first, int64_t end,
                        int64_t pass) {
  stop_thread();
  in_pass_ = in_pass(all_, pass);
  dataset_ = &*in_pass_;
  if (has_same_arrays(*in_pass_, all_)) {
    in_pass_.reset();
    dataset_ = &all_;
  }
  order_ = std::move(order);
  batch_size_ = batch_size;
  next_ = first;
  end_ = end;
  num_handed_out_ = 0;
  handed_out_at_.reset();
}

std::vector<int64_t> BatchReader::rows_of(int64_t batch) const {
  const int64_t begin = batch * batch_size_;
  return order_.rows(begin, std::min(batch_size_, order_.size() - begin));
}

LocalRows BatchReader::local_rows_of(int64_t batch_size) const {
  return local_rows_ ? local_rows_(batch_size) : LocalRows{0, batch_size};
}

bool BatchReader::is_timed(int64_t batch) const {
  return ahead_ > 0 && !is_ready_ && batch % kTimedEvery < kTimed;
}

Batch BatchReader::next() {
  MESHTRAIN_CHECK(next_ < end_, "batch {} of {}", next_, end_);
  if (!thread_.joinable() && is_timed(num_handed_out_)) {
    return read_timed();
  }
  ++num_handed_out_;
  if (!thread_.joinable()) {
    rows_ = rows_of(next_++);
    return {dataset_, rows_};
  }
  std::unique_lock lock(mutex_);
  in_use_ = next_++;
  changed_.notify_all();
  changed_.wait(lock, [&] { return num_read_ > in_use_; });
  const Gathered& slot = *slots_[static_cast<size_t>(in_use_) % slots_.size()];
  if (slot.error) {
    std::rethrow_exception(slot.error);
  }
  return slot.batch();
}

// Reads a batch and measures; after the last one in a row decides about the thread. Of the times
// the least counts: others hold the compilation of a step, the first access to a file, and what
// else the machine did.
Batch BatchReader::read_timed() {
  const double begin = now_();
  if (num_handed_out_ % kTimedEvery == 0) {
    read_seconds_ = step_seconds_ = kNever;
    timed_ = std::make_unique<Gathered>(*dataset_);
  }
  if (handed_out_at_) {
    step_seconds_ = std::min(step_seconds_, begin - *handed_out_at_);
  }
  std::vector<int64_t> rows = rows_of(next_++);
  const LocalRows local_rows = local_rows_of(static_cast<int64_t>(rows.size()));
  timed_->read(*dataset_, std::move(rows), local_rows);
  handed_out_at_ = now_();
  read_seconds_ = std::min(read_seconds_, *handed_out_at_ - begin);
  const bool is_last = ++num_handed_out_ % kTimedEvery == kTimed;
  if (is_last && step_seconds_ != kNever && read_seconds_ > kWorthAThread * step_seconds_) {
    start_thread();
  }
  return timed_->batch();
}

void BatchReader::start_thread() {
  if (next_ >= end_) {
    return;
  }
  // One slot more than are ahead: the batch that is being used.
  while (slots_.size() <= static_cast<size_t>(ahead_)) {
    slots_.push_back(std::make_unique<Gathered>(*dataset_));
  }
  for (const std::unique_ptr<Gathered>& slot : slots_) {
    slot->error = nullptr;
  }
  thread_rows_ = local_rows_of(batch_size_);
  thread_last_rows_ = local_rows_of(static_cast<int64_t>(rows_of(end_ - 1).size()));
  is_stopping_ = false;
  num_read_ = next_;
  in_use_ = next_ - 1;
  const SignalsBlocked blocked;  // the new thread inherits it
  try {
    thread_ = std::thread([this] { read_ahead(); });
  } catch (const std::system_error&) {
    ahead_ = 0;  // the system gives none: the step reads
  }
}

void BatchReader::stop_thread() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchReader::read_ahead() {
  for (int64_t batch = num_read_; batch < end_; ++batch) {
    {
      std::unique_lock lock(mutex_);
      // The slot is free when its batch is no longer in use.
      changed_.wait(lock, [&] { return is_stopping_ || batch - in_use_ <= ahead_; });
      if (is_stopping_) {
        return;
      }
    }
    Gathered& slot = *slots_[static_cast<size_t>(batch) % slots_.size()];
    try {
      slot.read(*dataset_, rows_of(batch), batch == end_ - 1 ? thread_last_rows_ : thread_rows_);
    } catch (...) {
      slot.error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      num_read_ = batch + 1;
    }
    changed_.notify_all();
    if (slot.error) {
      return;
    }
  }
}

}  // namespace meshtrain
