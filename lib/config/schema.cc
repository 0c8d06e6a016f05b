#include "config/schema.h"

#include "base/text.h"
#include "config/catalogue_layer_args.h"
#include "config/key.h"
#include "config/precision.h"

namespace meshtrain {
namespace {

Spec map_of(const char* name, ValueKind element, const char* help) {
  Spec spec = make_spec(name, ValueKind::kMap, "", help);
  spec.element = element;
  return spec;
}

const Section& mesh_section() {
  using S = MeshConfig;
  static const Section kSection = section_of<S>(
      "distribution.device_mesh",
      {key("shape", &S::shape, "[2, 4], 2x4 or data=2,model=4; null = one axis over all devices"),
       key("axis_names", &S::axis_names, "one name per axis; [batch] or [batch, model] when null"),
       key("devices", &S::devices,
           "auto, cpu:8 (eight virtual), gpu:0-7, gpu:0,2 or gpu:all (a process for each), or "
           "gpu:0x8 (eight virtual on one); 64xH100 for `plan`")});
  return kSection;
}

const Section& checks_section() {
  static const Section kSection = section_of<DistributionConfig>(
      "distribution.checks",
      {key("unmatched_rule", &DistributionConfig::unmatched_rule,
           "what to do about a rule that acts on nothing"),
       unsupported("replicated_larger_than", "limit on what may be replicated"),
       unsupported("allow_replicated", "what may be replicated all the same")});
  return kSection;
}

const Section& distribution_section() {
  using S = DistributionConfig;
  static const Section kSection = section_of<S>(
      "distribution",
      {key("type", &S::type, "DataParallel, or ModelParallel when there is a layout_map")
           .null_by_default(),
       key("batch_dim_name", &S::batch_dim_name,
           "mesh axis (or axes) of the batch; the first when null"),
       section("device_mesh", &S::mesh, mesh_section(), "the grid of devices"),
       map_of("layout_map", ValueKind::kLayout,
              "variable path or pattern -> layout; or `megatron`, `fsdp`, `megatron_fsdp`, "
              "`context` or `expert`, alone or as `preset` with own rules"),
       key("layout_match", &S::layout_match, "whether a pattern must match the whole path"),
       key("reductions", &S::reductions,
           "fixed: in device order, the same bits on any number of processes; fast: as is "
           "quickest; auto: fixed between processes"),
       key("zero", &S::zero, "1: shard optimizer state, 2: gradients too, 3: weights too")
           .least(0)
           .most(3),
       key("zero_axes", &S::zero_axes, "axes of zero; the batch axis when null"),
       key("reshard_after_forward", &S::reshard_after_forward,
           "weights stored in parts, more than 400 MiB of them, are gathered again for the "
           "backward pass, not kept for it"),
       section("checks", checks_section(),
               "which mistakes of a layout are errors, warnings or nothing"),
       key("auto_shard_dataset", &S::auto_shard_dataset,
           "each process reads of the data only what it computes with; there is no other way")});
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

Spec lora_spec() {
  static const Section kSection{
      "model.lora",
      {integer("rank", "", "columns of the first factor, rows of the second")
           .required()
           .least(1)
           .most(kMaxLoraRank),
       number("alpha", "null", "their product is multiplied by alpha / rank; null: by 1")
           .above(0)}};
  Spec spec = map_of("lora", ValueKind::kSection,
                     "pattern of whole weight paths -> {rank, alpha} of low-rank factors, which "
                     "train in place of these weights");
  spec.section = &kSection;
  return spec;
}

const Section& model_section() {
  static const Section kSection = section_of<ModelConfig>(
      "model",
      {key("name", &ModelConfig::name, "name of the model; sequential or functional when null"),
       object("layers", ValueKind::kObjectList, Category::kLayer, "", "layers in order").required(),
       make_spec("outputs", ValueKind::kNames, "null",
                 "layers whose outputs are the model's; the "
                 "last when null"),
       make_spec("frozen", ValueKind::kTextList, "null",
                 "patterns of whole layer names: layers whose weights fit leaves as they are"),
       lora_spec(),
       map_of("token_ids", ValueKind::kIntOrList,
              "bos_token_id, eos_token_id and pad_token_id, which `export --format hf` writes; "
              "texts of `generate` and TextSamples end at each eos_token_id"),
       make_spec("class_names", ValueKind::kTextList, "null",
                 "names of the classes, for `predict`, `evaluate` and `export --format hf`; those "
                 "of the data when null"),
       map_of("remat", ValueKind::kNames,
              "layer, block or pattern -> what its backward pass keeps: none, block, dots, or the "
              "names of layers")});
  return kSection;
}

const Section& compile_section() {
  static const Section kSection = section_of<CompileConfig>(
      "compile",
      {object("optimizer", ValueKind::kObject, Category::kOptimizer, "rmsprop",
              "how weights change"),
       object("loss", ValueKind::kObjectPerOutput, Category::kLoss, "null", "what is minimized"),
       object("metrics", ValueKind::kObjectsPerOutput, Category::kMetric, "null",
              "shown with the loss"),
       object("weighted_metrics", ValueKind::kObjectsPerOutput, Category::kMetric, "null",
              "metrics that use sample weights"),
       make_spec("loss_weights", ValueKind::kFloatPerOutput, "null",
                 "factor on each output's loss"),
       unsupported("run_eagerly", "eager execution"), unsupported("jit_compile", "XLA"),
       unsupported("steps_per_execution", "steps per call"),
       key("auto_scale_loss", &CompileConfig::auto_scale_loss,
           "with mixed_float16, put the optimizer into a LossScaleOptimizer")});
  return kSection;
}

const Section& label_section() {
  static const Section kSection = section_of<DataConfig>(
      "data.label", {count("one_hot", &DataConfig::one_hot,
                           "classes of one-hot vectors; 0 = labels as they are", 0)});
  return kSection;
}

const Section& split_section() {
  using S = SplitConfig;
  static const Section kSection = section_of<S>(
      "data.split",
      {key("validation", &S::validation, "part of data.train that validates, 0.2")
           .least(0)
           .below(1),
       key("test", &S::test, "part of data.train that `evaluate` uses").least(0).below(1),
       key("seed", &S::seed, "of the choice; the config's `seed` when null").least(0),
       key("stratify", &S::stratify,
           "label, or the name of an output: each class is split in the same proportion")});
  return kSection;
}

const Section& data_section() {
  const auto source = [](const char* name, const char* help) {
    return object(name, ValueKind::kObject, Category::kSource, "null", help);
  };
  using S = DataConfig;
  static const Section kSection = section_of<S>(
      "data",
      {make_spec("dir", ValueKind::kPath, "null",
                 "folder of relative paths; the config's when null"),
       source("train", "what fit learns from"),
       source("validation", "what fit checks after an epoch"), source("test", "what evaluate uses"),
       section("split", &S::split, split_section(), "random parts of data.train for other uses"),
       key("shuffle", &S::shuffle, "new order of the samples in each epoch"),
       key("remainder", &S::remainder, "the last batch, when it is smaller"),
       section("label", label_section(), "changes to labels"),
       object("transform", ValueKind::kObjectList, Category::kTransform, "null",
              "changes to inputs"),
       key("head_tail", &S::head_tail,
           "for context parallelism: steps of samples come in the order that gives so many shards "
           "the same causal work")
           .least(1)
           .most(65536),
       key("nonfinite", &S::nonfinite, "NaN or infinity in the data"),
       key("cache", &S::cache,
           "where data that were read are kept: memory, file, none, or a folder for the file; by "
           "size when null"),
       bytes("memory", &S::memory,
             "arrays up to this size are kept in memory; a quarter of what is free when null"),
       key("prefetch", &S::prefetch,
           "batches that a thread reads ahead, if reading takes time; 0: none")
           .least(0)
           .most(64)});
  return kSection;
}

const Section& fit_section() {
  using S = FitConfig;
  static const Section kSection = section_of<S>(
      "fit",
      {count("batch_size", &S::batch_size, "samples per step, over all devices"),
       count("epochs", &S::epochs, "index of the last epoch, as in Keras"),
       count("initial_epoch", &S::initial_epoch,
             "epochs already done: data continue where these would have ended", 0),
       count(
           "steps_per_epoch", &S::steps_per_epoch,
           "steps of an epoch, as in Keras: the next epoch continues where this one stopped in the "
           "data; all batches when null")
           .null_by_default(),
       count("limit_steps", &S::limit_steps,
             "at most this many steps per epoch, each of which begins a new pass; for smoke runs")
           .null_by_default(),
       key("validation_split", &S::validation_split,
           "last part of the training data that validates")
           .least(0)
           .below(1),
       count("validation_batch_size", &S::validation_batch_size, "batch_size when null")
           .null_by_default(),
       count("validation_steps", &S::validation_steps, "all batches when null").null_by_default(),
       make_spec("validation_freq", ValueKind::kIntOrList, "1",
                 "epochs between validations, or the epochs themselves")
           .least(1),
       map_of("class_weight", ValueKind::kFloat,
              "class, by its name or number -> factor on the loss of its labels")
           .least(0),
       path("initial_weights", &S::initial_weights, "file of weights to begin with"),
       key("partial_weights", &S::partial_weights,
           "of initial_weights of another model, take those that fit; others are drawn")});
  return kSection;
}

const Section& evaluate_section() {
  using S = EvaluateConfig;
  static const Section kSection = section_of<S>(
      "evaluate",
      {key("on", &S::on, "auto: test if there is one, else validation"),
       count("batch_size", &S::batch_size, "fit.batch_size when null").null_by_default(),
       count("steps", &S::steps, "all batches when null").null_by_default(),
       unsupported("checkpoint", "which weights: the last are evaluated")});
  return kSection;
}

const Section& expect_section() {
  using S = ExpectConfig;
  static const Section kSection = section_of<S>(
      "expect", {map_of("logs", ValueKind::kText,
                        "log of the last epoch -> bound: `val_accuracy: \">= 0.9\"`"),
                 map_of("evaluate", ValueKind::kText, "log of the evaluation after fit -> bound"),
                 key("ms_per_step", &S::ms_per_step, "at most, the median of all epochs")
                     .above(0)
                     .null_by_default(),
                 key("equal_over_meshes", &S::equal_over_meshes,
                     "largest relative difference between meshes, as `verify` finds it: 1e-9")
                     .above(0)
                     .null_by_default()});
  return kSection;
}

const Section& run_section() {
  using S = RunConfig;
  static const Section kSection = section_of<S>(
      "run", {key("dir", &S::dir, "folder of the results; runs/NAME/ID when null"),
              key("log_steps", &S::log_steps, "a line per step in metrics.jsonl"),
              key("log_norms", &S::log_norms,
                  "logs gradient_norm, weight_norm and update_ratio of all trainable weights"),
              key("verbose", &S::verbose, "0 silent, 1 bar, 2 line per epoch"),
              key("resume", &S::resume,
                  "auto: continue from the newest checkpoint of this run, or start afresh"),
              seconds("max_time", &S::max_time, "save and leave before this time is over: 23h30m"),
              count("check_replicas", &S::check_replicas,
                    "steps between comparisons of what several processes hold alike; 0: never", 0),
              map_of("on_signal", ValueKind::kText,
                     "what each signal does: checkpoint-exit (SIGINT, SIGTERM and SIGUSR1 without "
                     "this key), checkpoint (SIGUSR2, SIGHUP), report (SIGQUIT), exit or ignore; "
                     "as {SIGHUP: ignore, SIGTERM: exit}"),
              unsupported("metrics",
                          "forms of the metrics' files; metrics.jsonl and metrics.csv are written"),
              unsupported("trace", "a time line of steps")});
  return kSection;
}

const Section& checkpoint_section() {
  using S = CheckpointConfig;
  static const Section kSection = section_of<S>(
      "checkpoint",
      {interval("every", &S::every,
                "epoch, 200 steps, 30 min, never; epochs with the best `monitor` are saved, too"),
       count("keep", &S::keep, "checkpoints that stay, the newest", 2),
       interval("keep_every", &S::keep_every, "1000 steps, 10 epochs: these stay for ever")
           .null_by_default(),
       key("monitor", &S::monitor, "log that says which is the best; val_loss if there is one"),
       key("mode", &S::mode, "which values of it are better"),
       key("on_error", &S::on_error, "when a save fails; the third failure in a row ends the run"),
       key("gather", &S::gather,
           "root: hosts that do not share the folder send their shards to that of rank 0"),
       key("async", &S::async, "write while training continues"),
       bytes("memory", &S::memory, "most memory for that; a quarter of what is free when null")});
  return kSection;
}

const Section& plan_section() {
  static const Section kSection = section_of<PlanConfig>(
      "plan", {path("hardware", &PlanConfig::hardware,
                    "file of devices that `plan` estimates for, besides those it knows")});
  return kSection;
}

}  // namespace

const Section& root_section() {
  using S = Config;
  static const Section kSection = section_of<S>(
      "", {integer("version", "1", "of this format").least(1).most(1),
           key("name", &S::name, "of the run; the file's name when null"),
           key("seed", &S::seed, "of all random numbers").least(0),
           key("dtype_policy", &S::dtype_policy,
               "type of weights and computation; mixed_*: float32 weights, computation in 16 bits")
               .one_of(dtype_policy_names()),
           map_of("dtype_policy_map", ValueKind::kText, "layer or pattern -> its dtype policy"),
           key("matmul_precision", &S::matmul_precision,
               "float32 products on a GPU: default computes in TF32, highest in float32"),
           map_of("vars", ValueKind::kAny, "values for expressions: `units: =d_model`"),
           section("distribution", &S::distribution, distribution_section(), "mesh and layouts"),
           section("model", &S::model, model_section(), "the layers").required(),
           section("compile", &S::compile, compile_section(), "optimizer, loss, metrics"),
           section("data", &S::data, data_section(), "where samples come from"),
           section("fit", &S::fit, fit_section(), "training"),
           section("evaluate", &S::evaluate, evaluate_section(), "what is done after fit"),
           section("expect", &S::expect, expect_section(), "what a finished run must show"),
           section("run", &S::run, run_section(), "where results go"),
           section("checkpoint", &S::checkpoint, checkpoint_section(),
                   "what a killed run resumes from"),
           section("plan", &S::plan, plan_section(), "what `plan` estimates with"),
           object("callbacks", ValueKind::kObjectList, Category::kCallback, "null",
                  "what acts on training, in order"),
           blocks_spec()});
  return kSection;
}

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
  return root_section().find(key) != nullptr ? std::string(key) : root_section().find_below(key);
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
