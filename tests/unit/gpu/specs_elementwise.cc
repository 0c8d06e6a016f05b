// Tapes, casts, copies, fills.
#include "specs.h"

namespace meshtrain::test {
namespace {

// A view of an array over `shape` with these strides (empty: contiguous).
View view_of(std::byte* data, DType dtype, const Shape& shape, std::vector<int64_t> strides = {}) {
  View view = contiguous_view(data, dtype, shape);
  if (!strides.empty())
    view.strides = std::move(strides);
  return view;
}

struct OpCase {
  std::string_view op;
  bool is_test = false;  // the result is a bool
};

// One tape that applies every op to the same operands, each with a result of its own.
void add_ops(SpecList& list, const std::string& name, const std::vector<OpCase>& ops,
             const std::vector<DType>& dtypes, Values values, const Shape& shape,
             const std::vector<std::vector<int64_t>>& strides, double low = 0, double high = 0) {
  std::vector<SpecArray> arrays;
  for (DType dtype : dtypes)
    arrays.push_back(operand(dtype, shape, dtype == kBool ? Values::kBool : values));
  const DType type = dtypes.back();
  for (const OpCase& op : ops)
    arrays.push_back(result(op.is_test ? kBool : type, shape));
  list.add(name, arrays, [=](KernelSpecs& specs, const SpecPointers& memory) {
    std::vector<View> operands;
    std::vector<int> args;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      operands.push_back(view_of(memory[i], dtypes[i], shape,
                                 strides.empty() ? std::vector<int64_t>{} : strides[i]));
      args.push_back(static_cast<int>(i));
    }
    std::vector<TapeInstruction> tape;
    std::vector<TapeResult> results;
    for (size_t i = 0; i < ops.size(); ++i) {
      const DType to = ops[i].is_test ? kBool : type;
      tape.push_back({ops[i].op, args, to, low, high});
      results.push_back(
          {static_cast<int>(i), contiguous_view(memory[dtypes.size() + i], to, shape)});
    }
    specs.emplace_back(TapeSpec{shape, operands, tape, results});
  });
}

const std::vector<OpCase> kComparisons = {{"eq", true}, {"ne", true}, {"lt", true},
                                          {"le", true}, {"gt", true}, {"ge", true}};

std::vector<OpCase> with_comparisons(std::vector<OpCase> ops) {
  ops.insert(ops.end(), kComparisons.begin(), kComparisons.end());
  return ops;
}

void add_float_ops(SpecList& list, DType dtype) {
  const std::string type(dtype_name(dtype));
  const std::vector<OpCase> exact = {{"neg"},   {"square"}, {"abs"},  {"sign"},           {"floor"},
                                     {"round"}, {"relu"},   {"copy"}, {"is_finite", true}};
  const std::vector<OpCase> functions = {{"exp"},  {"expm1"},     {"tanh"}, {"sigmoid"},
                                         {"erf"},  {"softplus"},  {"sin"},  {"cos"},
                                         {"gelu"}, {"gelu_tanh"}, {"silu"}};
  const std::vector<OpCase> of_positive = {{"log"}, {"log1p"}, {"sqrt"}, {"rsqrt"}, {"reciprocal"}};
  for (Values values : {Values::kSigned, Values::kSpecial}) {
    const std::string what = type + (values == Values::kSpecial ? " special" : "");
    add_ops(list, "exact unary " + what, exact, {dtype}, values, {259}, {});
    add_ops(list, "roots " + what, of_positive, {dtype},
            values == Values::kSpecial ? values : Values::kPositive, {3, 111}, {});
    add_ops(list, "arithmetic " + what,
            with_comparisons({{"add"}, {"sub"}, {"mul"}, {"div"}, {"max"}, {"min"}}),
            {dtype, dtype}, values, {7, 63}, {});
  }
  add_ops(list, "functions " + type, functions, {dtype}, Values::kSigned, {2, 1031}, {});
  add_ops(list, "gradients " + type, {{"gelu_grad"}, {"gelu_tanh_grad"}, {"silu_grad"}},
          {dtype, dtype}, Values::kSigned, {2, 1031}, {});
  add_ops(list, "pow " + type, {{"pow"}}, {dtype, dtype}, Values::kPositive, {300}, {});
  add_ops(list, "clamp " + type, {{"clamp"}}, {dtype}, Values::kSigned, {300}, {}, -0.5, 1.25);
  add_ops(list, "select " + type, {{"select"}}, {kBool, dtype, dtype}, Values::kSigned, {5, 77},
          {{77, 1}, {77, 1}, {0, 0}});
  add_ops(list, "channel_affine " + type, {{"channel_affine"}}, {dtype, dtype, dtype},
          Values::kSigned, {40, 24}, {{24, 1}, {0, 1}, {0, 1}});
}

void add_integer_ops(SpecList& list, DType dtype) {
  const std::string type(dtype_name(dtype));
  add_ops(list, "unary " + type, {{"neg"}, {"square"}, {"abs"}, {"sign"}, {"relu"}, {"copy"}},
          {dtype}, Values::kSmallIntegers, {261}, {});
  add_ops(list, "binary " + type,
          with_comparisons({{"add"}, {"sub"}, {"mul"}, {"div"}, {"max"}, {"min"}}), {dtype, dtype},
          Values::kSmallIntegers, {9, 31}, {});
  add_ops(list, "clamp " + type, {{"clamp"}}, {dtype}, Values::kSmallIntegers, {300}, {}, 1, 3);
  add_ops(list, "select " + type, {{"select"}}, {kBool, dtype, dtype}, Values::kSmallIntegers, {65},
          {});
}

// Broadcasts and strides: operands a and b over `shape`.
void add_broadcasts(SpecList& list, DType dtype) {
  struct Case {
    const char* name;
    Shape shape;
    std::vector<int64_t> a, b;
  };
  const std::vector<Case> cases = {
      {"row", {33, 40}, {40, 1}, {0, 1}},
      {"column", {33, 40}, {40, 1}, {1, 0}},
      {"scalar", {33, 40}, {40, 1}, {0, 0}},
      {"outer", {13, 21}, {1, 0}, {0, 1}},
      {"long row", {3, 5000}, {5000, 1}, {0, 1}},
      {"long column", {3000, 4}, {4, 1}, {1, 0}},
      {"middle", {4, 9, 16}, {144, 16, 1}, {16, 0, 1}},
      {"four", {2, 3, 5, 7}, {105, 35, 7, 1}, {0, 7, 0, 1}},
      {"transposed", {20, 30}, {30, 1}, {1, 20}},
      {"backwards", {20, 30}, {30, 1}, {30, 1}},
      {"one", {1}, {1}, {1}},
      {"ones", {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
      {"empty", {0, 5}, {5, 1}, {0, 1}},
      {"rank 0", {}, {}, {}},
      {"whole block", {256}, {1}, {1}},
      {"many blocks", {70000}, {1}, {1}},
  };
  for (const Case& c : cases) {
    const SpecArray whole = operand(dtype, c.shape);
    const bool is_backwards = std::string_view(c.name) == "backwards";
    list.add(fmt::format("broadcast {} {}", c.name, dtype_name(dtype)),
             {whole, whole, result(dtype, c.shape)},
             [=](KernelSpecs& specs, const SpecPointers& memory) {
               View b = view_of(memory[1], dtype, c.shape, c.b);
               if (is_backwards) {  // from the last element on
                 b.data += (whole.size - 1) * b.item_size();
                 b.strides = {-30, -1};
               }
               specs.emplace_back(TapeSpec{c.shape,
                                           {view_of(memory[0], dtype, c.shape, c.a), b},
                                           {{"sub", {0, 1}, dtype}},
                                           {{0, contiguous_view(memory[2], dtype, c.shape)}}});
             });
  }
}

// x + 1 in its own place, arrays off their alignment, results of several types.
void add_places(SpecList& list, DType dtype) {
  const Shape shape = {31, 37};
  SpecArray updated = operand(dtype, shape);
  updated.is_updated = true;
  list.add(fmt::format("in place {}", dtype_name(dtype)), {updated, operand(dtype, {37})},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             const View x = contiguous_view(memory[0], dtype, shape);
             specs.emplace_back(TapeSpec{
                 shape,
                 {x, view_of(memory[1], dtype, shape, {0, 1})},
                 {{"mul", {0, 1}, dtype}, {"constant", {}, dtype, 0.25}, {"add", {2, 3}, dtype}},
                 {{2, x}}});
           });
  for (int64_t shift : {1, 2, 3}) {
    SpecArray a = operand(dtype, {1027}), b = a, c = result(dtype, 1027), d = result(kBool, 1027);
    a.shift = shift;
    c.shift = 3 - shift;
    d.shift = shift;
    list.add(fmt::format("shifted by {} {}", shift, dtype_name(dtype)), {a, b, c, d},
             [=](KernelSpecs& specs, const SpecPointers& memory) {
               specs.emplace_back(TapeSpec{{1027},
                                           {contiguous_view(memory[0], dtype, {1027}),
                                            contiguous_view(memory[1], dtype, {1027})},
                                           {{"max", {0, 1}, dtype}, {"lt", {0, 1}, kBool}},
                                           {{0, contiguous_view(memory[2], dtype, {1027})},
                                            {1, contiguous_view(memory[3], kBool, {1027})}}});
             });
  }
}

// gelu by erf, and the mask of where it is positive, of (rows, columns) with a bias.
void add_chain(SpecList& list, DType dtype, const Shape& shape) {
  list.add(fmt::format("chain {} {}", dtype_name(dtype), shape_string(shape)),
           {operand(dtype, shape), operand(dtype, {shape.back()}), result(dtype, shape),
            result(kI32, shape)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(TapeSpec{shape,
                                         {contiguous_view(memory[0], dtype, shape),
                                          view_of(memory[1], dtype, shape, {0, 1})},
                                         {{"add", {0, 1}, dtype},  // 2
                                          {"constant", {}, dtype, 0.70710678118654752},
                                          {"mul", {2, 3}, dtype},        // 4
                                          {"erf", {4}, dtype},           // 5
                                          {"constant", {}, dtype, 1},    // 6
                                          {"add", {5, 6}, dtype},        // 7
                                          {"mul", {2, 7}, dtype},        // 8
                                          {"constant", {}, dtype, 0.5},  // 9
                                          {"mul", {8, 9}, dtype},        // 10
                                          {"gt", {2, 9}, kBool},         // 11
                                          {"cast", {11}, kI32}},         // 12
                                         {{8, contiguous_view(memory[2], dtype, shape)},
                                          {10, contiguous_view(memory[3], kI32, shape)}}});
           });
}

}  // namespace

std::vector<KernelCase> tape_specs() {
  SpecList list;
  for (DType dtype : float_dtypes())
    add_float_ops(list, dtype);
  for (DType dtype : {DType::kUInt8, kI32, DType::kUInt32, DType::kInt64})
    add_integer_ops(list, dtype);
  add_ops(list, "logic", {{"logical_and", true}, {"logical_or", true}, {"eq", true}, {"ne", true}},
          {kBool, kBool}, Values::kBool, {77}, {});
  add_ops(list, "logical_not", {{"logical_not", true}, {"copy", true}}, {kBool}, Values::kBool,
          {77}, {});
  add_broadcasts(list, kF32);
  for (DType dtype : {kF32, DType::kFloat64, DType::kBFloat16})
    add_places(list, dtype);
  for (DType dtype : float_dtypes())
    add_chain(list, dtype, {31, 129});
  add_chain(list, kF32, {1, 1});
  add_chain(list, kF32, {300, 512});
  add_chain(list, kF32, {2200, 1001});  // more than all blocks of a launch do in one turn
  add_ops(list, "turns", {{"add"}}, {DType::kFloat64, DType::kFloat64}, Values::kSigned, {1100001},
          {});
  return list.take();
}

// From every type to every other, as the CPU has them: 16 bits by way of float32.
std::vector<KernelCase> cast_specs() {
  SpecList list;
  const std::vector<DType> whole = {kBool,         DType::kUInt8, kI32,           DType::kUInt32,
                                    DType::kInt64, kF32,          DType::kFloat64};
  const auto add = [&](DType from, const std::vector<DType>& to, Values values,
                       const std::string& what) {
    std::vector<SpecArray> arrays = {operand(from, {515}, values)};
    for (DType dtype : to)
      arrays.push_back(result(dtype, 515));
    list.add(fmt::format("cast {}{}", dtype_name(from), what), arrays,
             [=](KernelSpecs& specs, const SpecPointers& memory) {
               std::vector<TapeInstruction> tape;
               std::vector<TapeResult> results;
               for (size_t i = 0; i < to.size(); ++i) {
                 tape.push_back({"cast", {0}, to[i]});
                 results.push_back(
                     {static_cast<int>(i), contiguous_view(memory[i + 1], to[i], {515})});
               }
               specs.emplace_back(
                   TapeSpec{{515}, {contiguous_view(memory[0], from, {515})}, tape, results});
             })
        .is_exact = true;
  };
  for (DType from : whole)
    add(from, whole,
        from == kBool       ? Values::kBool
        : is_floating(from) ? Values::kFewValues
                            : Values::kSmallIntegers,
        "");
  add(kF32, {kBool, DType::kUInt8, kI32, DType::kUInt32, DType::kInt64}, Values::kPositive,
      " positive");
  add(kF32, {kI32, DType::kInt64, DType::kFloat64}, Values::kSigned, " signed");
  add(DType::kFloat64, {kI32, DType::kInt64, kF32}, Values::kSigned, " signed");
  for (DType half : {DType::kBFloat16, DType::kFloat16}) {
    add(kF32, {half, kF32}, Values::kSigned, fmt::format(" to {}", dtype_name(half)));
    add(kF32, {half, DType::kFloat64}, Values::kSpecial,
        fmt::format(" special to {}", dtype_name(half)));
    add(half, {kF32}, Values::kSigned, " widened");
    add(half, {kF32}, Values::kSpecial, " special");
  }
  return list.take();
}

namespace {

// to[...] = from[...] over `shape`; `source_first`: element where `from` begins.
struct CopyCase {
  const char* name;
  Shape shape;
  int64_t from_size, to_size;
  std::vector<int64_t> from_strides, to_strides;
  int64_t source_first = 0, target_first = 0;
};

void add_copy(SpecList& list, DType dtype, const CopyCase& c) {
  SpecArray to{dtype, c.to_size, Values::kSmallIntegers};
  to.is_updated = true;  // gaps stay
  list.add(fmt::format("copy {} {}", c.name, dtype_name(dtype)),
           {{dtype, c.from_size, Values::kSmallIntegers}, to},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             View from = view_of(memory[0], dtype, c.shape, c.from_strides);
             View target = view_of(memory[1], dtype, c.shape, c.to_strides);
             from.data += c.source_first * from.item_size();
             target.data += c.target_first * target.item_size();
             specs.emplace_back(CopySpec{from, target});
           });
}

}  // namespace

std::vector<KernelCase> copy_specs() {
  SpecList list;
  const std::vector<CopyCase> cases = {
      {"whole", {1000}, 1000, 1000, {1}, {1}},
      {"transposed", {40, 16}, 640, 640, {1, 40}, {16, 1}},
      {"transposed odd", {129, 67}, 8643, 8643, {1, 129}, {67, 1}},
      {"transposed planes backwards", {3, 16, 12}, 576, 576, {-192, 1, 16}, {192, 12, 1}, 384},
      {"rotated", {8, 5, 16}, 640, 640, {5, 1, 40}, {80, 16, 1}},
      {"heads", {2, 7, 4, 8}, 448, 448, {224, 8, 56, 1}, {224, 32, 8, 1}},
      {"channels last", {3, 8, 6, 6}, 864, 864, {288, 1, 48, 8}, {288, 36, 6, 1}},
      {"slice", {10, 6}, 600, 60, {60, 3}, {6, 1}, 64, 0},
      {"into a part", {10, 6}, 60, 200, {6, 1}, {20, 1}, 0, 7},
      {"into every fifth", {12}, 12, 60, {1}, {5}, 0, 2},
      {"backwards", {9, 11}, 99, 99, {11, -1}, {11, 1}, 10, 0},
      {"backwards rows", {9, 11}, 99, 99, {-11, 1}, {11, 1}, 88, 0},
      {"repeated rows", {50, 24}, 24, 1200, {0, 1}, {24, 1}},
      {"repeated columns", {50, 24}, 50, 1200, {1, 0}, {24, 1}},
      {"repeated middle", {4, 9, 16}, 64, 576, {16, 0, 1}, {144, 16, 1}},
      {"one number", {33, 9}, 1, 297, {0, 0}, {9, 1}},
      {"shifted", {999}, 1003, 1003, {1}, {1}, 3, 1},
      {"into a column", {300}, 300, 1800, {1}, {6}, 0, 2},
      {"out of a column", {300}, 1800, 300, {6}, {1}, 2, 0},
      {"from column to column", {300}, 1800, 900, {6}, {3}},
      {"one element", {1}, 1, 1, {1}, {1}},
      {"nothing", {0, 4}, 4, 4, {4, 1}, {4, 1}},
      {"large", {100000}, 100000, 100000, {1}, {1}},
  };
  for (const CopyCase& c : cases)
    add_copy(list, kF32, c);
  for (DType dtype : {kBool, DType::kUInt8, DType::kFloat16, DType::kBFloat16, kI32, DType::kUInt32,
                      DType::kInt64, DType::kFloat64}) {
    for (size_t i : {0u, 1u, 7u, 8u, 10u, 12u, 16u})
      add_copy(list, dtype, cases[i]);
  }
  const CopyCase many_tiles = {"many tiles", {1500, 1501}, 2251500, 2251500, {1, 1500}, {1501, 1}};
  add_copy(list, DType::kUInt8, many_tiles);
  for (DType dtype : {kBool, DType::kUInt8, kI32, DType::kUInt32, DType::kInt64, kF32,
                      DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
    for (int64_t size : {1, 777, 0, 40000}) {
      const double value = is_floating(dtype) ? -0.375 : 1;
      list.add(fmt::format("fill {} {}", size, dtype_name(dtype)), {result(dtype, size)},
               [=](KernelSpecs& specs, const SpecPointers& memory) {
                 specs.emplace_back(FillSpec{contiguous_view(memory[0], dtype, {size}), value});
               });
    }
  }
  for (DType dtype : {kI32, DType::kInt64, kF32, DType::kFloat64}) {
    for (size_t axis : {0u, 1u, 2u}) {
      list.add(
          fmt::format("iota axis {} {}", axis, dtype_name(dtype)), {result(dtype, 7 * 5 * 30)},
          [=](KernelSpecs& specs, const SpecPointers& memory) {
            specs.emplace_back(IotaSpec{contiguous_view(memory[0], dtype, {7, 5, 30}), axis, 100});
          });
    }
  }
  list.add("a group of copies into one array",
           {operand(kF32, {50}), operand(kF32, {70}), result(kF32, 120)},
           [](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(BeginGroup{});
             specs.emplace_back(CopySpec{contiguous_view(memory[0], kF32, {50}),
                                         contiguous_view(memory[2], kF32, {50})});
             specs.emplace_back(CopySpec{contiguous_view(memory[1], kF32, {70}),
                                         contiguous_view(memory[2] + 200, kF32, {70})});
             specs.emplace_back(EndGroup{});
           });
  return list.take();
}

}  // namespace meshtrain::test
