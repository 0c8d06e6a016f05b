// Random bits and dropout: functions of the seed, the stream, the step and global indices.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel_table.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"
#include "base/philox.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kNumbersAtATime = 2048;  // in scratch

// The runs of neighbouring indices of a shard; a unit is a part of a run, or several short ones.
class Random : public Kernel {
 public:
  explicit Random(const RandomShard& shard)
      : loop_{shard.shape, {row_major_strides(shard.shape), shard.index_strides}}, shard_(shard) {
    total_ = num_elements(shard.shape);
    coalesce(loop_);
    if (loop_.strides[1].back() > 1) {  // no two elements have neighbouring numbers
      loop_.sizes.push_back(1);
      for (std::vector<int64_t>& strides : loop_.strides)
        strides.push_back(0);
    }
    run_ = std::max<int64_t>(loop_.sizes.back(), 1);
    shared_ = loop_.strides[1].back() == 0 && run_ > 1;
    part_ = run_ <= kNumbersAtATime ? std::max<int64_t>(kNumbersAtATime / run_, 1) * run_
                                    : kNumbersAtATime;
    parts_of_run_ = run_ <= kNumbersAtATime ? 1 : (run_ + kNumbersAtATime - 1) / kNumbersAtATime;
  }

  int64_t units() const override {
    return run_ <= kNumbersAtATime ? (total_ + part_ - 1) / part_ : total_ / run_ * parts_of_run_;
  }
  size_t scratch_bytes() const override { return kNumbersAtATime * sizeof(uint32_t); }

 protected:
  RandomStream stream() const {
    int64_t step;
    std::memcpy(&step, shard_.step, sizeof(step));
    return {shard_.seed, shard_.stream, static_cast<uint32_t>(step)};
  }
  // Elements [begin, end) of a unit.
  std::pair<int64_t, int64_t> range(int64_t unit) const {
    if (run_ <= kNumbersAtATime)
      return {unit * part_, std::min((unit + 1) * part_, total_)};
    const int64_t begin = unit / parts_of_run_ * run_ + unit % parts_of_run_ * kNumbersAtATime;
    return {begin, std::min(begin + kNumbersAtATime, (unit / parts_of_run_ + 1) * run_)};
  }
  // The global index of a flat local one.
  uint64_t index_of(int64_t element) const {
    const int64_t outer =
        offset_of(loop_.sizes, loop_.strides[1], loop_.rank() - 1, element / run_);
    return shard_.first + static_cast<uint64_t>(outer + element % run_ * loop_.strides[1].back());
  }
  // Fills bits[0 .. end - begin) with those of the elements [begin, end).
  void bits_of(int64_t begin, int64_t end, const RandomStream& stream, uint32_t* bits) const {
    const KernelTable& table = kernels();
    const uint32_t* last = nullptr;  // the run before, and its first index
    uint64_t last_index = 0;
    for (int64_t i = begin; i < end;) {
      const int64_t n = std::min(end - i, run_ - i % run_);
      const uint64_t index = index_of(i);
      if (shared_) {
        std::fill(bits, bits + n, philox_bits(stream.key, stream.stream, stream.step, index));
      } else if (last != nullptr && index == last_index && last + n <= bits) {
        std::copy(last, last + n, bits);  // the pixels of an image share the numbers
      } else {
        table.random_bits(bits, index, n, stream);
      }
      last = bits;
      last_index = index;
      bits += n;
      i += n;
    }
  }
  Access step_access() const { return {shard_.step, shard_.step + sizeof(int64_t), false}; }
  double random_cost() const { return static_cast<double>(total_) * 0.5; }

  StridedLoop loop_;
  RandomShard shard_;
  int64_t total_ = 0, run_ = 1, part_ = 1, parts_of_run_ = 1;
  bool shared_ = false;
};

class RandomBits final : public Random {
 public:
  RandomBits(const RandomShard& shard, std::byte* out) : Random(shard), out_(out) {}
  double cost() const override { return random_cost(); }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    const RandomStream numbers = stream();
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto [first, last] = range(unit);
      bits_of(first, last, numbers, reinterpret_cast<uint32_t*>(out_) + first);
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t size = sizeof(uint32_t);
    out.push_back(step_access());
    out.push_back({out_ + range(begin).first * size, out_ + range(end - 1).second * size, true});
  }

 private:
  std::byte* out_;
};

class Dropout final : public Random {
 public:
  Dropout(const RandomShard& shard, DType dtype, double rate, const std::byte* x, std::byte* out)
      : Random(shard),
        in_(x),
        out_(out),
        item_size_(static_cast<int64_t>(dtype_size(dtype))),
        threshold_(philox_threshold(rate)),
        scale_(1.0 / (1.0 - rate)),
        loop_of_type_(kernels().dropout[type_index(dtype)]) {
    MESHTRAIN_CHECK(loop_of_type_ != nullptr, "no dropout of {}", dtype_name(dtype));
  }
  double cost() const override { return random_cost() + static_cast<double>(total_) * 0.1; }
  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    const RandomStream numbers = stream();
    uint32_t* bits = reinterpret_cast<uint32_t*>(scratch);
    for (int64_t unit = begin; unit < end; ++unit) {
      const auto [first, last] = range(unit);
      bits_of(first, last, numbers, bits);
      loop_of_type_(out_ + first * item_size_, in_ + first * item_size_, bits, last - first,
                    threshold_, scale_);
    }
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t first = range(begin).first * item_size_;
    const int64_t last = range(end - 1).second * item_size_;
    out.push_back(step_access());
    out.push_back({in_ + first, in_ + last, false});
    out.push_back({out_ + first, out_ + last, true});
  }

 private:
  const std::byte* in_;
  std::byte* out_;
  int64_t item_size_;
  uint32_t threshold_;
  double scale_;
  void (*loop_of_type_)(void*, const void*, const uint32_t*, int64_t, uint32_t, double);
};

}  // namespace

void CpuLowering::make(const RandomBitsSpec& spec) {
  add(std::make_unique<RandomBits>(spec.shard, spec.out));
}

void CpuLowering::make(const DropoutSpec& spec) {
  add(std::make_unique<Dropout>(spec.shard, spec.dtype, spec.rate, spec.x, spec.out));
}

}  // namespace meshtrain::cpu
