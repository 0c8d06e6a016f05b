#include "engine/setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "config/cells.h"
#include "data/dataset.h"
#include "data/series_windows.h"
#include "engine/class_outputs.h"
#include "engine/model_warnings.h"
#include "nn/arguments.h"
#include "nn/implied_targets.h"
#include "nn/step_positions.h"
#include "passes/bucket.h"
#include "passes/head_input.h"
#include "passes/layouts.h"
#include "passes/remat.h"
#include "passes/step_order.h"

namespace meshtrain {
namespace {

ValueType sample_type(const Rows& data) {
  return {without_first(data.shape()), compute_dtype_of(data.dtype())};
}

// Whether a sample of shape `have` can feed an input of shape `wanted` (unknown sizes fit any).
bool fits(const Shape& have, const Shape& wanted) {
  return have.size() == wanted.size() &&
         std::equal(have.begin(), have.end(), wanted.begin(),
                    [](int64_t a, int64_t b) { return b == kUnknownDim || a == b; });
}

// Whether the shape of an input is that of the samples with another dimension before it.
bool has_batch_too(const Shape& wanted, const Shape& have) {
  return wanted.size() == have.size() + 1 && fits(have, without_first(wanted));
}

// Which `shape` the Input needs, and how samples of as many numbers take that of the only Input.
std::string shape_help(const Shape& have, const Shape& wanted, bool is_only) {
  if (are_windows_of_windows(have, wanted)) {
    return kWindowsHelp;
  }
  const auto list = [](const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); };
  const bool is_known = std::find(wanted.begin(), wanted.end(), kUnknownDim) == wanted.end();
  const std::string other =
      is_only && is_known && num_elements(have) == num_elements(wanted)
          ? fmt::format(", or `data: {{transform: [{{Reshape: {{target_shape: {}}}}}]}}`",
                        list(wanted))
          : "";
  return fmt::format("write `shape: {}` in the Input{}", list(have), other);
}

// "stage_0/output", a block's, stands for that of the layer that computes it. Adds the blocks' keys
// and returns the layer's key of each.
std::map<std::string, std::string> add_block_outputs(const ModelConfig& model,
                                                     std::vector<LayoutTarget>& outputs) {
  std::map<std::string, Shape> shapes;
  for (const LayoutTarget& output : outputs) {
    shapes.emplace(output.path, output.shape);
  }
  std::map<std::string, std::string> own_keys;
  for (const auto& [block, layer] : model.block_outputs) {
    const auto found = shapes.find(layer + "/output");
    if (found != shapes.end() && shapes.find(block + "/output") == shapes.end()) {
      outputs.push_back({block + "/output", found->second});
      own_keys.emplace(block + "/output", found->first);
    }
  }
  return own_keys;
}

void move_pin(ResolvedLayouts& layouts, const std::string& key, const std::string& own_key,
              Diagnostics& diagnostics) {
  const auto pin = layouts.pins.find(key);
  if (pin == layouts.pins.end()) {
    return;
  }
  const LayoutRule* rule = layouts.pin_rules.at(key);
  const auto [own, is_new] = layouts.pins.emplace(own_key, pin->second);
  if (is_new) {
    layouts.pin_rules[own_key] = rule;
  } else if (layouts.pin_rules.at(own_key) != rule) {
    diagnostics
        .error("E203", rule->loc,
               fmt::format("two rules act on the output of `{}`",
                           own_key.substr(0, own_key.rfind('/'))))
        .note(fmt::format("`{}` at {} and `{}`, the block's", layouts.pin_rules.at(own_key)->key,
                          layouts.pin_rules.at(own_key)->loc.to_string(), rule->key));
  }
  layouts.pins.erase(key);
  layouts.pin_rules.erase(key);
}

// Adds to errors of expressions that the shape of the targets was a guess.
Diagnostics with_guess_noted(const Diagnostics& diagnostics) {
  Diagnostics out;
  for (Diagnostic problem : diagnostics.list()) {
    if (problem.code == "E132" && problem.message.starts_with("targets ")) {
      problem.note("no data were read: the shape of the targets is a guess from loss and metrics");
    }
    (problem.severity == Severity::kError
         ? out.error(problem.code, problem.loc, problem.message)
         : out.warning(problem.code, problem.loc, problem.message)) = problem;
  }
  return out;
}

// A batch that the mesh does not divide leaves mesh and model as they are: what else is wrong is
// looked for.
void throw_if_unusable(const Diagnostics& diagnostics) {
  const auto& list = diagnostics.list();
  if (!std::all_of(list.begin(), list.end(), [](const Diagnostic& d) {
        return d.severity == Severity::kWarning || d.code == "E211";
      })) {
    diagnostics.throw_if_errors();
  }
}

}  // namespace

std::string_view step_kind_name(StepKind kind) {
  constexpr std::string_view kNames[] = {"train", "accumulate", "test", "predict", "decode"};
  return kNames[static_cast<int>(kind)];
}

DType compute_dtype_of(DType stored) {
  switch (stored) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
      return DType::kInt32;
    case DType::kUInt64:
      return DType::kInt64;
    case DType::kFloat16:
    case DType::kBFloat16:
      return DType::kFloat32;
    default:
      return stored;
  }
}

DataSpec data_spec(const Dataset& dataset) {
  DataSpec spec;
  for (const Dataset::Array& array : dataset.inputs) {
    spec.inputs.push_back(sample_type(*array.rows));
  }
  for (const Dataset::Array& array : dataset.targets) {
    spec.targets.push_back(sample_type(*array.rows));
  }
  if (dataset.sample_weight) {
    spec.has_sample_weight = true;
    spec.sample_weight_shape = without_first(dataset.sample_weight->shape());
  }
  spec.class_names = dataset.class_names;
  spec.loc = dataset.loc;
  return spec;
}

Setup::Setup(const Config& config, const DataSpec* data, std::string dump_ir, int processes,
             int rank, DecodeOptions decode)
    : config_(config), dump_ir_(std::move(dump_ir)), decode_(decode), warnings_(config.warnings) {
  const DTypePolicy policy = dtype_policy(config.dtype_policy.value);
  dtype_ = policy.floatx();
  Diagnostics diagnostics;
  distribution_ = make_distribution(config, processes, diagnostics);
  check_optimizer(config.compile.optimizer, diagnostics);
  model_ = std::make_unique<Model>(config.model, policy, diagnostics);
  throw_if_unusable(diagnostics);
  part_ = MeshPart(mesh(), processes, rank);
  optimizer_ = std::make_unique<Optimizer>(config.compile.optimizer);
  std::vector<std::string> paths;
  for (const Weight* weight : model_->weights()) {
    paths.push_back(weight->path);
  }
  check_optimizer_patterns(config.compile.optimizer, paths, diagnostics);
  check_padding(diagnostics);
  const int errors = diagnostics.num_errors();
  if (data != nullptr) {
    data_ = *data;
    check_data(*data, diagnostics);
  } else {
    data_ = implied_data();
  }
  const bool data_fit = diagnostics.num_errors() == errors;
  resolve(diagnostics);
  if (!data_fit) {
    diagnostics.throw_if_errors();
  }
  model_->set_shards(shards_of_weights());
  expert_pins_ = place_expert_pins(*model_, layouts_.weights, distribution_.batch_axes);
  std::map<std::string, Sharding> pins = layouts_.pins;
  for (const PlacedPin& placed : expert_pins_) {
    pins[placed.key] = layout_of(placed, distribution_.batch_axes);
  }
  graphs_ = std::make_unique<StepGraphs>(config_, *model_, *optimizer_, data_, dtype_,
                                         std::move(pins), diagnostics);
  if (data == nullptr) {
    diagnostics = with_guess_noted(diagnostics);
  }
  diagnostics.throw_if_errors();
  std::vector<Variable> variables = graphs_->variables();
  AxisMask batch_mask = 0;
  for (const int axis : distribution_.batch_axes) {
    batch_mask |= AxisMask{1} << axis;
  }
  std::vector<Sharding> user = layouts_.weights;
  user.resize(variables.size());
  LayoutOptions options{batch_mask, distribution_.zero, distribution_.zero_axes};
  for (const Weight* weight : model_->weights()) {
    options.expert_dims.push_back(weight->expert_dim);
  }
  assign_layouts(variables, user, options, mesh());
  graphs_->set_variables(std::move(variables));
  check_step_order();
  warn_of_model(config, *model_, data_, diagnostics);
  warn_of_class_names(*this, diagnostics);
  add_caches();
  warnings_.append(diagnostics);
}

Setup::~Setup() = default;

void Setup::check_step_order() const {
  const auto& [shards, loc] = config_.data.head_tail;
  if (shards <= 1) {
    return;
  }
  const std::string obstacle = step_order_obstacle(graphs_->predict(2), kStepPositions);
  if (!obstacle.empty()) {
    throw ConfigError("E113", loc,
                      fmt::format("`head_tail` needs a model whose outputs do not depend on the "
                                  "order of steps but for attention: {}",
                                  obstacle))
        .help("leave `head_tail` out: context parallelism is right without it");
  }
}

void Setup::check_data(const DataSpec& data, Diagnostics& diagnostics) const {
  const std::vector<int>& inputs = model_->inputs();
  const SourceLoc place = data.loc             ? data.loc
                          : config_.data.train ? config_.data.train->loc
                                               : config_.data.loc;
  if (data.inputs.size() != inputs.size()) {
    std::vector<std::string> names;
    for (const int input : inputs) {
      names.push_back(model_->calls()[input].name);
    }
    Diagnostic& error = diagnostics.error(
        "E324", place,
        fmt::format("the data have {} input array{}, the model has {}: `{}`", data.inputs.size(),
                    data.inputs.size() == 1 ? "" : "s", inputs.size(), join(names, "`, `")));
    const auto is_of_documents = [](const std::string& name) {
      return name == "segments" || name == "positions";
    };
    if (std::any_of(names.begin(), names.end(), is_of_documents)) {
      error.help("`document_separator` of the source `text` or `tokens` gives these two");
    } else if (std::find(names.begin(), names.end(), "padding_mask") != names.end()) {
      error.help(
          "the source `lines` gives `padding_mask`; windows of `text` and `tokens` have no "
          "padding, so that the Input and its uses can go");
    }
    return;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Model::Call& call = model_->calls()[inputs[i]];
    const Shape wanted = without_first(call.output_shape);
    if (!fits(data.inputs[i].shape, wanted)) {
      diagnostics
          .error("E324", place,
                 fmt::format("samples have shape {}, input `{}` takes {}",
                             shape_string(data.inputs[i].shape), call.name, shape_string(wanted)))
          .note(fmt::format("`{}` is declared at {}", call.name,
                            place_of_layer(config_.model, call.name).to_string()))
          .help(has_batch_too(wanted, data.inputs[i].shape)
                    ? place.file != nullptr && place.file->name == "command line"
                          ? "a single sample needs a dimension before its own: numpy's x[None]"
                          : "leave the batch dimension out of the Input's `shape`"
                    : shape_help(data.inputs[i].shape, wanted, inputs.size() == 1));
    }
  }
  const size_t outputs = model_->outputs().size();
  if (!data.targets.empty() && data.targets.size() != outputs) {
    std::vector<std::string> each;
    for (const std::string& name : model_->output_names()) {
      each.push_back(name + ": NAME");
    }
    diagnostics
        .error("E324", place,
               fmt::format("the data have {} target array{}, the model has {} output{}",
                           data.targets.size(), data.targets.size() == 1 ? "" : "s", outputs,
                           outputs == 1 ? "" : "s"))
        .help(fmt::format("each output has an array of its own: `y: {{{0}}}` of npz, hdf5 and npy, "
                          "`label: {{{0}}}` of csv",
                          join(each, ", ")))
        .help("an output without a loss and without metrics needs none");
  }
}

// Zeros behind a weight leave sums as they are, but no means.
void Setup::check_padding(Diagnostics& diagnostics) const {
  for (const Weight* weight : model_->weights()) {
    const ConfigObject* rule = weight->trainable && weight->stored_shape() != weight->shape
                                   ? optimizer_->whole_rule(weight->path, weight->shape.size())
                                   : nullptr;
    if (rule != nullptr) {
      diagnostics
          .error("E113", rule->loc,
                 fmt::format("{} depends on the number of rows of `{}`, which `pad_to` changes",
                             rule->class_name, weight->path))
          .help("leave `pad_to` out, or take AdamW");
    }
  }
}

DataSpec Setup::implied_data() const {
  DataSpec spec;
  for (const int input : model_->inputs()) {
    const Model::Call& call = model_->calls()[input];
    spec.inputs.push_back({without_first(call.output_shape), call.dtype});
  }
  const CompileConfig& compile = config_.compile;
  NamedShapes named;
  for (size_t o = 0; o < model_->outputs().size(); ++o) {
    named.emplace_back(model_->output_names()[o],
                       model_->calls()[model_->outputs()[o]].output_shape);
  }
  for (const auto& [name, prediction] : named) {
    ComparedOutput output{nullptr, {}, prediction};
    for (const OutputObject& entry : compile.loss) {
      if (entry.output == name || (entry.output.empty() && output.loss == nullptr)) {
        output.loss = &entry.object;
      }
    }
    for (const auto* metrics : {&compile.metrics, &compile.weighted_metrics}) {
      for (const OutputObject& entry : *metrics) {
        if (entry.output == name || entry.output.empty()) {
          output.metrics.push_back(&entry.object);
        }
      }
    }
    const ValueType targets = implied_targets(output, dtype_, named);
    spec.targets.push_back({without_first(targets.shape), targets.dtype});
  }
  return spec;
}

void Setup::resolve(Diagnostics& diagnostics) {
  std::vector<LayoutTarget> weights, outputs;
  std::vector<std::string> layer_paths;
  for (const Weight* weight : model_->weights()) {
    weights.push_back({weight->path, weight->stored_shape(),
                       static_cast<int64_t>(dtype_size(weight->dtype)), weight->pad_dim});
  }
  for (const Model::Call& call : model_->calls()) {
    if (call.result_of != kNone) {
      continue;  // sharded as the ops around it want
    }
    const std::string& name = call.is_input ? call.name : model_->layers()[call.layer]->name;
    layer_paths.push_back(name);
    if (!call.is_input) {  // inputs are sharded as the batch
      outputs.push_back({name + "/output", call.output_shape});
    }
  }
  layout_map_ = make_layout_map(config_, mesh(), diagnostics);
  const std::map<std::string, std::string> block_pins = add_block_outputs(config_.model, outputs);
  layouts_ = resolve_layouts(layout_map_, weights, model_->factors_of(), outputs, layer_paths,
                             model_->name(), config_.distribution.mesh, diagnostics);
  for (const auto& [key, own_key] : block_pins) {
    move_pin(layouts_, key, own_key, diagnostics);
  }
}

// Beside the axes of the batch, whose parts are gathered before a layer sees a weight.
std::vector<Shape> Setup::shards_of_weights() const {
  std::vector<Shape> out;
  for (const Sharding& layout : layouts_.weights) {
    Shape& shards = out.emplace_back();
    for (AxisList axes : layout.dims) {
      erase_if(axes,
               [&](int axis) { return (mask_of(distribution_.batch_axes) >> axis & 1) != 0; });
      shards.push_back(mesh().size_of(axes));
    }
  }
  return out;
}

bool Setup::fixed_reductions() const {
  const ReductionOrder order = config_.distribution.reductions;
  return order == ReductionOrder::kFixed || (order == ReductionOrder::kAuto && !part_.is_whole());
}

// All programs have the caches among their variables, since they share one store.
void Setup::add_caches() {
  num_own_variables_ = graphs_->variables().size();
  if (decode_.rows == 0) {
    return;
  }
  IncrementalGraph decode = decode_graph(1);
  decode_obstacle_ = std::move(decode.obstacle);
  is_decode_bounded_ = decode.is_bounded;
  if (decode_obstacle_.empty()) {
    graphs_->set_variables(std::move(decode.graph.variables));
  }
}

Graph Setup::predict_graph(int64_t batch, bool in_order) const {
  Graph graph = graphs_->predict(batch, {.in_order = in_order, .generating = decode_.rows > 0});
  if (decode_.gives_hidden) {
    const ValueId hidden = head_input(graph, graph.outputs[0].value);
    if (hidden == kNone) {
      throw ConfigError("E324", config_.model.loc,
                        fmt::format("this model has no hidden states: `{}` gives its output, and "
                                    "reads no single product with a weight",
                                    graph.producer(graph.outputs[0].value).path))
          .help(
              "contrastive search takes models that end in Dense, EinsumDense or an embedding "
              "in reverse");
    }
    graph.outputs.push_back({"hidden", hidden});
  }
  return graph;
}

IncrementalGraph Setup::decode_graph(int64_t steps) const {
  Graph whole = predict_graph(decode_.rows, /*in_order=*/true);
  whole.variables.resize(num_own_variables_);
  Sharding rows;
  if (decode_.rows % mesh().size_of(distribution_.batch_axes) == 0) {
    rows.dims.emplace_back(distribution_.batch_axes);
  }
  return make_incremental(whole, decode_.inputs, steps, decode_.reorders_rows, rows);
}

Graph Setup::global_graph(StepKind kind, int64_t batch) const {
  if (kind == StepKind::kDecode) {
    return decode_graph(batch).graph;
  }
  if (kind == StepKind::kTest || kind == StepKind::kPredict) {
    return kind == StepKind::kTest ? graphs_->test(batch) : predict_graph(batch, false);
  }
  std::vector<RematRegion> regions;
  for (const ModelConfig::Remat& remat : config_.model.remat) {
    regions.push_back({remat.prefix, remat.keeps_products, remat.kept_parts});
  }
  return rematerialize(graphs_->train(batch, kind == StepKind::kTrain), regions);
}

Compiled Setup::compile(StepKind kind, int64_t batch, bool bucket) const {
  CompileOptions options;
  options.bucket = bucket;
  options.early_gradients = distribution_.zero >= 2;
  if (config_.distribution.reshard_after_forward) {
    options.regather_above = 2 * kGatheredBytes;  // that much is there in any case
  }
  options.processes = part_.processes();
  options.rank = part_.rank();
  options.fixed_reductions = fixed_reductions();
  options.dump_dir = dump_ir_;
#ifdef NDEBUG
  options.verify_each = !dump_ir_.empty();  // a third of the time of all passes
#endif
  options.dump_name = fmt::format("{}_{}", step_kind_name(kind), batch);
  const int64_t rows = kind == StepKind::kDecode ? decode_.rows : batch;
  if (rows % mesh().size_of(distribution_.batch_axes) == 0) {
    options.propagate.batch_axes = distribution_.batch_axes;
  }
  options.propagate.pins = layouts_.pins;
  for (auto& [key, sharding] : options.propagate.pins) {
    if (!sharding.dims.empty() && rows % mesh().size_of(sharding.dims[0]) != 0) {
      sharding.dims[0].clear();
    }
  }
  for (const PlacedPin& placed : expert_pins_) {
    options.propagate.pins[placed.key] = layout_of(placed, options.propagate.batch_axes);
  }
  return meshtrain::compile(global_graph(kind, batch), mesh(), options);
}

}  // namespace meshtrain
