// Programs compute the same whether products compute what follows them or launches do.
#include <doctest/doctest.h>

#include "backend/gpu/lowering.h"
#include "gpu_device.h"
#include "support/epilogue_tape.h"
#include "support/sampled.h"
#include "training.h"

namespace meshtrain::test {
namespace {

// Two steps with epilogues in products and without. Emulated ones have the same bits; those of a
// library add the bias before they round to 16 bits, and may sum in another order.
void check_epilogues(const std::string& yaml, const std::vector<std::string>& overrides,
                     const Dataset& data) {
  ::setenv("MESHTRAIN_EPILOGUES", "0", 1);
  const Training apart = train(yaml, overrides, data, 2);
  ::unsetenv("MESHTRAIN_EPILOGUES");
  const Training fused = train(yaml, overrides, data, 2);
  if (is_host_gpu()) {
    CHECK(fused.hash == apart.hash);
    return;
  }
  REQUIRE(fused.losses.size() == apart.losses.size());
  for (size_t i = 0; i < fused.losses.size(); ++i)
    CHECK(fused.losses[i] == doctest::Approx(apart.losses[i]).epsilon(0.02));
}

struct Mesh {
  const char* text;
  const char* devices;
};
const Mesh kMeshes[] = {
    {"{type: DataParallel, device_mesh: {shape: [1], axis_names: [data]}}", "gpu:0"},
    {"{type: DataParallel, device_mesh: {shape: [4], axis_names: [data]}}", "gpu:0x4"},
    {"{type: ModelParallel, device_mesh: {shape: [2, 2], axis_names: [data, model]}, "
     "layout_map: {'d[0-9]/kernel': [null, model], 'd[0-9]/bias': [model]}}",
     "gpu:0x4"},
};

// Dense layers that are products of the library, each with or without a bias, of any activation,
// some with something behind it or a second reader.
std::string random_model(uint64_t seed) {
  uint64_t n = 0;
  const auto below = [&](uint64_t limit) { return splitmix_below(seed, n++, limit); };
  constexpr const char* kActivations[] = {"relu", "linear", "relu", "tanh"};
  std::string text =
      "name: random\nmodel:\n  layers:\n    - Input: {shape: [28, 28, 1]}\n"
      "    - Flatten\n";
  const int64_t layers = 2 + below(2);
  for (int64_t i = 0; i < layers; ++i) {
    text += fmt::format(
        "    - Dense: {{name: d{}, units: {}, use_bias: {}, activation: {}, "
        "bias_initializer: {{RandomNormal: {{stddev: 0.5}}}}}}\n",
        i, 64 * (2 + below(2)), below(3) > 0, kActivations[below(4)]);
    if (below(4) == 0)
      text += "    - Dropout: {rate: 0.25}\n";
    if (below(4) == 0)
      text += "    - LayerNormalization\n";
  }
  return text +
         "    - Dense: {units: 10}\n"
         "compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}, optimizer: sgd}\n"
         "fit: {batch_size: 64}\n";
}

TEST_CASE("random dense models compute the same with epilogues and without") {
  if (test_runtime() == nullptr)
    return;
  const Dataset data = pictures(64);
  constexpr const char* kPolicies[] = {"float32", "mixed_bfloat16", "mixed_float16"};
  for (const size_t seed : sampled(9, is_slow() ? 9 : 4)) {  // of several meshes and policies
    const std::string model = random_model(seed);
    const Mesh& mesh = kMeshes[seed % 3];
    CAPTURE(model);
    CAPTURE(mesh.text);
    set_emulator_seed(seed);
    check_epilogues(model + "distribution: " + mesh.text + "\n",
                    {"seed=5", std::string("dtype_policy=") + kPolicies[seed / 3 % 3],
                     std::string("distribution.device_mesh.devices=") + mesh.devices},
                    data);
  }
  set_emulator_seed(0);
}

// Of a product and what is behind it, as one command; bytes of the result.
std::vector<std::byte> computed(gpu::Device& device, DType dtype, gpu::Activation activation,
                                bool adds_bias) {
  constexpr int64_t kM = 40, kN = 72, kK = 60;
  const Shape shape{kM, kN};
  const int64_t item = static_cast<int64_t>(dtype_size(dtype));
  const auto array = [&](int64_t size, uint64_t seed) {
    HostTensor values(dtype, {size});
    for (int64_t i = 0; i < size; ++i)
      values.set(i, splitmix_signed(seed, static_cast<uint64_t>(i)));
    std::byte* memory = device.allocate(size * item);
    device.upload(memory, values.bytes(), size * item);
    return memory;
  };
  MatmulSpec s;
  s.dtype = dtype;
  s.a = array(kM * kK, 1);
  s.b = array(kK * kN, 2);
  s.c = array(kM * kN, 3);
  s.m = kM;
  s.n = s.b_row = s.c_row = kN;
  s.k = s.a_row = kK;
  s.a_column = s.b_column = 1;
  s.batches = {{}};
  std::vector<View> operands{contiguous_view(s.c, dtype, shape)};
  if (adds_bias)
    operands.push_back({array(kN, 4), dtype, shape, {0, 1}});
  const View to = contiguous_view(array(kM * kN, 5), dtype, shape);
  const auto tape = epilogue_tape(dtype, activation, adds_bias);
  gpu::GpuLowering lowering([&](int64_t bytes) { return device.allocate(bytes); });
  lowering.lower(StepSpec{"product"});
  lowering.lower(s);
  lowering.lower(StepSpec{"activation", {whole_access(operands[0], false)}});
  lowering.lower(TapeSpec{shape, operands, tape, {{static_cast<int>(tape.size()) - 1, to}}});
  const std::vector<gpu::Command> commands = lowering.take();
  REQUIRE(commands.size() == 1);
  device.make_plan(commands, {}, 0, 1)->run();
  std::vector<std::byte> out(static_cast<size_t>(kM * kN * item));
  device.download(out.data(), to.data, kM * kN * item);
  return out;
}

// Not a GPU's, whose epilogues have other bits than generated code.
TEST_CASE("the emulator computes epilogues as generated code does" *
          doctest::test_suite("emulator")) {
  const auto device = open_test_device();
  if (device == nullptr || !is_host_gpu())
    return;
  using gpu::Activation;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kGelu}) {
      for (const bool adds_bias : {true, false}) {
        if (!adds_bias && activation == Activation::kNone)
          continue;
        CAPTURE(dtype_name(dtype));
        CAPTURE(static_cast<int>(activation));
        ::setenv("MESHTRAIN_EPILOGUES", "0", 1);
        const auto apart = computed(*device, dtype, activation, adds_bias);
        ::unsetenv("MESHTRAIN_EPILOGUES");
        const bool is_equal = computed(*device, dtype, activation, adds_bias) == apart;
        CHECK(is_equal);
      }
    }
  }
}

}  // namespace
}  // namespace meshtrain::test
