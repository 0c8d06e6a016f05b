#include "checkpoint/restore.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "checkpoint/snapshot.h"
#include "config/load.h"
#include "config/run_files.h"
#include "engine/weights.h"
#include "exec/executor.h"

namespace meshtrain {

void read_shards(const CheckpointReader& reader, const CheckpointTensor& tensor,
                 VariableStore& store, int variable) {
  const Variable& v = store.variables()[static_cast<size_t>(variable)];
  const Sharding& storage = v.layout.storage;
  const MeshPart& part = store.part();
  const AxisMask axes = storage.used_axes();
  const Shape shape = local_shape(v.shape, storage, part.mesh());
  const auto bytes = static_cast<size_t>(store.shard_bytes(variable));
  std::vector<std::byte> shards(bytes * static_cast<size_t>(part.num_shards(axes)));
  for (int64_t p = 0; p < part.num_shards(axes); ++p) {
    reader.read_box(tensor, local_start(v.shape, storage, part.mesh(), part.device_of(axes, p)),
                    shape, shards.data() + static_cast<size_t>(p) * bytes);
  }
  store.write_shards(variable, shards.data());
}

namespace {

// Puts the findings of one kind under one error.
void report(Diagnostics& diagnostics, const char* code, const std::string& message,
            const std::vector<std::string>& lines, const std::string& help) {
  if (lines.empty()) {
    return;
  }
  Diagnostic& error = diagnostics.error(code, {}, message);
  note_each(error, lines);
  if (!help.empty()) {
    error.help(help);
  }
}

std::string kind_of(const CheckpointTensor& tensor) {
  return fmt::format("{} {}", dtype_name(tensor.dtype), shape_string(tensor.shape));
}
std::string kind_of(const Variable& variable) {
  return fmt::format("{} {}", dtype_name(variable.dtype), shape_string(variable.own_shape()));
}

// "adam" of "adam/iteration"
std::string optimizer_of(const std::string& path) {
  return path.substr(0, path.find('/'));
}

class Restorer {
 public:
  Restorer(Engine& engine, const CheckpointReader& reader, const RestoreOptions& options)
      : engine_(engine), reader_(reader), options_(options) {
    for (const CheckpointTensor& tensor : reader.manifest().tensors) {
      saved_[tensor.path] = &tensor;
    }
  }

  void check(const DataCursor& cursor, const std::vector<ConfigChange>& changes,
             std::vector<std::string>& warnings) {
    Diagnostics diagnostics;
    const std::vector<std::string> lines = differences(true);
    if (options_.partial && any_weight_fits()) {
      for (const std::string& line : lines) {
        warnings.push_back(fmt::format("{}: {}", reader_.path(), line));
      }
    } else {
      report(diagnostics, "E410", fmt::format("`{}` is of another model", reader_.path()), lines,
             any_weight_fits() ? "--partial takes the weights that fit" : "");
    }
    if (!diagnostics.has_errors()) {
      check_config(changes, diagnostics);
    }
    if (!options_.reset_optimizer) {
      check_optimizer(diagnostics);
    }
    if (!options_.reset_cursor) {
      check_cursor(cursor, diagnostics);
    }
    diagnostics.throw_if_errors();
  }

  void fill(bool with_metrics, std::vector<std::string>& warnings) {
    VariableStore& store = engine_.store();
    std::set<std::string> lost;
    for (size_t v = 0; v < store.variables().size(); ++v) {
      const Variable& variable = store.variables()[v];
      if (!is_state(variable)) {
        break;
      }
      const bool is_weight = variable.role == VariableRole::kWeight;
      const bool is_metric = variable.role == VariableRole::kMetric;
      if (is_metric && variable.follows != kNone) {  // a callback's copy of a weight
        if (const CheckpointTensor* kept = fitting(variable)) {
          read_shards(reader_, *kept, store, static_cast<int>(v));
        }
        continue;
      }
      if ((is_metric && !with_metrics) || (!is_metric && !is_weight && options_.reset_optimizer)) {
        continue;
      }
      const CheckpointTensor* tensor = fitting(variable);
      if (tensor != nullptr) {
        read_shards(reader_, *tensor, store, static_cast<int>(v));
        if (is_weight && options_.reset_optimizer) {
          fill_copies(*tensor, v);
        }
      } else if (is_metric) {
        lost.insert(variable.path.substr(0, variable.path.rfind('/')));
      }  // else a weight of another model, which keeps its initial value
    }
    for (const std::string& metric : lost) {
      warnings.push_back(
          fmt::format("the checkpoint has nothing of metric `{}`: in this epoch it counts from "
                      "here on",
                      metric));
    }
  }

  bool all_weights_fit() const { return differences(true).empty(); }

 private:
  // Slots that start as a copy of the weight, out of its own tensor: several processes could not
  // ask each other for it where one of them cannot read.
  void fill_copies(const CheckpointTensor& tensor, size_t weight) {
    const StepGraphs& graphs = engine_.setup().graphs();
    for (size_t s = 0; s < graphs.slots(weight).size(); ++s) {
      if (graphs.slots(weight)[s].copy_weight) {
        read_shards(reader_, tensor, engine_.store(), graphs.slot_variable(weight, s));
      }
    }
  }

  const CheckpointTensor* saved(const Variable& variable) const {
    const auto found = saved_.find(checkpoint_path(variable));
    return found == saved_.end() ? nullptr : found->second;
  }
  // The same, null where it has another shape or type.
  const CheckpointTensor* fitting(const Variable& variable) const {
    const CheckpointTensor* tensor = saved(variable);
    return tensor != nullptr && kind_of(*tensor) == kind_of(variable) ? tensor : nullptr;
  }

  bool any_weight_fits() const {
    const std::vector<Variable>& variables = engine_.store().variables();
    return std::any_of(variables.begin(), variables.end(), [&](const Variable& variable) {
      return variable.role == VariableRole::kWeight && fitting(variable) != nullptr;
    });
  }

  // Returns the differences of weights, or of optimizer state, between checkpoint and model.
  std::vector<std::string> differences(bool weights) const {
    std::vector<std::string> lines, unexpected;
    std::set<std::string> known;
    for (const Variable& variable : engine_.store().variables()) {
      known.insert(checkpoint_path(variable));
    }
    for (const auto& [path, tensor] : saved_) {
      const bool is_weight = tensor->kind == TensorKind::kWeight;
      if (is_weight == weights && tensor->kind != TensorKind::kMetric && !known.contains(path)) {
        unexpected.push_back(path);
      }
    }
    for (const Variable& variable : engine_.store().variables()) {
      const bool is_weight = variable.role == VariableRole::kWeight;
      if (is_weight != weights || variable.role == VariableRole::kMetric) {
        continue;
      }
      const CheckpointTensor* tensor = saved(variable);
      if (tensor == nullptr) {
        const auto near = nearest_path(variable.path, unexpected);
        lines.push_back(fmt::format("missing: {} {}{}", variable.path, kind_of(variable),
                                    near ? fmt::format("; it has `{}`", *near) : ""));
      } else if (kind_of(*tensor) != kind_of(variable)) {
        lines.push_back(fmt::format("other: {} is {} in the checkpoint, {} in the model",
                                    variable.path, kind_of(*tensor), kind_of(variable)));
      }
    }
    for (const std::string& path : unexpected) {
      lines.push_back(fmt::format("unexpected: {} {}", path, kind_of(*saved_.at(path))));
    }
    return lines;
  }

  void check_config(const std::vector<ConfigChange>& changes, Diagnostics& diagnostics) const {
    std::vector<std::string> lines;
    for (const ConfigChange& change : changes) {
      const bool of_model = is_key_below(change.key, "model") && change.key != "model.name";
      const bool matters = (of_model && !options_.partial) ||
                           is_key_below(change.key, "compile.loss") ||
                           is_key_below(change.key, "compile.loss_weights");
      const bool allowed =
          std::any_of(options_.allow.begin(), options_.allow.end(),
                      [&](const std::string& key) { return is_key_below(change.key, key); });
      if (matters && !allowed) {
        lines.push_back(fmt::format("{}: {} -> {}", change.key, change.before, change.after));
      }
    }
    report(diagnostics, "E411", "the model or its loss is not that of the checkpoint", lines,
           "--allow KEY takes a change as it is");
  }

  void check_optimizer(Diagnostics& diagnostics) const {
    const Variable& wanted =
        engine_.store().variables()[engine_.setup().graphs().iteration_variable()];
    std::string theirs;
    for (const auto& [path, tensor] : saved_) {
      // A loss scale has a counter of its own beside its optimizer's.
      if (tensor->kind == TensorKind::kScalar && ends_with(path, "/iteration") &&
          optimizer_of(theirs) != optimizer_of(wanted.path)) {
        theirs = path;
      }
    }
    theirs = optimizer_of(theirs);
    constexpr const char* kHelp = "--reset-optimizer takes the weights alone";
    if (theirs != optimizer_of(wanted.path)) {
      report(diagnostics, "E412",
             fmt::format("the checkpoint has the state of `{}`, the config says `{}`", theirs,
                         optimizer_of(wanted.path)),
             {"compile.optimizer"}, kHelp);
    } else {
      report(diagnostics, "E412", "the optimizer keeps other state than in the checkpoint",
             differences(false), kHelp);
    }
  }

  void check_cursor(const DataCursor& now, Diagnostics& diagnostics) const {
    const TrainPosition& at = reader_.state().position;
    std::vector<std::string> lines;
    std::string allow;
    for (const CursorChange& change : cursor_changes(reader_.state(), now)) {
      if (std::find(options_.allow.begin(), options_.allow.end(), change.key) ==
          options_.allow.end()) {
        lines.push_back(fmt::format("{}: {} -> {}", change.key, change.before, change.after));
        allow += " --allow " + change.key;
      }
    }
    report(
        diagnostics, "E413",
        fmt::format("the place in the data (epoch {}, batch {}) cannot be found in other data or "
                    "another order",
                    at.epoch + 1, at.batch),
        lines,
        fmt::format("--reset-cursor begins the epoch anew;{} continues at the same number", allow));
  }

  Engine& engine_;
  const CheckpointReader& reader_;
  const RestoreOptions& options_;
  std::map<std::string, const CheckpointTensor*> saved_;
};

}  // namespace

std::vector<ConfigChange> changes_since(const CheckpointReader& reader, std::string_view now) {
  std::string before = reader.text(run_files::kResolved);
  LoadOptions options;
  options.source = std::make_shared<SourceFile>(SourceFile{run_files::kResolved, before});
  options.require_data = false;
  try {
    before = show_config(options, false);
  } catch (const ConfigError&) {  // of a version that took what is an error now: as it stands
  }
  return config_changes(before, now);
}

namespace {

// Whether the config asks for another rate, or schedule, than the checkpoint's.
bool has_other_rate(const std::vector<ConfigChange>& changes) {
  return std::any_of(changes.begin(), changes.end(), [](const ConfigChange& change) {
    return is_key_below(change.key, "compile.optimizer") &&
           (change.key + ".").find(".learning_rate.") != std::string::npos;
  });
}

}  // namespace

void check_allowed_keys(const std::vector<std::string>& allow) {
  // With all below it: Restorer::check_config(); exactly: cursor_changes().
  const std::string kWhole[] = {"model", "compile.loss", "compile.loss_weights"};
  const std::string kExact[] = {"data.train",          "seed",           "fit.batch_size",
                                "fit.steps_per_epoch", "data.remainder", "data.shuffle"};
  for (const std::string& key : allow) {
    const bool is_known =
        key == "compile" ||
        std::find(std::begin(kExact), std::end(kExact), key) != std::end(kExact) ||
        std::any_of(std::begin(kWhole), std::end(kWhole),
                    [&](const std::string& whole) { return is_key_below(key, whole); });
    if (!is_known) {
      throw ConfigError("E140", {},
                        fmt::format("`--allow {}`: no such key keeps a run from resuming", key))
          .help(fmt::format("one of {}, or {} and keys of theirs", join(kExact, ", "),
                            join(kWhole, ", ")));
    }
  }
}

bool has_same_weights(Engine& engine, const CheckpointReader& reader) {
  const RestoreOptions options;
  return Restorer(engine, reader, options).all_weights_fit();
}

TrainPosition restore(Engine& engine, const CheckpointReader& reader, const DataCursor& cursor,
                      const std::vector<ConfigChange>& changes, const RestoreOptions& options,
                      std::vector<std::string>& warnings) {
  Restorer restorer(engine, reader, options);
  restorer.check(cursor, changes, warnings);
  const TrainState& state = reader.state();
  TrainPosition at = state.position;
  if (options.reset_cursor) {
    at = {.step = at.step, .epoch = at.epoch};
  }
  restorer.fill(at.batch > 0 && !at.epoch_trained, warnings);
  if (!options.reset_optimizer) {
    // A rate that a callback set depends on the config of the checkpoint.
    engine.restore_counters(state.iterations, has_other_rate(changes) ? -1 : state.learning_rate);
  }
  return at;
}

}  // namespace meshtrain
