// Which elementwise steps a product computes itself, and what becomes of them where it does not.
#include "backend/gpu/epilogue.h"

#include <doctest/doctest.h>

#include <cmath>

#include "backend/gpu/lowering.h"

namespace meshtrain::test {
namespace {

using gpu::Activation;
using gpu::Command;
using gpu::GpuLowering;
using gpu::Matmul;

using Tape = std::vector<TapeInstruction>;

std::byte* at(int64_t place) {
  return reinterpret_cast<std::byte*>((int64_t{1} << 44) + place * (int64_t{1} << 20));
}

constexpr int64_t kM = 64, kN = 128, kK = 256;
const Shape kShape{kM, kN};

// Places in memory: operands, the product, the bias, the result.
enum Place : int64_t { kX = 1, kW, kProduct, kBias, kResult, kOther };

View matrix(Place place, DType dtype = DType::kFloat32) {
  return contiguous_view(at(place), dtype, kShape);
}
View vector(DType dtype = DType::kFloat32) {
  return {at(kBias), dtype, kShape, {0, 1}};
}

MatmulSpec product(DType dtype = DType::kFloat32) {
  MatmulSpec s;
  s.dtype = dtype;
  s.a = at(kX);
  s.b = at(kW);
  s.c = at(kProduct);
  s.m = kM;
  s.n = kN;
  s.k = kK;
  s.a_row = kK;
  s.b_row = s.c_row = kN;
  s.a_column = s.b_column = 1;
  s.batches = {{}};
  return s;
}

Access memory_of(Place place) {
  return {at(place), at(place + 1)};
}

// relu of the sum of both operands.
Tape relu_of_sum(DType dtype = DType::kFloat32) {
  return {{"add", {0, 1}, dtype}, {"relu", {2}, dtype}};
}

// The product, what `between` makes, and the tape, behind which nothing reads the product.
std::vector<Command> made(
    const MatmulSpec& spec, const std::vector<View>& operands, const Tape& tape,
    const std::vector<TapeResult>& results,
    const std::function<void(GpuLowering&)>& between = [](GpuLowering&) {},
    const std::vector<Access>& last = {memory_of(kProduct)}) {
  GpuLowering lowering([](int64_t) { return at(1000); });
  lowering.lower(StepSpec{"dense/einsum"});
  lowering.lower(spec);
  between(lowering);
  lowering.lower(StepSpec{"dense/relu", last});
  lowering.lower(TapeSpec{operands[0].shape, operands, tape, results});
  return lowering.take();
}

const gpu::Epilogue* epilogue_of(const std::vector<Command>& commands) {
  const auto* matmul = std::get_if<Matmul>(&commands.back().what);
  return matmul != nullptr && matmul->epilogue ? &*matmul->epilogue : nullptr;
}

bool is_fused(const std::vector<View>& operands, const Tape& tape,
              const std::vector<TapeResult>& results) {
  const std::vector<Command> commands = made(product(), operands, tape, results);
  CHECK(commands.size() == (epilogue_of(commands) != nullptr ? 1 : 2));
  return epilogue_of(commands) != nullptr;
}

TEST_CASE("a bias and an activation behind a product become part of it") {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const auto commands = made(product(dtype), {matrix(kProduct, dtype), vector(dtype)},
                               relu_of_sum(dtype), {{1, matrix(kResult, dtype)}});
    REQUIRE(commands.size() == 1);
    const gpu::Epilogue* const epilogue = epilogue_of(commands);
    REQUIRE(epilogue != nullptr);
    CHECK(epilogue->bias == at(kBias));
    CHECK(epilogue->activation == Activation::kRelu);
    CHECK(epilogue->to == at(kResult));
    CHECK(std::get<Matmul>(commands[0].what).result() == at(kResult));
    CHECK(commands[0].path == "dense/einsum");
    std::vector<std::pair<const std::byte*, bool>> touched;
    for (const Access& access : commands[0].accesses)
      touched.emplace_back(access.begin, access.is_write);
    CHECK(touched == std::vector<std::pair<const std::byte*, bool>>{{at(kX), false},
                                                                    {at(kW), false},
                                                                    {at(kProduct), true},
                                                                    {at(kBias), false},
                                                                    {at(kResult), true}});
  }
}

TEST_CASE("the product may be either operand and the result may take its place") {
  CHECK(is_fused({vector(), matrix(kProduct)}, relu_of_sum(), {{1, matrix(kResult)}}));
  const auto commands =
      made(product(), {matrix(kProduct), vector()}, relu_of_sum(), {{1, matrix(kProduct)}});
  REQUIRE(epilogue_of(commands) != nullptr);
  CHECK(epilogue_of(commands)->to == at(kProduct));
}

TEST_CASE("a bias alone and an activation alone are epilogues") {
  const DType f = DType::kFloat32;
  const auto bias =
      made(product(), {matrix(kProduct), vector()}, {{"add", {0, 1}, f}}, {{0, matrix(kResult)}});
  REQUIRE(epilogue_of(bias) != nullptr);
  CHECK(epilogue_of(bias)->activation == Activation::kNone);
  const auto relu = made(product(), {matrix(kProduct)}, {{"relu", {0}, f}}, {{0, matrix(kResult)}});
  REQUIRE(epilogue_of(relu) != nullptr);
  CHECK(epilogue_of(relu)->activation == Activation::kRelu);
  CHECK(epilogue_of(relu)->bias == nullptr);
}

TEST_CASE("gelu is an epilogue as it is computed with tanh and not with erf") {
  const auto gelu_of_sum = [](const char* gelu) {
    return Tape{{"add", {0, 1}, DType::kFloat32}, {gelu, {2}, DType::kFloat32}};
  };
  const auto commands = made(product(), {matrix(kProduct), vector()}, gelu_of_sum("gelu_tanh"),
                             {{1, matrix(kResult)}});
  REQUIRE(epilogue_of(commands) != nullptr);
  CHECK(epilogue_of(commands)->activation == Activation::kGelu);
  CHECK(epilogue_of(commands)->bias == at(kBias));
  CHECK(!is_fused({matrix(kProduct), vector()}, gelu_of_sum("gelu"), {{1, matrix(kResult)}}));
}

TEST_CASE("other steps behind a product stay launches of their own") {
  const DType f = DType::kFloat32;
  const View p = matrix(kProduct), to = matrix(kResult);
  CHECK(is_fused({p, vector()}, relu_of_sum(), {{1, to}}));
  // Another activation, also between the bias and relu.
  CHECK(!is_fused({p, vector()}, {{"add", {0, 1}, f}, {"sigmoid", {2}, f}}, {{1, to}}));
  CHECK(!is_fused({p, vector()}, {{"add", {0, 1}, f}, {"tanh", {2}, f}, {"relu", {3}, f}},
                  {{2, to}}));
  CHECK(!is_fused({p, vector()}, {{"relu", {0}, f}, {"add", {2, 1}, f}}, {{1, to}}));
  CHECK(!is_fused({p, vector()}, {{"mul", {0, 1}, f}}, {{0, to}}));
  CHECK(!is_fused({p}, {{"copy", {0}, f}}, {{0, to}}));
  // The sum is needed, too.
  CHECK(!is_fused({p, vector()}, relu_of_sum(), {{1, to}, {0, matrix(kOther)}}));
  // A bias of another shape: of rows, a number, a matrix, every second element.
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{1, 0}, {0, 0}, {kN, 1}, {0, 2}}) {
    CHECK(!is_fused({p, {at(kBias), f, kShape, strides}}, relu_of_sum(), {{1, to}}));
  }
  // Types.
  CHECK(!is_fused({p, vector(DType::kBFloat16)}, relu_of_sum(), {{1, to}}));
  CHECK(!is_fused({p, vector()}, {{"add", {0, 1}, f}, {"cast", {2}, DType::kBFloat16}},
                  {{1, matrix(kResult, DType::kBFloat16)}}));
  const DType d = DType::kFloat64;
  CHECK(epilogue_of(made(product(d), {matrix(kProduct, d), vector(d)}, relu_of_sum(d),
                         {{1, matrix(kResult, d)}})) == nullptr);
}

TEST_CASE("a product that is read again or made by a kernel of its own stays apart") {
  const std::vector<View> operands{matrix(kProduct), vector()};
  const std::vector<TapeResult> results{{1, matrix(kResult)}};
  const auto count = [&](const std::function<void(GpuLowering&)>& between,
                         const std::vector<Access>& last = {memory_of(kProduct)},
                         const std::vector<TapeResult>& to = {{1, matrix(kResult)}}) {
    return made(product(), operands, relu_of_sum(), to, between, last).size();
  };
  const auto copy = [](Place from, Place to) {
    return [=](GpuLowering& lowering) { lowering.lower(CopySpec{matrix(from), matrix(to)}); };
  };
  CHECK(count([](GpuLowering&) {}) == 1);
  CHECK(count([](GpuLowering&) {}, {}) == 2);                   // read behind the tape
  CHECK(count([](GpuLowering&) {}, {memory_of(kOther)}) == 2);  // something else is not
  CHECK(count([](GpuLowering&) {}, {{at(kProduct), at(kProduct) + 64}}) == 2);
  CHECK(count(copy(kProduct, kOther)) == 3);  // read before the tape
  CHECK(count(copy(kOther, kProduct)) == 3);  // written by somebody else
  CHECK(count(copy(kOther, kX)) == 3);        // its operand is gone
  CHECK(count(copy(kX, kOther)) == 2);        // one command more and one less
  CHECK(count([](GpuLowering&) {}, {memory_of(kProduct)}, {{1, matrix(kX)}}) == 2);

  MatmulSpec tiny = product();
  tiny.k = 8;
  CHECK(made(tiny, operands, relu_of_sum(), results).size() == 2);
  MatmulSpec wide = product();
  wide.c_row = 2 * kN;
  CHECK(made(wide, operands, relu_of_sum(), results).size() == 2);
}

TEST_CASE("a product of one row is not its own bias") {
  MatmulSpec spec = product();
  spec.m = 1;
  spec.k = spec.a_row = 4096;  // long enough to be the library's
  spec.b = at(100);
  View view = matrix(kProduct);
  view.shape = {1, kN};
  View result = view;
  result.data = at(kResult);
  const Tape twice = {{"add", {0, 1}, DType::kFloat32}};
  CHECK(made(spec, {view, view}, twice, {{0, result}}).size() == 2);
  View bias = vector();
  bias.shape = {1, kN};
  CHECK(made(spec, {view, bias}, twice, {{0, result}}).size() == 1);
}

TEST_CASE("batches share a bias and have no others") {
  const Shape shape{3, kM, kN};
  MatmulSpec spec = product();
  for (int64_t i = 0; i < 3; ++i)
    spec.batches.push_back({i * kM * kK, 0, i * kM * kN});
  spec.batches.erase(spec.batches.begin());
  const View p = contiguous_view(at(kProduct), DType::kFloat32, shape);
  const View to = contiguous_view(at(kResult), DType::kFloat32, shape);
  const auto fused = [&](std::vector<int64_t> strides) {
    const View bias{at(kBias), DType::kFloat32, shape, std::move(strides)};
    return epilogue_of(made(spec, {p, bias}, relu_of_sum(), {{1, to}}));
  };
  CHECK(fused({0, 0, 1}) != nullptr);
  CHECK(fused({kN, 0, 1}) == nullptr);
}

TEST_CASE("a vector is one for every row whatever the dimensions are") {
  CHECK(gpu::repeats_rows({4, 2, 6}, {0, 0, 1}, 6));
  CHECK(gpu::repeats_rows({4, 2, 6}, {0, 6, 1}, 12));
  CHECK(gpu::repeats_rows({4, 1, 6}, {0, 17, 1}, 6));
  CHECK(gpu::repeats_rows({1, 6}, {6, 1}, 6));
  CHECK(!gpu::repeats_rows({4, 2, 6}, {0, 0, 1}, 12));
  CHECK(!gpu::repeats_rows({4, 2, 6}, {0, 0, 1}, 8));
  CHECK(!gpu::repeats_rows({6, 6}, {1, 0}, 6));
  CHECK(gpu::repeats_rows({6, 1}, {1, 0}, 6));  // one row
}

TEST_CASE("dropout behind an activation stays by itself") {
  GpuLowering lowering([](int64_t) { return at(1000); });
  lowering.lower(StepSpec{"dense/einsum"});
  lowering.lower(product());
  lowering.lower(StepSpec{"dense/relu", {memory_of(kProduct)}});
  lowering.lower(
      TapeSpec{kShape, {matrix(kProduct), vector()}, relu_of_sum(), {{1, matrix(kResult)}}});
  lowering.lower(StepSpec{"drop", {memory_of(kResult)}});
  RandomShard shard;
  shard.shape = kShape;
  shard.index_strides = {kN, 1};
  shard.step = at(kOther);
  lowering.lower(DropoutSpec{shard, DType::kFloat32, 0.5, at(kResult), at(kResult)});
  const std::vector<Command> commands = lowering.take();
  REQUIRE(commands.size() == 2);
  CHECK(std::get<Matmul>(commands[0].what).epilogue);
  CHECK(std::holds_alternative<gpu::Launch>(commands[1].what));
}

TEST_CASE("what is taken apart is what would have been made without epilogues") {
  const auto make = [](bool fuses) {
    return made(
        product(), {matrix(kProduct), vector()}, relu_of_sum(), {{1, matrix(kResult)}},
        [](GpuLowering&) {}, fuses ? std::vector{memory_of(kProduct)} : std::vector<Access>{});
  };
  std::string asked;
  const std::vector<Command> apart = gpu::with_parts(make(true), [&](const Command& command) {
    asked += command.path;
    return false;
  });
  CHECK(asked == "dense/einsum");
  const std::vector<Command> plain = make(false);
  REQUIRE(apart.size() == 2);
  REQUIRE(plain.size() == 2);
  for (size_t i = 0; i < 2; ++i)
    CHECK(apart[i].path == plain[i].path);
  const auto& product = std::get<Matmul>(apart[0].what);
  CHECK(!product.epilogue);
  CHECK(product.result() == at(kProduct));
  const auto& launch = std::get<gpu::Launch>(apart[1].what);
  const auto& expected = std::get<gpu::Launch>(plain[1].what);
  CHECK(launch.body->name == expected.body->name);
  CHECK(launch.args == expected.args);
  CHECK(launch.blocks == expected.blocks);
  REQUIRE(apart[1].accesses.size() == plain[1].accesses.size());
  // Those that are kept are asked about and stay.
  CHECK(gpu::with_parts(make(true), [](const Command&) { return true; }).size() == 1);
  CHECK(gpu::with_parts(plain, [](const Command&) { return false; }).size() == 2);
}

}  // namespace
}  // namespace meshtrain::test
