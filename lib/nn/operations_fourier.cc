// Discrete Fourier transforms, as products with matrices of cosines and sines: their cost is the
// square of the length. Complex numbers are pairs of tensors. Source: Keras 3.15 ops/math.py.
#include <numbers>

#include "nn/graph_parts.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

constexpr int64_t kMaxLength = 8192;  // its matrix has 2^26 numbers

struct Complex {
  ValueId re, im;
};

// cos or sin of 2 pi j k / period, (rows, columns). The product is reduced while it is exact.
ValueId wave(Builder& b, bool is_cosine, int64_t rows, int64_t columns, int64_t period,
             DType dtype) {
  const auto whole = static_cast<double>(period);
  const ValueId product = b.mul(b.iota({rows, columns}, 0, DType::kFloat64),
                                b.iota({rows, columns}, 1, DType::kFloat64));
  const ValueId turns = b.unary("floor", b.div(b.add(product, 0.5), whole));
  const ValueId place = b.sub(product, b.mul(turns, whole));
  const ValueId angle = b.mul(place, 2 * std::numbers::pi / whole);
  return b.cast(b.unary(is_cosine ? "cos" : "sin", angle), dtype);
}

// x (..., j) times a matrix (j, k).
ValueId times(Builder& b, ValueId x, ValueId matrix) {
  std::string outer;
  for (size_t i = 1; i < b.shape(x).size(); ++i) {
    outer += static_cast<char>('A' + i);
  }
  return b.einsum(outer + "j,jk->" + outer + "k", {x, matrix});
}

// The sums of x[j] exp(sign 2 pi i j k / n) along the last axis; x.im may be kNone, for real x.
Complex transformed(Builder& b, Complex x, int64_t outputs, double sign) {
  const int64_t n = b.shape(x.re).back();
  if (n > kMaxLength) {
    operation_error(fmt::format("a length of {} is above {}", n, kMaxLength));
  }
  const ValueId cosine = wave(b, true, n, outputs, n, b.dtype(x.re));
  const ValueId sine = b.mul(wave(b, false, n, outputs, n, b.dtype(x.re)), sign);
  const Complex out{times(b, x.re, cosine), times(b, x.re, sine)};
  if (x.im == kNone) {
    return out;
  }
  return {b.sub(out.re, times(b, x.im, sine)), b.add(out.im, times(b, x.im, cosine))};
}

// Along the last `count` axes.
Complex transformed_axes(Builder& b, Complex x, size_t count, double sign) {
  const size_t rank = b.shape(x.re).size();
  for (size_t i = 0; i < count; ++i) {
    const size_t axis = rank - 1 - i;
    const Complex moved{move_axis(b, x.re, axis, rank - 1), move_axis(b, x.im, axis, rank - 1)};
    const Complex out = transformed(b, moved, b.shape(moved.re).back(), sign);
    x = {move_axis(b, out.re, rank - 1, axis), move_axis(b, out.im, rank - 1, axis)};
  }
  return x;
}

// The operand: a list of the real and the imaginary part.
Complex complex_operand(Context& c, size_t axes) {
  const Operand& given = c.operands[0];
  if (!given.is_list || given.list.size() != 2) {
    operation_error("it takes the real and the imaginary part", "write [x, zeros_like(x)]");
  }
  std::vector<ValueId> parts = c.promoted(given.list);
  for (ValueId& part : parts) {
    part = is_floating(c.b.dtype(part)) ? part : c.b.cast(part, c.floatx);
  }
  if (c.b.shape(parts[0]) != c.b.shape(parts[1]) || c.rank(parts[0]) < axes) {
    operation_error(fmt::format("the parts are of one shape, of {} dimensions at least", axes));
  }
  return {parts[0], parts[1]};
}

ValueId complex_part(Context& c, Complex x) {
  if (c.part < -2 || c.part > 1) {
    operation_error("it gives a real part, [0], and an imaginary one, [1]");
  }
  return c.part % 2 == 0 ? x.re : x.im;
}

template <size_t axes>
ValueId forward(Context& c) {
  return complex_part(c, transformed_axes(c.b, complex_operand(c, axes), axes, -1));
}

ValueId inverse2(Context& c) {
  const Complex x = complex_operand(c, 2);
  const Shape& shape = c.b.shape(x.re);
  const auto count = static_cast<double>(shape[shape.size() - 1] * shape[shape.size() - 2]);
  const Complex out = transformed_axes(c.b, x, 2, 1);
  return c.b.div(complex_part(c, out), count);
}

// x with `size` elements along the last axis: cut, or filled with zeros.
ValueId fitted(Builder& b, ValueId x, int64_t size) {
  const int axis = static_cast<int>(b.shape(x).size()) - 1;
  const int64_t own = b.shape(x).back();
  return own == size ? x : own > size ? b.slice(x, axis, 0, size) : b.pad(x, axis, 0, size - own);
}

int64_t fft_length(Context& c, int64_t otherwise) {
  const int64_t length = c.is_null("fft_length") ? otherwise : c.integer("fft_length");
  if (length < 1 || length > kMaxLength) {
    operation_error(fmt::format("`fft_length` is {}, not in [1, {}]", length, kMaxLength));
  }
  return length;
}

ValueId real_forward(Context& c) {
  ValueId x = c.floating(0);
  if (c.rank(x) == 0) {
    operation_error("a number has no axis");
  }
  const int64_t n = fft_length(c, c.b.shape(x).back());
  return complex_part(c, transformed(c.b, {fitted(c.b, x, n), kNone}, n / 2 + 1, -1));
}

// Every frequency but 0, and half of an even length, stands for its mirror image as well.
ValueId real_inverse(Context& c) {
  Builder& b = c.b;
  const Complex x = complex_operand(c, 1);
  const int64_t n = fft_length(c, std::max<int64_t>(2 * (b.shape(x.re).back() - 1), 1));
  const int64_t bands = n / 2 + 1;
  const DType dtype = b.dtype(x.re);
  const ValueId band = b.iota({bands}, 0, DType::kInt32);
  const auto is_band = [&](int64_t k) {
    return b.binary("eq", band, constant_like(b, band, static_cast<double>(k)));
  };
  const ValueId alone = b.binary("logical_or", is_band(0), is_band(n % 2 == 0 ? n / 2 : 0));
  const ValueId weight =
      b.div(b.select(alone, b.constant(1, dtype), b.constant(2, dtype)), static_cast<double>(n));
  const auto weighed = [&](ValueId part) { return b.mul(fitted(b, part, bands), weight); };
  return b.sub(times(b, weighed(x.re), wave(b, true, bands, n, n, dtype)),
               times(b, weighed(x.im), wave(b, false, bands, n, n, dtype)));
}

}  // namespace

std::vector<Operation> fourier_operations() {
  return {
      {"fft", "FFT", "math", "xs", "", forward<1>, true},
      {"fft2", "FFT2", "math", "xs", "", forward<2>, true},
      {"ifft2", "IFFT2", "math", "xs", "", inverse2, true},
      {"rfft", "RFFT", "math", "x", "fft_length=None", real_forward, true},
      {"irfft", "IRFFT", "math", "xs", "fft_length=None", real_inverse},
  };
}

}  // namespace meshtrain
