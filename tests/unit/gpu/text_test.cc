// What GpuLowering writes: the text of typical kernels, and what commands promise to those who join
// and run them.
#include <fmt/format.h>

#include <set>

#include "backend/gpu/device_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "backend/gpu/module_text.h"
#include "support/golden.h"

namespace meshtrain::test {
namespace {

using gpu::Command;
using gpu::GpuLowering;
using gpu::Launch;

// Addresses of a device; nobody follows them.
class Memory {
 public:
  std::byte* take(int64_t bytes) {
    next_ += 256;
    std::byte* const out = next_;
    next_ += bytes / 256 * 256 + 256;
    return out;
  }
  View view(DType dtype, Shape shape) {
    return contiguous_view(take(num_elements(shape) * static_cast<int64_t>(dtype_size(dtype))),
                           dtype, std::move(shape));
  }
  bool holds(uint64_t argument) const {
    return argument >= reinterpret_cast<uint64_t>(kBegin) &&
           argument < reinterpret_cast<uint64_t>(next_);
  }

 private:
  static inline std::byte* const kBegin = reinterpret_cast<std::byte*>(uint64_t{0x7f0000000000});
  std::byte* next_ = kBegin;
};

View with_strides(View view, std::vector<int64_t> strides) {
  view.strides = std::move(strides);
  return view;
}

struct Made {
  Memory memory;
  GpuLowering lowering{[this](int64_t bytes) { return memory.take(bytes); }};

  Made() { lowering.lower(StepSpec{"test"}); }
  // The launches since the last call.
  std::vector<Launch> launches() {
    std::vector<Launch> out;
    for (const Command& command : lowering.take())
      out.push_back(std::get<Launch>(command.what));
    return out;
  }
  std::string text(std::string_view what) {
    std::string out;
    for (const Launch& launch : launches()) {
      out += fmt::format(
          "// {}: {} blocks, {} arguments, {} bytes of shared memory{}\n{} {{\n{}}}\n\n", what,
          launch.blocks, launch.args.size(), launch.body->shared_bytes,
          launch.body->has_barriers ? ", barriers" : "", launch.body->name, launch.body->text);
    }
    return out;
  }
};

// relu(x + bias) and whether it is positive.
void add_dense_tail(Made& made, DType dtype, const Shape& shape) {
  const View x = made.memory.view(dtype, shape);
  const View bias = with_strides(made.memory.view(dtype, shape), {0, 1});
  made.lowering.lower(TapeSpec{shape,
                               {x, bias},
                               {{"add", {0, 1}, dtype},
                                {"relu", {2}, dtype},
                                {"constant", {}, dtype, 0.1},
                                {"gt", {2, 4}, DType::kBool}},
                               {{1, x}, {3, made.memory.view(DType::kBool, shape)}}});
}

OptimizerSpec adam(Made& made, DType dtype, int64_t size) {
  OptimizerSpec spec;
  spec.rule = OptimizerRule::kAdam;
  spec.dtype = dtype;
  spec.num_elements = size;
  spec.args.scalars[kBeta1] = 0.9;
  spec.args.scalars[kBeta2] = 0.999;
  spec.args.scalars[kEpsilonTerm] = 1e-7;
  const auto array = [&] { return made.memory.view(dtype, {size}).data; };
  spec.args.param = spec.args.new_param = array();
  spec.args.grad = array();
  for (size_t s = 0; s < 2; ++s)
    spec.args.slots[s] = spec.args.new_slots[s] = array();
  spec.rate = array();
  return spec;
}

RandomShard shard_of(Made& made, Shape shape, std::vector<int64_t> index_strides, uint64_t first) {
  return {std::move(shape),  first,      std::move(index_strides),
          0x123456789ABCDEF, 0x89ABCDEF, made.memory.take(8)};
}

// A gather of columns: each of `count` shards is copied into its columns of a wider result.
std::vector<Region> columns(Made& made, int64_t count, size_t sources) {
  const View to = made.memory.view(DType::kFloat32, {32, count * 16});
  std::vector<Region> regions;
  for (int64_t i = 0; i < count; ++i) {
    Region region;
    region.to = to.data + i * 16 * 4;
    for (size_t s = 0; s < sources; ++s)
      region.sources.push_back(made.memory.view(DType::kFloat32, {32, 16}).data);
    region.shape = {32, 16};
    region.to_strides = {count * 16, 1};
    region.from_strides = {16, 1};
    regions.push_back(std::move(region));
  }
  return regions;
}

TEST_CASE("tapes read and write four neighbours at a time where rows allow it") {
  Made made;
  std::string text;
  add_dense_tail(made, DType::kFloat32, {64, 128});
  text += made.text("rows of 128 float32");
  add_dense_tail(made, DType::kFloat32, {64, 65});
  text += made.text("rows of 65 float32");
  add_dense_tail(made, DType::kBFloat16, {64, 128});
  text += made.text("rows of 128 bfloat16");
  check_golden("gpu/tape.txt", text);
}

TEST_CASE("copies take words or rows or tiles") {
  Made made;
  const auto view = [&](const Shape& shape) { return made.memory.view(DType::kFloat32, shape); };
  std::string text;
  made.lowering.lower(CopySpec{view({10, 30}), view({10, 30})});
  text += made.text("side by side");
  made.lowering.lower(CopySpec{with_strides(view({10, 8}), {100, 1}), view({10, 8})});
  text += made.text("part of rows");
  made.lowering.lower(
      CopySpec{with_strides(view({4, 100, 60}), {6000, 1, 100}), view({4, 100, 60})});
  text += made.text("transposed");
  made.lowering.lower(FillSpec{view({1000}), 0.5});
  text += made.text("fill");
  check_golden("gpu/copy.txt", text);
}

TEST_CASE("random numbers are taken four by four where blocks of Philox allow it") {
  Made made;
  std::string text;
  const View x = made.memory.view(DType::kFloat32, {32, 64});
  made.lowering.lower(
      DropoutSpec{shard_of(made, {32, 64}, {256, 1}, 64), DType::kFloat32, 0.25, x.data, x.data});
  text += made.text("dropout of columns from 64 to 128 of 256");
  made.lowering.lower(
      RandomBitsSpec{shard_of(made, {32, 7}, {14, 1}, 7), made.memory.take(32 * 7 * 4)});
  text += made.text("random_bits of columns from 7 to 14 of 14");
  check_golden("gpu/random.txt", text);
}

TEST_CASE("rows are summed by ids without atomics") {
  Made made;
  LookupShape shape{8192, 65, 128, 0, 65, DType::kFloat32};
  made.lowering.lower(ScatterAddRowsSpec{shape, made.memory.take(8192 * 128 * 4),
                                         made.memory.take(8192 * 4),
                                         made.memory.take(65 * 128 * 4)});
  check_golden("gpu/scatter.txt", made.text("8192 ids of 65"));
}

TEST_CASE("collectives and updates have this text") {
  Made made;
  made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, columns(made, 4, 2)});
  std::string text = made.text("columns summed");
  made.lowering.lower(adam(made, DType::kFloat32, 1000));
  text += made.text("adam");
  check_golden("gpu/update.txt", text);
}

TEST_CASE("variables of every size are updated by one kernel") {
  Made made;
  for (int64_t size : {1, 10, 1000, 1003, 10000000})
    made.lowering.lower(adam(made, DType::kFloat32, size));
  std::set<std::string> names;
  for (const Launch& launch : made.launches())
    names.insert(launch.body->name);
  CHECK(names.size() == 1);
}

TEST_CASE("tapes without broadcasts are one kernel for every size and place") {
  Made made;
  for (int64_t size : {1, 100, 12345}) {
    const View x = made.memory.view(DType::kFloat32, {size});
    made.lowering.lower(TapeSpec{{size},
                                 {x},
                                 {{"tanh", {0}, DType::kFloat32}},
                                 {{0, made.memory.view(DType::kFloat32, {size})}}});
  }
  const std::vector<Launch> launches = made.launches();
  CHECK(launches[0].body->name == launches[1].body->name);
  CHECK(launches[0].body->name == launches[2].body->name);
}

TEST_CASE("the name of a body depends on its text and memory and barriers") {
  const auto name = [](std::string text, unsigned shared, bool barriers) {
    return gpu::make_body("x", std::move(text), shared, barriers)->name;
  };
  CHECK(name("a;\n", 0, false) == name("a;\n", 0, false));
  CHECK(name("a;\n", 0, false) != name("b;\n", 0, false));
  CHECK(name("a;\n", 0, false) != name("a;\n", 4, false));
  CHECK(name("a;\n", 0, false) != name("a;\n", 0, true));
}

TEST_CASE("a kernel whose threads hold many values gets the registers of a multiprocessor") {
  const auto bounds_of = [](bool needs_registers) {
    gpu::Launch launch;
    launch.body = gpu::make_body("x", "a;\n", 0, false, gpu::kElementwise, needs_registers);
    gpu::ModuleText module;
    module.instances({&launch});
    const std::string text = module.take();
    const size_t at = text.find("__launch_bounds__");
    return text.substr(at, text.find('\n', at) - at);
  };
  CHECK(bounds_of(false) == "__launch_bounds__(mt::kThreads)");
  CHECK(bounds_of(true) == "__launch_bounds__(mt::kThreads, 1)");
}

TEST_CASE("a gather of many equal shards is few launches") {
  Made made;
  made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, columns(made, 64, 1)});
  CHECK(made.launches().size() == 1);
  std::vector<Region> many = columns(made, 64, 16);
  made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, many});
  CHECK(made.launches().size() == 1);  // the sources are one step apart
  for (Region& region : many)
    std::reverse(region.sources.begin(), region.sources.end());
  made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, many});
  CHECK(made.launches().size() == 3);  // by the size of the argument list
}

TEST_CASE("addresses of more terms than a kernel's parameter holds are in memory") {
  for (const size_t sources : {size_t{397}, size_t{508}, size_t{1000}}) {
    CAPTURE(sources);
    Made made;
    std::vector<Region> region = columns(made, 1, sources);
    std::reverse(region[0].sources.begin(), region[0].sources.end());
    made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, region});
    const std::vector<Command> commands = made.lowering.take();
    REQUIRE(commands.size() == 1 + (sources + 1 + 399) / 400);
    for (const Command& command : commands)
      CHECK(std::get<Launch>(command.what).args.size() <= 401);
    const gpu::MergedLaunches merged = gpu::merge_launches(commands);
    CHECK(merged.calls.size() > 1);
    CHECK(merged.module.find("store_words<") != std::string::npos);
  }
}

TEST_CASE("whole numbers among arguments cannot be taken for addresses") {
  Made made;
  const View x = made.memory.view(DType::kFloat64, {1 << 20});
  made.lowering.lower(FillSpec{x, -1.5});
  made.lowering.lower(RandomBitsSpec{shard_of(made, {1000}, {1}, (uint64_t{1} << 50) + 1), x.data});
  made.lowering.lower(adam(made, DType::kFloat64, 1 << 20));
  made.lowering.lower(CombineSpec{Reduction::kSum, DType::kFloat32, columns(made, 3, 2)});
  for (const Launch& launch : made.launches()) {
    for (const gpu::LaunchArg& argument : launch.args) {
      const bool is_clear = argument.is_address == made.memory.holds(argument.value);
      CHECK_MESSAGE(is_clear, launch.body->name << ": " << argument.value);
    }
  }
}

TEST_CASE("large arrays take no more blocks than a GPU holds") {
  Made made;
  const View x = made.memory.view(DType::kFloat32, {1 << 15, 1 << 16});
  made.lowering.lower(TapeSpec{x.shape, {x}, {{"exp", {0}, DType::kFloat32}}, {{0, x}}});
  made.lowering.lower(
      CopySpec{with_strides(x, {1, 1 << 15}), made.memory.view(DType::kFloat32, x.shape)});
  made.lowering.lower(FillSpec{x, 0});
  for (const Launch& launch : made.launches()) {
    CHECK(launch.blocks > 1000);
    CHECK(launch.blocks <= 132 * 16);
    // 2^31 elements: 32 bits would not do. A fill always counts in 64 (device/copy.cuh).
    const std::string& text = launch.body->text;
    CHECK((text.find("Index64") != std::string::npos || text.starts_with("fill<")));
  }
}

TEST_CASE("the shared memory of an argmax holds a value and a place of every thread") {
  for (const DType dtype :
       {DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kUInt64}) {
    CAPTURE(dtype_name(dtype));
    Made made;
    ScanShape shape;
    shape.outer = 4;
    shape.size = 4096;
    shape.dtype = dtype;
    made.lowering.lower(
        ArgmaxSpec{shape, made.memory.view(dtype, {4, 4096}).data, made.memory.take(16)});
    const Launch launch = made.launches()[0];
    CHECK(launch.body->shared_bytes == (dtype_size(dtype) == 8 ? 16 : 8) * gpu::kThreads);
  }
}

// Packs of four are counted in 32 bits, elements are not.
TEST_CASE("a one hot of more than 2^32 elements is written to its end") {
  Made made;
  LookupShape shape;
  shape.num_ids = 32768;
  shape.rows = shape.global_rows = 151936;
  made.lowering.lower(OneHotSpec{shape, made.memory.take(shape.num_ids * 4),
                                 made.memory.take(shape.num_ids * shape.rows * 4)});
  CHECK(made.text("one hot").find("Index32") != std::string::npos);
  gpu::DeviceText device;
  device.add("lookup");
  CHECK(device.take().find("to + (unsigned long long)i * pack") != std::string::npos);
}

// Ids are counted in 64 bits, within a chunk of them in 32.
TEST_CASE("updates of more than 2^31 ids are added to their end") {
  Made made;
  LookupShape shape;
  shape.num_ids = (int64_t{1} << 31) + 5;
  shape.rows = shape.global_rows = 100;
  shape.row_elements = 1;
  made.lowering.lower(ScatterAddRowsSpec{shape, made.memory.take(shape.num_ids * 4),
                                         made.memory.take(shape.num_ids * 4),
                                         made.memory.take(shape.rows * 4)});
  CHECK(made.text("scatter").find(".num_ids = 2147483653") != std::string::npos);
  gpu::DeviceText device;
  device.add("lookup");
  const std::string text = device.take();
  CHECK(text.find("(int)P.num_ids") == std::string::npos);
  CHECK(text.find("for (long long chunk = 0; chunk < P.num_ids;") != std::string::npos);
}

TEST_CASE("a module has the device code that its kernels need, each file once, and no other") {
  Made made;
  const View x = made.memory.view(DType::kFloat32, {1000});
  made.lowering.lower(CopySpec{x, made.memory.view(DType::kFloat32, {1000})});
  made.lowering.lower(CumsumSpec{{1, 1000, 1}, x.data, made.memory.take(4000)});
  const std::string text = gpu::merge_launches(made.lowering.take()).module;
  const auto count = [&](std::string_view words) {
    size_t out = 0;
    for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1))
      ++out;
    return out;
  };
  CHECK(count("struct f16 {") == 1);  // types.cuh, which both include
  CHECK(count("void copy_straight(") == 1);
  CHECK(count("void cumsum_rows(") == 1);
  CHECK(count("struct Window {") == 0);
  CHECK(count("#include \"") == 0);
  CHECK_THROWS_WITH_AS(gpu::DeviceText().add("nothing"), doctest::Contains("no device code"),
                       InternalError);
}

TEST_CASE("an op on a type that it is not defined for is refused by name") {
  Made made;
  const View x = made.memory.view(DType::kInt32, {4});
  for (const std::string op : {"exp", "floor", "round"}) {
    CAPTURE(op);
    const std::string message = fmt::format("no GPU kernel for op `{}` on int32", op);
    CHECK_THROWS_WITH_AS(
        made.lowering.lower(TapeSpec{{4}, {x}, {{op, {0}, DType::kInt32}}, {{0, x}}}),
        doctest::Contains(message.c_str()), InternalError);
  }
}

}  // namespace
}  // namespace meshtrain::test
