#include "train/describe_run.h"

#include <fmt/format.h>

#include "data/dataset_spec.h"
#include "engine/epoch_plan.h"
#include "exec/worker_pool.h"
#include "record/run_meta.h"

namespace meshtrain {

namespace {

// " on 2 threads", " in 4 processes of 16 threads": those that compute.
std::string threads_text(const EngineOptions& engine) {
  const int processes = engine.processes.size();
  const size_t threads =
      engine.num_workers > 0 ? static_cast<size_t>(engine.num_workers) : usable_cpus().size();
  const std::string text = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
  return processes > 1 ? fmt::format(" in {} processes of {}", processes, text) : " on " + text;
}

std::string sizes_text(const std::vector<MeshAxis>& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh) {
    out += fmt::format("{}{}", out.empty() ? "" : " x ", axis.size);
  }
  return out.empty() ? "1" : out;
}

}  // namespace

RunInfo describe_run(const RunRequest& request, const Setup& setup, const PlanSummary& plan,
                     const RunData& data, const std::string& run_dir) {
  const Config& config = setup.config();
  const FitConfig& fit = config.fit;
  const int64_t batches = count_batches(data.train->num_samples, fit.batch_size,
                                        config.data.remainder == Remainder::kDrop);
  RunInfo info;
  info.version = request.version;
  info.config = request.shown_name;
  info.name = config.name;
  info.run_dir = run_dir;
  info.seed = config.seed;
  info.dtype_policy = config.dtype_policy;
  info.mesh_shape = setup.mesh().shape();
  info.axis_names = setup.mesh().axis_names();
  info.devices = plan.devices;
  if (!setup.distribution().devices.is_gpu) {
    info.devices += threads_text(request.engine);
  }
  info.batch_size = fit.batch_size;
  info.batch_axis = plan.batch_axes;
  info.batch_shards = plan.batch_shards;
  info.steps_per_epoch = batches > 0 ? plan_epoch(fit, batches, fit.initial_epoch).target : 0;
  info.initial_epoch = fit.initial_epoch;
  info.epochs = fit.epochs;
  info.samples = data.train->num_samples;
  info.validation_samples = data.validation ? data.validation->num_samples : 0;
  for (const Weight* weight : setup.model().weights()) {
    info.parameters += num_elements(weight->shape);
    info.parameter_bytes +=
        num_elements(weight->shape) * static_cast<int64_t>(dtype_size(weight->dtype));
  }
  info.overrides = request.load.overrides;
  for (const auto& [key, value] : request.load.flags) {
    info.overrides.push_back(key + "=" + value);
  }
  if (config.data.train) {
    info.training_files = file_states(source_paths(*config.data.train, config.data));
  }
  info.bytes_per_device = plan.memory.weights + plan.memory.optimizer;
  return info;
}

std::string saves_text(const CheckpointConfig& config) {
  const Interval& every = config.every;
  const auto plural = [&](const char* word) {
    return every.count == 1 ? fmt::format("every {}", word)
                            : fmt::format("every {:.0f} {}s", every.count, word);
  };
  switch (every.unit) {
    case Interval::Unit::kNever:
      return "when asked to by a signal, not by itself";
    case Interval::Unit::kSteps:
      return fmt::format("{}, the {} newest stay", plural("step"), config.keep.value);
    case Interval::Unit::kEpochs:
      return fmt::format("{}, the {} newest stay", plural("epoch"), config.keep.value);
    case Interval::Unit::kSeconds:
      break;
  }
  return fmt::format("every {} s, the {} newest stay", every.count, config.keep.value);
}

void describe_resume(const CheckpointReader& reader, const TrainPosition& at,
                     const std::vector<ConfigChange>& changes, const DeviceMesh& mesh,
                     RunInfo& info) {
  info.resumed_from = reader.path();
  info.resumed_at = fmt::format("{} of epoch {} ({} steps in all)",
                                at.epoch_trained ? "the validation"
                                : at.batch == 0  ? "the beginning"
                                                 : fmt::format("after step {}", at.batch),
                                at.epoch + 1, at.step);
  const std::string before = sizes_text(reader.manifest().mesh), now = sizes_text(mesh.axes());
  if (before != now) {
    info.resumed_at += fmt::format("; re-laid from {} to {}", before, now);
  }
  for (const ConfigChange& change : changes) {
    info.changes.push_back({change.key, change.before, change.after});
  }
}

}  // namespace meshtrain
