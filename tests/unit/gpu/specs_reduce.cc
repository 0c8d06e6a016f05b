// Reductions, matrix products, scans.
#include <cmath>

#include "specs.h"

namespace meshtrain::test {
namespace {

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
    default:
      return "sum";
  }
}

struct ReduceCase {
  Shape shape;
  std::vector<int> dims;
  std::vector<int64_t> strides = {};  // of x; empty: contiguous
  int64_t size = 0;                   // elements of x's array; 0: those of the shape
  bool keeps_dims = false;
};

void add_reduce(SpecList& list, Reduction reduction, DType dtype, const ReduceCase& c,
                Values values = Values::kSigned, int64_t shift = 0) {
  std::vector<bool> reduced(c.shape.size(), false);
  for (int d : c.dims)
    reduced[static_cast<size_t>(d)] = true;
  Shape out;
  int64_t terms = 1;
  std::string name = fmt::format("reduce {} {} {} over", name_of(reduction), dtype_name(dtype),
                                 shape_string(c.shape));
  for (size_t d = 0; d < c.shape.size(); ++d) {
    if (reduced[d]) {
      terms *= c.shape[d];
      name += fmt::format(" {}", d);
    }
    if (!reduced[d] || c.keeps_dims)
      out.push_back(reduced[d] ? 1 : c.shape[d]);
  }
  name += c.strides.empty() ? "" : " strided";
  name += values == Values::kSpecial ? " special" : "";
  const int64_t size = c.size == 0 ? num_elements(c.shape) : c.size;
  SpecArray x{dtype, size, values};
  x.shift = shift;
  SpecArray y = result(dtype, out);
  y.shift = shift;
  list.add(std::move(name), {x, y},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             View from = contiguous_view(memory[0], dtype, c.shape);
             if (!c.strides.empty())
               from.strides = c.strides;
             specs.emplace_back(
                 ReduceSpec{reduction, from, reduced, contiguous_view(memory[1], dtype, out)});
           })
      .scale = reduction == Reduction::kSum ? std::sqrt(static_cast<double>(terms)) : 0;
}

}  // namespace

std::vector<KernelCase> reduce_specs() {
  SpecList list;
  const std::vector<ReduceCase> cases = {
      {{16, 8}, {1}},
      {{16, 8}, {0}},
      {{16, 8}, {0, 1}},
      {{16, 8}, {0}, {}, 0, true},
      {{8, 3, 16}, {1}},
      {{8, 3, 16}, {0, 2}},
      {{4, 8, 3, 16}, {1, 3}},
      {{16, 2000}, {1}},
      {{3, 70000}, {1}},
      {{2000, 8}, {0}},
      {{50000, 3}, {0}},
      {{33, 700}, {0}},
      {{16, 1}, {1}},
      {{1, 16}, {0}},
      {{8, 16, 5, 5}, {0, 2, 3}},
      {{1000}, {0}},
      {{1}, {0}},
      {{5, 32}, {1}},
      {{1000, 64}, {1}},
      {{7, 0}, {1}},
      {{130001}, {0}},
      {{20, 30}, {1}, {1, 20}},  // transposed
      {{20, 30}, {0}, {1, 20}},
      {{4, 6, 10}, {0}, {0, 10, 1}, 60},    // the same shards again
      {{6, 10}, {1}, {25, 2}, 150},         // every other one of longer rows
      {{2, 4, 6, 5}, {1}, {30, 60, 5, 1}},  // mesh axes that interleave
  };
  for (Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
    for (const ReduceCase& c : cases) {
      if (reduction == Reduction::kSum || num_elements(c.shape) > 0)  // of nothing there is no max
        add_reduce(list, reduction, kF32, c);
    }
    for (DType dtype : {DType::kFloat64, DType::kBFloat16, DType::kFloat16, kI32, DType::kUInt32,
                        DType::kInt64, DType::kUInt8}) {
      const Values values = is_floating(dtype) ? Values::kSigned : Values::kSmallIntegers;
      for (size_t i : {0u, 1u, 2u, 5u, 7u, 9u, 11u, 22u})
        add_reduce(list, reduction, dtype, cases[i], values);
    }
    add_reduce(list, reduction, kF32, {{40, 21}, {1}}, Values::kSpecial);
    add_reduce(list, reduction, kF32, {{40, 21}, {0}}, Values::kSpecial);
    add_reduce(list, reduction, kF32, {{9, 77}, {1}}, Values::kSigned, 1);
  }
  return list.take();
}

namespace {

struct MatmulCase {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  int64_t batches = 1;
  int64_t gap = 0;           // elements between rows of each matrix
  bool is_shuffled = false;  // batches in no regular order, the first B shared by all
  int64_t spread = 1;        // steps between neighbours in A and B
  bool is_nested = false;    // batches as two loops, the outer one with the smaller steps
};

void add_matmul(SpecList& list, DType dtype, const MatmulCase& c) {
  MatmulSpec spec;
  spec.dtype = dtype;
  spec.m = c.m;
  spec.n = c.n;
  spec.k = c.k;
  const int64_t a_line = (c.transpose_a ? c.m : c.k) * c.spread + c.gap;
  const int64_t b_line = (c.transpose_b ? c.k : c.n) * c.spread + c.gap;
  spec.a_row = c.transpose_a ? c.spread : a_line;
  spec.a_column = c.transpose_a ? a_line : c.spread;
  spec.b_row = c.transpose_b ? c.spread : b_line;
  spec.b_column = c.transpose_b ? b_line : c.spread;
  spec.c_row = c.n + c.gap;
  const int64_t a_size = a_line * (c.transpose_a ? c.k : c.m);
  const int64_t b_size = b_line * (c.transpose_b ? c.n : c.k), c_size = spec.c_row * c.m;
  for (int64_t i = 0; i < c.batches; ++i) {
    const int64_t place = c.is_shuffled ? (i * 3 + 1) % c.batches : i;
    const int64_t turned = c.is_nested ? i % 2 * (c.batches / 2) + i / 2 : i;
    spec.batches.push_back(
        c.is_nested
            ? MatmulSpec::Batch{turned * a_size, i * b_size, turned * c_size}
            : MatmulSpec::Batch{place * a_size, c.is_shuffled ? 0 : i * b_size, i * c_size});
  }
  SpecArray out{dtype, c_size * c.batches, Values::kSigned};
  out.is_updated = true;  // what lies between rows stays
  list.add(fmt::format("matmul {} {}x{}x{}{}{} batches {} gap {} spread {}{}", dtype_name(dtype),
                       c.m, c.n, c.k, c.transpose_a ? " A'" : "", c.transpose_b ? " B'" : "",
                       c.batches, c.gap, c.spread,
                       c.is_shuffled ? " shuffled"
                       : c.is_nested ? " nested"
                                     : ""),
           {{dtype, a_size * c.batches, Values::kSigned},
            {dtype, b_size * c.batches, Values::kSigned},
            out},
           [spec](KernelSpecs& specs, const SpecPointers& memory) {
             MatmulSpec here = spec;
             here.a = memory[0];
             here.b = memory[1];
             here.c = memory[2];
             specs.emplace_back(here);
           })
      .scale = std::sqrt(static_cast<double>(c.k)) + 0.1;
}

}  // namespace

std::vector<KernelCase> matmul_specs() {
  SpecList list;
  for (DType dtype : float_dtypes()) {
    for (bool a : {false, true}) {
      for (bool b : {false, true}) {
        add_matmul(list, dtype, {13, 33, 25, a, b});
        add_matmul(list, dtype, {16, 8, 40, a, b, 3});
        add_matmul(list, dtype, {5, 24, 16, a, b, 2, 3});
      }
    }
    add_matmul(list, dtype, {1, 17, 30});
    add_matmul(list, dtype, {17, 1, 30});
    add_matmul(list, dtype, {12, 9, 1});
    add_matmul(list, dtype, {1, 1, 300});
    add_matmul(list, dtype, {3, 5, 0});
    add_matmul(list, dtype, {6, 10, 8, false, true, 5, 0, true});
    add_matmul(list, dtype, {60, 70, 3, false, false, 4});
    add_matmul(list, dtype, {60, 70, 3, true, true, 4});
    add_matmul(list, dtype, {5, 24, 16, false, true, 6, 0, false, 1, true});
    add_matmul(list, dtype, {50, 60, 30, false, false, 6, 0, false, 1, true});
    for (bool transpose : {false, true})  // large, and not for a library
      add_matmul(list, dtype, {70, 90, 41, transpose, !transpose, 2, 1, false, 2});
  }
  add_matmul(list, kF32, {64, 128, 784});
  add_matmul(list, kF32, {200, 10, 64});
  add_matmul(list, kF32, {784, 64, 128, true, false});
  return list.take();
}

std::vector<KernelCase> scan_specs() {
  SpecList list;
  const std::vector<ScanShape> shapes = {{4, 10, 1},   {3, 7, 5},   {1, 1000, 1}, {300, 9, 1},
                                         {1, 1, 1},    {2, 300, 3}, {65, 33, 2},  {2, 5000, 1},
                                         {3, 40, 1},   {1, 600, 1}, {2, 9000, 3}, {1, 50257, 1},
                                         {40, 35, 250}};
  for (DType dtype :
       {kF32, DType::kFloat64, DType::kBFloat16, DType::kFloat16, kI32, DType::kInt64}) {
    for (ScanShape shape : shapes) {
      shape.dtype = dtype;
      const int64_t all = shape.outer * shape.size * shape.inner;
      const std::string what =
          fmt::format("{} ({}, {}, {})", dtype_name(dtype), shape.outer, shape.size, shape.inner);
      for (Values values : {Values::kFewValues, Values::kSpecial}) {
        if (values == Values::kSpecial && !is_floating(dtype))
          continue;
        list.add("argmax " + what + (values == Values::kSpecial ? " special" : ""),
                 {{dtype, all, values}, result(kI32, shape.outer * shape.inner)},
                 [=](KernelSpecs& specs, const SpecPointers& memory) {
                   specs.emplace_back(ArgmaxSpec{shape, memory[0], memory[1]});
                 });
      }
      const Values numbers = is_floating(dtype) ? Values::kSigned : Values::kSmallIntegers;
      list.add("cumsum " + what, {{dtype, all, numbers}, result(dtype, all)},
               [=](KernelSpecs& specs, const SpecPointers& memory) {
                 specs.emplace_back(CumsumSpec{shape, memory[0], memory[1]});
               })
          .scale = std::sqrt(static_cast<double>(shape.size));
      for (int64_t k : {int64_t{1}, int64_t{4}, shape.size}) {
        if (shape.inner != 1 || k > shape.size || (k == shape.size && k > 600))
          continue;
        for (Values values : {Values::kFewValues, Values::kSigned, Values::kSpecial}) {
          if (values != Values::kFewValues && !is_floating(dtype))
            continue;
          list.add(fmt::format("top {} {} values {}", k, what, static_cast<int>(values)),
                   {{dtype, all, values},
                    result(dtype, shape.outer * k),
                    result(kI32, shape.outer * k)},
                   [=](KernelSpecs& specs, const SpecPointers& memory) {
                     specs.emplace_back(TopKSpec{shape, k, memory[0], memory[1], memory[2]});
                   })
              .is_exact = true;
        }
      }
    }
  }
  return list.take();
}

}  // namespace meshtrain::test
