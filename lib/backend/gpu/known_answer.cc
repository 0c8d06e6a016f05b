#include "backend/gpu/known_answer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "backend/gpu/maker.h"
#include "base/error.h"
#include "base/hash.h"

namespace meshtrain::gpu {
namespace {

// Odd, and more than one packet of any transport.
constexpr int64_t kMessageBytes = 100'001;
constexpr int64_t kElements = 5001;

// Memory of a device for as long as it lives.
class Memory {
 public:
  Memory(Device& device, int64_t bytes) : device_(device), data_(device.allocate(bytes)) {}
  ~Memory() {
    try {
      device_.free(data_);
    } catch (const Error&) {
      // Whoever waited for the device was told that it failed.
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::byte* data_;
};

void run_once(Device& device, GpuMaker& maker) {
  const std::vector<Command> commands = maker.take();
  const std::unique_ptr<Plan> plan = device.make_plan(commands, {}, 0, 1);
  plan->run();
  device.synchronize();
}

GpuMaker make_maker(std::string_view path) {
  GpuMaker maker([](int64_t bytes) -> std::byte* {
    throw InternalError(fmt::format("communication alone needs no scratch of {} bytes", bytes));
  });
  maker.begin_step(path);
  return maker;
}

std::vector<std::byte> pattern(int from, int to) {
  const uint64_t seed = hash_mix(static_cast<uint64_t>(from), static_cast<uint64_t>(to));
  std::vector<std::byte> bytes(kMessageBytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(hash_mix(seed, i));
  return bytes;
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
  GpuMaker maker = make_maker("known-answer exchange");
  maker.exchange(sends, receives);
  run_once(device, maker);
  std::vector<std::byte> came(kMessageBytes);
  for (const Message& message : receives) {
    device.download(came.data(), message.data, kMessageBytes);
    if (came != pattern(message.peer, rank))
      fail(rank, fmt::format("other bytes than rank {} sent it", message.peer));
  }
}

void check_all_reduce(Device& device, int rank, const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  MESHTRAIN_CHECK(place != ranks.end());
  // Small whole numbers, whose sums are the same in any order.
  const auto term = [](int64_t position, int64_t i) {
    return static_cast<float>((position + 1) * (i % 17 + 1));
  };
  const int64_t count = static_cast<int64_t>(ranks.size());
  std::vector<float> mine;
  for (int64_t i = 0; i < kElements; ++i)
    mine.push_back(term(place - ranks.begin(), i));
  const int64_t bytes = kElements * static_cast<int64_t>(sizeof(float));
  const Memory sums(device, bytes), maxima(device, bytes);
  GpuMaker maker = make_maker("known-answer all-reduce");
  for (const auto& [memory, reduction] :
       {std::pair{&sums, Reduction::kSum}, std::pair{&maxima, Reduction::kMax}}) {
    device.upload(memory->data(), mine.data(), bytes);
    maker.all_reduce(reduction, DType::kFloat32, memory->data(), kElements, ranks);
  }
  run_once(device, maker);
  std::vector<float> sum(kElements), most(kElements);
  device.download(sum.data(), sums.data(), bytes);
  device.download(most.data(), maxima.data(), bytes);
  for (int64_t i = 0; i < kElements; ++i) {
    const float expected = term(count * (count + 1) / 2 - 1, i), largest = term(count - 1, i);
    if (sum[static_cast<size_t>(i)] != expected || most[static_cast<size_t>(i)] != largest) {
      fail(rank, fmt::format("a sum of {} and a maximum of {} over ranks {}, not {} and {}",
                             sum[static_cast<size_t>(i)], most[static_cast<size_t>(i)],
                             fmt::join(ranks, ", "), expected, largest));
    }
  }
}

}  // namespace meshtrain::gpu
