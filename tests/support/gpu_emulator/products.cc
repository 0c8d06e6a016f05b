#include "support/gpu_emulator/products.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/formulas/elementwise.h"
#include "base/error.h"

namespace meshtrain::gpu {
namespace {

double from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return mantissa == 0 ? sign * INFINITY : NAN;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

// To nearest, ties to even; by way of the place where the last kept digit stands.
uint16_t to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double size = std::abs(value);
  if (std::isnan(value))
    return 0x7E00;
  if (size >= 65520)
    return static_cast<uint16_t>(sign | 0x7C00);
  if (size < std::ldexp(1, -14))
    return static_cast<uint16_t>(sign |
                                 static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24))));
  const int exponent = std::ilogb(size);
  const auto digits =
      static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // 1024-2048
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + digits - 1024));
}

double from_bfloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t to_bfloat(double wide) {
  // Rounded to odd first, so that rounding twice is as rounding once.
  float value = static_cast<float>(wide);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(wide))
    return 0x7FC0;
  if (!std::isinf(value) && static_cast<double>(value) != wide && (bits & 1) == 0) {
    const bool is_above = std::abs(static_cast<double>(value)) > std::abs(wide);
    bits = is_above ? bits - 1 : bits + 1;
  }
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

template <class T>
double read(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return static_cast<double>(value);
}

double load(DType dtype, const std::byte* data, int64_t i) {
  switch (dtype) {
    case DType::kFloat32:
      return read<float>(data, i);
    case DType::kFloat64:
      return read<double>(data, i);
    default:
      break;
  }
  uint16_t bits;
  std::memcpy(&bits, data + 2 * i, sizeof(bits));
  MESHTRAIN_CHECK(dtype == DType::kFloat16 || dtype == DType::kBFloat16, "a product of {}",
                  dtype_name(dtype));
  return dtype == DType::kFloat16 ? from_half(bits) : from_bfloat(bits);
}

void store(DType dtype, const std::byte* data, int64_t i, double value) {
  std::byte* to = const_cast<std::byte*>(data);
  if (dtype == DType::kFloat32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(to + 4 * i, &narrow, sizeof(narrow));
  } else if (dtype == DType::kFloat64) {
    std::memcpy(to + 8 * i, &value, sizeof(value));
  } else {
    const uint16_t bits = dtype == DType::kFloat16 ? to_half(value) : to_bfloat(value);
    std::memcpy(to + 2 * i, &bits, sizeof(bits));
  }
}

// As the unit that multiplies takes it.
double load_operand(DType dtype, const std::byte* data, int64_t i, bool use_tf32) {
  if (dtype != DType::kFloat32 || !use_tf32)
    return load(dtype, data, i);
  uint32_t bits;
  std::memcpy(&bits, data + 4 * i, sizeof(bits));
  if ((bits & 0x7F800000) != 0x7F800000)
    bits = (bits + 0x1000) & ~uint32_t{0x1FFF};  // to nearest, ties away from zero
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return static_cast<double>(value);
}

std::vector<double> load_all(DType dtype, const std::byte* data, int64_t n, bool use_tf32) {
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    out[static_cast<size_t>(i)] = load_operand(dtype, data, i, use_tf32);
  return out;
}

void store_all(DType dtype, const std::byte* data, const std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    store(dtype, data, static_cast<int64_t>(i), values[i]);
}

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_FAST
#else
#define EMULATOR_FAST __attribute__((target_clones("avx2", "default"), optimize("O3")))
#endif

// y[i] += a * x[i]
EMULATOR_FAST void add_scaled(double* __restrict y, const double* __restrict x, double a,
                              int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    y[i] += a * x[i];
}

// As generated code computes it that reads a stored product: in float.
float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return std::isnan(x) || x >= 0 ? x : 0.0F;
    case Activation::kGelu:
      break;
  }
  return mt::gelu_tanh(x);
}

// The row of n elements from `first` on, which holds the product.
void finish_row(const Epilogue& epilogue, const MatmulSpec& s, int64_t first) {
  for (int64_t j = 0; j < s.n; ++j) {
    float value = static_cast<float>(load(s.dtype, epilogue.to, first + j));
    if (epilogue.bias != nullptr)
      value += static_cast<float>(load(s.dtype, epilogue.bias, j));
    store(s.dtype, epilogue.to, first + j,
          static_cast<double>(activated(epilogue.activation, value)));
  }
}

// Calls visit(output, cell, input) for every cell of every output that lies inside of the input;
// positions are row-major numbers.
template <class F>
void visit_cells(const ConvShape& s, F&& visit) {
  const auto inside = [&](size_t d, int64_t o, int64_t j) {
    const int64_t i = o * s.strides[d] + j * s.dilations[d] - s.pads[d];
    return i >= 0 && i < s.input[d] ? i : -1;
  };
  int64_t output = 0;
  for (int64_t o0 = 0; o0 < s.output[0]; ++o0) {
    for (int64_t o1 = 0; o1 < s.output[1]; ++o1) {
      for (int64_t o2 = 0; o2 < s.output[2]; ++o2, ++output) {
        int64_t cell = 0;
        for (int64_t j0 = 0; j0 < s.cells[0]; ++j0) {
          for (int64_t j1 = 0; j1 < s.cells[1]; ++j1) {
            for (int64_t j2 = 0; j2 < s.cells[2]; ++j2, ++cell) {
              const int64_t i0 = inside(0, o0, j0), i1 = inside(1, o1, j1), i2 = inside(2, o2, j2);
              if (i0 >= 0 && i1 >= 0 && i2 >= 0)
                visit(output, cell, (i0 * s.input[1] + i1) * s.input[2] + i2);
            }
          }
        }
      }
    }
  }
}

// The three tensors of a convolution as doubles; one of them is a sum that begins at zero.
struct Tensors {
  std::vector<double> x, kernel, y;
};

void add_images(const Conv& conv, Tensors& t) {
  const ConvShape& s = conv.shape;
  const int64_t x_image = s.input[0] * s.input[1] * s.input[2] * s.channels;
  const int64_t y_image = s.output[0] * s.output[1] * s.output[2] * s.filters;
  const int64_t channels = s.channels / s.groups, filters = s.filters / s.groups;
  for (int64_t image = 0; image < conv.images; ++image) {
    visit_cells(s, [&](int64_t output, int64_t cell, int64_t input) {
      double* y = t.y.data() + image * y_image + output * s.filters;
      double* x = t.x.data() + image * x_image + input * s.channels;
      for (int64_t c = 0; c < s.channels; ++c) {
        const int64_t group = c / channels, first = group * filters;
        double* row = t.kernel.data() + (cell * channels + c % channels) * s.filters + first;
        if (conv.op == ConvOp::kForward) {
          add_scaled(y + first, row, x[c], filters);
        } else if (conv.op == ConvOp::kWgrad) {
          add_scaled(row, y + first, x[c], filters);
        } else {
          double sum = 0;
          for (int64_t f = 0; f < filters; ++f)
            sum += row[f] * y[first + f];
          x[c] += sum;
        }
      }
    });
  }
}

}  // namespace

void reduce_element(Reduction reduction, DType dtype, const std::vector<const std::byte*>& sources,
                    int64_t i, std::byte* to) {
  const auto combine = [reduction](auto a, auto b) {
    return reduction == Reduction::kSum   ? a + b
           : reduction == Reduction::kMax ? std::max(a, b)
                                          : std::min(a, b);
  };
  if (dtype == DType::kInt32 || dtype == DType::kInt64) {
    const size_t size = dtype_size(dtype);
    const auto read_int = [&](const std::byte* from) {
      int64_t value = 0;
      std::memcpy(&value, from + static_cast<size_t>(i) * size, size);
      return size == sizeof(int32_t) ? static_cast<int32_t>(value) : value;
    };
    int64_t result = read_int(sources[0]);
    for (size_t s = 1; s < sources.size(); ++s)
      result = combine(result, read_int(sources[s]));
    std::memcpy(to + static_cast<size_t>(i) * size, &result, size);
    return;
  }
  store(dtype, to, i, load(dtype, sources[0], i));
  for (size_t s = 1; s < sources.size(); ++s)
    store(dtype, to, i, combine(load(dtype, to, i), load(dtype, sources[s], i)));
}

void run_matmul(const Matmul& matmul, bool use_tf32) {
  const MatmulSpec& s = matmul.spec;
  std::vector<double> b(static_cast<size_t>(s.k * s.n)), row(static_cast<size_t>(s.n));
  for (int64_t batch = 0; batch < matmul.batch; ++batch) {
    const int64_t a_first = batch * matmul.a_step, c_first = batch * matmul.c_step;
    for (int64_t p = 0; p < s.k; ++p) {
      for (int64_t j = 0; j < s.n; ++j) {
        b[static_cast<size_t>(p * s.n + j)] = load_operand(
            s.dtype, s.b, batch * matmul.b_step + p * s.b_row + j * s.b_column, use_tf32);
      }
    }
    for (int64_t i = 0; i < s.m; ++i) {
      row.assign(row.size(), 0);
      for (int64_t p = 0; p < s.k; ++p) {
        const double a =
            load_operand(s.dtype, s.a, a_first + i * s.a_row + p * s.a_column, use_tf32);
        add_scaled(row.data(), b.data() + p * s.n, a, s.n);
      }
      for (int64_t j = 0; j < s.n; ++j) {
        const int64_t at = c_first + i * s.c_row + j;
        const double before = s.accumulate ? load(s.dtype, matmul.result(), at) : 0;
        store(s.dtype, matmul.result(), at, before + row[static_cast<size_t>(j)]);
      }
      if (matmul.epilogue)
        finish_row(*matmul.epilogue, s, c_first + i * s.c_row);
    }
  }
}

void run_conv(const Conv& conv, bool use_tf32) {
  const ConvShape& s = conv.shape;
  const int64_t x_size = conv.images * s.input[0] * s.input[1] * s.input[2] * s.channels;
  const int64_t y_size = conv.images * s.output[0] * s.output[1] * s.output[2] * s.filters;
  const int64_t kernel_size = s.kernel_elements();
  const auto operand = [&](ConvOp written_by, const std::byte* data, int64_t size) {
    return conv.op == written_by ? std::vector<double>(static_cast<size_t>(size))
                                 : load_all(s.dtype, data, size, use_tf32);
  };
  Tensors t{operand(ConvOp::kDgrad, conv.x, x_size),
            operand(ConvOp::kWgrad, conv.kernel, kernel_size),
            operand(ConvOp::kForward, conv.y, y_size)};
  add_images(conv, t);
  switch (conv.op) {
    case ConvOp::kForward:
      return store_all(s.dtype, conv.y, t.y);
    case ConvOp::kDgrad:
      return store_all(s.dtype, conv.x, t.x);
    case ConvOp::kWgrad:
      return store_all(s.dtype, conv.kernel, t.kernel);
  }
}

}  // namespace meshtrain::gpu
