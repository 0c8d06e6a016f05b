#include "backend/gpu/self_test.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/gpu/lowering.h"
#include "base/error.h"
#include "base/hash.h"

namespace meshtrain::gpu {
namespace {

// Odd, and more than one packet of any transport.
constexpr int64_t kMessageBytes = 100'001;

// Memory of a device for as long as it lives.
class Memory {
 public:
  Memory(Device& device, int64_t bytes) : device_(device), data_(device.allocate(bytes)) {}
  ~Memory() {
    try {
      device_.free(data_);
    } catch (const Error&) {
      // A call that waited for the device has thrown already.
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::byte* data_;
};

void run_once(Device& device, std::string path, KernelSpecs specs) {
  GpuLowering lowering([](int64_t bytes) -> std::byte* {
    throw InternalError(fmt::format("communication alone needs no scratch of {} bytes", bytes));
  });
  lowering.lower(StepSpec{std::move(path)});
  lowering.lower(std::move(specs));
  const std::unique_ptr<Plan> plan = device.make_plan(lowering.take(), {}, 0, 1);
  plan->run();
  device.synchronize();
}

std::vector<std::byte> pattern(int from, int to) {
  const uint64_t seed = hash_mix(static_cast<uint64_t>(from), static_cast<uint64_t>(to));
  std::vector<std::byte> bytes(kMessageBytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(hash_mix(seed, i));
  return bytes;
}

// The contribution of a position in a group: whole numbers so small that sums of 30,000 positions
// are exact in any order (below 2^24).
constexpr int64_t kMostWeight = 61;
int64_t weight(int64_t position) {
  return position % kMostWeight + 1;
}

// Elements [first, first + count) of what has this weight.
std::vector<float> terms(int64_t weight, int64_t first, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    out[static_cast<size_t>(i)] = static_cast<float>(weight * ((first + i) % 17 + 1));
  return out;
}

[[noreturn]] void fail(int rank, const std::string& what) {
  throw RuntimeFailure(ExitCode::kRankLost,
                       fmt::format("the communication of the GPUs was tried before the start and "
                                   "does not work: rank {} got {}",
                                   rank, what));
}

}  // namespace

void check_exchange(Device& device, int rank, int size) {
  const Memory mine(device, size * kMessageBytes), theirs(device, size * kMessageBytes);
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank)
      continue;
    const int64_t place = peer * kMessageBytes;
    device.upload(mine.data() + place, pattern(rank, peer).data(), kMessageBytes);
    sends.push_back({peer, mine.data() + place, kMessageBytes});
    receives.push_back({peer, theirs.data() + place, kMessageBytes});
  }
  run_once(device, "self-test exchange", {ExchangeSpec{sends, receives}});
  std::vector<std::byte> came(kMessageBytes);
  for (const Message& message : receives) {
    device.download(came.data(), message.data, kMessageBytes);
    if (came != pattern(message.peer, rank))
      fail(rank, fmt::format("other bytes than rank {} sent it", message.peer));
  }
}

void check_collectives(Device& device, int rank, const std::vector<int>& ranks, int64_t elements) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  MESHTRAIN_CHECK(found != ranks.end());
  const int64_t place = found - ranks.begin(), count = static_cast<int64_t>(ranks.size());
  const int64_t share = std::max<int64_t>(elements / count, 1);  // of what is gathered
  constexpr int64_t kItem = sizeof(float);
  const int64_t bytes = elements * kItem, share_bytes = share * kItem;
  const std::vector<float> mine = terms(weight(place), 0, std::max(elements, count * share));
  const Memory sums(device, bytes), maxima(device, bytes), whole(device, count * share_bytes);
  const Memory parts(device, count * share_bytes), part(device, share_bytes);
  device.upload(sums.data(), mine.data(), bytes);
  device.upload(maxima.data(), mine.data(), bytes);
  std::byte* const own = whole.data() + place * share_bytes;
  device.upload(own, mine.data(), share_bytes);
  device.upload(parts.data(), mine.data(), count * share_bytes);
  KernelSpecs specs = {
      AllReduceSpec{Reduction::kSum, DType::kFloat32, sums.data(), elements, ranks},
      AllReduceSpec{Reduction::kMax, DType::kFloat32, maxima.data(), elements, ranks}};
  if (count > 1) {
    specs.emplace_back(AllGatherSpec{own, whole.data(), share_bytes, ranks});
    specs.emplace_back(ReduceScatterSpec{Reduction::kSum, DType::kFloat32, parts.data(),
                                         part.data(), share, ranks});
  }
  run_once(device, "self-test collectives", std::move(specs));
  const auto check = [&](const std::byte* memory, const std::vector<float>& expected,
                         std::string_view what) {
    std::vector<float> got(expected.size());
    device.download(got.data(), memory, static_cast<int64_t>(got.size() * sizeof(float)));
    const auto [at, wanted] = std::mismatch(got.begin(), got.end(), expected.begin());
    if (at != got.end())
      fail(rank, fmt::format("{} of {} over ranks {}, not {}", what, *at, fmt::join(ranks, ", "),
                             *wanted));
  };
  // The sum over all positions.
  int64_t all = 0;
  for (int64_t p = 0; p < count; ++p)
    all += weight(p);
  check(sums.data(), terms(all, 0, elements), "a sum");
  check(maxima.data(), terms(std::min(count, kMostWeight), 0, elements), "a maximum");
  if (count == 1)
    return;
  for (int64_t p = 0; p < count; ++p)
    check(whole.data() + p * share_bytes, terms(weight(p), 0, share), "a gathered element");
  check(part.data(), terms(all, place * share, share), "a sum of its part");
}

}  // namespace meshtrain::gpu
