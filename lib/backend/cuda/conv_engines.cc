// Which of cuDNN's engines computes a convolution: the first of its recommendations that gives the
// same bits in each run, in the precision asked for; where measuring is allowed and the choice can
// be kept, the fastest of the first few. The first ones often turn operands into another layout at
// each call.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "backend/cuda/conv.h"
#include "backend/cuda/libraries.h"
#include "backend/cuda/trial_memory.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr const char* kEngineKind = "conv";  // of entries of the cache
constexpr int64_t kMostEngines = 64;
// That are measured: the direct ones are among the first five of every convolution of the
// benchmarks' (cuDNN 9.19 for a described H200).
constexpr size_t kMeasuredEngines = 6;

bool has_note(const auto& notes, auto note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

// Every run gives the same bits, in the precision that was asked for.
bool is_allowed(const CudnnObject& engine, bool allows_tensor_cores) {
  for (const cudnnBackendNumericalNote_t note : engine.numerical_notes()) {
    const bool is_tensor_core = note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (note != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP && !(is_tensor_core && allows_tensor_cores))
      return false;
  }
  return !has_note(engine.behavior_notes(), CUDNN_BEHAVIOR_NOTE_REQUIRES_FILTER_INT8x32_REORDER);
}

std::string text_of(const ConvCandidate& choice) {
  return fmt::format("{} engine {}", choice.place,
                     choice.engine.get_int64(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
}

}  // namespace

// What cuDNN recommends, best first, then what it falls back to.
std::vector<CudnnObject> Convs::engine_configs(const CudnnObject& graph) const {
  std::vector<CudnnObject> configs;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnObject heuristics(core_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (described_)
      heuristics.set(kEngineHeurDeviceProp, *described_);
    if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS)
      continue;
    for (CudnnObject& config : heuristics.read_all(
             CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, kMostEngines))
      configs.push_back(std::move(config));
  }
  return configs;
}

std::optional<ConvCandidate> Convs::candidate(const gpu::Conv& conv, CudnnObject& config,
                                              size_t place, bool compiles) const {
  const bool allows_tensor_cores = conv.shape.dtype != DType::kFloat32 || core_.options.use_tf32;
  CudnnObject engine(core_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  config.read(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (has_note(engine.behavior_notes(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != compiles ||
      !is_allowed(engine, allows_tensor_cores))
    return std::nullopt;
  CudnnObject plan(core_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (described_)
    plan.set(kExecutionPlanDeviceProp, *described_);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  if (plan.try_finalize() != CUDNN_STATUS_SUCCESS)
    return std::nullopt;
  const int64_t bytes = plan.get_int64(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (bytes > static_cast<int64_t>(most_workspace(conv)))
    return std::nullopt;
  return ConvCandidate{place, std::move(config), std::move(engine), std::move(plan),
                       static_cast<size_t>(bytes)};
}

// Engines that cuDNN compiles when they are asked for come last: that takes a second.
std::vector<ConvCandidate> Convs::candidates(const gpu::Conv& conv,
                                             std::vector<CudnnObject>& configs, size_t most) const {
  std::vector<ConvCandidate> found;
  for (const bool compiles : {false, true}) {
    for (size_t place = 0; place < configs.size() && found.size() < most; ++place) {
      if (configs[place].get() == nullptr)
        continue;
      if (std::optional<ConvCandidate> next = candidate(conv, configs[place], place, compiles))
        found.push_back(std::move(*next));
    }
    if (!found.empty())
      break;
  }
  return found;
}

// cuDNN recommends the same in the same order to each process; an entry that says otherwise is
// another library's.
std::optional<ConvCandidate> Convs::kept(const gpu::Conv& conv, std::vector<CudnnObject>& configs,
                                         const std::string& key) const {
  const std::optional<std::string> text = cache_->find(kEngineKind, cache_key(conv, key));
  size_t place = 0;
  if (!text || std::sscanf(text->c_str(), "%zu", &place) != 1 || place >= configs.size())
    return std::nullopt;
  for (const bool compiles : {false, true}) {
    std::optional<ConvCandidate> choice = candidate(conv, configs[place], place, compiles);
    if (choice && text_of(*choice) == *text)
      return choice;
    if (choice)
      configs[place] = std::move(choice->config);
  }
  return std::nullopt;
}

bool Convs::is_measured() const {
  return cache_ != nullptr && cache_->keeps() && core_.options.measure;
}

size_t Convs::most_workspace(const gpu::Conv& conv) const {
  constexpr size_t kUsual = size_t{512} << 20, kBesides = size_t{64} << 20;
  const ConvShape& s = conv.shape;
  const auto operands = static_cast<size_t>(conv.images * (s.input_bytes() + s.output_bytes()) +
                                            s.kernel_elements() * s.item_size());
  return most_workspace_.value_or(core_.options.measure ? std::max(kUsual, operands + kBesides)
                                                        : kUsual);
}

std::string Convs::cache_key(const gpu::Conv& conv, const std::string& key) const {
  return fmt::format("cuDNN {}, {}, {}, {} workspace, {}", cudnn().cudnnGetVersion(), core_.name,
                     core_.options.use_tf32 ? "tf32" : "float32", most_workspace(conv), key);
}

std::unique_ptr<ConvPlan> Convs::choose(const gpu::Conv& conv, const std::string& key) {
  auto chosen = std::make_unique<ConvPlan>();
  add_operation(conv, chosen->parts);
  CudnnObject graph(core_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!described_)
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle_);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, chosen->parts.back());
  graph.finalize();
  chosen->parts.push_back(std::move(graph));
  std::vector<CudnnObject> configs = engine_configs(chosen->parts.back());
  const size_t known = configs.size();
  std::optional<ConvCandidate> choice;
  if (is_measured())
    choice = kept(conv, configs, key);
  if (!choice) {
    std::vector<ConvCandidate> found =
        candidates(conv, configs, is_measured() ? kMeasuredEngines : 1);
    if (found.empty()) {
      core_.fail(fmt::format("cuDNN {} has no deterministic engine for {} (of {} that it knows)",
                             cudnn().cudnnGetVersion(), key, known));
    }
    choice = std::move(found[is_measured() ? measure(conv, found, key) : 0]);
  }
  chosen->workspace_bytes = choice->workspace_bytes;
  for (CudnnObject* part : {&choice->config, &choice->engine, &choice->plan})
    chosen->parts.push_back(std::move(*part));
  return chosen;
}

// Another process may have been faster; what is in the cache counts. Where nothing can be kept, the
// first: other runs would measure otherwise.
size_t Convs::measure(const gpu::Conv& conv, const std::vector<ConvCandidate>& choices,
                      const std::string& key) {
  size_t fastest = 0, most = 0;
  for (const ConvCandidate& one : choices)
    most = std::max(most, one.workspace_bytes);
  const TrialMemory trial(result_bytes(conv) + most);
  if (trial.data() != nullptr && !is_over(tuning_)) {
    fastest = fastest_of(core_, tuning_, choices.size(),
                         [&](size_t i) { run_trial(choices[i].plan, conv, trial.data()); });
  }
  const auto known = [&]() -> std::optional<size_t> {
    const std::optional<std::string> text = cache_->find(kEngineKind, cache_key(conv, key));
    const auto at = std::find_if(choices.begin(), choices.end(),
                                 [&](const ConvCandidate& one) { return text_of(one) == text; });
    return at == choices.end() ? std::nullopt
                               : std::optional(static_cast<size_t>(at - choices.begin()));
  };
  if (const std::optional<size_t> other = known())
    return *other;
  cache_->store(kEngineKind, cache_key(conv, key), text_of(choices[fastest]));
  return known().value_or(0);
}

bool Convs::save_workspace() {
  size_t largest = 0;
  for (const auto& [key, plan] : plans_)
    largest = std::max(largest, plan->workspace_bytes);
  if (largest == 0)
    return false;
  most_workspace_ = largest / 2;
  for (auto& [key, plan] : plans_)
    replaced_.push_back(std::move(plan));
  plans_.clear();
  return true;
}

}  // namespace meshtrain::cuda
