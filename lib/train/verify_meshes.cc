#include "train/verify_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/text.h"
#include "config/optimizer_members.h"
#include "data/epoch_order.h"
#include "engine/adapt.h"
#include "engine/engine.h"
#include "engine/plan_search.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "train/engine_comparison.h"
#include "train/load_weights.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxMeshes = 12;

using Sizes = std::vector<int64_t>;
using BatchRows = EngineComparison::BatchRows;

std::string sizes_text(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const int64_t size : sizes) {
    parts.push_back(std::to_string(size));
  }
  return parts.empty() ? "1" : join(parts, " x ");
}

// As if `flag` had said it last.
void set_flag(LoadOptions& load, const std::string& key, const std::string& value,
              const std::string& flag) {
  for (size_t i = 0; i < load.flags.size(); ++i) {
    if (load.flags[i].first == key) {
      load.flags[i].second = value;
      load.flag_names[i] = flag;
      return;
    }
  }
  load.flags.emplace_back(key, value);
  load.flag_names.push_back(flag);
}

// The config in float64, on its own mesh or on another of the same axes.
LoadOptions options_for(LoadOptions load, const std::vector<std::string>& names,
                        const Sizes& sizes) {
  load.overrides.push_back("dtype_policy=float64");
  if (!sizes.empty()) {
    std::vector<std::string> axes;
    for (size_t i = 0; i < names.size(); ++i) {
      axes.push_back(fmt::format("{}={}", names[i], sizes[i]));
    }
    set_flag(load, "distribution.device_mesh.shape", join(axes, ","), "--mesh");
    set_flag(load, "distribution.device_mesh.devices", "auto", "--devices");
  }
  return load;
}

// Layers have a type of their own by `dtype:` or dtype_policy_map: all compute in float64 here.
Config in_float64(Config config) {
  for (LayerConfig& layer : config.model.layers) {
    if (layer.object.class_name != "Input") {
      layer.object.args.erase("dtype");
    }
  }
  return config;
}

// A model on its mesh, before its first step.
class Subject {
 public:
  Subject(const LoadOptions& options, const RunData* data)
      : config_(in_float64(load_config(options))),
        data_(data == nullptr ? load_run_data(config_, true, DataPart::kNone) : RunData{}),
        engine_(config_, data_spec(*(data == nullptr ? data_ : *data).train)) {
    const Dataset& train = *(data == nullptr ? data_ : *data).train;
    const bool is_partial = config_.fit.partial_weights;
    if (config_.fit.initial_weights->empty() || is_partial) {
      adapt_to_data(engine_.model(), train, engine_);
    }
    if (!config_.fit.initial_weights->empty()) {
      std::vector<std::string> unfit;
      load_weights(engine_, config_.fit.initial_weights, config_.fit.initial_weights.loc,
                   &engine_.model(), is_partial ? &unfit : nullptr);
    }
    engine_.reset_metrics();
  }

  const Config& config() const { return config_; }
  const RunData& data() const { return data_; }
  Engine& engine() { return engine_; }

 private:
  Config config_;
  RunData data_;  // empty when another's is used
  Engine engine_;
};

// The batches to compare: the first of epoch 1, and its last when that is smaller.
BatchRows batches_of(const Config& config, const Dataset& train, int64_t steps) {
  const EpochOrder order = config.data.shuffle ? EpochOrder(train.num_samples, config.seed, 0)
                                               : EpochOrder(train.num_samples);
  const int64_t size = config.fit.batch_size, full = train.num_samples / size;
  BatchRows out;
  for (int64_t step = 0; step < std::min(steps, full); ++step) {
    out.push_back(order.rows(step * size, size));
  }
  if (train.num_samples % size != 0 && config.data.remainder != Remainder::kDrop) {
    out.push_back(order.rows(full * size, train.num_samples % size));
  }
  return out;
}

// "4 steps of 64 and one of 16"
std::string batches_text(const BatchRows& batches, int64_t size) {
  const auto whole = std::count_if(batches.begin(), batches.end(), [&](const auto& rows) {
    return static_cast<int64_t>(rows.size()) == size;
  });
  if (whole == 0) {
    return batches.empty() ? "no step" : fmt::format("1 step of {}", batches[0].size());
  }
  std::string out = fmt::format("{} step{} of {}", whole, whole == 1 ? "" : "s", size);
  if (whole < std::ssize(batches)) {
    out += fmt::format(" and one of {}", batches.back().size());
  }
  return out;
}

// "cannot hold this: E213 ..." for a mesh that the layouts or the batch do not fit.
std::string first_problem(const ConfigError& error) {
  const std::vector<Diagnostic>& all = error.diagnostics().list();
  const auto found = std::find_if(all.begin(), all.end(), [](const Diagnostic& one) {
    return one.severity == Severity::kError;
  });
  const Diagnostic& problem = found == all.end() ? all.front() : *found;
  return fmt::format("[{}] {}", problem.code, problem.message);
}

class MeshProof {
 public:
  explicit MeshProof(const MeshProofOptions& options)
      : options_(options), own_(options_for(options.load, {}, {}), nullptr) {
    const DeviceMesh& mesh = own_.engine().mesh();
    names_ = mesh.axis_names();
    own_sizes_ = mesh.shape();
    if (mesh.num_devices() == 1) {
      throw ConfigError("E140", own_.config().distribution.mesh.shape.loc,
                        "the mesh has one device: there is nothing to compare with")
          .help("--devices cpu:8 --mesh 4x2, or any other");
    }
    batches_ = batches_of(own_.config(), *own_.data().train, options.steps);
    if (batches_.empty()) {
      throw ConfigError(
          "E316", own_.config().fit.batch_size.loc,
          fmt::format("no step to compare: {} samples do not fill a batch of {}",
                      own_.data().train->num_samples, own_.config().fit.batch_size.value));
    }
  }

  bool run() {
    options_.show(fmt::format("reference   one device, float64, {} from seed {}\n",
                              batches_text(batches_, own_.config().fit.batch_size),
                              own_.config().seed.value));
    show(own_sizes_, compare(own_.engine()));
    std::vector<Sizes> others = factorizations(own_.engine().mesh().num_devices(), names_.size());
    std::reverse(others.begin(), others.end());  // small first axes first
    std::erase(others, own_sizes_);
    for (size_t i = 0; i < std::min(others.size(), kMaxMeshes); ++i) {
      std::optional<Subject> subject;
      try {
        subject.emplace(options_for(options_.load, names_, others[i]), &own_.data());
      } catch (const ConfigError& error) {
        options_.show(
            fmt::format("{:<12}not possible: {}\n", sizes_text(others[i]), first_problem(error)));
        continue;
      }
      show(others[i], compare(subject->engine()));
    }
    if (others.size() > kMaxMeshes) {
      options_.show(fmt::format("{} more meshes of {} devices were not tried\n",
                                others.size() - kMaxMeshes, own_.engine().mesh().num_devices()));
    }
    note_rounding();
    return !failed_;
  }

 private:
  struct Outcome {
    std::string differs;
    double largest = 0;
    std::string largest_at;
  };

  Outcome compare(Engine& engine) {
    Subject one(options_for(options_.load, names_, Sizes(names_.size(), 1)), &own_.data());
    EngineComparison comparison(one.engine(), engine, options_.tolerance);
    Outcome out{.differs = comparison.run(*own_.data().train, batches_)};
    out.largest = comparison.largest();
    out.largest_at = comparison.largest_at();
    return out;
  }

  void show(const Sizes& sizes, const Outcome& outcome) {
    if (outcome.differs.empty()) {
      options_.show(fmt::format("{:<12}equal; the largest difference is {:.2g}{}\n",
                                sizes_text(sizes), outcome.largest,
                                outcome.largest > 0 ? " in " + outcome.largest_at : ""));
    } else {
      failed_ = true;
      options_.show(fmt::format("{:<12}NOT equal: {}\n", sizes_text(sizes), outcome.differs));
    }
  }

  // A gradient of rounding errors alone differs from mesh to mesh; updates of Adam are then as
  // small as it is, those of these optimizers are not.
  void note_rounding() const {
    const std::string_view kScaling[] = {"Adafactor", "Lamb", "Lion", "Muon"};
    const std::vector<OptimizerMember> members = optimizer_members(own_.config().compile.optimizer);
    const auto member =
        std::find_if(members.begin(), members.end(), [&](const OptimizerMember& each) {
          return std::find(std::begin(kScaling), std::end(kScaling), each.config->class_name) !=
                 std::end(kScaling);
        });
    if (failed_ && member != members.end()) {
      options_.show(fmt::format(
          "note        {} makes updates of full size even of gradients that are zero but for "
          "rounding, such as that of a bias before BatchNormalization: there differences prove "
          "nothing. Leave that bias out (`use_bias: false`), or verify with `compile.optimizer=SGD`"
          "\n",
          member->config->class_name));
    }
  }

  const MeshProofOptions& options_;
  Subject own_;
  std::vector<std::string> names_;
  Sizes own_sizes_;
  BatchRows batches_;
  bool failed_ = false;
};

}  // namespace

bool verify_meshes(const MeshProofOptions& options) {
  catch_stop_signals();
  return MeshProof(options).run();
}

}  // namespace meshtrain
