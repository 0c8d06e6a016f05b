#include "backend/cuda/device.h"

#include <algorithm>
#include <array>

#include "backend/cuda/communicators.h"
#include "backend/cuda/core.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/plan.h"
#include "base/error.h"
#include "base/text.h"

namespace meshtrain::cuda {
namespace {

class CudaPinned final : public gpu::PinnedMemory {
 public:
  CudaPinned(const Core& core, int64_t bytes) {
    core.check(cudaHostAlloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 1)),
                             cudaHostAllocDefault),
               "cudaHostAlloc");
  }
  ~CudaPinned() override { cudaFreeHost(data_); }
  std::byte* data() override { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class CudaEvent final : public gpu::Event {
 public:
  explicit CudaEvent(Core& core) : core_(core) {
    core_.check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
                "cudaEventCreateWithFlags");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }

  void record() override {
    core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
    core_.follow_copies();
    core_.check(cudaEventRecord(event_, core_.work), "cudaEventRecord");
  }
  // Also where a kernel that was enqueued before tells of its failure.
  void wait() override { core_.wait_for(event_); }

 private:
  Core& core_;
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public gpu::Device {
 public:
  CudaDevice(int index, const gpu::DeviceOptions& options);
  ~CudaDevice() override;

  gpu::DeviceInfo info() override;
  std::byte* allocate(int64_t bytes) override;
  void free(std::byte* memory) override;
  std::unique_ptr<gpu::PinnedMemory> allocate_pinned(int64_t bytes) override;
  std::unique_ptr<gpu::Event> make_event() override;
  void upload(std::byte* to, const void* from, int64_t bytes) override;
  void download(void* to, const std::byte* from, int64_t bytes) override;
  void enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) override;
  void enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) override;
  std::unique_ptr<gpu::Plan> make_plan(const std::vector<gpu::Command>& commands,
                                       const std::vector<gpu::Window>& windows, int first,
                                       int steps) override;
  void synchronize() override;
  void join(const std::string& id, int rank, int size) override;
  void abort() override { communicators_.abort(); }
  gpu::Traffic traffic() const override { return core_.traffic; }

 private:
  // The thread's calls go to this device; what is enqueued on `work` follows what came before.
  void begin_work();
  void copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind);

  Core core_;
  Communicators communicators_;
  std::unique_ptr<Planner> planner_;
};

CudaDevice::CudaDevice(int index, const gpu::DeviceOptions& options) : communicators_(core_) {
  core_.index = index;
  const gpu::DeviceInfo info = device_info(index);
  core_.name = info.name;
  core_.compute = info.compute;
  core_.options = options;
  core_.check(cudaSetDevice(index), "cudaSetDevice");
  core_.check(cudaStreamCreateWithFlags(&core_.work, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
  core_.check(cudaStreamCreateWithFlags(&core_.copies, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
  core_.check(cudaStreamCreateWithFlags(&core_.messages, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
  core_.check(cudaEventCreateWithFlags(&core_.copied, cudaEventDisableTiming),
              "cudaEventCreateWithFlags");
  planner_ = std::make_unique<Planner>(core_);
}

CudaDevice::~CudaDevice() {
  cudaSetDevice(core_.index);
  try {
    core_.wait_for(core_.work);
    core_.wait_for(core_.copies);
  } catch (const Error&) {
    communicators_.abort();  // nobody waits for it any more
  }
  cudaDeviceSynchronize();
  planner_.reset();
  cudaEventDestroy(core_.copied);
  cudaStreamDestroy(core_.messages);
  cudaStreamDestroy(core_.copies);
  cudaStreamDestroy(core_.work);
}

gpu::DeviceInfo CudaDevice::info() {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  gpu::DeviceInfo info = device_info(core_.index);
  size_t free = 0, total = 0;
  core_.check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  info.free_bytes = static_cast<int64_t>(free);
  info.total_bytes = static_cast<int64_t>(total);
  return info;
}

void CudaDevice::begin_work() {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  core_.follow_copies();
}

std::byte* CudaDevice::allocate(int64_t bytes) {
  begin_work();
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const gpu::DeviceInfo now = info();
    core_.fail(fmt::format("out of memory: {} asked for, {} of {} are free", format_bytes(bytes),
                           format_bytes(now.free_bytes), format_bytes(now.total_bytes)));
  }
  core_.check(status, "cudaMalloc");
  // Zero before anything else is done with it, on any stream.
  try {
    core_.check(cudaMemsetAsync(data, 0, size, core_.work), "cudaMemsetAsync");
    core_.wait_for(core_.work);
  } catch (const Error&) {
    cudaFree(data);
    throw;
  }
  return static_cast<std::byte*>(data);
}

// Destructors call it, also on the way out of a failure, which was reported where it was found.
void CudaDevice::free(std::byte* memory) {
  try {
    synchronize();  // nothing uses it
  } catch (const Error&) {
  }
  cudaFree(memory);
  cudaGetLastError();  // what it says of earlier work, whoever waits for that is told
}

std::unique_ptr<gpu::PinnedMemory> CudaDevice::allocate_pinned(int64_t bytes) {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  return std::make_unique<CudaPinned>(core_, bytes);
}

std::unique_ptr<gpu::Event> CudaDevice::make_event() {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  return std::make_unique<CudaEvent>(core_);
}

// Of memory that is not pinned: the call itself waits for what came before, and where other
// processes may keep that from its end only wait_for() notices.
void CudaDevice::copy(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
  begin_work();
  if (core_.communicators != nullptr)
    core_.wait_for(core_.work);
  core_.check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, core_.work),
              "cudaMemcpyAsync");
}

void CudaDevice::upload(std::byte* to, const void* from, int64_t bytes) {
  copy(to, from, bytes, cudaMemcpyHostToDevice);
  core_.wait_for(core_.work);
}

void CudaDevice::download(void* to, const std::byte* from, int64_t bytes) {
  copy(to, from, bytes, cudaMemcpyDeviceToHost);
  core_.wait_for(core_.work);
}

void CudaDevice::enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  core_.check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, core_.copies),
      "cudaMemcpyAsync");
  core_.check(cudaEventRecord(core_.copied, core_.copies), "cudaEventRecord");
  core_.has_copies = true;
}

void CudaDevice::enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) {
  begin_work();
  core_.check(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, core_.work),
      "cudaMemcpyAsync");
}

std::unique_ptr<gpu::Plan> CudaDevice::make_plan(const std::vector<gpu::Command>& commands,
                                                 const std::vector<gpu::Window>& windows, int first,
                                                 int steps) {
  begin_work();
  return planner_->make(commands, windows, first, steps);
}

void CudaDevice::synchronize() {
  begin_work();
  core_.wait_for(core_.work);
}

void CudaDevice::join(const std::string& id, int rank, int size) {
  core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
  communicators_.join(nccl(), id, rank, size);
  core_.communicators = &communicators_;
}

// "0000:1b:00.0"
std::string place_of(const Core& core) {
  std::array<char, 32> bus{};
  core.check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), core.index),
             "cudaDeviceGetPCIBusId");
  return bus.data();
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

gpu::DeviceInfo device_info(int index) {
  Core core;  // for messages
  core.index = index;
  core.name = "not opened";
  cudaDeviceProp properties{};
  core.check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  int driver = 0;
  core.check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  gpu::DeviceInfo info;
  info.name = properties.name;
  info.compute = properties.major * 10 + properties.minor;
  info.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  info.driver = version_text(driver);
  info.libraries = library_versions();
  info.place = place_of(core);
  return info;
}

std::unique_ptr<gpu::Device> open_device(int index, const gpu::DeviceOptions& options) {
  return std::make_unique<CudaDevice>(index, options);
}

}  // namespace meshtrain::cuda
