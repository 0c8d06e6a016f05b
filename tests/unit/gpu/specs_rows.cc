// What is computed row by row: softmax, normalization, cross-entropy, forward and backward, as the
// steps of a program ask for it.
#include <fmt/format.h>

#include <cmath>

#include "specs.h"

namespace meshtrain::test {
namespace {

// Calls between begin_rows and end_rows on arrays of one shape, rows along its last dimension.
class RowCalls {
 public:
  // `together`: otherwise as calls that have nothing to do with each other.
  RowCalls(KernelSpecs& specs, DType dtype, Shape shape, bool together)
      : dtype_(dtype),
        specs_(specs),
        together_(together),
        whole_(std::move(shape)),
        of_rows_(whole_) {
    of_rows_.back() = 1;
    reduced_.assign(whole_.size(), false);
    reduced_.back() = true;
    if (together_)
      specs.emplace_back(BeginRowFusion{});
  }

  View whole(std::byte* memory) const { return contiguous_view(memory, dtype_, whole_); }
  View of_rows(std::byte* memory) const { return contiguous_view(memory, dtype_, of_rows_); }
  // The same for all rows.
  View of_columns(std::byte* memory) const {
    View view = whole(memory);
    std::fill(view.strides.begin(), view.strides.end() - 1, 0);
    return view;
  }

  // Nobody reads it behind the rows.
  std::byte* own() { return add_scratch(specs_, num_elements(whole_) * item() + 1); }

  View reduce(Reduction reduction, const View& x, std::byte* to) {
    if (num_elements(whole_) > 0)  // steps whose results hold nothing make no calls
      specs_.emplace_back(ReduceSpec{reduction, x, reduced_, of_rows(to)});
    return of_rows(to);
  }
  View reduce(Reduction reduction, const View& x) { return reduce(reduction, x, own()); }

  // The last instruction's result, in an array as large as the largest operand.
  View tape(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape,
            std::byte* to) {
    bool is_whole = false;
    for (const View& view : operands)
      is_whole = is_whole || view.shape == whole_;
    const View out = is_whole ? whole(to) : of_rows(to);
    specs_.emplace_back(TapeSpec{
        out.shape, spread(operands, out), tape, {{static_cast<int>(tape.size()) - 1, out}}});
    return out;
  }
  View tape(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape) {
    return this->tape(operands, tape, own());
  }
  View binary(std::string_view op, const View& a, const View& b, std::byte* to) {
    return tape({a, b}, {{op, {0, 1}, dtype_}}, to);
  }
  View binary(std::string_view op, const View& a, const View& b) { return binary(op, a, b, own()); }

  void end(const std::vector<std::byte*>& read_later) {
    if (together_)
      specs_.emplace_back(EndRowFusion{{read_later.begin(), read_later.end()}});
  }

 private:
  int64_t item() const { return static_cast<int64_t>(dtype_size(dtype_)); }
  static std::vector<View> spread(std::vector<View> views, const View& out) {
    for (View& view : views) {
      for (size_t d = 0; d < view.rank(); ++d)
        view.strides[d] = view.shape[d] == 1 && out.shape[d] != 1 ? 0 : view.strides[d];
    }
    return views;
  }

  DType dtype_;
  KernelSpecs& specs_;
  bool together_;
  Shape whole_, of_rows_;
  std::vector<bool> reduced_;
};

struct Size {
  DType dtype;
  int64_t rows, columns;
  // Whether a reduction alone takes as many threads a row, and all of a row at once.
  bool has_bits_of_steps = true;
};

// In rows (or one), columns (or one); of the dtype of the case, or int32.
struct Array {
  bool has_rows = true, has_columns = true;
  Values values = Values::kSigned;
  bool is_updated = false;
};
constexpr Array kWhole{}, kUpdated{true, true, Values::kSigned, true};
constexpr Array kOfRows{true, false, Values::kPositive}, kOfColumns{false, true};
constexpr Array kIds{true, false, Values::kIds};
constexpr Array kResult{true, true, Values::kResult}, kRowResult{true, false, Values::kResult};

// x, p, the sums.
void add_softmax(RowCalls& calls, DType dtype, const SpecPointers& memory) {
  const View x = calls.whole(memory[0]);
  const View largest = calls.tape({calls.reduce(Reduction::kMax, x)}, {{"floor", {0}, dtype}});
  const View e = calls.tape({x, largest}, {{"sub", {0, 1}, dtype}, {"exp", {2}, dtype}});
  const View sum = calls.reduce(Reduction::kSum, e, memory[2]);
  calls.binary("div", e, sum, memory[1]);
  calls.end({memory[1], memory[2]});
}

// p, sums, dp; dx takes dp's place.
void add_softmax_grad(RowCalls& calls, DType dtype, const SpecPointers& memory) {
  const View p = calls.whole(memory[0]), sum = calls.of_rows(memory[1]);
  const View dp = calls.whole(memory[2]);
  const View part = calls.binary("div", dp, sum);
  const View terms = calls.tape({part, p}, {{"mul", {0, 1}, dtype}, {"neg", {2}, dtype}});
  const View inner = calls.reduce(Reduction::kSum, terms);
  calls.tape({part, inner, p, sum},
             {{"add", {0, 1}, dtype}, {"mul", {4, 2}, dtype}, {"mul", {5, 3}, dtype}}, memory[2]);
  calls.end({memory[2]});
}

// x, gamma, beta, y, what the gradient needs.
void add_layer_norm(RowCalls& calls, DType dtype, const SpecPointers& memory, int64_t columns) {
  const double n = static_cast<double>(columns);
  const View x = calls.whole(memory[0]);
  const auto mean = [&](const View& sum) {
    return calls.tape({sum}, {{"constant", {}, dtype, n}, {"div", {0, 1}, dtype}});
  };
  const View centre = mean(calls.reduce(Reduction::kSum, x));
  const View centred = calls.binary("sub", x, centre);
  const View square = calls.tape({centred}, {{"square", {0}, dtype}});
  const View variance = mean(calls.reduce(Reduction::kSum, square));
  const View scale = calls.tape(
      {variance}, {{"constant", {}, dtype, 1e-3}, {"add", {0, 1}, dtype}, {"rsqrt", {2}, dtype}},
      memory[5]);
  const View y = calls.binary("mul", centred, scale, memory[4]);
  calls.tape({y, calls.of_columns(memory[1]), calls.of_columns(memory[2])},
             {{"mul", {0, 1}, dtype}, {"add", {3, 2}, dtype}}, memory[3]);
  calls.end({memory[3], memory[4], memory[5]});
}

// xhat, the scales, gamma, dy; dx = scale (g - mean(g) - xhat mean(g xhat)), g = dy gamma; g xhat
// is read later, too.
void add_layer_norm_grad(RowCalls& calls, DType dtype, const SpecPointers& memory,
                         int64_t columns) {
  const double n = static_cast<double>(columns);
  const View xhat = calls.whole(memory[0]), scale = calls.of_rows(memory[1]);
  const View g = calls.binary("mul", calls.whole(memory[3]), calls.of_columns(memory[2]));
  const View product = calls.binary("mul", g, xhat, memory[5]);
  const View sum = calls.reduce(Reduction::kSum, g);
  const View other = calls.reduce(Reduction::kSum, product);
  const View inner = calls.tape({xhat, sum, other}, {{"constant", {}, dtype, n},
                                                     {"div", {1, 3}, dtype},
                                                     {"div", {2, 3}, dtype},
                                                     {"mul", {0, 5}, dtype},
                                                     {"add", {4, 6}, dtype}});
  calls.tape({g, inner, scale}, {{"sub", {0, 1}, dtype}, {"mul", {3, 2}, dtype}}, memory[4]);
  calls.end({memory[4], memory[5]});
}

// logits, ids, losses; the gradient takes the place of the logits.
void add_cross_entropy(RowCalls& calls, KernelSpecs& specs, const Size& size,
                       const SpecPointers& memory) {
  const DType dtype = size.dtype;
  const View x = calls.whole(memory[0]);
  std::byte* const hot = calls.own();
  LookupShape lookup;
  lookup.num_ids = size.rows;
  lookup.rows = lookup.global_rows = size.columns;
  lookup.dtype = dtype;
  specs.emplace_back(OneHotSpec{lookup, memory[1], hot});
  const View largest = calls.reduce(Reduction::kMax, x);
  const View e = calls.tape({x, largest}, {{"sub", {0, 1}, dtype}, {"exp", {2}, dtype}});
  const View sum = calls.reduce(Reduction::kSum, e);
  const View logs = calls.tape({x, largest, sum, calls.whole(hot)}, {{"sub", {0, 1}, dtype},
                                                                     {"log", {2}, dtype},
                                                                     {"sub", {4, 5}, dtype},
                                                                     {"mul", {6, 3}, dtype}});
  const View loss = calls.reduce(Reduction::kSum, logs);
  calls.tape({loss}, {{"neg", {0}, dtype}}, memory[2]);
  calls.tape({e, sum, calls.whole(hot)}, {{"div", {0, 1}, dtype}, {"sub", {3, 2}, dtype}},
             memory[0]);
  calls.end({memory[0], memory[2]});
}

using Make = std::function<void(RowCalls& calls, KernelSpecs& specs, const SpecPointers& memory)>;

void add_case(SpecList& list, const Size& size, std::string_view name,
              const std::vector<Array>& layout, double scale, const Make& make) {
  std::vector<SpecArray> arrays;
  for (const Array& array : layout) {
    arrays.push_back(operand(array.values == Values::kIds ? DType::kInt32 : size.dtype,
                             {array.has_rows ? size.rows : 1, array.has_columns ? size.columns : 1},
                             array.values));
    arrays.back().is_updated = array.is_updated;
  }
  const auto calls = [=](KernelSpecs& specs, const SpecPointers& memory, bool together) {
    RowCalls rows(specs, size.dtype, {size.rows, size.columns}, together);
    make(rows, specs, memory);
  };
  KernelCase& spec = list.add(
      fmt::format("rows {} {} ({}, {})", name, dtype_name(size.dtype), size.rows, size.columns),
      arrays, [=](KernelSpecs& specs, const SpecPointers& memory) { calls(specs, memory, true); });
  spec.scale = dtype_size(size.dtype) == 2 ? 4 * scale : scale;  // several steps of rounding
  spec.make_apart = [=](KernelSpecs& specs, const SpecPointers& memory) {
    calls(specs, memory, false);
  };
  spec.differs_apart_on_gpus = !size.has_bits_of_steps;
}

void add_all(SpecList& list, const Size& size) {
  add_case(list, size, "softmax", {kWhole, kResult, kRowResult}, 1,
           [=](RowCalls& calls, KernelSpecs&, const SpecPointers& memory) {
             add_softmax(calls, size.dtype, memory);
           });
  add_case(list, size, "softmax gradient", {kWhole, kOfRows, kUpdated},
           4 * std::sqrt(static_cast<double>(size.columns)),
           [=](RowCalls& calls, KernelSpecs&, const SpecPointers& memory) {
             add_softmax_grad(calls, size.dtype, memory);
           });
  add_case(list, size, "layer normalization",
           {kWhole, kOfColumns, kOfColumns, kResult, kResult, kRowResult}, 4,
           [=](RowCalls& calls, KernelSpecs&, const SpecPointers& memory) {
             add_layer_norm(calls, size.dtype, memory, size.columns);
           });
  add_case(list, size, "layer normalization gradient",
           {kWhole, kOfRows, kOfColumns, kWhole, kResult, kResult}, 4,
           [=](RowCalls& calls, KernelSpecs&, const SpecPointers& memory) {
             add_layer_norm_grad(calls, size.dtype, memory, size.columns);
           });
  add_case(list, size, "cross-entropy", {kUpdated, kIds, kRowResult}, 4,
           [=](RowCalls& calls, KernelSpecs& specs, const SpecPointers& memory) {
             add_cross_entropy(calls, specs, size, memory);
           });
}

}  // namespace

std::vector<KernelCase> row_specs() {
  SpecList list;
  for (const DType dtype : float_dtypes()) {
    for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 10}, {7, 1}, {7, 33}, {512, 10}, {7, 1000}, {3, 5000}, {0, 10}})
      add_all(list, {dtype, rows, columns});
  }
  for (const int64_t rows : {1, 7, 512}) {
    for (const int64_t columns : {1, 33, 1000, 5000})
      add_all(list, {DType::kFloat32, rows, columns, rows * columns != 7 * 5000});
  }
  add_all(list, {DType::kBFloat16, 512, 1000});
  add_all(list, {DType::kFloat64, 512, 1000});
  add_all(list, {DType::kFloat32, 2, 9000, false});   // more than fits in registers
  add_all(list, {DType::kFloat32, 2, 20000, false});  // apart: too few
  return list.take();
}

}  // namespace meshtrain::test
