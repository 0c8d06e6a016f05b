#include "train/describe_run.h"

#include <fmt/format.h>

#include "data/dataset_spec.h"
#include "engine/epoch_plan.h"
#include "exec/worker_pool.h"
#include "plan/gpu_hardware.h"
#include "plan/hardware_file.h"
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

// Ids of a sample that each have an output: those of a language model. 0 for other models.
int64_t tokens_of_sample(const Setup& setup) {
  const Model& model = setup.model();
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const Model::Call& input = model.calls()[static_cast<size_t>(model.inputs()[i])];
    const Shape& shape = setup.data().inputs[i].shape;
    if (input.dtype != DType::kInt32 || shape.size() != 1)
      continue;
    for (const int output : model.outputs()) {
      const Model::Call& call = model.calls()[static_cast<size_t>(output)];
      if (call.output_shape.size() == 3 && call.output_shape[1] == input.output_shape[1])
        return shape[0];
    }
  }
  return 0;
}

// What the products of the model multiply.
MatmulType product_type(const Config& config, bool is_gpu) {
  const std::string& policy = config.dtype_policy.value;
  if (policy.find("bfloat16") != std::string::npos)
    return MatmulType::kBFloat16;
  if (policy.find("float16") != std::string::npos)
    return MatmulType::kFloat16;
  if (policy == "float64")
    return MatmulType::kFloat64;
  return is_gpu && config.matmul_precision != MatmulPrecision::kHighest ? MatmulType::kTf32
                                                                        : MatmulType::kFloat32;
}

// The peak of all devices: of GPUs by their name in the table of hardware, of the processor where
// plan.hardware describes it. 0 when it is not known.
double peak_of(const Setup& setup, const std::string& gpu) {
  const Located<std::string>& file = setup.config().plan.hardware;
  if (gpu.empty() && file->empty())
    return 0;
  const std::vector<Hardware> table = load_hardware(file);
  const Hardware* const found =
      gpu.empty() ? find_hardware(table, "cpu") : hardware_of_gpu(table, gpu);
  if (found == nullptr)
    return 0;
  // Virtual devices share one processor.
  const double machines = found->is_virtual ? 1 : static_cast<double>(setup.mesh().num_devices());
  return machines * found->peak[static_cast<size_t>(product_type(setup.config(), !gpu.empty()))];
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
                     const RunData& data, const std::string& run_dir, const std::string& gpu) {
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
  info.work = {.tokens = static_cast<double>(fit.batch_size.value * tokens_of_sample(setup)),
               .flops = plan.model_flops,
               .peak = peak_of(setup, gpu)};
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
  info.overrides = given_overrides(request.load);
  if (config.data.train) {
    info.training_files = file_states(source_paths(*config.data.train, config.data));
  }
  info.bytes_per_device = plan.memory.weights + plan.memory.optimizer;
  return info;
}

std::string saves_text(const Config& config) {
  const Interval& every = config.checkpoint.every.value;
  if (every.unit == Interval::Unit::kNever) {
    return "when asked to by a signal, not by itself";
  }
  const auto plural = [&](const char* word) {
    return every.count == 1 ? fmt::format("every {}", word)
                            : fmt::format("every {:.0f} {}s", every.count, word);
  };
  const bool each_epoch = every.unit == Interval::Unit::kEpochs && every.count == 1;
  const std::string& given = config.checkpoint.monitor;
  const std::string monitored = !given.empty() ? given : config.validates() ? "val_loss" : "";
  return fmt::format("{}{}, the newest {} are kept",
                     every.unit == Interval::Unit::kSteps ? plural("step")
                     : every.unit == Interval::Unit::kEpochs
                         ? plural("epoch")
                         : fmt::format("every {} s", every.count),
                     monitored.empty() || each_epoch ? "" : " and at each best " + monitored,
                     config.checkpoint.keep.value);
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
