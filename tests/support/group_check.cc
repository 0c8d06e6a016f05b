#include "support/group_check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/hash.h"
#include "tensor/half.h"

namespace meshtrain::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes noise(uint64_t seed, int64_t count) {
  Bytes bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(hash_mix(seed, i / 8) >> (i % 8 * 8));
  }
  return bytes;
}

class GroupCheck {
 public:
  explicit GroupCheck(ProcessGroup& group)
      : group_(group), rank_(group.rank()), size_(group.size()) {}

  std::vector<std::string> run_long() {
    check_long_message();
    check_long_reduction();
    return problems_;
  }

  std::vector<std::string> run() {
    check_numbers();
    check_texts();
    check_all_to_all();
    check_ring();
    check_order();
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                              DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt8}) {
      check_reductions(dtype);
    }
    check_nan();
    return problems_;
  }

 private:
  void expect(bool is_right, const std::string& what) {
    if (!is_right) {
      problems_.push_back(fmt::format("rank {} of {}: {}", rank_, size_, what));
    }
  }

  void check_numbers() {
    expect(rank_ >= 0 && rank_ < size_, "rank");
    expect(group_.local_rank() >= 0 && group_.local_rank() < group_.local_size(), "local rank");
    expect(group_.local_size() <= size_, "local size");
  }

  void check_texts() {
    const auto text_of = [this](int rank, int round) {
      const size_t length = round == 0   ? 0
                            : round == 1 ? static_cast<size_t>(rank)
                            : round == 2 ? 7
                                         // more than one call of MPI takes, from one rank alone
                                         : static_cast<size_t>(rank == size_ - 1 ? 20'000'003 : 0);
      std::string text(length, '\0');
      for (size_t i = 0; i < length; ++i) {
        text[i] = static_cast<char>((i * 31 + static_cast<size_t>(rank)) % 251);
      }
      return text;
    };
    for (int round = 0; round < 4; ++round) {
      const std::vector<std::string> texts = group_.all_gather(text_of(rank_, round));
      expect(texts.size() == static_cast<size_t>(size_), "number of texts");
      for (int r = 0; r < size_; ++r) {
        expect(texts[static_cast<size_t>(r)] == text_of(r, round),
               fmt::format("text of rank {} in round {}", r, round));
      }
    }
  }

  static int64_t length_between(int from, int to) {
    return (from * 7 + to * 13) % 5 * 1001;  // some of them 0
  }

  // Those that go somewhere: only what some groups take as well is a message to itself, or an empty
  // one.
  std::unique_ptr<Transfer> exchange(std::vector<Message> sends, std::vector<Message> receives) {
    for (std::vector<Message>* list : {&sends, &receives}) {
      std::erase_if(*list, [this](const Message& m) { return m.peer == rank_ || m.bytes == 0; });
    }
    return group_.make_exchange(sends, receives);
  }

  // Every pair, each with another length; done again and again with other bytes.
  void check_all_to_all() {
    std::vector<Bytes> out(static_cast<size_t>(size_)), in(out.size());
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < size_; ++peer) {
      const size_t p = static_cast<size_t>(peer);
      out[p].resize(static_cast<size_t>(length_between(rank_, peer)));
      in[p].resize(static_cast<size_t>(length_between(peer, rank_)));
      sends.push_back({peer, out[p].data(), length_between(rank_, peer)});
      receives.push_back({peer, in[p].data(), length_between(peer, rank_)});
    }
    const auto transfer = exchange(sends, receives);
    const auto bytes_of = [this](int from, int to, uint64_t time) {
      return noise(time * 10000 + static_cast<uint64_t>(from * size_ + to),
                   length_between(from, to));
    };
    for (uint64_t time = 0; time < 3; ++time) {
      for (int peer = 0; peer < size_; ++peer) {
        const Bytes bytes = bytes_of(rank_, peer, time);
        std::copy(bytes.begin(), bytes.end(), out[static_cast<size_t>(peer)].begin());
      }
      transfer->run();
      for (int peer = 0; peer < size_; ++peer) {
        expect(peer == rank_ || in[static_cast<size_t>(peer)] == bytes_of(peer, rank_, time),
               fmt::format("bytes from rank {}, time {}", peer, time));
      }
    }
    group_.make_exchange({}, {})->run();
  }

  // Only neighbours, one way: who does not send to me is not waited for.
  void check_ring() {
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    Bytes out = noise(static_cast<uint64_t>(rank_), 300'000), in(out.size());
    exchange({{next, out.data(), std::ssize(out)}}, {{before, in.data(), std::ssize(in)}})->run();
    expect(size_ == 1 || in == noise(static_cast<uint64_t>(before), 300'000),
           "bytes around the ring");
  }

  void check_long_message() {
    constexpr int64_t kLength = (int64_t{64} << 20) + 4099;
    Bytes bytes;
    std::vector<Message> sends, receives;
    if (rank_ == 0 && size_ > 1) {
      bytes = noise(5, kLength);
      sends.push_back({size_ - 1, bytes.data(), kLength});
    } else if (rank_ == size_ - 1 && size_ > 1) {
      bytes.resize(kLength);
      receives.push_back({0, bytes.data(), kLength});
    }
    exchange(sends, receives)->run();
    if (!bytes.empty()) {
      expect(bytes == noise(5, kLength), "a message of more than 64 MiB");
    }
  }

  // Prepared in one order, run in another.
  void check_order() {
    const int peer = size_ - 1 - rank_;  // itself in the middle of an odd number
    std::vector<Bytes> out, in;
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (uint64_t i = 0; i < 4; ++i) {
      out.push_back(noise(100 * i + static_cast<uint64_t>(rank_), 5000));
      in.emplace_back(out.back().size());
      transfers.push_back(
          exchange({{peer, out.back().data(), 5000}}, {{peer, in.back().data(), 5000}}));
    }
    for (const size_t i : {size_t{2}, size_t{0}, size_t{3}, size_t{1}}) {
      transfers[i]->run();
    }
    for (uint64_t i = 0; i < 4; ++i) {
      expect(peer == rank_ || in[i] == noise(100 * i + static_cast<uint64_t>(peer), 5000),
             fmt::format("transfer {} of several", i));
    }
  }

  static void store(std::byte* place, DType dtype, int value) {
    const auto put = [&](auto typed) { std::memcpy(place, &typed, sizeof(typed)); };
    switch (dtype) {
      case DType::kFloat32:
        return put(static_cast<float>(value));
      case DType::kFloat64:
        return put(static_cast<double>(value));
      case DType::kFloat16:
        return put(float_to_half(static_cast<float>(value)));
      case DType::kBFloat16:
        return put(float_to_bfloat16(static_cast<float>(value)));
      case DType::kInt64:
        return put(static_cast<int64_t>(value));
      case DType::kUInt8:
        return put(static_cast<uint8_t>(value));
      default:
        return put(static_cast<int32_t>(value));
    }
  }
  // Small whole numbers, whose sums every type holds; without a sign where the type has none.
  static int term(DType dtype, int rank, int64_t i) {
    const int value = static_cast<int>((rank * 5 + i * 3) % 11);
    return dtype == DType::kUInt8 || dtype == DType::kUInt32 ? value : value - 5;
  }

  void check_reduction(Reduction reduction, DType dtype, const std::vector<int>& ranks,
                       int64_t elements) {
    const size_t item = dtype_size(dtype);
    Bytes data(static_cast<size_t>(elements) * item), expected(data.size());
    for (int64_t i = 0; i < elements; ++i) {
      std::byte* const place = data.data() + static_cast<size_t>(i) * item;
      store(place, dtype, term(dtype, rank_, i));
    }
    const auto transfer = group_.make_all_reduce(reduction, dtype, data.data(), elements, ranks);
    transfer->run();
    for (int64_t i = 0; i < elements; ++i) {
      int value = term(dtype, ranks[0], i);
      for (size_t r = 1; r < ranks.size(); ++r) {
        const int other = term(dtype, ranks[r], i);
        value = reduction == Reduction::kSum   ? value + other
                : reduction == Reduction::kMax ? std::max(value, other)
                                               : std::min(value, other);
      }
      store(expected.data() + static_cast<size_t>(i) * item, dtype, value);
    }
    expect(data == expected,
           fmt::format("reduction {} of {} {} over {} ranks", static_cast<int>(reduction), elements,
                       dtype_name(dtype), ranks.size()));
  }

  // All ranks; the even and the odd ones by themselves; each alone.
  void check_reductions(DType dtype) {
    std::vector<int> all(static_cast<size_t>(size_)), half;
    std::iota(all.begin(), all.end(), 0);
    for (int r = rank_ % 2; r < size_; r += 2) {
      half.push_back(r);
    }
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
      for (const std::vector<int>& ranks : {all, half, std::vector<int>{rank_}}) {
        for (const int64_t elements : {0, 1, 1000}) {
          check_reduction(reduction, dtype, ranks, elements);
        }
      }
    }
  }

  // As within a process, NaN wins: what diverged on one device must be seen on all.
  void check_nan() {
    std::vector<int> all(static_cast<size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
      for (int bad = 0; bad < size_; ++bad) {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        float value = rank_ == bad ? nan : static_cast<float>(rank_);
        uint16_t half = rank_ == bad ? float_to_half(nan) : float_to_half(1);
        group_
            .make_all_reduce(reduction, DType::kFloat32, reinterpret_cast<std::byte*>(&value), 1,
                             all)
            ->run();
        group_
            .make_all_reduce(reduction, DType::kFloat16, reinterpret_cast<std::byte*>(&half), 1,
                             all)
            ->run();
        expect(std::isnan(value) && std::isnan(half_to_float(half)),
               fmt::format("NaN of rank {} in reduction {}", bad, static_cast<int>(reduction)));
      }
    }
  }

  void check_long_reduction() {
    std::vector<int> all(static_cast<size_t>(size_));
    std::iota(all.begin(), all.end(), 0);
    check_reduction(Reduction::kSum, DType::kUInt8, all, (int64_t{1} << 24) + 5);
  }

  ProcessGroup& group_;
  int rank_, size_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check_group(ProcessGroup& group) {
  return GroupCheck(group).run();
}

std::vector<std::string> check_long_transfers(ProcessGroup& group) {
  return GroupCheck(group).run_long();
}

}  // namespace meshtrain::test
