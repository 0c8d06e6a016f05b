// Config: the whole configuration as typed values that remember their place in the file. Made by
// load_config(); after that nothing asks again whether a key exists or has the right type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/interval.h"
#include "config/object.h"
#include "mesh/layout_map.h"

namespace meshtrain {

// A value and where it was written (no place for a default).
template <class T>
struct Located {
  T value{};
  SourceLoc loc;
  operator const T&() const { return value; }
  const T* operator->() const { return &value; }
};

struct MeshConfig {
  Located<std::vector<int64_t>> shape;  // empty: one axis over all devices
  Located<std::vector<std::string>>
      axis_names;  // defaults to ["batch"] (1-D) or ["batch", "model"] (2-D)
  Located<std::string> devices{"auto", {}};  // auto | cpu:8 | gpu:0-7 | gpu:0x8 | 64xH100
};

struct DistributionConfig {
  Located<std::string> type{"DataParallel", {}};  // DataParallel | ModelParallel
  MeshConfig mesh;
  Located<std::vector<std::string>> batch_dim_name;    // empty: the first axis; several for HSDP
  std::vector<LayoutRule> layout_map;                  // in file order
  Located<std::string> layout_match{"fullmatch", {}};  // fullmatch | search
  Located<std::string> reductions{"auto", {}};         // auto | fixed | fast
  Located<int64_t> zero;                               // 0..3
  Located<std::vector<std::string>> zero_axes;         // empty: the batch axis
  Located<bool> reshard_after_forward{true, {}};
  Located<std::string> unmatched_rule{"error", {}};  // checks.unmatched_rule: error | warn | off
};

// One entry of model.layers.
struct LayerConfig {
  ConfigObject object;
  Located<std::string> name;  // always set: given, or Keras' automatic name
  bool name_is_automatic = false;
  std::vector<Located<std::string>> inputs;  // names of earlier layers; empty only for Input
  Located<std::string> shared_layer;         // Call: the layer used again (class_name "Call")
};

struct ModelConfig {
  Located<std::string> name;  // "functional", or "sequential" for a plain list, unless given
  bool is_sequential = true;  // no `inputs:` anywhere
  std::vector<LayerConfig> layers;
  // Names of the outputs and the layers that compute them; (layer, layer) when given as a list.
  std::vector<std::pair<std::string, Located<std::string>>> outputs;
  // Uses of blocks with one output, and the layers that compute it: "block_0" -> "block_0/add".
  std::vector<std::pair<std::string, std::string>> block_outputs;
  SourceLoc loc;
};

// A loss or metrics entry may be given per output; `output` is empty when it applies to all.
struct OutputObject {
  std::string output;
  ConfigObject object;
};

struct CompileConfig {
  ConfigObject optimizer;  // RMSprop with Keras' defaults unless given
  std::vector<OutputObject> loss;
  std::vector<OutputObject> metrics, weighted_metrics;
  std::vector<std::pair<std::string, Located<double>>> loss_weights;  // by output
  SourceLoc loc;
};

// {source: npz, path: ..., ...}; a data-source class of the catalogue as a ConfigObject. Relative
// paths are from `base_dir`.
struct DataConfig {
  std::optional<ConfigObject> train, validation, test;
  std::string base_dir;  // folder of the config file that named them, or data.dir
  Located<bool> shuffle{true, {}};
  Located<std::string> remainder{"keep", {}};   // keep | drop
  Located<int64_t> one_hot{0, {}};              // label.one_hot: classes, 0 = labels as they are
  std::vector<ConfigObject> transform;          // on inputs, host side: Rescaling, Reshape
  Located<std::string> nonfinite{"error", {}};  // error | allow
  Located<int64_t> memory;     // bytes of an array kept in memory; 0 = a quarter of what is free
  Located<std::string> cache;  // memory | file | none | a folder; empty = by size
  Located<int64_t> prefetch{2, {}};  // batches prepared ahead; 0 = none
  SourceLoc loc;
};

struct FitConfig {
  Located<int64_t> batch_size{32, {}};
  Located<int64_t> epochs{1, {}};
  Located<int64_t> initial_epoch{0, {}};
  Located<int64_t> steps_per_epoch{0, {}};  // 0 = all batches
  Located<int64_t> limit_steps{0, {}};      // 0 = no limit; --limit-steps
  Located<double> validation_split{0, {}};
  Located<int64_t> validation_batch_size{0, {}};  // 0 = batch_size
  Located<int64_t> validation_steps{0, {}};       // 0 = all
  Located<int64_t> validation_freq{1, {}};
  std::vector<int64_t> validation_epochs;  // validation_freq given as a list
  std::vector<std::pair<int64_t, Located<double>>> class_weight;
  Located<std::string> initial_weights;  // path, empty = none
  SourceLoc loc;
};

struct EvaluateConfig {
  Located<std::string> on{
      "auto", {}};  // auto (test if there, else validation) | train | validation | test | none
  Located<int64_t> batch_size{0, {}};  // 0 = fit.batch_size
  Located<int64_t> steps{0, {}};
};

struct RunConfig {
  Located<std::string> dir;  // empty: runs/<name>/<id>
  Located<bool> log_steps{false, {}};
  Located<int64_t> verbose{-1, {}};          // -1 auto, 0, 1, 2
  Located<std::string> resume{"never", {}};  // never | auto | latest | best
  Located<double> max_time;                  // seconds; 0 = no limit
  Located<int64_t> check_replicas{500, {}};  // steps between comparisons; 0 = never
  // Signal and what it does: checkpoint-exit | checkpoint | report | exit | ignore.
  std::vector<std::pair<std::string, std::string>> on_signal;
};

struct CheckpointConfig {
  Located<Interval> every{{Interval::Unit::kEpochs, 1}, {}};
  Located<int64_t> keep{3, {}};                   // at least 2
  Located<Interval> keep_every;                   // checkpoints that are never deleted
  Located<std::string> monitor;                   // log that says which is best; empty = auto
  Located<std::string> mode{"auto", {}};          // auto | min | max
  Located<std::string> on_error{"continue", {}};  // continue | stop
  Located<std::string> gather{"none", {}};        // none | root
  Located<bool> async{true, {}};
  Located<int64_t> memory;  // bytes for copies of the state; 0 = a quarter of what is free
};

struct PlanConfig {
  Located<std::string> hardware;  // path of a file of hardware, empty = none
};

struct Config {
  Located<std::string> name;
  Located<int64_t> seed{1337, {}};
  Located<std::string> dtype_policy{"float32", {}};      // of dtype_policy_names()
  Located<std::string> matmul_precision{"default", {}};  // default | highest
  DistributionConfig distribution;
  ModelConfig model;
  CompileConfig compile;
  DataConfig data;
  FitConfig fit;
  EvaluateConfig evaluate;
  RunConfig run;
  CheckpointConfig checkpoint;
  PlanConfig plan;
  std::vector<ConfigObject> callbacks;  // in the order they act
  // The first of that class, or null.
  const ConfigObject* callback(std::string_view class_name) const;
  std::string source_text;  // the main file as read
  Diagnostics warnings;     // notes that are no errors
};

// One name for each callback of a run: "EarlyStopping", "CSVLogger", "CSVLogger-2".
std::vector<std::string> callback_names(const std::vector<ConfigObject>& callbacks);

}  // namespace meshtrain
