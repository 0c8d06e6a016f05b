// A cuDNN that checks the descriptors of convolutions and computes them by the emulator's loops.
//
// Its engines: one that is not deterministic, one that is compiled when it is asked for, one with a
// workspace, and as fallback one without.
#include <cudnn_graph.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "support/fake_cuda/state.h"
#include "support/gpu_emulator/products.h"

struct cudnnContext {
  meshtrain::fake_cuda::Device* device;
  CUstream stream;
};

namespace meshtrain::fake_cuda {
namespace {

constexpr const char* kObjects = "object of cuDNN";
constexpr int64_t kWorkspace = 8192;
enum Engine : int64_t { kNondeterministic, kCompiled, kUsual, kFallback };

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<std::byte> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<int, Attribute> attributes;
  std::vector<int64_t> engines;  // of heuristics; of an engine or its configuration, its own
};

using Descriptors = Table<void*, Descriptor>;
Descriptors& descriptors() {
  static auto* const made = new Descriptors("descriptor");
  return *made;
}

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

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
      return 4;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "attributes of type {}", static_cast<int>(type));
  }
}

// Values of an attribute, which must be there.
template <class T>
std::vector<T> values(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const auto found = descriptor.attributes.find(name);
  if (found == descriptor.attributes.end())
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} was not set", static_cast<int>(name));
  if (size_of(found->second.type) != sizeof(T))
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} has another type", static_cast<int>(name));
  std::vector<T> out(static_cast<size_t>(found->second.count));
  std::memcpy(out.data(), found->second.bytes.data(), found->second.bytes.size());
  return out;
}
template <class T>
T value(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const std::vector<T> all = values<T>(descriptor, name);
  if (all.size() != 1)
    refuse(CUDA_ERROR_INVALID_VALUE, "{} values of attribute {}", all.size(),
           static_cast<int>(name));
  return all[0];
}
const Descriptor& part(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const Descriptor& found = descriptors().get(value<void*>(descriptor, name));
  if (!found.is_final)
    refuse(CUDA_ERROR_INVALID_VALUE, "attribute {} is not finalized", static_cast<int>(name));
  return found;
}

struct Tensor {
  int64_t uid, alignment;
  cudnnDataType_t type;
  std::vector<int64_t> sizes, strides;
};
Tensor tensor_of(const Descriptor& d) {
  Tensor tensor{value<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID),
                value<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE),
                values<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
                values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES)};
  // Channels are adjacent, then the last dimension.
  std::vector<int64_t> order = {1};
  for (size_t dim = tensor.sizes.size(); dim-- > 2;)
    order.push_back(static_cast<int64_t>(dim));
  order.push_back(0);
  int64_t step = 1;
  for (const int64_t dim : order) {
    const auto at = static_cast<size_t>(dim);
    if (tensor.strides.size() != tensor.sizes.size() || tensor.strides[at] != step)
      refuse(CUDA_ERROR_INVALID_VALUE, "a tensor whose channels are not adjacent");
    step *= tensor.sizes[at];
  }
  return tensor;
}

struct Names {
  gpu::ConvOp op;
  cudnnBackendAttributeName_t conv, x, kernel, y, alpha, beta;
};
Names names_of(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return {gpu::ConvOp::kForward,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return {gpu::ConvOp::kDgrad,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    default:
      return {gpu::ConvOp::kWgrad,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
}

DType dtype_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return DType::kFloat32;
    case CUDNN_DATA_DOUBLE:
      return DType::kFloat64;
    case CUDNN_DATA_HALF:
      return DType::kFloat16;
    case CUDNN_DATA_BFLOAT16:
      return DType::kBFloat16;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "type {}", static_cast<int>(type));
  }
}

// A convolution without addresses, whose kernel is (filters, cells..., channels / groups).
struct Operation {
  gpu::Conv conv;
  Tensor x, kernel, y;
};

double scale(const Descriptor& operation, cudnnBackendAttributeName_t name, bool is_double) {
  return is_double ? value<double>(operation, name)
                   : static_cast<double>(value<float>(operation, name));
}

Operation operation_of(const Descriptor& descriptor) {
  const Names names = names_of(descriptor.type);
  Operation operation{{},
                      tensor_of(part(descriptor, names.x)),
                      tensor_of(part(descriptor, names.kernel)),
                      tensor_of(part(descriptor, names.y))};
  const Descriptor& conv = part(descriptor, names.conv);
  const Tensor &x = operation.x, &kernel = operation.kernel, &y = operation.y;
  const auto before = values<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto after = values<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  const auto dilations = values<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto steps = values<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto spatial =
      static_cast<size_t>(value<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  const bool is_double = x.type == CUDNN_DATA_DOUBLE;
  if (scale(descriptor, names.alpha, is_double) != 1 ||
      scale(descriptor, names.beta, is_double) != 0)
    refuse(CUDA_ERROR_INVALID_VALUE, "more than a convolution");
  if (value<cudnnDataType_t>(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) !=
          (is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) ||
      value<cudnnConvolutionMode_t>(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE) !=
          CUDNN_CROSS_CORRELATION ||
      x.type != kernel.type || x.type != y.type)
    refuse(CUDA_ERROR_INVALID_VALUE, "types that do not fit each other");
  ConvShape& shape = operation.conv.shape;
  operation.conv.op = names.op;
  operation.conv.images = x.sizes[0];
  shape.dtype = dtype_of(x.type);
  shape.channels = x.sizes[1];
  shape.filters = kernel.sizes[0];
  shape.groups = shape.channels / kernel.sizes[1];
  if (y.sizes[0] != x.sizes[0] || y.sizes[1] != shape.filters ||
      shape.groups * kernel.sizes[1] != shape.channels || shape.filters % shape.groups != 0 ||
      spatial + 2 != x.sizes.size() || spatial < 2 || spatial > 3)
    refuse(CUDA_ERROR_INVALID_VALUE, "sizes that do not fit each other");
  for (size_t d = 0; d < spatial; ++d) {
    const size_t to = 3 - spatial + d;
    shape.input[to] = x.sizes[d + 2];
    shape.cells[to] = kernel.sizes[d + 2];
    shape.output[to] = y.sizes[d + 2];
    shape.strides[to] = steps[d];
    shape.dilations[to] = dilations[d];
    shape.pads[to] = before[d];
    const int64_t places =
        x.sizes[d + 2] + before[d] + after[d] - (kernel.sizes[d + 2] - 1) * dilations[d] - 1;
    if (places < 0 || places / steps[d] + 1 != y.sizes[d + 2])
      refuse(CUDA_ERROR_INVALID_VALUE, "an output that the padding does not give");
  }
  return operation;
}

// Copies a kernel from cuDNN's order to ours, or back.
void turn(const ConvShape& s, const std::byte* from, std::byte* to, bool to_ours) {
  const int64_t cells = s.cells[0] * s.cells[1] * s.cells[2], channels = s.channels / s.groups;
  const auto item = s.item_size();
  for (int64_t f = 0; f < s.filters; ++f) {
    for (int64_t inner = 0; inner < cells * channels; ++inner) {
      const int64_t theirs = f * cells * channels + inner, ours = inner * s.filters + f;
      std::memcpy(to + (to_ours ? ours : theirs) * item, from + (to_ours ? theirs : ours) * item,
                  static_cast<size_t>(item));
    }
  }
}

void run(gpu::Conv conv) {
  const ConvShape& s = conv.shape;
  std::vector<std::byte> turned(static_cast<size_t>(s.kernel_elements() * s.item_size()));
  const std::byte* const kernel = std::exchange(conv.kernel, turned.data());
  if (conv.op != gpu::ConvOp::kWgrad)
    turn(s, kernel, turned.data(), true);
  gpu::run_conv(conv, false);
  if (conv.op == gpu::ConvOp::kWgrad)
    turn(s, turned.data(), const_cast<std::byte*>(kernel), false);
}

void check_memory(const Device& device, const gpu::Conv& conv) {
  const ConvShape& s = conv.shape;
  check_range(device, conv.x, static_cast<size_t>(conv.images * s.input_bytes()), "x");
  check_range(device, conv.y, static_cast<size_t>(conv.images * s.output_bytes()), "y");
  check_range(device, conv.kernel, static_cast<size_t>(s.kernel_elements() * s.item_size()), "w");
}

void finalize(Descriptor& d) {
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      tensor_of(d);
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      operation_of(d);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      part(d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
      value<cudnnHandle_t>(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      if (value<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK)
        d.engines = {kFallback};
      else
        d.engines = {kNondeterministic, kCompiled, kUsual};
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      value<cudnnHandle_t>(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
      d.engines = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engines;
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

void get_attribute(const Descriptor& d, cudnnBackendAttributeName_t name, const Read& read) {
  if (!d.is_final)
    refuse(CUDA_ERROR_INVALID_VALUE, "the descriptor is not finalized");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return give_engines(read, d, d.engines);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give(read,
                  std::vector<cudnnBackendNumericalNote_t>{
                      d.engines.at(0) == kNondeterministic ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                           : CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP});
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      if (d.engines.at(0) == kCompiled)
        return give(read, std::vector{CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION});
      return give(read, std::vector<cudnnBackendBehaviorNote_t>{});
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(read, std::vector<int64_t>{d.engines.at(0) == kFallback ? 0 : kWorkspace});
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "attribute {}", static_cast<int>(name));
  }
}

const Descriptor& operation_descriptor(const Descriptor& plan) {
  const Descriptor& config = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  return part(part(config, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), CUDNN_ATTR_OPERATIONGRAPH_OPS);
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

// With a workspace: a kernel that fills it, and one that finds out whether it is still its own.
void enqueue_conv(Stream& stream, const gpu::Conv& conv, std::byte* workspace) {
  static uint64_t calls = 0;
  const uint64_t token = ++calls;
  if (workspace != nullptr) {
    enqueue(stream, "cudnnBackendExecute", at_once([=, &stream] {
              check_range(*stream.device, workspace, kWorkspace, "the workspace");
              std::memcpy(workspace, &token, sizeof(token));
            }));
  }
  enqueue(stream, "cudnnBackendExecute", at_once([=, &stream] {
            uint64_t found = token;
            if (workspace != nullptr)
              std::memcpy(&found, workspace, sizeof(found));
            if (found != token)
              refuse(CUDA_ERROR_LAUNCH_FAILED, "another call used the workspace at the same time");
            check_memory(*stream.device, conv);
            run(conv);
          }));
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
  std::byte* workspace = nullptr;
  if (plan.engines.at(0) != kFallback) {
    workspace = static_cast<std::byte*>(value<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    if (reinterpret_cast<uint64_t>(workspace) % 16 != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "the workspace is not aligned");
    check_range(*handle.device, workspace, kWorkspace, "the workspace");
  }
  enqueue_conv(stream, conv, workspace);
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;
#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API cudnnStatus_t

extern "C" MESHTRAIN_FAKE_API size_t cudnnGetVersion() {
  return 91900;
}
extern "C" MESHTRAIN_FAKE_API size_t cudnnGetCudartVersion() {
  return 13000;
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
