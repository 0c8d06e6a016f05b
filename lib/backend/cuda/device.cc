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

CUdevice handle_of(const Core& core) {
  std::string reason;
  if (find_driver(reason) == nullptr)
    core.fail(reason);
  CUdevice device = 0;
  core.check(driver().cuDeviceGet(&device, core.index), "cuDeviceGet");
  return device;
}

class CudaPinned final : public gpu::PinnedMemory {
 public:
  CudaPinned(const Core& core, int64_t bytes) {
    core.check(driver().cuMemHostAlloc(&data_, static_cast<size_t>(std::max<int64_t>(bytes, 1)), 0),
               "cuMemHostAlloc");
  }
  ~CudaPinned() override { driver().cuMemFreeHost(data_); }
  std::byte* data() override { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

class CudaEvent final : public gpu::Event {
 public:
  explicit CudaEvent(Core& core) : core_(core), event_(core, CU_EVENT_DISABLE_TIMING) {}

  void record() override {
    core_.make_current();
    core_.follow_copies();
    core_.check(driver().cuEventRecord(event_.get(), core_.work), "cuEventRecord");
  }
  // Also where a kernel that was enqueued before tells of its failure.
  void wait() override { core_.wait_for(event_.get()); }

 private:
  Core& core_;
  EventHandle event_;
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
  void begin_compile(const std::vector<gpu::Command>& commands) override;
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
  void begin_copy();
  void copy_up(std::byte* to, const void* from, int64_t bytes, CUstream stream);
  void copy_down(void* to, const std::byte* from, int64_t bytes);
  void destroy_streams();

  Core core_;
  Communicators communicators_;
  std::byte* trial_ = nullptr;  // of the communicators
  std::unique_ptr<Planner> planner_;
};

// The context is the one that the runtimes inside of the libraries use, and is never given back:
// they keep what they have loaded into it.
CudaDevice::CudaDevice(int index, const gpu::DeviceOptions& options) : communicators_(core_) {
  core_.index = index;
  const gpu::DeviceInfo info = device_info(index);
  core_.name = info.name;
  core_.compute = info.compute;
  core_.options = options;
  core_.check(driver().cuDevicePrimaryCtxRetain(&core_.context, handle_of(core_)),
              "cuDevicePrimaryCtxRetain");
  core_.make_current();
  try {
    for (CUstream* stream : {&core_.work, &core_.copies, &core_.messages, &core_.captures})
      core_.check(driver().cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    core_.check(driver().cuEventCreate(&core_.copied, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    planner_ = std::make_unique<Planner>(core_);
  } catch (...) {
    destroy_streams();
    throw;
  }
}

void CudaDevice::destroy_streams() {
  if (core_.copied != nullptr)
    driver().cuEventDestroy_v2(core_.copied);
  for (CUstream stream : {core_.captures, core_.messages, core_.copies, core_.work}) {
    if (stream != nullptr)
      driver().cuStreamDestroy_v2(stream);
  }
}

CudaDevice::~CudaDevice() {
  driver().cuCtxSetCurrent(core_.context);
  try {
    core_.wait_for(core_.work);
    core_.wait_for(core_.copies);
  } catch (const Error&) {
    communicators_.abort();  // nobody waits for it any more
  }
  driver().cuCtxSynchronize();
  free_memory(trial_);
  planner_.reset();
  destroy_streams();
}

gpu::DeviceInfo CudaDevice::info() {
  core_.make_current();
  gpu::DeviceInfo info = device_info(core_.index);
  size_t free = 0, total = 0;
  core_.check(driver().cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  info.free_bytes = static_cast<int64_t>(free);
  info.total_bytes = static_cast<int64_t>(total);
  return info;
}

void CudaDevice::begin_work() {
  core_.make_current();
  core_.follow_copies();
}

std::byte* CudaDevice::allocate(int64_t bytes) {
  begin_work();
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  CUdeviceptr data = 0;
  const CUresult status = driver().cuMemAlloc_v2(&data, size);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) {
    const gpu::DeviceInfo now = info();
    core_.fail(fmt::format("out of memory: {} asked for, {} of {} are free", format_bytes(bytes),
                           format_bytes(now.free_bytes), format_bytes(now.total_bytes)));
  }
  core_.check(status, "cuMemAlloc");
  std::byte* const memory = reinterpret_cast<std::byte*>(data);
  // Zero before anything else is done with it, on any stream.
  try {
    core_.check(driver().cuMemsetD8Async(data, 0, size, core_.work), "cuMemsetD8Async");
    core_.wait_for(core_.work);
  } catch (const Error&) {
    free_memory(memory);
    throw;
  }
  return memory;
}

// Destructors call it, also on the way out of a failure, which was reported where it was found.
void CudaDevice::free(std::byte* memory) {
  try {
    synchronize();  // nothing uses it
  } catch (const Error&) {
  }
  free_memory(memory);
}

std::unique_ptr<gpu::PinnedMemory> CudaDevice::allocate_pinned(int64_t bytes) {
  core_.make_current();
  return std::make_unique<CudaPinned>(core_, bytes);
}

std::unique_ptr<gpu::Event> CudaDevice::make_event() {
  core_.make_current();
  return std::make_unique<CudaEvent>(core_);
}

// Of memory that is not pinned: the call itself waits for what came before, and where other
// processes may keep that from its end only wait_for() notices.
void CudaDevice::begin_copy() {
  begin_work();
  if (core_.communicators != nullptr)
    core_.wait_for(core_.work);
}

void CudaDevice::copy_up(std::byte* to, const void* from, int64_t bytes, CUstream stream) {
  core_.check(
      driver().cuMemcpyHtoDAsync_v2(device_address(to), from, static_cast<size_t>(bytes), stream),
      "cuMemcpyHtoDAsync");
}

void CudaDevice::copy_down(void* to, const std::byte* from, int64_t bytes) {
  core_.check(driver().cuMemcpyDtoHAsync_v2(to, device_address(from), static_cast<size_t>(bytes),
                                            core_.work),
              "cuMemcpyDtoHAsync");
}

void CudaDevice::upload(std::byte* to, const void* from, int64_t bytes) {
  begin_copy();
  copy_up(to, from, bytes, core_.work);
  core_.wait_for(core_.work);
}

void CudaDevice::download(void* to, const std::byte* from, int64_t bytes) {
  begin_copy();
  copy_down(to, from, bytes);
  core_.wait_for(core_.work);
}

void CudaDevice::enqueue_upload(std::byte* to, const std::byte* from, int64_t bytes) {
  core_.make_current();
  copy_up(to, from, bytes, core_.copies);
  core_.check(driver().cuEventRecord(core_.copied, core_.copies), "cuEventRecord");
  core_.has_copies = true;
}

void CudaDevice::enqueue_download(std::byte* to, const std::byte* from, int64_t bytes) {
  begin_work();
  copy_down(to, from, bytes);
}

void CudaDevice::begin_compile(const std::vector<gpu::Command>& commands) {
  begin_work();
  planner_->begin_compile(commands);
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
  core_.make_current();
  communicators_.join(nccl(), id, rank, size);
  core_.communicators = &communicators_;
  trial_ = core_.allocate(Communicators::kTrialBytes, "communication");
  core_.check(driver().cuMemsetD8Async(device_address(trial_), 0, Communicators::kTrialBytes,
                                       core_.messages),
              "cuMemsetD8Async");
  communicators_.connect(trial_);
}

}  // namespace

gpu::DeviceInfo device_info(int index) {
  Core core;  // for messages
  core.index = index;
  core.name = "not opened";
  const CUdevice device = handle_of(core);
  const auto attribute = [&](CUdevice_attribute which) {
    int value = 0;
    core.check(driver().cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute");
    return value;
  };
  std::array<char, 256> name{};
  std::array<char, 32> place{};
  size_t bytes = 0;
  core.check(driver().cuDeviceGetName(name.data(), static_cast<int>(name.size()), device),
             "cuDeviceGetName");
  core.check(driver().cuDeviceGetPCIBusId(place.data(), static_cast<int>(place.size()), device),
             "cuDeviceGetPCIBusId");
  core.check(driver().cuDeviceTotalMem_v2(&bytes, device), "cuDeviceTotalMem");
  gpu::DeviceInfo info;
  info.name = name.data();
  info.compute = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                 attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.total_bytes = static_cast<int64_t>(bytes);
  info.driver = version_text(driver_version());
  info.place = place.data();
  return info;
}

std::unique_ptr<gpu::Device> open_device(int index, const gpu::DeviceOptions& options) {
  return std::make_unique<CudaDevice>(index, options);
}

}  // namespace meshtrain::cuda
