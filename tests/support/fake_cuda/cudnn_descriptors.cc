// What descriptors of convolutions say, and the convolutions themselves by the emulator's loops.
#include "support/fake_cuda/cudnn_descriptors.h"

#include <cstring>

#include "support/gpu_emulator/products.h"

namespace meshtrain::fake_cuda {

Descriptors& descriptors() {
  static auto* const made = new Descriptors("descriptor");
  return *made;
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
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
      return 4;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, "attributes of type {}", static_cast<int>(type));
  }
}

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

namespace {

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

double scale(const Descriptor& operation, cudnnBackendAttributeName_t name, bool is_double) {
  return is_double ? value<double>(operation, name)
                   : static_cast<double>(value<float>(operation, name));
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

}  // namespace

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

void check_memory(const Device& device, const gpu::Conv& conv) {
  const ConvShape& s = conv.shape;
  check_range(device, conv.x, static_cast<size_t>(conv.images * s.input_bytes()), "x");
  check_range(device, conv.y, static_cast<size_t>(conv.images * s.output_bytes()), "y");
  check_range(device, conv.kernel, static_cast<size_t>(s.kernel_elements() * s.item_size()), "w");
}

void enqueue_conv(Stream& stream, const gpu::Conv& conv, std::byte* workspace,
                  size_t workspace_bytes) {
  static uint64_t calls = 0;
  const uint64_t token = ++calls;
  if (workspace != nullptr) {
    enqueue(stream, "cudnnBackendExecute", at_once([=, &stream] {
              check_range(*stream.device, workspace, workspace_bytes, "the workspace");
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

}  // namespace meshtrain::fake_cuda
