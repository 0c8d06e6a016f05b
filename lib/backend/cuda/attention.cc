#include "backend/cuda/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "backend/cuda/libraries.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

// An H200's engines gave the bits of the first of 20 runs in each other one (2026-11-28), where dq
// is one product; other GPUs' were not tried.
constexpr int kTriedCompute = 90;
constexpr size_t kLeastVersion = 91100;
constexpr int64_t kMostAttentionWorkspace = int64_t{512} << 20;
constexpr int64_t kMostAttentionEngines = 8;

std::string key_of(const gpu::Attention& attention) {
  const AttentionShape& n = attention.shape;
  return fmt::format("{} {} {} {} {} {} {} {} {} {}", attention.is_grad(), dtype_name(n.dtype),
                     n.batch, n.queries, n.keys, n.heads, n.groups, n.head_size, n.causal, n.scale);
}

bool is_off() {
  const char* const value = std::getenv("MESHTRAIN_CUDNN_ATTENTION");
  return value != nullptr && std::string_view(value) == "0";
}

// The engines that cuDNN 9.19 has for a described H200 do not carry this note.
bool is_nondeterministic(const Core& core, const CudnnObject& config) {
  CudnnObject engine(core, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  config.read(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  const std::vector<cudnnBackendNumericalNote_t> notes = engine.numerical_notes();
  return std::find(notes.begin(), notes.end(), CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) !=
         notes.end();
}

int64_t largest_divisor(int64_t number, int64_t most) {
  while (number % most != 0)
    --most;
  return most;
}

// What a gradient keeps: the gradients of scores and, of each head, those of keys and values.
AttentionPart part_of(const gpu::Attention& attention) {
  const AttentionShape& n = attention.shape;
  if (!attention.is_grad())
    return {n.batch, n.groups};
  const int64_t of_group = n.readers() * n.keys * 2 * (n.queries + 2 * n.head_size);
  const int64_t groups = kMostAttentionWorkspace / of_group;
  if (groups >= n.groups)
    return {largest_divisor(n.batch, std::min(n.batch, groups / n.groups)), n.groups};
  return {1, groups == 0 ? 0 : largest_divisor(n.groups, groups)};
}

}  // namespace

Attentions::~Attentions() {
  plans_.clear();
  if (handle_ != nullptr)
    cudnn().cudnnDestroy(handle_);
}

const AttentionPlan* Attentions::find_plan(const gpu::Attention& attention) {
  if (core_.compute != kTriedCompute || is_off())
    return nullptr;
  const std::string key = key_of(attention);
  const auto found = plans_.find(key);
  if (found != plans_.end())
    return found->second.get();
  std::unique_ptr<AttentionPlan> plan;
  try {
    plan = make_plan(attention);
  } catch (const RuntimeFailure&) {
    // cuDNN is missing, or knows no such operation.
  }
  return plans_.emplace(key, std::move(plan)).first->second.get();
}

std::unique_ptr<AttentionPlan> Attentions::make_plan(const gpu::Attention& attention) {
  nvrtc();  // with which cuDNN compiles: it finds the library that is loaded
  if (cudnn().cudnnGetVersion() < kLeastVersion)
    return nullptr;
  if (handle_ == nullptr)
    core_.check(cudnn().cudnnCreate(&handle_), "cudnnCreate");
  const AttentionPart part = part_of(attention);
  return part.groups == 0 ? nullptr : make_plan(attention, part);
}

std::unique_ptr<AttentionPlan> Attentions::make_plan(const gpu::Attention& attention,
                                                     AttentionPart part) {
  auto made = std::make_unique<AttentionPlan>();
  made->part = part;
  made->graph = std::make_unique<AttentionGraph>(core_, attention.shape, part, attention.is_grad());
  CudnnObject graph(core_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  const auto& operations = made->graph->operations();
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations.size()), operations.data());
  graph.finalize();

  CudnnObject heuristics(core_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS)
    return nullptr;
  for (CudnnObject& config :
       heuristics.read_all(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                           kMostAttentionEngines)) {
    if (is_nondeterministic(core_, config))
      continue;
    CudnnObject plan(core_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (plan.try_finalize() != CUDNN_STATUS_SUCCESS)
      continue;
    const int64_t bytes = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    if (bytes > kMostAttentionWorkspace + kMostAttentionWorkspace / 4)  // part_of() estimates
      continue;
    made->workspace_bytes = static_cast<size_t>(bytes);
    for (CudnnObject* object : {&graph, &config, &plan})
      made->parts.push_back(std::move(*object));
    return made;
  }
  return nullptr;
}

void Attentions::enqueue(const AttentionPlan& plan, const gpu::Attention& a, std::byte* workspace,
                         CUstream stream) const {
  const AttentionShape& n = a.shape;
  const std::pair<AttentionArray, const std::byte*> all[] = {
      {AttentionArray::kQ, a.q},     {AttentionArray::kK, a.k},
      {AttentionArray::kV, a.v},     {AttentionArray::kO, a.o},
      {AttentionArray::kLse, a.lse}, {AttentionArray::kOCotangent, a.o_cotangent},
      {AttentionArray::kDq, a.dq},   {AttentionArray::kDk, a.dk},
      {AttentionArray::kDv, a.dv},   {AttentionArray::kSums, a.sums}};
  core_.check(cudnn().cudnnSetStream(handle_, stream), "cudnnSetStream");
  for (int64_t sample = 0; sample < n.batch; sample += plan.part.samples) {
    for (int64_t group = 0; group < n.groups; group += plan.part.groups) {
      std::vector<const void*> data;
      std::vector<int64_t> names;
      for (const auto& [name, array] : all) {
        if (array == nullptr)
          continue;
        data.push_back(array + attention_offset(n, name, sample, group));
        names.push_back(static_cast<int64_t>(name));
      }
      for (const auto& [name, number] : plan.graph->numbers()) {
        data.push_back(&number);
        names.push_back(name);
      }
      CudnnObject pack(core_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
               static_cast<int64_t>(data.size()), data.data());
      pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names);
      pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
      pack.finalize();
      core_.check(cudnn().cudnnBackendExecute(handle_, plan.parts.back().get(), pack.get()),
                  "cudnnBackendExecute (attention)");
    }
  }
}

}  // namespace meshtrain::cuda
