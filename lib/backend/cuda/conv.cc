#include "backend/cuda/conv.h"

#include <algorithm>
#include <array>

#include "backend/cuda/libraries.h"
#include "backend/cuda/matmul_layout.h"
#include "backend/cuda/trial_memory.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

enum Uid : int64_t { kX = 'x', kKernel = 'w', kY = 'y' };

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDNN_DATA_FLOAT;
    case DType::kFloat64:
      return CUDNN_DATA_DOUBLE;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      throw InternalError(fmt::format("a convolution of {}", dtype_name(dtype)));
  }
}

// Strides of dims (outer, channels, spatial...) whose channels are adjacent, then the last spatial.
std::vector<int64_t> channels_last(const std::vector<int64_t>& dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = strides[1] = 1;
  step *= dims[1];
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = step;
    step *= dims[d];
  }
  strides[0] = step;
  return strides;
}

CudnnObject tensor(const Core& core, Uid uid, DType dtype, const std::vector<int64_t>& dims,
                   const std::vector<int64_t>& strides, uint32_t alignment) {
  CudnnObject result(core, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(uid));
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_type(dtype));
  result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
  result.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{alignment});
  result.finalize();
  return result;
}

// How each kind of convolution calls what it is made of.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t conv, x, kernel, y, alpha, beta;
};

OperationNames names_of(gpu::ConvOp op) {
  switch (op) {
    case gpu::ConvOp::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case gpu::ConvOp::kDgrad:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case gpu::ConvOp::kWgrad:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

// Of x, the kernel and y. `anywhere`: as if they stood behind others of their size, as in another
// process they may (matmul_layout.h).
std::array<uint32_t, 3> alignments_of(const gpu::Conv& conv, bool anywhere) {
  const ConvShape& s = conv.shape;
  return {alignment_of(conv.x, anywhere ? s.input_bytes() : 0),
          alignment_of(conv.kernel, anywhere ? s.kernel_elements() * s.item_size() : 0),
          alignment_of(conv.y, anywhere ? s.output_bytes() : 0)};
}

std::string key_of(const gpu::Conv& conv, bool anywhere) {
  const ConvShape& s = conv.shape;
  constexpr const char* kNames[] = {"conv", "conv dgrad", "conv wgrad"};
  return fmt::format(
      "{} {} x{} input {} channels {} output {} filters {} cells {} strides {} dilations {} pads "
      "{} groups {} @{}",
      kNames[static_cast<int>(conv.op)], dtype_name(s.dtype), conv.images, fmt::join(s.input, "x"),
      s.channels, fmt::join(s.output, "x"), s.filters, fmt::join(s.cells, "x"),
      fmt::join(s.strides, "x"), fmt::join(s.dilations, "x"), fmt::join(s.pads, ","), s.groups,
      fmt::join(alignments_of(conv, anywhere), ","));
}

}  // namespace

ConvLayout conv_layout(const ConvShape& s, int64_t images) {
  ConvLayout layout;
  layout.x = {images, s.channels};
  layout.kernel = {s.filters, s.channels / s.groups};
  layout.y = {images, s.filters};
  // One that has a single place everywhere can be left out.
  size_t left_out = 3;
  for (size_t d = 0; d < 3; ++d) {
    if (s.input[d] == 1 && s.output[d] == 1 && s.cells[d] == 1)
      left_out = std::min(left_out, d);
  }
  for (size_t d = 0; d < 3; ++d) {
    if (d == left_out)
      continue;
    layout.x.push_back(s.input[d]);
    layout.kernel.push_back(s.cells[d]);
    layout.y.push_back(s.output[d]);
    layout.steps.push_back(s.strides[d]);
    layout.dilations.push_back(s.dilations[d]);
    layout.pads_before.push_back(s.pads[d]);
    // Places that windows reach behind the input; where they end before its end, none.
    const int64_t reach = (s.output[d] - 1) * s.strides[d] + (s.cells[d] - 1) * s.dilations[d] + 1;
    layout.pads_after.push_back(std::max<int64_t>(reach - s.pads[d] - s.input[d], 0));
  }
  layout.x_strides = channels_last(layout.x);
  layout.kernel_strides = channels_last(layout.kernel);
  layout.y_strides = channels_last(layout.y);
  return layout;
}

size_t result_bytes(const gpu::Conv& conv) {
  const int64_t bytes[] = {conv.images * conv.shape.output_bytes(),
                           conv.images * conv.shape.input_bytes(),
                           conv.shape.kernel_elements() * conv.shape.item_size()};
  return (static_cast<size_t>(bytes[static_cast<int>(conv.op)]) + 255) / 256 * 256;
}

Convs::Convs(Core& core, std::string_view description)
    : core_(core), described_(CudnnObject(core, kDevicePropDescriptor)) {
  described_->set(kDevicePropJson, CUDNN_TYPE_CHAR, static_cast<int64_t>(description.size()),
                  description.data());
  described_->finalize();
}

Convs::~Convs() {
  plans_.clear();
  replaced_.clear();
  if (handle_ != nullptr)
    cudnn().cudnnDestroy(handle_);
}

const ConvPlan& Convs::plan(const gpu::Conv& conv) {
  const std::string key = key_of(conv, !core_.options.measure);
  const auto found = plans_.find(key);
  if (found != plans_.end())
    return *found->second;
  if (handle_ == nullptr && !described_)
    core_.check(cudnn().cudnnCreate(&handle_), "cudnnCreate");
  std::unique_ptr<ConvPlan> plan = choose(conv, key);
  if (!described_) {
    const TrialMemory trial(result_bytes(conv) + plan->workspace_bytes);
    if (trial.data() != nullptr)
      run_trial(plan->parts.back(), conv, trial.data());
  }
  return *plans_.emplace(key, std::move(plan)).first->second;
}

void Convs::add_operation(const gpu::Conv& conv, std::vector<CudnnObject>& parts) const {
  const ConvLayout layout = conv_layout(conv.shape, conv.images);
  const DType dtype = conv.shape.dtype;
  const bool is_double = dtype == DType::kFloat64;
  CudnnObject description(core_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  description.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(layout.steps.size()));
  description.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                  is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  description.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  description.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, layout.pads_before);
  description.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, layout.pads_after);
  description.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, layout.dilations);
  description.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, layout.steps);
  description.finalize();

  const OperationNames names = names_of(conv.op);
  const auto alignments = alignments_of(conv, !core_.options.measure);
  CudnnObject x = tensor(core_, kX, dtype, layout.x, layout.x_strides, alignments[0]);
  CudnnObject kernel =
      tensor(core_, kKernel, dtype, layout.kernel, layout.kernel_strides, alignments[1]);
  CudnnObject y = tensor(core_, kY, dtype, layout.y, layout.y_strides, alignments[2]);
  CudnnObject operation(core_, names.type);
  operation.set(names.conv, description);
  operation.set(names.x, x);
  operation.set(names.kernel, kernel);
  operation.set(names.y, y);
  const double one = 1, zero = 0;
  const float one_float = 1, zero_float = 0;
  const cudnnBackendAttributeType_t type = is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  operation.set(names.alpha, type, 1, is_double ? static_cast<const void*>(&one) : &one_float);
  operation.set(names.beta, type, 1, is_double ? static_cast<const void*>(&zero) : &zero_float);
  operation.finalize();
  for (CudnnObject* part : {&description, &x, &kernel, &y, &operation})
    parts.push_back(std::move(*part));
}

void Convs::run_trial(const CudnnObject& plan, const gpu::Conv& conv, std::byte* memory) const {
  enqueue(plan, conv.op == gpu::ConvOp::kDgrad ? memory : conv.x,
          conv.op == gpu::ConvOp::kWgrad ? memory : conv.kernel,
          conv.op == gpu::ConvOp::kForward ? memory : conv.y, memory + result_bytes(conv),
          core_.work);
}

void Convs::enqueue(const ConvPlan& plan, const std::byte* x, const std::byte* kernel,
                    const std::byte* y, std::byte* workspace, CUstream stream) const {
  enqueue(plan.parts.back(), x, kernel, y, workspace, stream);
}

void Convs::enqueue(const CudnnObject& plan, const std::byte* x, const std::byte* kernel,
                    const std::byte* y, std::byte* workspace, CUstream stream) const {
  const std::array<const void*, 3> data = {x, kernel, y};
  const std::array<int64_t, 3> uids = {kX, kKernel, kY};
  CudnnObject pack(core_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  core_.check(cudnn().cudnnSetStream(handle_, stream), "cudnnSetStream");
  core_.check(cudnn().cudnnBackendExecute(handle_, plan.get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace meshtrain::cuda
