#include "train/verify_resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>

#include "base/durable_file.h"
#include "base/text.h"
#include "checkpoint/writer.h"
#include "config/run_files.h"
#include "config/source.h"
#include "engine/epoch_plan.h"
#include "engine/signals.h"
#include "train/moved_run.h"
#include "train/training_run.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A folder for the replay, which goes with the object.
class Scratch {
 public:
  explicit Scratch(const std::string& parent) {
    std::error_code error;
    const fs::path folder = parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
    path_ = (folder / "meshtrain-verify-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) {
      throw FileError(ExitCode::kWriteFailed, "cannot create", path_, errno);
    }
  }
  ~Scratch() { remove_folder(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool same_mesh(const CheckpointReader& a, const CheckpointReader& b) {
  const auto& x = a.manifest().mesh;
  const auto& y = b.manifest().mesh;
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](const MeshAxis& p, const MeshAxis& q) { return p.size == q.size; });
}

// Metrics may change on the way; another model or optimizer begins anew at the first of the two.
bool same_state(const CheckpointReader& a, const CheckpointReader& b) {
  const auto variables = [](const CheckpointReader& reader) {
    std::set<std::tuple<std::string, DType, Shape>> out;
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      if (tensor.kind != TensorKind::kMetric) {
        out.emplace(tensor.path, tensor.dtype, tensor.shape);
      }
    }
    return out;
  };
  return variables(a) == variables(b);
}

LoadOptions config_of(const CheckpointReader& reader, LoadOptions options) {
  const std::string name = reader.path() + "/" + run_files::kResolved;
  options.source = checked_source(name, reader.text(run_files::kResolved));
  follow_move(reader.path(), options);
  return options;
}

// Batches from one place to another, as the second one's config has them.
int64_t batches_between(const CheckpointReader& begin, const CheckpointReader& end) {
  const TrainPosition &from = begin.state().position, &to = end.state().position;
  const Config config = load_config(config_of(end, {}));
  const DataCursor& data = end.state().cursor;
  const int64_t in_pass =
      count_batches(data.num_samples, config.fit.batch_size, data.remainder == "drop");
  int64_t out = to.batch - from.batch;
  for (int64_t epoch = from.epoch; epoch < to.epoch; ++epoch) {
    out += plan_epoch(config.fit, in_pass, epoch).steps;
  }
  return out;
}

// Whether training went from one to the other as a resume does: without --reset-cursor or
// --reset-optimizer between them.
bool goes_on(const CheckpointReader& begin, const CheckpointReader& end) {
  const TrainState &from = begin.state(), &to = end.state();
  const int64_t steps = to.position.step - from.position.step;
  // A step whose gradients were not finite is none of the optimizer's.
  const bool optimizer_anew =
      from.iterations > 0 && to.iterations < from.iterations + steps && to.iterations <= steps;
  return !optimizer_anew && (from.position.batch == 0 || batches_between(begin, end) == steps);
}

// The newest two neighbours.
struct Stretch {
  std::unique_ptr<CheckpointReader> begin, end;
};
Stretch newest_interval(const std::string& run) {
  const std::string folder = run + "/" + run_files::kCheckpoints;
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  if (steps.size() < 2) {
    throw ConfigError("E400", {},
                      fmt::format("`{}` has {}: the proof of resume needs two", folder,
                                  steps.empty() ? "no checkpoint" : "one checkpoint"))
        .help("checkpoint.every=epoch saves each epoch; --checksums compares checksums alone");
  }
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    Stretch out{std::make_unique<CheckpointReader>(folder + "/" + checkpoint_name(steps[i + 1])),
                std::make_unique<CheckpointReader>(folder + "/" + checkpoint_name(steps[i]))};
    if (same_mesh(*out.begin, *out.end) &&
        out.begin->manifest().processes == out.end->manifest().processes &&
        same_state(*out.begin, *out.end) &&
        cursor_changes(out.begin->state(), out.end->state().cursor).empty() &&
        goes_on(*out.begin, *out.end)) {
      return out;
    }
  }
  throw ConfigError(
      "E400", {},
      fmt::format("no two neighbours in `{}` are of the same mesh, model, optimizer and data",
                  folder))
      .note("bit for bit a run is only equal on one mesh; on another, sums round differently")
      .help("--checksums compares checksums alone; two more saves on this mesh can be compared");
}

// Whether the replay, which is one process, adds in the fixed order that `reductions: auto` is for
// several. Throws ConfigError E400 where they added in the order of `fast`.
bool adds_as_several(const CheckpointReader& end) {
  const int64_t processes = end.manifest().processes;
  const ReductionOrder order = load_config(config_of(end, {})).distribution.reductions;
  if (processes > 1 && order == ReductionOrder::kFast) {
    throw ConfigError("E400", {},
                      fmt::format("`{}` is of {} processes with `distribution.reductions: fast`, "
                                  "whose sums one process cannot repeat",
                                  end.path(), processes))
        .help("--checksums compares checksums alone; train with `reductions: fixed` for the proof");
  }
  return processes > 1 && order == ReductionOrder::kAuto;
}

// Runs the interval again and returns the checkpoint that it ends with; "" when it never came
// there.
std::string replay(const Stretch& interval, RunRequest request, const std::string& scratch) {
  std::vector<std::string>& overrides = request.load.overrides;
  overrides.insert(overrides.begin(), {"checkpoint.every=never", "~run.max_time"});
  if (adds_as_several(*interval.end)) {
    overrides.insert(overrides.begin(), "distribution.reductions=fixed");
  }
  request.load = config_of(*interval.end, std::move(request.load));
  request.restore = {
      .allow = {"model", "compile.loss", "compile.loss_weights"}};  // the run may have had them
  request.console.quiet = true;
  request.console.format = LogFormat::kKeras;
  request.verbosity = Verbosity::kSilent;
  request.warn = [](const Diagnostics&) {};
  request.prints_events = false;
  TrainingRun run(std::move(request));
  run.drop_outside_callbacks();
  ResumeTarget target;
  target.run.dir = scratch + "/run";
  target.reader = std::make_unique<CheckpointReader>(interval.begin->path());
  const ReplayStop stop{interval.end->state().position, scratch + "/replayed"};
  bool started = false;
  try {
    run.run(std::move(target), started, stop);
  } catch (const ReplayEnded&) {
    return stop.save_as;
  } catch (const StopRequested&) {
    throw StopRequested(ExitCode::kInterrupted, "stopped before the replay was at its end");
  }
  return "";
}

int64_t first_difference(const HostTensor& a, const HostTensor& b) {
  const size_t size = dtype_size(a.dtype());
  for (int64_t i = 0; i < a.size(); ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(a.bytes() + at, b.bytes() + at, size) != 0) {
      return i;
    }
  }
  return -1;
}

// What differs between two checkpoints, one line each. In a validation the metrics hold what has
// been seen of it, which a resumed run sees again from its beginning.
std::vector<std::string> differences(const CheckpointReader& saved, const CheckpointReader& again) {
  std::vector<std::string> out;
  const bool with_metrics = !saved.state().position.epoch_trained;
  for (const CheckpointTensor& tensor : saved.manifest().tensors) {
    if (tensor.kind == TensorKind::kMetric && !with_metrics) {
      continue;
    }
    const CheckpointTensor* other = again.find(tensor.path);
    if (other == nullptr || other->dtype != tensor.dtype || other->shape != tensor.shape) {
      out.push_back(fmt::format("`{}` is not there as {} {}", tensor.path, dtype_name(tensor.dtype),
                                shape_string(tensor.shape)));
      continue;
    }
    const HostTensor a = saved.read(tensor), b = again.read(*other);
    if (const int64_t at = first_difference(a, b); at >= 0) {
      out.push_back(fmt::format("`{}`: element {} was saved as {}, the replay gives {}",
                                tensor.path, at, format_shortest(a.at(at)),
                                format_shortest(b.at(at))));
    }
  }
  const TrainState &x = saved.state(), &y = again.state();
  if (x.iterations != y.iterations || x.learning_rate != y.learning_rate) {
    out.push_back("the optimizer's step or learning rate");
  }
  if (x.position.logs != y.position.logs) {
    out.push_back("the epoch's logs");
  }
  return out;
}

}  // namespace

namespace {

ResumeProof prove(const Stretch& interval, RunRequest request, const std::string& scratch) {
  ResumeProof out{.from = interval.begin->manifest().step,
                  .to = interval.end->manifest().step,
                  .num_tensors = interval.end->manifest().tensors.size()};
  const Scratch folder(scratch);
  const std::string again = replay(interval, std::move(request), folder.path());
  if (again.empty()) {
    out.differences.push_back(
        fmt::format("the replay ended without ever being at step {}", out.to));
  } else {
    out.differences = differences(*interval.end, CheckpointReader(again));
  }
  return out;
}

}  // namespace

// A run in progress deletes its old checkpoints, maybe those that the proof is reading.
ResumeProof verify_resume(const std::string& run, const RunRequest& request,
                          const std::string& scratch) {
  constexpr int kTries = 3;
  const std::string folder = run + "/" + run_files::kCheckpoints;
  for (int i = 1;; ++i) {
    const std::vector<int64_t> steps = checkpoint_steps(folder);
    try {
      return prove(newest_interval(run), request, scratch);
    } catch (const ConfigError& error) {
      if (checkpoint_steps(folder) == steps) {
        throw;
      }
      if (i == kTries) {
        throw ConfigError("E455", {},
                          fmt::format("a process trains `{}`, and deletes checkpoints before the "
                                      "proof has read them",
                                      run))
            .note(error.diagnostics().list().front().message)
            .help("--checksums compares checksums alone; a larger checkpoint.keep keeps more");
      }
    }
  }
}

}  // namespace meshtrain
