// The kernel specs of the guides' models: what backends are asked for in a step of training.
#include <map>

#include "backend/kernel_spec.h"
#include "config/load.h"
#include "engine/setup.h"
#include "exec/all_steps.h"
#include "exec/partial_sum_fusion.h"
#include "passes/row_fusion.h"
#include "support/golden.h"

namespace meshtrain::test {
namespace {

constexpr int kAddressBits = 32;  // of one buffer: its number stands above them

// Buffers at made-up addresses, with their names in texts.
struct Names {
  explicit Names(const Program& program) {
    std::map<int, std::byte*> variables;
    for (size_t b = 0; b < program.buffers.size(); ++b) {
      const Buffer& buffer = program.buffers[b];
      auto* base = reinterpret_cast<std::byte*>((b + 1) << kAddressBits);
      const bool is_variable = buffer.variable != kNone;
      names.push_back(is_variable ? program.variables[static_cast<size_t>(buffer.variable)].path
                                  : fmt::format("b{}", b));
      if (is_variable)  // its old and its new value are one memory
        base = variables.try_emplace(buffer.variable, base).first->second;
      memory.bases.push_back(base);
    }
    memory.fused_sums = find_fused_sums(program);
  }
  std::string of(const std::byte* address) const {
    const auto number = reinterpret_cast<uintptr_t>(address);
    const uintptr_t buffer = number >> kAddressBits;
    const uintptr_t offset = number & ((uintptr_t{1} << kAddressBits) - 1);
    if (buffer == 0 || buffer > names.size())
      return fmt::format("nowhere+{:#x}", number & ((uintptr_t{1} << 61) - 1));
    return names[buffer - 1] + (offset == 0 ? "" : fmt::format("+{:#x}", offset));
  }

  std::vector<std::string> names;
  BufferMemory memory;
};

std::string text_of(const Names& names, const KernelSpecs& specs) {
  std::string text;
  for (const KernelSpec& spec : specs) {
    const bool is_step = std::holds_alternative<StepSpec>(spec);
    text += (is_step ? "" : "  ") +
            to_string(spec, [&](const std::byte* address) { return names.of(address); }) + "\n";
  }
  return text;
}

// Of a small batch of the model of a file in configs/.
Program program_of(const std::string& name, const std::string& devices) {
  LoadOptions options;
  options.files = {std::string(MESHTRAIN_SOURCE_DIR) + "/configs/" + name + ".yaml"};
  options.overrides = {"distribution.device_mesh.devices=" + devices};
  options.require_data = false;
  const Config config = load_config(options);
  return Setup(config, nullptr).compile(StepKind::kTrain, 16).program;
}

void check_lowering(const std::string& name, const std::string& devices) {
  const Program program = program_of(name, devices);
  const Names names(program);
  check_golden("lowering/" + name + ".txt",
               text_of(names, lower_steps(program, program.prologue, names.memory)) +
                   text_of(names, lower_steps(program, program.steps, names.memory)));
}

TEST_CASE("the quickstart's model is lowered to these specs") {
  check_lowering("quickstart", "cpu:8");
}
TEST_CASE("the convnet of the guide to data parallelism is lowered to these specs") {
  check_lowering("jax_guide_convnet", "cpu:8");
}
TEST_CASE("the small convnet is lowered to these specs") {
  check_lowering("mnist_convnet", "cpu:2");
}
TEST_CASE("the model of characters is lowered to these specs") {
  check_lowering("char_mlp", "cpu:4");
}
TEST_CASE("the model of characters has these last reads and rows on a GPU") {
  Program program = program_of("char_mlp", "cpu:4");
  fuse_rows(program, RowTarget::kGpu);
  const Names names(program);
  check_golden("lowering/char_mlp.gpu.txt", text_of(names, lower_gpu_steps(program, names.memory)));
}

}  // namespace
}  // namespace meshtrain::test
