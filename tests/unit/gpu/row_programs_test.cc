// Which steps of a model are computed row by row, what that saves, and that memory allows it.
#include <doctest/doctest.h>

#include <filesystem>
#include <numeric>

#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "config/data_sizes.h"
#include "data/data_sizes.h"
#include "decoder.h"
#include "engine/setup.h"
#include "exec/all_steps.h"
#include "exec/gpu_memory.h"
#include "exec/partial_sum_fusion.h"
#include "passes/memory.h"
#include "passes/row_fusion.h"

namespace meshtrain::test {
namespace {

Program training_program(const std::vector<std::string>& overrides) {
  const Config config = config_from(kDecoder, overrides);
  const DataSpec data = data_spec(sentences(64));
  return Setup(config, &data).compile(StepKind::kTrain, 64).program;
}

struct Made {
  int launches = 0;   // of a step: kernels and products
  int of_rows = 0;    // kernels over rows
  int epilogues = 0;  // products with one
  int64_t bytes = 0;  // that kernels read and write
};

constexpr int64_t kSmall = int64_t{16} << 10;  // has memory of its own (gpu_executor.cc)

Made made(const Program& program) {
  std::byte* next = reinterpret_cast<std::byte*>(int64_t{1} << 44);  // nobody follows it
  const auto take = [&next](int64_t bytes) {
    std::byte* const taken = next;
    next += bytes / 256 * 256 + 256;
    return taken;
  };
  std::byte* const arena = take(program.arena_bytes);
  BufferMemory memory;
  for (const Buffer& buffer : program.buffers) {
    const int64_t bytes = buffer.shard_bytes * buffer.num_shards;
    const bool is_apart = buffer.variable != kNone || bytes <= kSmall;
    memory.bases.push_back(is_apart ? take(bytes) : arena + buffer.offset);
  }
  memory.fused_sums = find_fused_sums(program);
  gpu::GpuLowering lowering(take);
  lowering.lower(lower_gpu_steps(program, memory));
  const std::vector<gpu::Command> commands = lowering.take();
  Made out;
  out.launches = static_cast<int>(gpu::merge_launches(commands).calls.size());
  for (const gpu::Command& command : commands) {
    const auto* product = std::get_if<gpu::Matmul>(&command.what);
    out.epilogues += product != nullptr && product->epilogue ? 1 : 0;
    const auto* launch = std::get_if<gpu::Launch>(&command.what);
    if (launch == nullptr)
      continue;
    out.of_rows += launch->body->name.rfind("rows_", 0) == 0 ? 1 : 0;
    for (const Access& access : command.accesses)
      out.bytes += access.end - access.begin;
  }
  return out;
}

// The steps of a group by their paths.
std::vector<std::vector<std::string>> groups_of(const Program& program) {
  std::vector<std::vector<std::string>> groups;
  for (const ProgramStep& step : program.steps) {
    if (step.row_fusion == kNone)
      continue;
    groups.resize(std::max(groups.size(), static_cast<size_t>(step.row_fusion) + 1));
    groups[static_cast<size_t>(step.row_fusion)].push_back(step.path);
  }
  return groups;
}

struct RowCounts {
  const char* policy;
  int launches_before, launches_after;
  double part_of_bytes;  // at most, of those before
};

TEST_CASE("softmax and normalizations and cross-entropy are computed row by row") {
  for (const RowCounts& counts :
       {RowCounts{"float32", 111, 57, 0.65}, RowCounts{"mixed_bfloat16", 118, 62, 0.65}}) {
    CAPTURE(counts.policy);
    Program program = training_program({std::string("dtype_policy=") + counts.policy});
    const Made before = made(program);
    CHECK(before.of_rows == 0);
    CHECK(before.launches == counts.launches_before);
    const int64_t arena_before = program.arena_bytes;
    fuse_rows(program, RowTarget::kGpu);
    // Operands of a group live until it ends, and the array that it computes from is one of them.
    constexpr int64_t kOneArray = int64_t{64} * 32 * 64 * 4;
    CHECK(program.arena_bytes <= arena_before + kOneArray + 2 * kSmall);
    CHECK(memory_plan_problem(program) == "");
    const Made after = made(program);
    CHECK(after.launches == counts.launches_after);
    const double part = static_cast<double>(after.bytes) / static_cast<double>(before.bytes);
    CHECK(part < counts.part_of_bytes);
    // Six layers with their gradients, of which the last is one with the loss and its gradient.
    CHECK(groups_of(program).size() == 11);
    CHECK(after.of_rows == 11);
  }
}

TEST_CASE("the loss and its gradient are computed with the softmax before them") {
  Program program = training_program({});
  fuse_rows(program, RowTarget::kGpu);
  const std::vector<std::vector<std::string>> groups = groups_of(program);
  const auto with_loss = std::find_if(groups.begin(), groups.end(), [](const auto& group) {
    return std::find(group.begin(), group.end(), "loss/loss/one_hot") != group.end();
  });
  REQUIRE(with_loss != groups.end());
  CHECK(with_loss->front() == "classes/add");
  CHECK(with_loss->back() == "classes/exp/grad/mul");
}

TEST_CASE("no model of the configs is more launches with rows than without") {
  // A config counts the characters of its text.
  set_data_sizes_reader([](const DataConfig& data, double held_out, const std::string&) {
    return read_data_sizes(data, held_out);
  });
  const std::filesystem::path folder = std::string(MESHTRAIN_SOURCE_DIR) + "/configs";
  int with_rows = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".yaml")
      continue;
    CAPTURE(file.path().string());
    LoadOptions options;
    options.files = {file.path().string()};
    options.require_data = false;
    const Config config = load_config(options);
    const Setup setup(config, nullptr);
    for (const int64_t batch : {16, 64, 512}) {
      for (const StepKind kind : {StepKind::kTrain, StepKind::kTest, StepKind::kPredict}) {
        Program program = setup.compile(kind, batch).program;
        const int before = made(program).launches;
        fuse_rows(program, RowTarget::kGpu);
        CHECK(memory_plan_problem(program) == "");
        const Made after = made(program);
        CHECK(after.launches <= before);
        with_rows += after.of_rows;
      }
    }
  }
  CHECK(with_rows > 0);
}

TEST_CASE("a result of a group where another step of it still reads is found") {
  Program program = training_program({});
  fuse_rows(program, RowTarget::kGpu);
  // The softmax's values, and its input behind the bias, which it reads first.
  const auto step = [&](std::string_view path) {
    return *std::find_if(program.steps.begin(), program.steps.end(),
                         [&](const ProgramStep& s) { return s.path == path; });
  };
  const int read = step("keys/add").inputs[0], written = step("attention/div").outputs[0];
  program.buffers[written].offset = program.buffers[read].offset + 64;
  CHECK(memory_plan_problem(program) != "");
}

TEST_CASE("what only a group reads has no memory") {
  Program program = training_program({});
  const auto has = [&](std::string_view path) -> bool {
    const auto step = std::find_if(program.steps.begin(), program.steps.end(),
                                   [&](const ProgramStep& s) { return s.path == path; });
    REQUIRE(step != program.steps.end());
    return have_memory(program)[static_cast<size_t>(step->outputs[0])];
  };
  CHECK(has("loss/loss/one_hot"));
  fuse_rows(program, RowTarget::kGpu);
  CHECK(!has("loss/loss/one_hot"));
  CHECK(has("attention/div"));
}

// One sample's row is too long for one block.
TEST_CASE("a bias before a softmax of few long rows is part of its product") {
  constexpr const char* kClasses = R"(
name: classes
model:
  layers:
    - Input: {shape: [16]}
    - Dense: {units: 50257, activation: softmax}
)";
  const Config config = config_from(kClasses, {});
  Program program = Setup(config, nullptr).compile(StepKind::kPredict, 1).program;
  const Made before = made(program);
  fuse_rows(program, RowTarget::kGpu);
  CHECK(!groups_of(program).empty());
  const Made after = made(program);
  CHECK(after.of_rows == 0);
  CHECK(before.epilogues == 1);
  CHECK(after.epilogues == 1);
}

int64_t step_bytes(const Program& program, bool with_scratch) {
  StepMemory memory = imagined_step_memory();
  take_gpu_memory(program, memory, with_scratch);
  const std::vector<int64_t> blocks = memory.block_bytes();
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0});
}

TEST_CASE("the loss over a large vocabulary takes no memory beside its logits") {
  constexpr const char* kVocabulary = R"(
name: vocabulary
model:
  layers:
    - Input: {shape: [16]}
    - Dense: {units: 151936}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}, optimizer: SGD}
fit: {batch_size: 1024}
)";
  const Config config = config_from(kVocabulary, {});
  Program program = Setup(config, nullptr).compile(StepKind::kTrain, 1024).program;
  fuse_rows(program, RowTarget::kGpu);
  CHECK(made(program).of_rows > 0);
  const int64_t logits = int64_t{1024} * 151936 * 4;
  CHECK(step_bytes(program, true) < step_bytes(program, false) + logits / 8);
}

TEST_CASE("programs with fixed reductions keep their steps") {
  Program program = training_program({});
  program.fixed_reductions = true;
  fuse_rows(program, RowTarget::kGpu);
  CHECK(groups_of(program).empty());
}

}  // namespace
}  // namespace meshtrain::test
