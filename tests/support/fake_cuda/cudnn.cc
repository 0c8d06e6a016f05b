// A cuDNN that checks the descriptors of convolutions and computes them by the emulator's loops.
//
// Its engines: one that is not deterministic, one that is compiled when it is asked for, one with a
// workspace and two kernels, one on tensor cores, and as fallback one that needs nothing. It knows
// attentions, but their only engines are one that is not deterministic and one that it cannot
// compile.
#include <cudnn_graph.h>

#include <algorithm>
#include <cstring>

#include "support/fake_cuda/cudnn_descriptors.h"

struct cudnnContext {
  meshtrain::fake_cuda::Device* device;
  CUstream stream;
};

namespace meshtrain::fake_cuda {
namespace {

constexpr const char* kObjects = "object of cuDNN";
constexpr int64_t kWorkspace = 8192;  // and as much as the filters
enum Engine : int64_t { kNondeterministic, kCompiled, kUsual, kTensorCores, kFallback };

template <class F>
cudnnStatus_t answer(const char* name, const F& function) {
  switch (call(name, function)) {
    case CUDA_SUCCESS:
      return CUDNN_STATUS_SUCCESS;
    case CUDA_ERROR_NOT_SUPPORTED:
      return CUDNN_STATUS_NOT_SUPPORTED;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return CUDNN_STATUS_BAD_PARAM;
    default:
      return CUDNN_STATUS_EXECUTION_FAILED;
  }
}

const Descriptor& graph_of(const Descriptor& plan) {
  const Descriptor& config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  return part(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}

// Attentions are the only graphs of several operations, and have the only tensors that are not in
// memory or may not be.
bool is_attention(const Descriptor& graph) {
  return graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count > 1;
}
bool is_of_attention(const Descriptor& tensor) {
  return tensor.attributes.contains(CUDNN_ATTR_TENSOR_IS_VIRTUAL) ||
         tensor.attributes.contains(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

std::vector<int64_t> engines_of(const Descriptor& heuristics) {
  const bool is_fallback = value<cudnnBackendHeurMode_t>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) ==
                           CUDNN_HEUR_MODE_FALLBACK;
  if (is_attention(part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)))
    return {kCompiled, kNondeterministic};
  if (is_fallback)
    return {kFallback};
  return {kNondeterministic, kCompiled, kUsual, kTensorCores};
}

void finalize(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      if (!is_of_attention(d))
        tensor_of(d);
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      operation_of(d);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      if (!is_attention(d))
        part(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
      value<cudnnHandle_t>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      d.engines = engines_of(d);
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      value<cudnnHandle_t>(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
      d.engines = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engines;
      if (is_attention(graph_of(d)) && d.engines.at(0) == kCompiled)
        throw Failure{CUDA_ERROR_NOT_SUPPORTED};
      break;
    default:
      break;
  }
  d.is_final = true;
}

struct Read {
  cudnnBackendAttributeType_t type;
  int64_t most;
  int64_t* count;
  void* values;
};
template <class T>
void give(const Read& read, const std::vector<T>& values) {
  *read.count = static_cast<int64_t>(values.size());
  std::memcpy(read.values, values.data(),
              std::min(values.size(), static_cast<size_t>(read.most)) * sizeof(T));
}
// Fills descriptors that the caller made.
void give_engines(const Read& read, const Descriptor& from, const std::vector<int64_t>& engines) {
  *read.count = static_cast<int64_t>(engines.size());
  for (int64_t i = 0; i < std::min(read.most, *read.count); ++i) {
    Descriptor& to = descriptors().get(static_cast<void**>(read.values)[i]);
    to.engines = {engines[static_cast<size_t>(i)]};
    to.attributes = from.attributes;
    to.is_final = true;
  }
}

const Descriptor& operation_descriptor(const Descriptor& plan) {
  return part(graph_of(plan), CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

cudnnBackendNumericalNote_t note_of(int64_t engine) {
  return engine == kNondeterministic ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
         : engine == kTensorCores    ? CUDNN_NUMERICAL_NOTE_TENSOR_CORE
                                     : CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
}

int64_t workspace_of(const Descriptor& plan) {
  const int64_t engine = plan.engines.at(0);
  if (engine == kFallback || engine == kTensorCores || is_attention(graph_of(plan)))
    return 0;
  const ConvShape shape = operation_of(operation_descriptor(plan)).conv.shape;
  return kWorkspace + (shape.kernel_elements() * shape.item_size() + 255) / 256 * 256;
}

void get_attribute(const Descriptor& d, cudnnBackendAttributeName_t name, const Read& read) {
  if (!d.is_final)
    refuse(CUDA_ERROR_INVALID_VALUE, "the descriptor is not finalized");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return give_engines(read, d, d.engines);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(read, std::vector<cudnnBackendNumericalNote_t>{note_of(d.engines.at(0))});
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give(read, std::vector<int64_t>{d.engines.at(0)});
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      if (d.engines.at(0) == kCompiled)
        return give(read, std::vector{CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION});
      return give(read, std::vector<cudnnBackendBehaviorNote_t>{});
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(read, std::vector<int64_t>{workspace_of(d)});
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "attribute {}", static_cast<int>(name));
  }
}

const std::byte* address_of(const Descriptor& pack, const Tensor& tensor) {
  const auto uids = values<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = values<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < std::min(uids.size(), data.size()); ++i) {
    if (uids[i] != tensor.uid)
      continue;
    if (reinterpret_cast<uint64_t>(data[i]) % static_cast<uint64_t>(tensor.alignment) != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "{} is not aligned to {}", data[i], tensor.alignment);
    return static_cast<const std::byte*>(data[i]);
  }
  refuse(CUDA_ERROR_INVALID_VALUE, "tensor {} has no address", tensor.uid);
}

void execute(const cudnnContext& handle, const Descriptor& plan, const Descriptor& pack) {
  if (!plan.is_final || !pack.is_final)
    refuse(CUDA_ERROR_INVALID_VALUE, "a descriptor is not finalized");
  Stream& stream = stream_of(handle.stream);
  if (stream.device != handle.device)
    refuse(CUDA_ERROR_INVALID_VALUE, "a handle of another device");
  Operation operation = operation_of(operation_descriptor(plan));
  gpu::Conv& conv = operation.conv;
  conv.x = address_of(pack, operation.x);
  conv.kernel = address_of(pack, operation.kernel);
  conv.y = address_of(pack, operation.y);
  check_memory(*handle.device, conv);
  const int64_t workspace_bytes = workspace_of(plan);
  std::byte* workspace = nullptr;
  if (workspace_bytes > 0) {
    workspace = static_cast<std::byte*>(value<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    if (reinterpret_cast<uint64_t>(workspace) % 16 != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "the workspace is not aligned");
    check_range(*handle.device, workspace, static_cast<size_t>(workspace_bytes), "the workspace");
  }
  enqueue_conv(stream, conv, workspace, static_cast<size_t>(workspace_bytes));
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API cudnnStatus_t

extern "C" MESHTRAIN_FAKE_API size_t cudnnGetVersion() {
  return 91900;
}
extern "C" MESHTRAIN_FAKE_API size_t cudnnGetCudartVersion() {
  return static_cast<size_t>(number_of("MESHTRAIN_EMULATOR_CUDART", 13000));
}
extern "C" MESHTRAIN_FAKE_API const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
                                          : "CUDNN_STATUS_EXECUTION_FAILED";
}
extern "C" MESHTRAIN_FAKE_API void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "of the fake");
}
MESHTRAIN_FAKE cudnnCreate(cudnnHandle_t* out) {
  return answer("cudnnCreate", [&] {
    ++state().handles[kObjects];
    *out = new cudnnContext{&current_device(), nullptr};
  });
}
// The real one may still look at its last stream.
MESHTRAIN_FAKE cudnnDestroy(cudnnHandle_t handle) {
  return answer("cudnnDestroy", [&] {
    if (handle->stream != nullptr)
      state().streams.get(handle->stream);
    --state().handles[kObjects];
    delete handle;
  });
}
MESHTRAIN_FAKE cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return answer("cudnnSetStream", [&] {
    if (handle->stream != nullptr)
      state().streams.get(handle->stream);
    handle->stream = reinterpret_cast<CUstream>(stream);
    stream_of(handle->stream);
  });
}
MESHTRAIN_FAKE cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                            cudnnBackendDescriptor_t* out) {
  return answer("cudnnBackendCreateDescriptor", [&] {
    ++state().handles[kObjects];
    auto made = std::make_unique<Descriptor>();
    made->type = type;
    *out = descriptors().add(std::move(made));
  });
}
MESHTRAIN_FAKE cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return answer("cudnnBackendDestroyDescriptor", [&] {
    descriptors().take(descriptor);
    --state().handles[kObjects];
  });
}
MESHTRAIN_FAKE cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                        cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, int64_t count,
                                        const void* given) {
  return answer("cudnnBackendSetAttribute", [&] {
    Descriptor& descriptor = descriptors().get(handle);
    if (descriptor.is_final)
      refuse(CUDA_ERROR_INVALID_VALUE, "the descriptor is finalized");
    const auto* const first = static_cast<const std::byte*>(given);
    descriptor.attributes[name] = {
        type, count, {first, first + static_cast<size_t>(count) * size_of(type)}};
  });
}
MESHTRAIN_FAKE cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                        cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, int64_t most,
                                        int64_t* count, void* out) {
  return answer("cudnnBackendGetAttribute", [&] {
    get_attribute(descriptors().get(handle), name, {type, most, count, out});
  });
}
MESHTRAIN_FAKE cudnnBackendFinalize(cudnnBackendDescriptor_t handle) {
  return answer("cudnnBackendFinalize", [&] { finalize(descriptors().get(handle)); });
}
MESHTRAIN_FAKE cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                   cudnnBackendDescriptor_t pack) {
  return answer("cudnnBackendExecute",
                [&] { execute(*handle, descriptors().get(plan), descriptors().get(pack)); });
}
