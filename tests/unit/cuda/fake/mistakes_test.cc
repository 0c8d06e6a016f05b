// What the fake driver refuses: each mistake a program can make, seeded, and found.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <functional>

#include "backend/gpu/preamble.h"
#include "fake_gpu.h"
#include "support/fake_cuda/cubin.h"

namespace meshtrain::test {
namespace {

// p[i] += 1 by add_one, and p[i] *= 2 by twice.
constexpr const char* kKernels = R"(
struct Params { unsigned long long v[1]; };
extern "C" __global__ void __launch_bounds__(mt::kThreads)
add_one(const __grid_constant__ Params params) { ((unsigned*)params.v[0])[threadIdx.x] += 1u; }
extern "C" __global__ void __launch_bounds__(mt::kThreads)
twice(const __grid_constant__ Params params) { ((unsigned*)params.v[0])[threadIdx.x] *= 2u; }
)";
constexpr size_t kBytes = 1024;

// Two devices with a stream each, memory and kernels on the first.
class Gpus {
 public:
  Gpus() {
    fake_runtime();
    for (CUstream* stream : {&other_work, &work, &copies}) {
      use(stream == &other_work ? 1 : 0);
      cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);
    }
    cuMemAlloc(&memory, kBytes);
    cuMemHostAlloc(&pinned_, kBytes, 0);
    cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    const std::string text = std::string(gpu::preamble()) + kKernels;
    cuModuleLoadData(&module, fake_cuda::make_cubin("sm_90", text).c_str());
    cuModuleGetFunction(&add_one, module, "add_one");
    cuModuleGetFunction(&twice, module, "twice");
    cuMemsetD8Async(memory, 0, kBytes, work);
    cuStreamSynchronize(work);
    CHECK(fake_cuda::take_problems().empty());
  }
  ~Gpus() {
    use(0);
    cuMemFree(memory);
    cuMemFreeHost(pinned_);
    cuEventDestroy(event);
    cuModuleUnload(module);
    for (const CUstream stream : {work, copies, other_work})
      cuStreamDestroy(stream);
    fake_cuda::take_problems();
    fake_cuda::clear_faults();
    CHECK(fake_cuda::live_objects() == "");
  }
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;

  void use(int index) {
    CUcontext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, index);
    cuCtxSetCurrent(context);
  }
  CUresult launch(CUfunction kernel, CUdeviceptr address, CUstream stream) {
    void* params[] = {&address};
    return cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, params, nullptr);
  }
  // Loaded kernels behind one another, or the second behind nothing, as a graph.
  CUgraphExec make_graph(bool in_order) {
    cuFuncLoad(add_one);
    cuFuncLoad(twice);
    cuGraphCreate(&graph, 0);
    std::vector<CUgraphNode> after;
    for (const CUfunction kernel : {add_one, twice}) {
      CUgraph same = nullptr;
      const CUgraphNode* last = nullptr;
      const CUgraphEdgeData* edges = nullptr;
      CUstreamCaptureStatus status;
      size_t count = 0;
      begin_capture(after);
      launch(kernel, memory, copies);
      cuStreamGetCaptureInfo_v3(copies, &status, nullptr, nullptr, &last, &edges, &count);
      if (in_order)
        after.assign(last, last + count);
      cuStreamEndCapture(copies, &same);
    }
    CUgraphExec exec = nullptr;
    cuGraphInstantiateWithFlags(&exec, graph, 0);
    cuGraphDestroy(graph);
    return exec;
  }
  void begin_capture(const std::vector<CUgraphNode>& after = {}) {
    cuStreamBeginCaptureToGraph(copies, graph, after.data(), nullptr, after.size(),
                                CU_STREAM_CAPTURE_MODE_RELAXED);
  }
  // Within a capture on `copies`.
  void capture(const std::function<void()>& mistake) {
    cuFuncLoad(add_one);
    cuGraphCreate(&graph, 0);
    begin_capture();
    mistake();
    CUgraph same = nullptr;
    cuStreamEndCapture(copies, &same);
    cuGraphDestroy(graph);
  }
  void set(unsigned value) {
    std::vector<unsigned> values(kBytes / 4, value);
    cuMemcpyHtoDAsync(memory, values.data(), kBytes, work);
    cuStreamSynchronize(work);
  }
  unsigned get() {
    unsigned value = 0;
    cuStreamSynchronize(work);
    cuMemcpyDtoHAsync(&value, memory, sizeof(value), work);
    return value;
  }
  unsigned* pinned() { return static_cast<unsigned*>(pinned_); }

  CUstream work = nullptr, copies = nullptr, other_work = nullptr;
  CUdeviceptr memory = 0;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction add_one = nullptr, twice = nullptr;
  CUgraph graph = nullptr;

 private:
  void* pinned_ = nullptr;
};

// A function of the fake NCCL.
template <class Function>
Function* of_nccl(const char* name) {
  void* const library = ::dlopen(MESHTRAIN_FAKE_CUDA "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}
#define OF_NCCL(name) of_nccl<decltype(name)>(#name)

// Two sums over one rank, captured into one graph: in one capture, or each in one of its own.
void capture_two_sums(Gpus& g, bool in_one_capture) {
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  OF_NCCL(ncclGetUniqueId)(&id);
  OF_NCCL(ncclCommInitRankConfig)(&comm, 1, id, 0, &config);
  void* const data = reinterpret_cast<void*>(g.memory);
  const auto sum = [&](CUstream stream) {
    OF_NCCL(ncclAllReduce)(data, data, 16, ncclFloat32, ncclSum, comm, stream);
  };
  sum(g.work);  // connects
  cuStreamSynchronize(g.work);
  CUgraph same = nullptr;
  cuGraphCreate(&g.graph, 0);
  g.begin_capture();
  sum(g.copies);
  if (in_one_capture) {
    cuStreamUpdateCaptureDependencies_v2(g.copies, nullptr, nullptr, 0,
                                         CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  } else {
    cuStreamEndCapture(g.copies, &same);
    g.begin_capture();
  }
  sum(g.copies);
  cuStreamEndCapture(g.copies, &same);
  cuGraphDestroy(g.graph);
  OF_NCCL(ncclCommDestroy)(comm);
}

struct Mistake {
  const char* words;  // of the problem
  std::function<void(Gpus&)> make;
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = {
      {"memory of the host changed before it was copied",
       [](Gpus& g) {
         cuMemcpyHtoDAsync(g.memory, g.pinned(), 16, g.work);
         g.pinned()[0] = 7;
         cuStreamSynchronize(g.work);
       }},
      {"an argument is memory that was freed",
       [](Gpus& g) {
         CUdeviceptr gone = 0;
         cuMemAlloc(&gone, kBytes);
         cuMemFree(gone);
         g.launch(g.add_one, gone, g.work);
       }},
      {"add_one: an argument is memory that was freed",  // a graph keeps the pointer
       [](Gpus& g) {
         const CUgraphExec exec = g.make_graph(true);
         cuMemFree(g.memory);
         cuMemAlloc(&g.memory, kBytes);
         cuGraphLaunch(exec, g.work);
         cuStreamSynchronize(g.work);
         cuGraphExecDestroy(exec);
       }},
      {"an argument is memory of device 0, not of 1",
       [](Gpus& g) {
         g.use(1);
         CUmodule module = nullptr;
         CUfunction kernel = nullptr;
         const std::string text = std::string(gpu::preamble()) + kKernels;
         cuModuleLoadData(&module, fake_cuda::make_cubin("sm_90", text).c_str());
         cuModuleGetFunction(&kernel, module, "twice");
         g.launch(kernel, g.memory, g.other_work);
         cuModuleUnload(module);
       }},
      {"a kernel of another device",
       [](Gpus& g) {
         g.use(1);
         g.launch(g.twice, g.memory, g.other_work);
       }},
      {"a stream of device 1 while device 0 is current",
       [](Gpus& g) { g.launch(g.twice, g.memory, g.other_work); }},
      {"the default stream", [](Gpus& g) { g.launch(g.twice, g.memory, nullptr); }},
      {"bytes of shared memory, of 49152",
       [](Gpus& g) {
         void* params[] = {&g.memory};
         cuLaunchKernel(g.twice, 1, 1, 1, 256, 1, 1, 50000, g.work, params, nullptr);
       }},
      {"cuStreamSynchronize: the stream is capturing",
       [](Gpus& g) { g.capture([&] { cuStreamSynchronize(g.copies); }); }},
      {"cuCtxSynchronize: the stream is capturing",
       [](Gpus& g) { g.capture([&] { cuCtxSynchronize(); }); }},
      {"a kernel that is not loaded, in a capture",
       [](Gpus& g) { g.capture([&] { g.launch(g.twice, g.memory, g.copies); }); }},
      {"an allocation during a capture",
       [](Gpus& g) {
         g.capture([] {
           CUdeviceptr memory = 0;
           cuMemAlloc(&memory, kBytes);
         });
       }},
      {"memory is freed during a capture",
       [](Gpus& g) {
         CUdeviceptr memory = 0;
         cuMemAlloc(&memory, kBytes);
         g.capture([&] { cuMemFree(memory); });
         cuMemFree(memory);
       }},
      {"a capture waits for an event outside of it",
       [](Gpus& g) {
         cuEventRecord(g.event, g.work);
         g.capture([&] { cuStreamWaitEvent(g.copies, g.event, 0); });
       }},
      {"an event that was recorded in a capture",
       [](Gpus& g) {
         g.capture([&] {
           cuEventRecord(g.event, g.copies);
           cuEventSynchronize(g.event);
         });
       }},
      {"a stream of the capture was not joined",
       [](Gpus& g) {
         g.capture([&] {
           cuEventRecord(g.event, g.copies);
           cuStreamWaitEvent(g.work, g.event, 0);
           g.launch(g.add_one, g.memory, g.work);
         });
       }},
      {"the stream is not capturing",
       [](Gpus& g) {
         CUgraph same = nullptr;
         cuStreamEndCapture(g.work, &same);
       }},
      {"cuStreamBeginCaptureToGraph: the stream is capturing",
       [](Gpus& g) { g.capture([&] { g.begin_capture(); }); }},
      {"a stream captures into it", [](Gpus& g) { g.capture([&] { cuGraphDestroy(g.graph); }); }},
      {"no allocation begins at",
       [](Gpus& g) {
         CUdeviceptr twice = 0;
         cuMemAlloc(&twice, 16);
         cuMemFree(twice);
         cuMemFree(twice);
         (void)g;
       }},
      {"does not exist, or not any more",
       [](Gpus& g) {
         CUevent gone = nullptr;
         cuEventCreate(&gone, 0);
         cuEventDestroy(gone);
         cuEventRecord(gone, g.work);
       }},
      {"cuGraphExecDestroy: nobody waited for its run",
       [](Gpus& g) {
         const CUgraphExec exec = g.make_graph(true);
         cuGraphLaunch(exec, g.work);
         cuGraphExecDestroy(exec);
       }},
      {"cuStreamDestroy: nobody waited for add_one",
       [](Gpus& g) {
         CUstream stream = nullptr;
         cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
         g.launch(g.add_one, g.memory, stream);
         cuStreamDestroy(stream);
       }},
      {"cuModuleUnload: the device has work",
       [](Gpus& g) {
         g.launch(g.add_one, g.memory, g.work);
         cuModuleUnload(g.module);
       }},
      {"bytes at", [](Gpus& g) { cuMemsetD8Async(g.memory, 0, kBytes + 1, g.work); }},
      {"a cycle",
       [](Gpus& g) {
         CUgraph graph = nullptr;
         CUgraphNode first = nullptr, second = nullptr;
         cuGraphCreate(&graph, 0);
         cuGraphAddEmptyNode(&first, graph, nullptr, 0);
         cuGraphAddEmptyNode(&second, graph, &first, 1);
         cuGraphAddDependencies_v2(graph, &second, &first, nullptr, 1);
         cuGraphDestroy(graph);
         (void)g;
       }},
      {"ncclAllReduce: dependency created on uncaptured work in another stream",
       [](Gpus& g) { capture_two_sums(g, false); }},
      {"cuStreamUpdateCaptureDependencies: the stream is not capturing",
       [](Gpus& g) {
         cuStreamUpdateCaptureDependencies_v2(g.copies, nullptr, nullptr, 0,
                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES);
       }},
  };
  return all;
}

TEST_CASE("the fake driver finds every seeded mistake and nothing else") {
  set_order(0);
  for (const Mistake& mistake : mistakes()) {
    CAPTURE(mistake.words);
    Gpus gpus;
    mistake.make(gpus);
    const std::string found = join(fake_cuda::take_problems(), "; ");
    CHECK_MESSAGE(found.find(mistake.words) != std::string::npos, found);
  }
}

TEST_CASE("one capture may have several calls of a communicator") {
  set_order(0);
  Gpus gpus;
  capture_two_sums(gpus, true);
  CHECK(join(fake_cuda::take_problems(), "; ") == "");
}

TEST_CASE("what is left is counted by its kind") {
  Gpus gpus;
  CHECK(fake_cuda::live_objects() ==
        "3 x stream, 1 x event, 1 x module, 1 x pinned memory, 1 x memory of device 0");
}

TEST_CASE("what is read before it was waited for is garbage") {
  set_order(0);
  Gpus gpus;
  gpus.launch(gpus.add_one, gpus.memory, gpus.work);
  cuMemcpyDtoHAsync(gpus.pinned(), gpus.memory, 16, gpus.work);
  CHECK(gpus.pinned()[0] == 0xFFFFFFFF);
  cuStreamSynchronize(gpus.work);
  CHECK(gpus.pinned()[0] == 1);
}

// (x + 1) * 2 of 1 is 4; in the other order it is 3.
size_t wrong_orders(const std::function<void(Gpus&)>& compute) {
  size_t wrong = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    set_order(0);
    Gpus gpus;
    gpus.set(1);
    set_order(seed);
    compute(gpus);
    cuCtxSynchronize();
    wrong += gpus.get() == 4 ? 0 : 1;
  }
  set_order(0);
  return wrong;
}

TEST_CASE("streams that do not wait for each other run in any order") {
  const auto compute = [](Gpus& g, bool waits) {
    g.launch(g.add_one, g.memory, g.copies);
    cuEventRecord(g.event, g.copies);
    if (waits)
      cuStreamWaitEvent(g.work, g.event, 0);
    g.launch(g.twice, g.memory, g.work);
    cuStreamSynchronize(g.work);
  };
  CHECK(wrong_orders([&](Gpus& g) { compute(g, true); }) == 0);
  CHECK(wrong_orders([&](Gpus& g) { compute(g, false); }) > 1);
}

TEST_CASE("nodes of a graph that do not wait for each other run in any order") {
  const auto compute = [](Gpus& g, bool in_order) {
    const CUgraphExec exec = g.make_graph(in_order);
    cuGraphLaunch(exec, g.work);
    cuStreamSynchronize(g.work);
    cuGraphExecDestroy(exec);
  };
  CHECK(wrong_orders([&](Gpus& g) { compute(g, true); }) == 0);
  CHECK(wrong_orders([&](Gpus& g) { compute(g, false); }) > 1);
}

}  // namespace
}  // namespace meshtrain::test
