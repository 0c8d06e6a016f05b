// Recurrent cells over all steps.
#include "specs.h"

namespace meshtrain::test {
namespace {

// An array of a case, and where the spec has it.
struct RnnArray {
  SpecArray array;
  std::byte* RnnArrays::*result = nullptr;
  const std::byte* RnnArrays::*operand = nullptr;
};

void add_pass(SpecList& list, const RnnShape& shape, bool is_gradient, bool has_mask, bool has_drop,
              std::string_view name) {
  const bool is_lstm = shape.cell == RnnCell::kLstm;
  const bool is_gru = shape.cell == RnnCell::kGru,
             is_reset_after = shape.cell == RnnCell::kGruResetAfter;
  const int64_t states = shape.state_elements(), sequence = states * shape.steps;
  const int64_t drops = shape.batch * shape.pixels() * shape.columns();
  const int64_t products = drops * shape.steps;
  std::vector<RnnArray> arrays;
  const auto operand = [&](const std::byte* RnnArrays::*place, int64_t size) {
    arrays.push_back({{shape.dtype, size}, nullptr, place});
  };
  const auto result_at = [&](std::byte* RnnArrays::*place, int64_t size) {
    arrays.push_back({result(shape.dtype, size), place, nullptr});
  };
  if (!is_gradient)
    operand(&RnnArrays::x, products);
  operand(&RnnArrays::kernel, shape.kernel_elements());
  operand(&RnnArrays::h0, states);
  if (is_lstm)
    operand(&RnnArrays::c0, states);
  if (is_reset_after)
    operand(&RnnArrays::bias, shape.columns());
  if (has_mask)
    arrays.push_back(
        {{kBool, shape.batch * shape.steps, Values::kBool}, nullptr, &RnnArrays::mask});
  if (has_drop)
    operand(&RnnArrays::drop, drops);
  const auto over_steps = [&](std::byte* RnnArrays::*place, int64_t size,
                              Values values = Values::kSigned) {
    if (is_gradient)
      arrays.push_back({{shape.dtype, size, values}, place, nullptr});
    else
      result_at(place, size);
  };
  over_steps(&RnnArrays::h, sequence);
  if (is_lstm)
    over_steps(&RnnArrays::c, sequence);
  // Dropped: without gates, as in inference.
  if (is_gradient || (shape.cell != RnnCell::kSimple && !has_drop))
    over_steps(&RnnArrays::gates, shape.batch * shape.pixels() * shape.steps * shape.gate_columns(),
               Values::kUnit);
  if (is_gradient) {
    operand(&RnnArrays::dh, sequence);
    if (is_lstm)
      operand(&RnnArrays::dc, sequence);
    result_at(&RnnArrays::dx, products);
    result_at(&RnnArrays::dh0, states);
    if (is_lstm)
      result_at(&RnnArrays::dc0, states);
    if (is_gru || is_reset_after)
      result_at(&RnnArrays::extra, is_gru ? sequence : products);
  }
  std::vector<SpecArray> given;
  for (const RnnArray& each : arrays)
    given.push_back(each.array);
  list.add(fmt::format("{} {} {}", name, dtype_name(shape.dtype),
                       is_gradient ? "gradient" : "forward"),
           given,
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             ScanRnnSpec spec{shape, is_gradient, {}};
             for (size_t i = 0; i < arrays.size(); ++i) {
               if (arrays[i].result != nullptr)
                 spec.arrays.*arrays[i].result = memory[i];
               else
                 spec.arrays.*arrays[i].operand = memory[i];
             }
             specs.emplace_back(spec);
           })
      .scale = 50;
}

// States that do not fit into shared memory of a GPU.
void add_large_images(SpecList& list) {
  for (DType dtype : float_dtypes()) {
    for (RnnCell cell : {RnnCell::kLstm, RnnCell::kGru}) {
      RnnShape shape;
      shape.dtype = dtype;
      shape.cell = cell;
      shape.batch = 2;
      shape.steps = 2;
      shape.units = 6;
      shape.space = {1, 18, 20};
      shape.window = {1, 2, 3};
      for (bool is_gradient : {false, true})
        add_pass(list, shape, is_gradient, cell == RnnCell::kLstm, cell == RnnCell::kGru,
                 cell == RnnCell::kLstm ? "lstm of large images" : "gru of large images");
    }
  }
}

}  // namespace

std::vector<KernelCase> rnn_specs() {
  SpecList list;
  for (DType dtype : float_dtypes()) {
    for (const auto& [cell, name] : {std::pair{RnnCell::kSimple, "simple"},
                                     {RnnCell::kLstm, "lstm"},
                                     {RnnCell::kGru, "gru"},
                                     {RnnCell::kGruResetAfter, "gru reset after"}}) {
      RnnShape shape;
      shape.dtype = dtype;
      shape.cell = cell;
      shape.batch = 5;
      shape.steps = 3;
      shape.units = 4;
      const bool has_mask = cell == RnnCell::kGru || cell == RnnCell::kLstm;
      for (bool is_gradient : {false, true})
        add_pass(list, shape, is_gradient, has_mask, false, name);
      const std::string dropped = fmt::format("{}, states dropped", name);
      shape.recurrent = RnnActivation::kHardSigmoid;
      for (bool is_gradient : {false, true})
        add_pass(list, shape, is_gradient, has_mask, true, dropped);
      // Units that several groups of threads of a GPU add up, in accesses of 16 bytes and of one.
      for (int64_t units : {44, 35}) {
        shape.batch = 2;
        shape.units = units;
        const std::string wide = fmt::format("{} of {} units", name, units);
        for (bool is_gradient : {false, true})
          add_pass(list, shape, is_gradient, has_mask, units == 35, wide);
      }
      shape.batch = 5;
      shape.units = 4;
      // More pixels than rows of a block on a CPU, and more units than threads on a GPU.
      shape.space = {2, 5, 9};
      shape.window = {1, 3, 4};
      const std::string images = fmt::format("{} of images", name);
      for (bool is_gradient : {false, true})
        add_pass(list, shape, is_gradient, has_mask, cell == RnnCell::kLstm, images);
    }
  }
  add_large_images(list);
  for (int f = 0; f <= static_cast<int>(RnnActivation::kHardTanh); ++f) {
    RnnShape shape;
    shape.activation = static_cast<RnnActivation>(f);
    shape.batch = 3;
    // An exponential of itself is as large as its rounding errors.
    shape.steps = shape.activation == RnnActivation::kExponential ? 1 : 2;
    shape.units = 4;
    const std::string name = fmt::format("simple of activation {}", f);
    for (bool is_gradient : {false, true})
      add_pass(list, shape, is_gradient, false, false, name);
  }
  return list.take();
}

}  // namespace meshtrain::test
