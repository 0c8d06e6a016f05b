// Config: the whole configuration as typed values that remember their place in the file. Made by
// load_config(); after that nothing asks again whether a key exists or has the right type. The
// initial value of a member is the default of its key; schema.cc says which key that is.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/words.h"
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

enum class DistributionType : uint8_t { kDataParallel, kModelParallel };
constexpr auto words(DistributionType) {
  return word_list("DataParallel", "ModelParallel");
}
enum class LayoutMatch : uint8_t { kFullMatch, kSearch };
constexpr auto words(LayoutMatch) {
  return word_list("fullmatch", "search");
}
enum class ReductionOrder : uint8_t { kAuto, kFixed, kFast };
constexpr auto words(ReductionOrder) {
  return word_list("auto", "fixed", "fast");
}

struct DistributionConfig {
  Located<DistributionType> type;
  MeshConfig mesh;
  Located<std::vector<std::string>> batch_dim_name;  // empty: the first axis; several for HSDP
  std::vector<LayoutRule> layout_map;                // in file order
  Located<LayoutMatch> layout_match;
  Located<ReductionOrder> reductions;
  Located<int64_t> zero;                        // 0..3
  Located<std::vector<std::string>> zero_axes;  // empty: the batch axis
  Located<bool> reshard_after_forward{true, {}};
  Located<bool> auto_shard_dataset{true, {}};  // false is refused
  Located<Unmatched> unmatched_rule;           // checks.unmatched_rule
};

// One entry of model.layers.
struct LayerConfig {
  ConfigObject object;
  Located<std::string> name;  // always set: given, or Keras' automatic name
  bool name_is_automatic = false;
  std::vector<Located<std::string>> inputs;  // names of earlier layers; empty only for Input
  std::vector<std::string> input_roles;      // keys beside `inputs` where it is a map; else empty
  Located<std::string>
      shared_layer;  // Call: the layer used again; MaskedLMHead: whose table it has
};

struct ModelConfig {
  Located<std::string> name;  // "functional", or "sequential" for a plain list, unless given
  bool is_sequential = true;  // no `inputs:` anywhere
  std::vector<LayerConfig> layers;
  // Names of the outputs and the layers that compute them; (layer, layer) when given as a list.
  std::vector<std::pair<std::string, Located<std::string>>> outputs;
  // Uses of blocks with one output, and the layers that compute it: "block_0" -> "block_0/add".
  std::vector<std::pair<std::string, std::string>> block_outputs;
  // Parts of the model whose forward values the backward pass computes again.
  struct Remat {
    std::string prefix;  // a layer, or what the names of a block's layers begin with
    bool keeps_products = false;
    std::vector<std::string> kept_parts;
  };
  std::vector<Remat> remat;
  // Weights whose whole path matches get low-rank factors, which train in their place.
  struct Lora {
    std::string pattern;
    SourceLoc loc;
    int64_t rank = 0;
    double alpha = 0;
  };
  std::vector<Lora> lora;
  std::map<std::string, std::vector<int64_t>> token_ids;  // "eos_token_id": one or several
  std::vector<std::string> class_names;                   // empty: those of the data
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
  Located<bool> auto_scale_loss{true, {}};
  SourceLoc loc;
};

enum class Remainder : uint8_t { kKeep, kDrop };
constexpr auto words(Remainder) {
  return word_list("keep", "drop");
}
enum class Nonfinite : uint8_t { kError, kAllow };
constexpr auto words(Nonfinite) {
  return word_list("error", "allow");
}

// Parts of data.train that are drawn at random for validation and testing; 0 = none.
struct SplitConfig {
  Located<double> validation, test;
  Located<std::optional<int64_t>> seed;  // the config's when null
  Located<std::string> stratify;         // `label` or an output's name; empty = by number alone
  SourceLoc loc;
};

// {source: npz, path: ..., ...}; a data-source class of the catalogue as a ConfigObject. Relative
// paths are from `base_dir`.
struct DataConfig {
  std::optional<ConfigObject> train, validation, test;
  SplitConfig split;
  std::string base_dir;  // folder of the config file that named them, or data.dir
  Located<bool> shuffle{true, {}};
  Located<Remainder> remainder;
  Located<int64_t> one_hot;  // label.one_hot: classes, 0 = labels as they are
  // Host side: Rescaling, Reshape, MaskedLMMaskGenerator. In the training step: see
  // changes_batches().
  std::vector<ConfigObject> transform;
  int64_t seed = 0;                   // the config's, for transforms that draw
  Located<int64_t> head_tail{1, {}};  // shards; 1: steps are in order
  Located<Nonfinite> nonfinite;
  bool is_for_float64 = false;  // dtype_policy: float64
  Located<int64_t> memory;      // bytes of an array kept in memory; 0 = a quarter of what is free
  Located<std::string> cache;   // memory | file | none | a folder; empty = by size
  Located<int64_t> prefetch{2, {}};  // batches prepared ahead; 0 = none
  SourceLoc loc;
};

struct FitConfig {
  Located<int64_t> batch_size{32, {}};
  Located<int64_t> epochs{1, {}};
  Located<int64_t> initial_epoch;
  Located<int64_t> steps_per_epoch;  // 0 = all batches
  Located<int64_t> limit_steps;      // 0 = no limit; --limit-steps
  Located<double> validation_split;
  Located<int64_t> validation_batch_size;  // 0 = batch_size
  Located<int64_t> validation_steps;       // 0 = all
  Located<int64_t> validation_freq{1, {}};
  std::vector<int64_t> validation_epochs;  // validation_freq given as a list
  // By name or number of the class (engine/sample_weights.h).
  std::vector<std::pair<std::string, Located<double>>> class_weight;
  Located<std::string> initial_weights;  // path, empty = none
  Located<bool> partial_weights;
  SourceLoc loc;
};

// kAuto: the test data if there are some, else the validation data.
enum class EvaluatedData : uint8_t { kAuto, kTrain, kValidation, kTest, kNone };
constexpr auto words(EvaluatedData) {
  return word_list("auto", "train", "validation", "test", "none");
}

struct EvaluateConfig {
  Located<EvaluatedData> on;
  Located<int64_t> batch_size;  // 0 = fit.batch_size
  Located<int64_t> steps;       // 0 = all batches
};

// What a finished run must show, or it ends with exit code 7.
struct LogBound {
  enum class Kind : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual };
  std::string log;
  Kind kind = Kind::kLess;
  double value = 0;
  Located<std::string> text;  // as written: ">= 0.9"

  bool holds_for(double logged) const;  // false for NaN
};
struct ExpectConfig {
  std::vector<LogBound> logs;         // of the last epoch
  std::vector<LogBound> evaluate;     // of the evaluation after fit
  Located<double> ms_per_step;        // at most, median over epochs; 0 = not asked
  Located<double> equal_over_meshes;  // largest relative difference; 0 = not asked
};

enum class Verbosity : uint8_t { kAuto, kSilent, kBar, kLine };
constexpr auto words(Verbosity) {
  return word_list("auto", "0", "1", "2");
}
enum class ResumeMode : uint8_t { kNever, kAuto, kLatest, kBest };
constexpr auto words(ResumeMode) {
  return word_list("never", "auto", "latest", "best");
}
enum class SignalAction : uint8_t { kCheckpointExit, kCheckpoint, kReport, kExit, kIgnore };
constexpr auto words(SignalAction) {
  return word_list("checkpoint-exit", "checkpoint", "report", "exit", "ignore");
}
using SignalChanges =
    std::vector<std::pair<std::string, SignalAction>>;  // "SIGUSR1" and what it does

struct RunConfig {
  Located<std::string> dir;  // empty: runs/<name>/<id>
  Located<bool> log_steps{false, {}};
  Located<bool> log_norms{false, {}};  // of gradients, weights and updates
  Located<Verbosity> verbose;
  Located<ResumeMode> resume;
  Located<double> max_time;                  // seconds; 0 = no limit
  Located<int64_t> check_replicas{500, {}};  // steps between comparisons; 0 = never
  SignalChanges on_signal;
};

enum class MonitorMode : uint8_t { kAuto, kMin, kMax };
constexpr auto words(MonitorMode) {
  return word_list("auto", "min", "max");
}
enum class SaveFailure : uint8_t { kContinue, kStop };
constexpr auto words(SaveFailure) {
  return word_list("continue", "stop");
}
enum class GatherFiles : uint8_t { kNone, kRoot };
constexpr auto words(GatherFiles) {
  return word_list("none", "root");
}

struct CheckpointConfig {
  Located<Interval> every{{Interval::Unit::kEpochs, 1}, {}};
  Located<int64_t> keep{3, {}};  // at least 2
  Located<Interval> keep_every;  // checkpoints that are never deleted
  Located<std::string> monitor;  // log that says which is best; empty = auto
  Located<MonitorMode> mode;
  Located<SaveFailure> on_error;
  Located<GatherFiles> gather;
  Located<bool> async{true, {}};
  Located<int64_t> memory;  // bytes for copies of the state; 0 = a quarter of what is free
};

struct PlanConfig {
  Located<std::string> hardware;  // path of a file of hardware, empty = none
};

enum class MatmulPrecision : uint8_t { kDefault, kHighest };
constexpr auto words(MatmulPrecision) {
  return word_list("default", "highest");
}

struct Config {
  Located<std::string> name;
  Located<int64_t> seed{1337, {}};
  Located<std::string> dtype_policy{"float32", {}};  // of dtype_policy_names()
  Located<MatmulPrecision> matmul_precision;
  DistributionConfig distribution;
  ModelConfig model;
  CompileConfig compile;
  DataConfig data;
  FitConfig fit;
  EvaluateConfig evaluate;
  ExpectConfig expect;
  RunConfig run;
  CheckpointConfig checkpoint;
  PlanConfig plan;
  std::vector<ConfigObject> callbacks;  // in the order they act
  // True when there are validation data, of a source of their own or split from data.train.
  bool validates() const;
  // The first of that class, or null.
  const ConfigObject* callback(std::string_view class_name) const;
  std::string source_text;  // the main file as read
  Diagnostics warnings;     // notes that are no errors
};

// One name for each callback of a run: "EarlyStopping", "CSVLogger", "CSVLogger-2".
std::vector<std::string> callback_names(const std::vector<ConfigObject>& callbacks);

}  // namespace meshtrain
