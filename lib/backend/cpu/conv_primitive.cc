#include "backend/cpu/conv_primitive.h"

#include <algorithm>
#include <string_view>

#include "backend/cpu/conv_region.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;

// The first of the three spatial dimensions that oneDNN gets: it has two or three.
size_t first_dim(const ConvShape& s) {
  const bool is_flat = s.input[0] == 1 && s.output[0] == 1 && s.cells[0] == 1 && s.pads[0] == 0;
  return is_flat ? 1 : 0;
}

// oneDNN names channels before sizes, in every layout.
Desc images_desc(DType dtype, int64_t images, int64_t channels, const Index3& size, size_t first) {
  Dims dims{images, channels};
  dims.insert(dims.end(), size.begin() + static_cast<ptrdiff_t>(first), size.end());
  using Tag = dnnl::memory::format_tag;
  return Desc(dims, dnnl_type(dtype), first == 1 ? Tag::nhwc : Tag::ndhwc);
}

// Strides row-major for (cells..., channels of a group, filters).
Desc kernel_desc(const ConvShape& s, DType dtype, bool is_any) {
  const size_t first = first_dim(s);
  const int64_t channels = s.channels / s.groups;
  Dims dims{s.filters / s.groups, channels}, strides{1, s.filters};
  if (s.groups > 1) {
    dims.insert(dims.begin(), s.groups);
    strides.insert(strides.begin(), s.filters / s.groups);
  }
  int64_t step = channels * s.filters;
  const size_t before = dims.size();
  for (size_t d = 3; d-- > first;) {
    dims.insert(dims.begin() + static_cast<ptrdiff_t>(before), s.cells[d]);
    strides.insert(strides.begin() + static_cast<ptrdiff_t>(before), step);
    step *= s.cells[d];
  }
  const dnnl::memory::data_type type = dnnl_type(dtype);
  return is_any ? Desc(dims, type, dnnl::memory::format_tag::any) : Desc(dims, type, strides);
}

struct Window {
  Dims strides, dilations, before, after;
};

Window window_of(const ConvShape& s) {
  Window w;
  for (size_t d = first_dim(s); d < 3; ++d) {
    const int64_t reach = (s.output[d] - 1) * s.strides[d] + (s.cells[d] - 1) * s.dilations[d] + 1;
    w.strides.push_back(s.strides[d]);
    w.dilations.push_back(s.dilations[d] - 1);
    w.before.push_back(s.pads[d]);
    w.after.push_back(std::max<int64_t>(reach - s.pads[d] - s.input[d], 0));
  }
  return w;
}

// Whether this is code for the shape, not a reference, a matrix product of copies, or code for
// full groups that takes depthwise kernels as blocks of 16 x 16 with one number each.
bool is_generated(const ConvShape& s, std::string_view implementation) {
  const auto has = [&](std::string_view part) {
    return implementation.find(part) != std::string_view::npos;
  };
  if (s.is_depthwise() && s.filters == s.channels && !has("dw"))
    return false;
  return !has("ref") && !has("gemm");
}

template <class Primitive, class Description>
std::optional<ConvPrimitive> finish(const ConvShape& s, const Description& description,
                                    const Desc& x, const Desc& kernel, const Desc& y) {
  if (!is_generated(s, description.impl_info_str()))
    return std::nullopt;
  return ConvPrimitive{Primitive(description), x, kernel, y, description.scratchpad_desc()};
}

std::optional<ConvPrimitive> make(const ConvShape& s, ConvKind kind, int64_t images,
                                  const Desc& kernel) {
  const Desc x = images_desc(s.dtype, images, s.channels, s.input, first_dim(s));
  const Desc y = images_desc(s.dtype, images, s.filters, s.output, first_dim(s));
  const Window w = window_of(s);
  const dnnl::primitive_attr attributes = own_scratch();
  const auto algorithm = dnnl::algorithm::convolution_direct;
  // The transposes ask for a forward convolution beside them, of any format.
  using Forward = dnnl::convolution_forward;
  const Desc any = kernel_desc(s, s.dtype, true);
  const Forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x, kind == ConvKind::kForward ? kernel : any,
       y, w.strides, w.dilations, w.before, w.after},
      attributes, dnnl_engine());
  if (kind == ConvKind::kForward)
    return finish<Forward>(s, forward, x, forward.weights_desc(), y);
  if (kind == ConvKind::kDgrad) {
    using Dgrad = dnnl::convolution_backward_data;
    const Dgrad::primitive_desc dgrad(
        {algorithm, x, kernel, y, w.strides, w.dilations, w.before, w.after}, attributes,
        dnnl_engine(), forward);
    return finish<Dgrad>(s, dgrad, x, dgrad.weights_desc(), y);
  }
  using Wgrad = dnnl::convolution_backward_weights;
  const Wgrad::primitive_desc wgrad(
      {algorithm, x, kernel, y, w.strides, w.dilations, w.before, w.after}, attributes,
      dnnl_engine(), forward);
  return finish<Wgrad>(s, wgrad, x, wgrad.diff_weights_desc(), y);
}

}  // namespace

Desc plain_kernel(const ConvShape& shape, DType dtype) {
  return kernel_desc(shape, dtype, false);
}

std::optional<ConvPrimitive> make_conv_primitive(const ConvShape& shape, ConvKind kind,
                                                 int64_t images, const Desc* kernel) {
  const DType dtype = kind == ConvKind::kWgrad ? DType::kFloat32 : shape.dtype;
  return try_primitive([&] {
    return make(shape, kind, images, kernel != nullptr ? *kernel : kernel_desc(shape, dtype, true));
  });
}

}  // namespace meshtrain::cpu
