// Operations under arguments that nobody chose: each takes them, or says why not.
#include "nn/operations.h"

#include <doctest/doctest.h>

#include <random>

#include "nn/expression_text.h"
#include "nn/tensor_program.h"
#include "support/sampled.h"

namespace meshtrain {
namespace {

std::string problem_of(std::string_view text, const std::vector<Shape>& shapes) {
  std::vector<std::string> names;
  std::vector<TensorType> types;
  for (const Shape& shape : shapes) {
    names.push_back(fmt::format("x{}", names.size() + 1));
    types.push_back({shape, DType::kFloat32});
  }
  try {
    const TensorProgram program = trace_expression(text, names, names_of_inputs(names));
    return "gives " + shape_string(infer_program(program, types, DType::kFloat32).shape);
  } catch (const ExprError& error) {
    return error.message;
  }
}

class RandomCalls {
 public:
  explicit RandomCalls(size_t seed) : random_(static_cast<uint32_t>(seed)) {}

  // A call of the operation with operands that are among `inputs`, or constants.
  TensorProgram program(const Operation& operation, size_t inputs) {
    TensorProgram out;
    TensorProgram::Call call{.operation = &operation};
    for (size_t i = 0; i < inputs; ++i) {
      out.inputs.push_back(fmt::format("x{}", i + 1));
    }
    const size_t operands =
        operation.takes_any_number() ? 1 + below(3) : operation.operand_parameters().size();
    for (size_t i = 0; i < operands; ++i) {
      call.operands.push_back(operation.takes_list() ? list(inputs) : operand(inputs));
    }
    call.operands[0] = operation.takes_list() ? call.operands[0] : Operand{.tensor = 0};
    for (const auto& parameter : operation.parameters()) {
      const bool is_default = !parameter.is_required && below(10) < 6;
      call.arguments[parameter.name] = is_default ? parameter.otherwise : argument(parameter.name);
    }
    call.part = operation.gives_list ? static_cast<int64_t>(below(4)) - 1 : 0;
    out.calls.push_back(std::move(call));
    out.result = static_cast<int>(inputs);
    return out;
  }

  TensorType type() {
    TensorType out;
    for (size_t rank = below(6); rank > 0; --rank) {
      out.shape.push_back(out.shape.empty() && below(3) > 0 ? kUnknownDim
                                                            : static_cast<int64_t>(1 + below(5)));
    }
    const DType dtypes[] = {DType::kFloat32, DType::kFloat32, DType::kInt32, DType::kBool};
    out.dtype = dtypes[below(4)];
    return out;
  }

 private:
  size_t below(size_t n) { return random_() % n; }

  Operand operand(size_t inputs) {
    if (below(4) > 0) {
      return {.tensor = static_cast<int>(below(inputs))};
    }
    return below(8) == 0 ? list(inputs) : Operand{.constant = value(2)};
  }

  Operand list(size_t inputs) {
    Operand out{.is_list = true};
    for (size_t i = below(4); i > 0; --i) {
      out.list.push_back({.tensor = static_cast<int>(below(inputs))});
    }
    return out;
  }

  // An index has the form that the grammar gives it.
  ExprValue argument(const std::string& name) {
    if (name != "key") {
      return value(2);
    }
    std::vector<ExprValue> key;
    for (size_t i = below(4); i > 0; --i) {
      const auto part = [&] { return below(2) == 0 ? ExprValue{} : integer(); };
      key.push_back(below(3) == 0   ? ExprValue{std::vector<ExprValue>{part(), part(), part()}}
                    : below(4) == 0 ? ExprValue{std::string("...")}
                                    : part());
    }
    return ExprValue{std::move(key)};
  }

  ExprValue integer() {
    const int64_t some[] = {-1, 0, 1, 2, 3, 4, 7, -7, 1000, int64_t{1} << 40, INT64_MIN, INT64_MAX};
    return {some[below(below(4) == 0 ? 12 : 6)]};
  }

  ExprValue value(int depth) {
    const char* const words[] = {"",     "same", "valid",   "channels_first", "channels_last",
                                 "edge", "nan",  "float16", "ij,jk->ik",      "nearest"};
    const double numbers[] = {0.5, -1.5, 0, 1e300, -INFINITY, NAN};
    switch (below(depth > 0 ? 8 : 5)) {
      case 0:
        return {};
      case 1:
        return {below(2) == 0};
      case 2:
        return {numbers[below(6)]};
      case 3:
        return {std::string(words[below(10)])};
      case 4:
      case 5:
        return integer();
      default: {
        std::vector<ExprValue> list;
        for (size_t i = below(4); i > 0; --i) {
          list.push_back(below(3) == 0 ? value(depth - 1) : integer());
        }
        return ExprValue{std::move(list)};
      }
    }
  }

  std::mt19937 random_;
};

TEST_CASE("every operation takes any arguments, or says why not") {
  size_t taken = 0, refused = 0;
  for (const size_t seed : test::sampled_seeds(400, 4)) {
    for (const std::string& name : operation_names()) {
      RandomCalls random(seed);
      const size_t inputs = 1 + seed % 3;
      const TensorProgram program = random.program(*find_operation(name), inputs);
      std::vector<TensorType> types;
      for (size_t i = 0; i < inputs; ++i) {
        types.push_back(i > 0 && seed % 2 == 0 ? types[0] : random.type());
      }
      CAPTURE(seed);
      CAPTURE(call_text(program.calls[0], program.inputs, ""));
      CAPTURE(shape_string(types[0].shape));
      try {
        infer_program(program, types, DType::kFloat32);
        ++taken;
      } catch (const ExprError& error) {
        ++refused;
        CHECK(!error.message.empty());
      } catch (const std::exception& error) {
        FAIL_CHECK("not an error of an expression: ", std::string(error.what()));
      }
    }
  }
  // Both happen, and often: otherwise these arguments test nothing.
  CHECK(taken > refused / 10);
  CHECK(refused > taken / 10);
}

TEST_CASE("operations say which operands do not fit") {
  const Shape images = {kUnknownDim, 8, 8, 3}, rows = {kUnknownDim, 8};
  const auto says = [](std::string_view text, const std::vector<Shape>& shapes,
                       const char* message) {
    CAPTURE(text);
    CHECK(doctest::String(problem_of(text, shapes).c_str()) == doctest::Contains(message));
  };
  says("max_pool(x, 9)", {images}, "a window of 9 cells is larger than its dimension of 8");
  says("max_pool(x, 2)", {rows}, "1 to 3 spatial dimensions, channels), not (None, 8)");
  says("average_pool(x, 2, padding='full')", {images}, "must be \"valid\" or \"same\"");
  says("max_pool(x, [2, 0])", {images},
       "`pool_size` must be one number from 1 to 65536, or 2 of them");
  says("max_pool(x, 2, data_format='first')", {images}, "channels_last or channels_first");
  says("conv(x, [[[[1, 2]]]])", {images}, "3 groups do not divide the 2 channels");
  says("conv(x, [[[[1], [2]]]])", {images}, "a kernel (1, 1, 2, 1) does not fit 3 channels");
  says("conv_transpose(x, [[[[1], [2]]]])", {images}, "(cells, channels out, channels in)");
  says("depthwise_conv(x, [[[[1]]]])", {images}, "is not of 3 channels");
  says("extract_patches(x, 2)", {rows}, "1 to 3 spatial dimensions");
  says("extract_patches(x, 64, strides=1, padding='same')", {images}, "at most 1024 cells");
  says("resize(x, 4)", {images}, "`size` must be [height, width]");
  says("resize(x, (4, 4), interpolation='area')", {images}, "there is no `interpolation` \"area\"");
  says("rgb_to_hsv(x)", {{kUnknownDim, 8, 8, 4}}, "images of 3 channels, not 4");
  says("crop_images(x, top_cropping=1)", {images}, "give two of top_cropping, bottom_cropping");
  says("pad_images(x, top_padding=5, target_height=9, left_padding=0, right_padding=0)", {images},
       "top_padding and bottom_padding would be 5 and -4 of a size of 8");
  says("layer_normalization(x, [1, 2])", {rows}, "gamma and beta have 8 numbers");
  says("rms_normalization(x, [1, 2])", {rows}, "do not broadcast");
  says("dot_product_attention(x1, x2, x2)", {images, rows}, "(None, 8, 8, 3), key (None, 8)");
  says("dot_product_attention(x, x, x, mask=x[:, :1, :1, :])", {images},
       "the mask (None, 1, 1, 3)");
  says("reshape(x, [1000, 9223372036854775807])", {rows}, "from -2^48 to 2^48");
  says("reshape(x, [-1, 4294967296, 4294967296])", {rows}, "cannot take the shape");
  says("roll(x, 9223372036854775807)", {rows}, "an integer from -2^48 to 2^48, not");
  says("moments(x, axes=[1])", {rows}, "moments gives a list of tensors");
  says("fft(x)", {rows}, "fft gives a list of tensors");
  says("fft([x])[0]", {rows}, "the real and the imaginary part");
  says("rfft(x, fft_length=0)[0]", {rows}, "`fft_length` is 0, not in [1, 8192]");
  says("take_along_axis(x1, x2, axis=1)", {images, rows}, "the indices have the dimensions of x");
  says("quantile(x, 1.5, axis=1)", {rows}, "a quantile of 1.5 is not in [0, 1]");
  says("median(x, axis=2)", {rows}, "there is no axis 2 in 2 dimensions");
  says("diagonal(x, offset=9, axis1=1, axis2=2)", {images}, "the diagonal 9 of 8 x 8 is empty");
  says("digitize(x, 1)", {rows}, "`bins` is a list of numbers");
  says("arctan2(x1, x2)", {images, rows}, "do not broadcast");
}

}  // namespace
}  // namespace meshtrain
