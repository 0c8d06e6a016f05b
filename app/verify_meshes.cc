// meshtrain verify CONFIG: the same numbers on every mesh.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/text.h"
#include "data/epoch_order.h"
#include "engine/adapt.h"
#include "engine/engine.h"
#include "engine/run_data.h"
#include "engine/signals.h"
#include "exec/executor.h"
#include "train/load_weights.h"
#include "train/trainer.h"
#include "verify.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxMeshes = 12;

using Sizes = std::vector<int64_t>;

std::string sizes_text(const Sizes& sizes) {
  std::vector<std::string> parts;
  for (const int64_t size : sizes) {
    parts.push_back(std::to_string(size));
  }
  return parts.empty() ? "1" : join(parts, " x ");
}

// Every way to lay `count` devices out over `rank` axes.
void factorize(int64_t count, size_t rank, Sizes& prefix, std::vector<Sizes>& out) {
  if (prefix.size() + 1 == rank) {
    out.push_back(prefix);
    out.back().push_back(count);
    return;
  }
  for (int64_t size = 1; size <= count; ++size) {
    if (count % size == 0) {
      prefix.push_back(size);
      factorize(count / size, rank, prefix, out);
      prefix.pop_back();
    }
  }
}

// The config in float64, on its own mesh or on another of the same axes.
LoadOptions options_for(Arguments arguments, const std::vector<std::string>& names,
                        const Sizes& sizes) {
  arguments.sets.push_back("dtype_policy=float64");
  if (!sizes.empty()) {
    std::vector<std::string> axes;
    for (size_t i = 0; i < names.size(); ++i) {
      axes.push_back(fmt::format("{}={}", names[i], sizes[i]));
    }
    arguments.mesh = join(axes, ",");
    arguments.devices = "auto";
  }
  return load_options(arguments, true);
}

// Layers have a type of their own by `dtype:` or dtype_policy_map: all compute in float64 here.
Config in_float64(Config config) {
  for (LayerConfig& layer : config.model.layers) {
    if (layer.object.class_name != "Input" && layer.object.class_name != "InputLayer") {
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
    if (config_.fit.initial_weights->empty()) {
      adapt_to_data(engine_.model(), train, engine_);
    } else {
      load_weights(engine_, config_.fit.initial_weights, config_.fit.initial_weights.loc,
                   &engine_.model());
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
std::vector<std::vector<int64_t>> batches_of(const Config& config, const Dataset& train,
                                             int64_t steps) {
  const EpochOrder order = config.data.shuffle ? EpochOrder(train.num_samples, config.seed, 0)
                                               : EpochOrder(train.num_samples);
  const int64_t size = config.fit.batch_size, full = train.num_samples / size;
  std::vector<std::vector<int64_t>> out;
  for (int64_t step = 0; step < std::min(steps, full); ++step) {
    out.push_back(order.rows(step * size, size));
  }
  if (train.num_samples % size != 0 && config.data.remainder != Remainder::kDrop) {
    out.push_back(order.rows(full * size, train.num_samples % size));
  }
  return out;
}

// "4 steps of 64 and one of 16"
std::string batches_text(const std::vector<std::vector<int64_t>>& batches, int64_t size) {
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

// Two models that do the same steps.
class Comparison {
 public:
  Comparison(Engine& one, Engine& mesh, double tolerance)
      : one_(one), mesh_(mesh), tolerance_(tolerance) {}

  // The first thing that differs, in words; empty when all agree.
  std::string run(const Dataset& train, const std::vector<std::vector<int64_t>>& batches) {
    std::string differs = variables("before the first step");
    for (size_t step = 0; step < batches.size() && differs.empty(); ++step) {
      throw_if_stopped(fmt::format("step {} of {}", step, batches.size()));
      const Batch batch{&train, batches[step]};
      one_.train_step(batch);
      mesh_.train_step(batch);
      const std::string when = fmt::format("after step {}", step + 1);
      differs = number("the loss", one_.last_loss(), mesh_.last_loss(), when);
      const std::string tensors = variables(when);
      differs += differs.empty() || tensors.empty() ? tensors : "; " + tensors;
    }
    const Logs a = one_.logs(), b = mesh_.logs();
    for (size_t i = 0; i < a.size() && differs.empty(); ++i) {
      differs = number("metric `" + a[i].first + "`", a[i].second, b[i].second, "at the end");
    }
    return differs;
  }

  double largest() const { return largest_; }
  const std::string& largest_at() const { return largest_at_; }

 private:
  double difference(double a, double b, const std::string& what) {
    const bool both_nan = std::isnan(a) && std::isnan(b);
    const double out = a == b || both_nan ? 0 : std::abs(a - b) / std::max(1.0, std::abs(a));
    if (out > largest_ || std::isnan(out)) {
      largest_ = out;
      largest_at_ = what;
    }
    return out;
  }

  std::string number(const std::string& what, double a, double b, const std::string& when) {
    const double apart = difference(a, b, what);
    return apart <= tolerance_ ? ""
                               : fmt::format("{} is {} on one device and {} here, {}", what,
                                             format_shortest(a), format_shortest(b), when);
  }

  // Weights in Keras' order, then the optimizer's state.
  std::string variables(const std::string& when) {
    VariableStore &a = one_.store(), &b = mesh_.store();
    std::string first;
    int others = 0;
    for (size_t v = 0; v < a.variables().size(); ++v) {
      const Variable& variable = a.variables()[v];
      if (variable.role == VariableRole::kMetric) {
        continue;
      }
      const std::string differs =
          tensor(variable.path, a.read(static_cast<int>(v)), b.read(b.find(variable.path)), when);
      others += !differs.empty() && !first.empty() ? 1 : 0;
      first = first.empty() ? differs : first;
    }
    return others > 0 ? fmt::format("{}; so do {} other tensors", first, others) : first;
  }

  std::string tensor(const std::string& path, const HostTensor& a, const HostTensor& b,
                     const std::string& when) {
    for (int64_t i = 0; i < a.size(); ++i) {
      const double apart = difference(a.at(i), b.at(i), path);
      if (!(apart <= tolerance_)) {
        return fmt::format("`{}`{} differs {}: element {} is {} on one device and {} here", path,
                           shape_string(a.shape()), when, i, format_shortest(a.at(i)),
                           format_shortest(b.at(i)));
      }
    }
    return "";
  }

  Engine &one_, &mesh_;
  double tolerance_;
  double largest_ = 0;
  std::string largest_at_;
};

// "cannot hold this: E213 ..." for a mesh that the layouts or the batch do not fit.
std::string first_problem(const ConfigError& error) {
  const Diagnostic& problem = error.diagnostics().list().front();
  return fmt::format("[{}] {}", problem.code, problem.message);
}

class MeshProof {
 public:
  explicit MeshProof(const Arguments& arguments)
      : arguments_(arguments), own_(options_for(arguments, {}, {}), nullptr) {
    const DeviceMesh& mesh = own_.engine().mesh();
    names_ = mesh.axis_names();
    own_sizes_ = mesh.shape();
    if (mesh.num_devices() == 1) {
      throw ConfigError("E140", own_.config().distribution.mesh.shape.loc,
                        "the mesh has one device: there is nothing to compare with")
          .help("--devices cpu:8 --mesh 4x2, or any other");
    }
    batches_ = batches_of(own_.config(), *own_.data().train, arguments.steps);
    if (batches_.empty()) {
      throw ConfigError(
          "E316", own_.config().fit.batch_size.loc,
          fmt::format("no step to compare: {} samples do not fill a batch of {}",
                      own_.data().train->num_samples, own_.config().fit.batch_size.value));
    }
  }

  int run() {
    out_stream().write(fmt::format("reference   one device, float64, {} from seed {}\n",
                                   batches_text(batches_, own_.config().fit.batch_size),
                                   own_.config().seed.value));
    show(own_sizes_, compare(own_.engine()));
    std::vector<Sizes> others;
    Sizes prefix;
    factorize(own_.engine().mesh().num_devices(), names_.size(), prefix, others);
    std::erase(others, own_sizes_);
    for (size_t i = 0; i < std::min(others.size(), kMaxMeshes); ++i) {
      std::optional<Subject> subject;
      try {
        subject.emplace(options_for(arguments_, names_, others[i]), &own_.data());
      } catch (const ConfigError& error) {
        out_stream().write(
            fmt::format("{:<12}not possible: {}\n", sizes_text(others[i]), first_problem(error)));
        continue;
      }
      show(others[i], compare(subject->engine()));
    }
    if (others.size() > kMaxMeshes) {
      out_stream().write(fmt::format("{} more meshes of {} devices were not tried\n",
                                     others.size() - kMaxMeshes,
                                     own_.engine().mesh().num_devices()));
    }
    return failed_ ? static_cast<int>(ExitCode::kCheckFailed) : 0;
  }

 private:
  struct Outcome {
    std::string differs;
    double largest = 0;
    std::string largest_at;
  };

  Outcome compare(Engine& engine) {
    Subject one(options_for(arguments_, names_, Sizes(names_.size(), 1)), &own_.data());
    Comparison comparison(one.engine(), engine, arguments_.tolerance);
    Outcome out{.differs = comparison.run(*own_.data().train, batches_)};
    out.largest = comparison.largest();
    out.largest_at = comparison.largest_at();
    return out;
  }

  void show(const Sizes& sizes, const Outcome& outcome) {
    if (outcome.differs.empty()) {
      out_stream().write(fmt::format("{:<12}equal; the largest difference is {:.2g}{}\n",
                                     sizes_text(sizes), outcome.largest,
                                     outcome.largest > 0 ? " in " + outcome.largest_at : ""));
    } else {
      failed_ = true;
      out_stream().write(fmt::format("{:<12}NOT equal: {}\n", sizes_text(sizes), outcome.differs));
    }
  }

  const Arguments& arguments_;
  Subject own_;
  std::vector<std::string> names_;
  Sizes own_sizes_;
  std::vector<std::vector<int64_t>> batches_;
  bool failed_ = false;
};

}  // namespace

int verify_meshes(const Arguments& arguments) {
  catch_stop_signals();
  return MeshProof(arguments).run();
}

}  // namespace meshtrain
