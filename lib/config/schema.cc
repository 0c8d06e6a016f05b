#include "config/schema.h"

#include "base/text.h"
#include "config/precision.h"

namespace meshtrain {
namespace {

Spec later(const char* name, const char* help) {
  return make_spec(name, ValueKind::kLater, "null", help);
}
Spec map_of(const char* name, ValueKind element, const char* help) {
  Spec spec = make_spec(name, ValueKind::kMap, "", help);
  spec.element = element;
  return spec;
}
Spec count(const char* name, const char* default_text, const char* help, double least = 1) {
  return integer(name, default_text, help).least(least).most(kMaxSize);
}

const Section& mesh_section() {
  static const Section kSection{
      "distribution.device_mesh",
      {make_spec("shape", ValueKind::kShape, "null",
                 "[2, 4], 2x4 or data=2,model=4; null = one axis over all devices"),
       make_spec("axis_names", ValueKind::kTextList, "null",
                 "one name per axis; [batch] or [batch, model] when null"),
       text("devices", "auto",
            "auto, cpu:8 (eight virtual), gpu:0-7, gpu:0,2 or gpu:all (a process for each), or "
            "gpu:0x8 (eight virtual on one); 64xH100 for `plan`")}};
  return kSection;
}

const Section& checks_section() {
  static const Section kSection{"distribution.checks",
                                {choice("unmatched_rule", {"error", "warn", "off"}, "error",
                                        "what to do about a rule that acts on nothing"),
                                 later("replicated_larger_than", "limit on what may be replicated"),
                                 later("allow_replicated", "what may be replicated all the same")}};
  return kSection;
}

const Section& distribution_section() {
  static const Section kSection{
      "distribution",
      {choice("type", {"DataParallel", "ModelParallel"}, "null",
              "DataParallel, or ModelParallel when there is a layout_map"),
       make_spec("batch_dim_name", ValueKind::kTextList, "null",
                 "mesh axis (or axes) of the batch; the first when null"),
       section("device_mesh", mesh_section(), "the grid of devices"),
       map_of("layout_map", ValueKind::kLayout, "variable path or pattern -> layout"),
       choice("layout_match", {"fullmatch", "search"}, "fullmatch",
              "whether a pattern must match the whole path"),
       choice("reductions", {"auto", "fixed", "fast"}, "auto",
              "fixed: in device order, the same bits on any number of processes; fast: as is "
              "quickest; auto: fixed between processes"),
       integer("zero", "0", "1: shard optimizer state, 2: gradients too, 3: weights too")
           .least(0)
           .most(3),
       make_spec("zero_axes", ValueKind::kTextList, "null",
                 "axes of zero; the batch axis when null"),
       boolean("reshard_after_forward", "true",
               "weights stored in parts, more than 400 MiB of them, are gathered again for the "
               "backward pass, not kept for it"),
       section("checks", checks_section(), "what is an error"),
       boolean(
           "auto_shard_dataset", "true",
           "each process reads of the data only what it computes with; there is no other way")}};
  return kSection;
}

// Read by take_blocks, which knows the parameters; described here for editors and overrides.
const Section& block_section() {
  static const Section kSection{
      "blocks",
      {map_of("params", ValueKind::kAny, "names and defaults; one without a value must be given"),
       make_spec("inputs", ValueKind::kTextList, "null",
                 "names within the block for what it takes"),
       object("layers", ValueKind::kObjectList, Category::kLayer, "", "layers in order").required(),
       make_spec("outputs", ValueKind::kNames, "null", "layers whose outputs are the block's")}};
  return kSection;
}

Spec blocks_spec() {
  Spec spec = map_of("blocks", ValueKind::kSection, "groups of layers to use as if they were one");
  spec.section = &block_section();
  return spec;
}

const Section& model_section() {
  static const Section kSection{
      "model",
      {text("name", "null", "name of the model; sequential or functional when null"),
       object("layers", ValueKind::kObjectList, Category::kLayer, "", "layers in order").required(),
       make_spec("outputs", ValueKind::kNames, "null",
                 "layers whose outputs are the model's; the "
                 "last when null")}};
  return kSection;
}

const Section& compile_section() {
  static const Section kSection{
      "compile",
      {object("optimizer", ValueKind::kObject, Category::kOptimizer, "rmsprop",
              "how weights change"),
       object("loss", ValueKind::kObjectPerOutput, Category::kLoss, "null", "what is minimized"),
       object("metrics", ValueKind::kObjectsPerOutput, Category::kMetric, "null",
              "shown beside the loss"),
       object("weighted_metrics", ValueKind::kObjectsPerOutput, Category::kMetric, "null",
              "metrics that use sample weights"),
       make_spec("loss_weights", ValueKind::kFloatPerOutput, "null",
                 "factor on each output's loss"),
       later("run_eagerly", "eager execution"), later("jit_compile", "XLA"),
       later("steps_per_execution", "steps per call"),
       boolean("auto_scale_loss", "true",
               "with mixed_float16, put the optimizer into a LossScaleOptimizer")}};
  return kSection;
}

const Section& label_section() {
  static const Section kSection{
      "data.label",
      {count("one_hot", "0", "classes of one-hot vectors; 0 = labels as they are", 0)}};
  return kSection;
}

const Section& data_section() {
  const auto source = [](const char* name, const char* help) {
    return object(name, ValueKind::kObject, Category::kSource, "null", help);
  };
  static const Section kSection{
      "data",
      {make_spec("dir", ValueKind::kPath, "null",
                 "folder of relative paths; the config's when null"),
       source("train", "what fit learns from"),
       source("validation", "what fit checks after an epoch"), source("test", "what evaluate uses"),
       boolean("shuffle", "true", "new order of the samples in each epoch"),
       choice("remainder", {"keep", "drop"}, "keep", "the last batch, when it is smaller"),
       section("label", label_section(), "changes to labels"),
       object("transform", ValueKind::kObjectList, Category::kTransform, "null",
              "changes to inputs"),
       choice("nonfinite", {"error", "allow"}, "error", "NaN or infinity in the data"),
       text("cache", "null",
            "where data that were read are kept: memory, file, none, or a folder for the file; by "
            "size when null"),
       text("memory", "null",
            "arrays up to this size are kept in memory; a quarter of what is free when null"),
       integer("prefetch", "2", "batches that a thread reads ahead, if reading takes time; 0: none")
           .least(0)
           .most(64)}};
  return kSection;
}

const Section& fit_section() {
  static const Section kSection{
      "fit",
      {count("batch_size", "32", "samples per step, over all devices"),
       count("epochs", "1", "index of the last epoch, as in Keras"),
       count("initial_epoch", "0", "epochs already done", 0),
       count("steps_per_epoch", "null", "all batches when null"),
       count("limit_steps", "null", "at most this many steps per epoch"),
       number("validation_split", "0.0", "last part of the training data that validates")
           .least(0)
           .below(1),
       count("validation_batch_size", "null", "batch_size when null"),
       count("validation_steps", "null", "all batches when null"),
       make_spec("validation_freq", ValueKind::kIntOrList, "1",
                 "epochs between validations, or the epochs themselves")
           .least(1),
       map_of("class_weight", ValueKind::kFloat, "class -> factor on its samples' loss").least(0),
       make_spec("initial_weights", ValueKind::kPath, "null", "file of weights to begin with")}};
  return kSection;
}

const Section& evaluate_section() {
  static const Section kSection{"evaluate",
                                {choice("on", {"auto", "train", "validation", "test", "none"},
                                        "auto", "auto: test if there is one, else validation"),
                                 count("batch_size", "null", "fit.batch_size when null"),
                                 count("steps", "null", "all batches when null"),
                                 later("checkpoint", "which weights: the last are evaluated")}};
  return kSection;
}

const Section& run_section() {
  static const Section kSection{
      "run",
      {text("dir", "null", "folder of the results; runs/NAME/ID when null"),
       boolean("log_steps", "false", "a line per step in metrics.jsonl"),
       choice("verbose", {"auto", "0", "1", "2"}, "auto", "0 silent, 1 bar, 2 line per epoch"),
       choice("resume", {"never", "auto", "latest", "best"}, "never",
              "auto: go on from the newest checkpoint of this run, or start afresh"),
       text("max_time", "null", "save and leave before this time is over: 23h30m"),
       count("check_replicas", "500",
             "steps between comparisons of what several processes hold alike; 0: never", 0),
       map_of("on_signal", ValueKind::kText,
              "signal -> checkpoint-exit, checkpoint, report, exit, ignore"),
       later("metrics", "forms of the metrics' files; metrics.jsonl and metrics.csv are written"),
       later("trace", "a time line of steps")}};
  return kSection;
}

const Section& checkpoint_section() {
  static const Section kSection{
      "checkpoint",
      {text("every", "epoch", "epoch, 200 steps, 30 min, never"),
       count("keep", "3", "checkpoints that stay, the newest", 2),
       text("keep_every", "null", "1000 steps, 10 epochs: these stay for ever"),
       text("monitor", "null", "log that says which is the best; val_loss if there is one"),
       choice("mode", {"auto", "min", "max"}, "auto", "which values of it are better"),
       choice("on_error", {"continue", "stop"}, "continue", "when a save fails"),
       choice("gather", {"none", "root"}, "none",
              "root: hosts that do not share the folder send their pieces to that of rank 0"),
       boolean("async", "true", "write while training goes on"),
       text("memory", "null", "most memory for that; a quarter of what is free when null")}};
  return kSection;
}

const Section& plan_section() {
  static const Section kSection{
      "plan",
      {make_spec("hardware", ValueKind::kPath, "null",
                 "file of devices that `plan` estimates for, beside those it knows")}};
  return kSection;
}

}  // namespace

const Section& root_section() {
  static const Section kSection{
      "",
      {integer("version", "1", "of this format").least(1).most(1),
       text("name", "null", "of the run; the file's name when null"),
       integer("seed", "1337", "of all random numbers").least(0),
       choice("dtype_policy", dtype_policy_names(), "float32",
              "type of weights and computation; mixed_*: float32 weights, computation in 16 bits"),
       map_of("dtype_policy_map", ValueKind::kText, "layer or pattern -> its dtype policy"),
       choice("matmul_precision", {"default", "highest"}, "default",
              "float32 products on a GPU: default computes in TF32, highest in float32"),
       map_of("vars", ValueKind::kAny, "values for expressions: `units: =d_model`"),
       section("distribution", distribution_section(), "mesh and layouts"),
       section("model", model_section(), "the layers").required(),
       section("compile", compile_section(), "optimizer, loss, metrics"),
       section("data", data_section(), "where samples come from"),
       section("fit", fit_section(), "training"),
       section("evaluate", evaluate_section(), "what is done after fit"),
       section("run", run_section(), "where results go"),
       section("checkpoint", checkpoint_section(), "what a killed run goes on from"),
       section("plan", plan_section(), "what `plan` estimates with"),
       object("callbacks", ValueKind::kObjectList, Category::kCallback, "null",
              "what acts on training, in order"),
       blocks_spec()}};
  return kSection;
}

namespace {
std::optional<std::string> search(const Section& section, std::string_view key) {
  for (const Spec& field : section.fields) {
    if (field.kind == ValueKind::kSection) {
      if (field.section->find(key) != nullptr) {
        return field.section->path + "." + std::string(key);
      }
      if (auto found = search(*field.section, key)) {
        return found;
      }
    }
  }
  return std::nullopt;
}
}  // namespace

std::optional<std::string> section_with_key(std::string_view key) {
  // Arguments and words that are looked for as keys.
  constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
      {"learning_rate", "compile.optimizer.learning_rate"},
      {"lr", "compile.optimizer.learning_rate"},
      {"mesh", "distribution.device_mesh.shape"},
      {"validation_data", "data.validation"},
      {"x", "data.train"},
      {"y", "data.train"},
      {"dtype", "dtype_policy"},
      {"precision", "dtype_policy"},
      {"mixed_precision", "dtype_policy"}};
  for (const auto& [word, path] : kElsewhere) {
    if (key == word) {
      return path;
    }
  }
  return root_section().find(key) != nullptr ? std::string(key) : search(root_section(), key);
}

bool is_known_key(std::string_view path) {
  const Section* section = &root_section();
  for (const std::string& key : split(path, '.')) {
    const Spec* field = section->find(key);
    if (field == nullptr || field->kind != ValueKind::kSection) {
      return field != nullptr;
    }
    section = field->section;
  }
  return true;
}

}  // namespace meshtrain
