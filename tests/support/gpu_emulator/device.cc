// gpu::Runtime and gpu::Device on the host. Enqueued work is done as late as the contract allows,
// and uploads of the copy stream now and then as early as it allows, so that a caller who does not
// wait where it must finds out.
#include "backend/gpu/device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/hash.h"
#include "support/gpu_emulator/peers.h"
#include "support/gpu_emulator/plan.h"
#include "support/gpu_emulator/queue.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kDefaultBytes = int64_t{16} << 30;

int64_t total_bytes() {
  const char* text = std::getenv("MESHTRAIN_EMULATOR_BYTES");
  return text == nullptr || *text == '\0' ? kDefaultBytes : std::atoll(text);
}

// $MESHTRAIN_EMULATOR_GPUS: how many there are.
int device_count() {
  const char* text = std::getenv("MESHTRAIN_EMULATOR_GPUS");
  return text == nullptr || *text == '\0' ? 1 : std::max(std::atoi(text), 1);
}

// $MESHTRAIN_EMULATOR_FIRST: which one of its host the first is, for processes that see others.
int first_device() {
  const char* text = std::getenv("MESHTRAIN_EMULATOR_FIRST");
  return text == nullptr ? 0 : std::atoi(text);
}

// $MESHTRAIN_EMULATOR_NAME: what they are called, for hosts with GPUs of other kinds.
std::string device_name() {
  const char* text = std::getenv("MESHTRAIN_EMULATOR_NAME");
  return text == nullptr ? "GPU emulator" : text;
}

DeviceInfo info_of(int index, int64_t free) {
  return {.name = device_name(),
          .compute = 90,
          .total_bytes = total_bytes(),
          .free_bytes = free,
          .driver = "none",
          .place = fmt::format("number {}", first_device() + index)};
}

class HostMemory final : public PinnedMemory {
 public:
  explicit HostMemory(int64_t bytes) : memory_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {}
  std::byte* data() override { return memory_.data(); }

 private:
  std::vector<std::byte> memory_;
};

class QueueEvent final : public Event {
 public:
  explicit QueueEvent(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  void record() override { place_ = queue_->pushed(); }
  void wait() override { queue_->drain(place_); }

 private:
  std::shared_ptr<Queue> queue_;
  int64_t place_ = 0;
};

class HostPlan final : public Plan {
 public:
  HostPlan(std::shared_ptr<Queue> queue, std::shared_ptr<const Steps> steps,
           std::shared_ptr<Peers> peers, std::shared_ptr<Traffic> traffic, int first, int count)
      : queue_(std::move(queue)),
        steps_(std::move(steps)),
        peers_(std::move(peers)),
        traffic_(std::move(traffic)),
        first_(first),
        count_(count) {}

  void run() override {
    const EmulatorOptions options = EmulatorOptions::from_environment();
    const bool is_watched = runs_++ < options.watched_runs;
    traffic_->add(steps_->traffic(), count_);
    queue_->push([steps = steps_, peers = peers_, first = first_, count = count_, is_watched,
                  options, run = runs_] {
      for (int step = first; step < first + count; ++step) {
        const uint64_t seed =
            options.seed == 0 ? 0 : hash_mix(options.seed, static_cast<uint64_t>(run + step));
        steps->run(step, is_watched && step == first, seed, peers.get());
      }
    });
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<const Steps> steps_;
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<Traffic> traffic_;  // of the device
  int first_, count_, runs_ = 0;
};

class HostDevice final : public Device {
 public:
  HostDevice(int index, const DeviceOptions& options)
      : index_(index), use_tf32_(options.use_tf32), memory_(total_bytes()) {}
  ~HostDevice() override {
    if (peers_ == nullptr)
      return;
    try {
      synchronize();  // others may be waiting for it
    } catch (...) {
      // The error of that work was reported.
    }
  }

  DeviceInfo info() override { return info_of(index_, memory_.free_bytes()); }

  std::byte* allocate(int64_t bytes) override {
    const std::lock_guard lock(memory_.mutex());
    std::byte* memory = memory_.allocate(bytes);
    if (memory == nullptr) {
      throw RuntimeFailure(ExitCode::kMesh,
                           fmt::format("gpu:{}: allocating {} bytes failed: {} of {} are free",
                                       index_, bytes, memory_.free_bytes(), total_bytes()));
    }
    return memory;
  }

  void free(std::byte* memory) override {
    try {
      synchronize();
    } catch (const Error&) {  // reported where it was found; destructors come here after that
    }
    const std::lock_guard lock(memory_.mutex());
    MESHTRAIN_CHECK(memory_.free(memory), "{} was not allocated", static_cast<void*>(memory));
  }

  std::unique_ptr<PinnedMemory> allocate_pinned(int64_t bytes) override {
    return std::make_unique<HostMemory>(bytes);
  }
  std::unique_ptr<Event> make_event() override { return std::make_unique<QueueEvent>(queue_); }

  void upload(std::byte* to, const void* from, int64_t bytes) override {
    check(to, bytes);
    synchronize();
    copy(to, from, bytes);
  }
  void download(void* to, const std::byte* from, int64_t bytes) override {
    check(from, bytes);
    synchronize();
    copy(to, from, bytes);
  }
  // Before or after the plans that wait: both may happen. Uploads keep their own order.
  void enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    check(to, bytes);
    const bool is_early = hash_mix(EmulatorOptions::from_environment().seed, ++uploads_) % 2 == 0;
    if (is_early && *waiting_uploads_ == 0) {
      queue_->push([] {});  // events count it
      const std::lock_guard lock(memory_.mutex());
      copy(to, from, bytes);
      return;
    }
    ++*waiting_uploads_;
    queue_->push([=, waiting = waiting_uploads_] {
      copy(to, from, bytes);
      --*waiting;
    });
  }
  void enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) override {
    check(from, bytes);
    queue_->push([=] { copy(to, from, bytes); });
  }

  std::unique_ptr<Plan> make_plan(const std::vector<Command>& commands,
                                  const std::vector<Window>& windows, int first,
                                  int steps) override {
    for (const Window& window : windows) {
      MESHTRAIN_CHECK(window.stride % 256 == 0, "a window's steps are {} bytes apart",
                      window.stride);
      check(window.begin, window.bytes);
      check(window.begin + window.stride * (first + steps - 1), window.bytes);
    }
    return std::make_unique<HostPlan>(
        queue_, std::make_shared<Steps>(memory_, commands, windows, use_tf32_), peers_, traffic_,
        first, steps);
  }

  // What ends because of an exception does not wait for others, who may never come.
  void synchronize() override {
    if (peers_ != nullptr && std::uncaught_exceptions() > 0)
      queue_->drain_or(std::chrono::seconds(1), [this] { abort(); });
    queue_->drain();
  }

  void join(const std::string& id, int rank, int size) override {
    peers_ = std::make_shared<Peers>(id, rank, size, fmt::format("gpu:{} (GPU emulator)", index_));
    queue_->start_thread();
  }
  void abort() override {
    if (peers_ != nullptr)
      peers_->abort();
  }
  Traffic traffic() const override { return *traffic_; }

 private:
  static void copy(void* to, const void* from, int64_t bytes) {
    if (bytes > 0)
      std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void check(const std::byte* begin, int64_t bytes) const {
    MESHTRAIN_CHECK(memory_.contains(begin, begin + bytes), "{} bytes at {} lie in no allocation",
                    bytes, static_cast<const void*>(begin));
  }

  int index_;
  bool use_tf32_;
  DeviceMemory memory_;
  std::shared_ptr<Peers> peers_;
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  std::shared_ptr<std::atomic<int>> waiting_uploads_ = std::make_shared<std::atomic<int>>(0);
  uint64_t uploads_ = 0;
};

class HostRuntime final : public Runtime {
 public:
  int device_count(std::string& reason) override {
    if (host_compiler().empty())
      reason = "the GPU emulator needs a C++ compiler: $CXX, that of this build, or g++";
    return host_compiler().empty() ? 0 : gpu::device_count();
  }
  DeviceInfo info(int index) override { return info_of(index, total_bytes()); }
  std::unique_ptr<Device> open(int index, const DeviceOptions& options) override {
    MESHTRAIN_CHECK(index < gpu::device_count(), "the emulator has no device {}", index);
    return std::make_unique<HostDevice>(index, options);
  }
  std::vector<LibraryInfo> libraries() override {
    return {{.name = "host compiler", .version = host_compiler(), .file = {}, .problem = {}}};
  }
  std::string make_id() override { return Peers::make_folder(); }
};

}  // namespace
}  // namespace meshtrain::gpu

extern "C" __attribute__((visibility("default"))) meshtrain::gpu::Runtime* meshtrain_gpu_runtime(
    int abi) {
  static meshtrain::gpu::HostRuntime runtime;
  return abi == meshtrain::gpu::kAbi ? &runtime : nullptr;
}
