// Lookups, random numbers, warps, optimizers, collectives.
#include "specs.h"

namespace meshtrain::test {
namespace {

struct LookupCase {
  int64_t ids, rows, row_elements, start, global_rows;
};

LookupShape shape_of(DType dtype, const LookupCase& c) {
  return {c.ids, c.rows, c.row_elements, c.start, c.global_rows, dtype};
}

std::string text_of(DType dtype, const LookupCase& c) {
  return fmt::format("{} {} ids rows {} of {} from {} x {}", dtype_name(dtype), c.ids, c.rows,
                     c.global_rows, c.start, c.row_elements);
}

Values numbers_of(DType dtype) {
  return is_floating(dtype) ? Values::kSigned : Values::kSmallIntegers;
}

void add_gather(SpecList& list, DType dtype, const LookupCase& c) {
  const LookupShape shape = shape_of(dtype, c);
  list.add("gather_rows " + text_of(dtype, c),
           {{dtype, c.rows * c.row_elements, numbers_of(dtype)},
            operand(kI32, {c.ids}, Values::kIds),
            result(dtype, c.ids * c.row_elements)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(GatherRowsSpec{shape, memory[0], memory[1], memory[2]});
           })
      .is_exact = true;
}

void add_lookups(SpecList& list, DType dtype, const LookupCase& c) {
  const LookupShape shape = shape_of(dtype, c);
  const Values numbers = numbers_of(dtype);
  const SpecArray ids = operand(kI32, {c.ids}, Values::kIds);
  const std::string what = text_of(dtype, c);
  add_gather(list, dtype, c);
  list.add("scatter_add_rows " + what,
           {{dtype, c.ids * c.row_elements, numbers}, ids, result(dtype, c.rows * c.row_elements)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(ScatterAddRowsSpec{shape, memory[0], memory[1], memory[2]});
           })
      .scale = 2;
  list.add("one_hot " + what, {ids, result(dtype, c.ids * c.rows)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(OneHotSpec{shape, memory[0], memory[1]});
           })
      .is_exact = true;
}

}  // namespace

std::vector<KernelCase> lookup_specs() {
  SpecList list;
  const std::vector<LookupCase> cases = {{50, 12, 8, 0, 12},  {50, 6, 5, 6, 12},
                                         {7, 10, 300, 0, 10}, {1000, 11, 1, 0, 11},
                                         {1, 1, 1, 3, 20},    {300, 400, 16, 0, 400}};
  for (const LookupCase& c : cases)
    add_lookups(list, kF32, c);
  for (DType dtype : {kF64, kI32, DType::kInt64, DType::kBFloat16, DType::kFloat16}) {
    add_lookups(list, dtype, cases[0]);
    add_lookups(list, dtype, cases[1]);
  }
  for (DType dtype : {kF32, DType::kBFloat16, DType::kFloat16})
    add_lookups(list, dtype, {5000, 12, 3, 0, 12});  // many of each
  add_lookups(list, kF32, {2500, 700, 70, 0, 700});
  for (const LookupCase& c : cases)  // rows of a batch that are no multiple of 4 bytes, and others
    add_gather(list, DType::kUInt8, c);
  add_gather(list, DType::kUInt8, {64, 100, 785, 0, 100});
  add_gather(list, DType::kUInt8, {64, 100, 1, 0, 100});
  return list.take();
}

std::vector<KernelCase> random_specs() {
  struct Case {
    Shape shape;
    uint64_t first;
    std::vector<int64_t> index_strides;
  };
  const std::vector<Case> cases = {
      {{16, 8}, 0, {8, 1}},
      {{1000}, 3, {1}},
      {{64, 100}, 100, {400, 1}},    // columns of a wider tensor
      {{8, 3, 16}, 17, {16, 0, 1}},  // shared along the middle
      {{8, 3, 16}, 5, {3, 1, 0}},    // shared along the last
      {{20, 10}, 0, {1, 20}},        // no neighbours
      {{1}, (uint64_t{1} << 34) - 1, {1}},
      {{70000}, (uint64_t{1} << 34) - 9, {1}},
      {{0}, 0, {1}},
      {{700, 800}, 1, {801, 1}},  // more than all blocks of a launch do in one turn
      {{5, 7}, 2, {0, 0}},
  };
  SpecList list;
  for (const Case& c : cases) {
    RandomShard shard;
    shard.shape = c.shape;
    shard.first = c.first;
    shard.index_strides = c.index_strides;
    shard.seed = 0x123456789ABCDEF;
    shard.stream = 0x89ABCDEF;
    const std::string what = fmt::format("{} from {} strides {}", shape_string(c.shape), c.first,
                                         fmt::join(c.index_strides, ", "));
    const SpecArray step = operand(DType::kInt64, {1}, Values::kStep);
    list.add("random_bits " + what, {step, result(DType::kUInt32, c.shape)},
             [=](KernelSpecs& specs, const SpecPointers& memory) {
               RandomShard here = shard;
               here.step = memory[0];
               specs.emplace_back(RandomBitsSpec{here, memory[1]});
             });
    for (DType dtype : float_dtypes()) {
      for (double rate : {0.0, 0.4}) {
        SpecArray x = operand(dtype, c.shape), out = result(dtype, c.shape);
        x.is_updated = rate > 0 && dtype == kF64;  // in place
        list.add(fmt::format("dropout {} {} {}", rate, dtype_name(dtype), what), {step, x, out},
                 [=](KernelSpecs& specs, const SpecPointers& memory) {
                   RandomShard here = shard;
                   here.step = memory[0];
                   std::byte* to = memory[x.is_updated ? 1 : 2];
                   specs.emplace_back(DropoutSpec{here, dtype, rate, memory[1], to});
                 })
            .is_exact = true;
      }
    }
  }
  return list.take();
}

namespace {

void add_warp(SpecList& list, const WarpShape& shape, bool transposed, Values transforms) {
  const int64_t size = shape.images * shape.height * shape.width * shape.channels;
  list.add(fmt::format("warp of {} terms {} fill {}{}{}{}", shape.terms, dtype_name(shape.dtype),
                       static_cast<int>(shape.fill), shape.nearest ? " nearest" : "",
                       transposed ? " transposed" : "",
                       transforms == Values::kSpecial ? " special" : ""),
           {{shape.dtype, size, Values::kSigned},
            {kF64, shape.numbers() * shape.images, transforms},
            result(shape.dtype, size)},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(AffineWarpSpec{shape, transposed, memory[0], memory[1], memory[2]});
           })
      .scale = 5;
}

}  // namespace

std::vector<KernelCase> warp_specs() {
  SpecList list;
  for (DType dtype : {kF32, kF64}) {
    for (WarpFill fill :
         {WarpFill::kConstant, WarpFill::kNearest, WarpFill::kWrap, WarpFill::kReflect}) {
      for (bool nearest : {false, true}) {
        for (bool transposed : {false, true}) {
          WarpShape shape{3, 9, 7, 2, dtype, nearest, fill, 0.75};
          if (dtype == kF64)
            shape = {1, 20, 21, 1, dtype, nearest, fill, 0};
          add_warp(list, shape, transposed, Values::kSigned);
          shape.terms = 8;
          add_warp(list, shape, transposed, Values::kSigned);
          shape.terms = 0;
          add_warp(list, shape, transposed, Values::kSigned);
          shape.terms = 6;
          shape.images = 6;
          add_warp(list, shape, transposed, Values::kSpecial);  // places far away, or nowhere
        }
      }
    }
  }
  return list.take();
}

namespace {

struct RuleCase {
  const char* name;
  OptimizerRule rule;
  size_t slots;
  double momentum, variant;
};

// Arrays: rate, decay, gradient, parameter, slots; updated in place, or into arrays behind them.
void add_optimizer(SpecList& list, const RuleCase& c, DType dtype, int64_t size, bool has_decay,
                   bool in_place, int64_t shift = 0) {
  OptimizerSpec spec;
  spec.rule = c.rule;
  spec.dtype = dtype;
  spec.num_elements = size;
  spec.args.scalars[kMomentumFactor] = c.momentum;
  spec.args.scalars[kRho] = 0.9;
  spec.args.scalars[kBeta1] = 0.9;
  spec.args.scalars[kBeta2] = 0.999;
  spec.args.scalars[kEpsilonTerm] = c.rule == OptimizerRule::kRmsprop ? 5 : 1e-7;
  spec.args.scalars[kVariant] = c.variant;
  const SpecArray scalar = operand(dtype, {1}, Values::kPositive);
  std::vector<SpecArray> arrays = {scalar, scalar};
  for (size_t i = 0; i < 2 + c.slots; ++i) {
    SpecArray array = operand(dtype, {size}, i < 2 ? Values::kSigned : Values::kPositive);
    array.is_updated = in_place && i > 0;
    array.shift = shift;
    arrays.push_back(array);
  }
  for (size_t i = 0; i < 1 + c.slots && !in_place; ++i) {
    arrays.push_back(result(dtype, size));
    arrays.back().shift = shift;
  }
  list.add(fmt::format("optimizer {} {} {}{}{} shift {}", c.name, dtype_name(dtype), size,
                       has_decay ? " decay" : "", in_place ? " in place" : "", shift),
           arrays, [=](KernelSpecs& specs, const SpecPointers& memory) {
             OptimizerSpec here = spec;
             here.rate = memory[0];
             here.decay = has_decay ? memory[1] : nullptr;
             here.args.grad = memory[2];
             here.args.param = memory[3];
             const size_t first = in_place ? 3 : 4 + c.slots;
             here.args.new_param = memory[first];
             for (size_t s = 0; s < c.slots; ++s) {
               here.args.slots[s] = memory[4 + s];
               here.args.new_slots[s] = memory[first + 1 + s];
             }
             specs.emplace_back(here);
           });
}

}  // namespace

std::vector<KernelCase> optimizer_specs() {
  const std::vector<RuleCase> rules = {
      {"sgd", OptimizerRule::kSgd, 0, 0, 0},
      {"momentum", OptimizerRule::kMomentum, 1, 0.9, 0},
      {"nesterov", OptimizerRule::kNesterov, 1, 0.9, 0},
      {"rmsprop", OptimizerRule::kRmsprop, 1, 0, 0},
      {"rmsprop momentum", OptimizerRule::kRmsprop, 2, 0.9, 0},
      {"rmsprop centered", OptimizerRule::kRmsprop, 2, 0, 1},
      {"rmsprop both", OptimizerRule::kRmsprop, 3, 0.9, 1},
      {"adam", OptimizerRule::kAdam, 2, 0, 0},
      {"adam amsgrad", OptimizerRule::kAdam, 3, 0, 1},
  };
  SpecList list;
  for (const RuleCase& rule : rules) {
    for (bool has_decay : {false, true}) {
      add_optimizer(list, rule, kF32, 1000, has_decay, true);
      add_optimizer(list, rule, kF64, 300, has_decay, false);
    }
    for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      add_optimizer(list, rule, dtype, 1000, true, true);
      add_optimizer(list, rule, dtype, 77, false, false, 1);
    }
    add_optimizer(list, rule, kF32, 77, false, false, 1);
    add_optimizer(list, rule, kF32, 1, true, true);
  }
  add_optimizer(list, rules[7], kF32, 200000, false, true);
  add_optimizer(list, rules[0], kF64, 1100003, false, false);
  return list.take();
}

namespace {

// A (rows, columns) part of a wider result from parts of several shards.
void add_combine(SpecList& list, Reduction reduction, DType dtype, int64_t sources, int64_t rows,
                 int64_t columns, int64_t regions, bool is_reversed = false) {
  const int64_t from_row = columns + 3, to_row = columns + 1,
                item = static_cast<int64_t>(dtype_size(dtype));
  const Values numbers = is_floating(dtype) ? Values::kSigned : Values::kSmallIntegers;
  SpecArray to{dtype, regions * rows * to_row, numbers};
  to.is_updated = true;
  list.add(fmt::format("combine {} {} {} of {} {}x{}{}", static_cast<int>(reduction),
                       dtype_name(dtype), regions, sources, rows, columns,
                       is_reversed ? " reversed" : ""),
           {{dtype, regions * sources * rows * from_row, numbers}, to},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             std::vector<Region> out;
             for (int64_t r = 0; r < regions; ++r) {
               Region region;
               region.to = memory[1] + r * rows * to_row * item;
               region.shape = {rows, columns};
               region.to_strides = {to_row, 1};
               region.from_strides = {from_row, 1};
               for (int64_t s = 0; s < sources; ++s) {
                 const int64_t source = is_reversed ? sources - 1 - s : s;
                 region.sources.push_back(memory[0] +
                                          ((source * regions + r) * rows * from_row + 2) * item);
               }
               out.push_back(std::move(region));
             }
             specs.emplace_back(CombineSpec{reduction, dtype, out});
           })
      .scale = 2;
}

}  // namespace

std::vector<KernelCase> combine_specs() {
  SpecList list;
  for (Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kMin}) {
    for (DType dtype : {kF32, kF64, DType::kBFloat16, DType::kFloat16, kI32, DType::kInt64}) {
      add_combine(list, reduction, dtype, 1, 5, 16, 3);
      add_combine(list, reduction, dtype, 4, 5, 16, 4);
    }
    add_combine(list, reduction, kF32, 2, 1, 5000, 2);
    add_combine(list, reduction, kF32, 2, 1, 5000, 3);
    add_combine(list, reduction, kF32, 8, 100, 1, 1);
    add_combine(list, reduction, kF32, 8, 1, 1, 8);
    add_combine(list, reduction, kF32, 64, 3, 20, 2);
  }
  add_combine(list, Reduction::kSum, DType::kBool, 1, 4, 9, 2);
  add_combine(list, Reduction::kSum, kF32, 2, 16, 16, 64);
  add_combine(list, Reduction::kSum, kF64, 2, 1, 600000, 2);
  add_combine(list, Reduction::kSum, kF32, 1024, 1, 40, 2);  // more than arguments of a launch
  add_combine(list, Reduction::kSum, kF32, 7, 3, 20, 60, true);
  for (const DType dtype : {kF32, DType::kBFloat16})
    add_combine(list, Reduction::kSum, dtype, 900, 2, 20, 2, true);  // and no one step apart
  add_combine(list, Reduction::kMax, kF32, 508, 1, 40, 1, true);
  return list.take();
}

}  // namespace meshtrain::test
