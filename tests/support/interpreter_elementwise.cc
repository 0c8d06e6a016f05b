#include <cmath>

#include "base/error.h"
#include "support/interpreter_kernels.h"

namespace meshtrain {
namespace {

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

// NaN is handed on, whichever side it is on.
double maximum(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}
double minimum(double a, double b) {
  return std::isnan(a) || a < b ? a : b;
}

double sign(double x) {
  return std::isnan(x) ? x : (x > 0) - (x < 0);
}

using Unary = double (*)(double);
using Binary = double (*)(double, double);

// Derivatives of x P(x), with P the normal distribution function, and of its form with tanh.
double gelu_slope(double x) {
  return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
}
double gelu_tanh_slope(double x) {
  const double scale = std::sqrt(2 / M_PI), cosh = std::cosh(scale * (x + 0.044715 * x * x * x));
  return (1 + std::tanh(scale * (x + 0.044715 * x * x * x))) / 2 +
         x / 2 * scale * (1 + 3 * 0.044715 * x * x) / (cosh * cosh);
}

const std::pair<std::string_view, Unary> kUnary[] = {
    {"gelu", [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; }},
    {"gelu_tanh",
     [](double x) {
       return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3)))) / 2;
     }},
    {"silu", [](double x) { return x * sigmoid(x); }},
    {"neg", [](double x) { return -x; }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"log1p", [](double x) { return std::log1p(x); }},
    {"expm1", [](double x) { return std::expm1(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"sigmoid", sigmoid},
    {"softplus", softplus},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"square", [](double x) { return x * x; }},
    {"abs", [](double x) { return std::abs(x); }},
    {"sign", sign},
    {"erf", [](double x) { return std::erf(x); }},
    {"sin", [](double x) { return std::sin(x); }},
    {"cos", [](double x) { return std::cos(x); }},
    {"floor", [](double x) { return std::floor(x); }},
    {"round", [](double x) { return std::nearbyint(x); }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"relu", [](double x) { return maximum(x, 0.0); }},
    {"logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; }},
    {"is_finite", [](double x) { return std::isfinite(x) ? 1.0 : 0.0; }},
    {"pin", [](double x) { return x; }},
    {"var_use", [](double x) { return x; }},
};

const std::pair<std::string_view, Binary> kBinary[] = {
    {"add", [](double a, double b) { return a + b; }},
    {"sub", [](double a, double b) { return a - b; }},
    {"mul", [](double a, double b) { return a * b; }},
    {"div", [](double a, double b) { return a / b; }},
    {"max", maximum},
    {"min", minimum},
    {"pow", [](double a, double b) { return std::pow(a, b); }},
    {"gelu_grad", [](double x, double g) { return g * gelu_slope(x); }},
    {"gelu_tanh_grad", [](double x, double g) { return g * gelu_tanh_slope(x); }},
    {"silu_grad", [](double x, double g) { return g * sigmoid(x) * (1 + x * (1 - sigmoid(x))); }},
    {"eq", [](double a, double b) { return a == b ? 1.0 : 0.0; }},
    {"ne", [](double a, double b) { return a != b ? 1.0 : 0.0; }},
    {"lt", [](double a, double b) { return a < b ? 1.0 : 0.0; }},
    {"le", [](double a, double b) { return a <= b ? 1.0 : 0.0; }},
    {"gt", [](double a, double b) { return a > b ? 1.0 : 0.0; }},
    {"ge", [](double a, double b) { return a >= b ? 1.0 : 0.0; }},
    {"logical_and", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }},
    {"logical_or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }},
};

// Integer arithmetic wraps, and division truncates.
double integer_binary(std::string_view op, DType dtype, double a, double b) {
  const auto x = static_cast<uint64_t>(static_cast<int64_t>(a));
  const auto y = static_cast<uint64_t>(static_cast<int64_t>(b));
  uint64_t z = 0;
  if (op == "add") {
    z = x + y;
  } else if (op == "sub") {
    z = x - y;
  } else if (op == "mul") {
    z = x * y;
  } else {
    MESHTRAIN_CHECK(b != 0, "integer division by zero");
    z = static_cast<uint64_t>(static_cast<int64_t>(a) / static_cast<int64_t>(b));
  }
  if (dtype == DType::kUInt32) {
    return static_cast<double>(static_cast<uint32_t>(z));
  }
  return dtype == DType::kInt32
             ? static_cast<double>(static_cast<int32_t>(static_cast<uint32_t>(z)))
             : static_cast<double>(static_cast<int64_t>(z));
}

bool is_wrapping(std::string_view op) {
  return op == "add" || op == "sub" || op == "mul" || op == "div";
}

// Calls function(element of each operand) for every element of the result.
void map_elements(const NodeRun& run,
                  const std::function<double(std::span<const double>)>& function) {
  std::vector<double> elements(run.in.size());
  int64_t index = 0;
  for (Coordinates at(run.out[0].shape()); !at.done(); at.next()) {
    for (size_t i = 0; i < run.in.size(); ++i) {
      elements[i] = run.in[i]->at(broadcast_index(at.all(), run.in[i]->shape()));
    }
    run.out[0].set(index++, function(elements));
  }
}

void cast(const NodeRun& run) {
  const DType to = run.out[0].dtype();
  map_elements(run, [to](std::span<const double> x) {
    if (to == DType::kBool) {
      return x[0] != 0 ? 1.0 : 0.0;
    }
    return is_integer(to) ? std::trunc(x[0]) : x[0];
  });
}

void clamp(const NodeRun& run) {
  const double low = run.node.attr_double("low");
  const double high = run.node.attr_double("high");
  map_elements(run, [=](std::span<const double> x) { return minimum(maximum(x[0], low), high); });
}

}  // namespace

void add_elementwise_kernels(KernelTable& table) {
  for (const auto& [name, function] : kUnary) {
    table[name] = [function = function](const NodeRun& run) {
      map_elements(run, [&](std::span<const double> x) { return function(x[0]); });
    };
  }
  for (const auto& [name, function] : kBinary) {
    table[name] = [name = name, function = function](const NodeRun& run) {
      const DType dtype = run.out[0].dtype();
      const bool wraps = is_integer(dtype) && is_wrapping(name);
      map_elements(run, [&](std::span<const double> x) {
        return wraps ? integer_binary(name, dtype, x[0], x[1]) : function(x[0], x[1]);
      });
    };
  }
  table["select"] = [](const NodeRun& run) {
    map_elements(run, [](std::span<const double> x) { return x[0] != 0 ? x[1] : x[2]; });
  };
  table["cast"] = cast;
  table["clamp"] = clamp;
}

}  // namespace meshtrain
