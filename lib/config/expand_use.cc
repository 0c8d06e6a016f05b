// Expander: uses of blocks, and Calls of such uses.
#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/expander.h"
#include "config/reader.h"

namespace meshtrain {

Expander::Use Expander::read_use(const YamlNode& entry, const ObjectForm& form,
                                 const std::string& first_argument, const ExpandScope& scope) {
  Use use{form.loc, YamlNode{.kind = YamlNode::Kind::kMap, .loc = entry.loc}, {}, {}};
  if (form.args != nullptr) {
    for (const YamlNode& child : form.args->children) {
      if (form.skipped.empty() || child.key != form.skipped) {
        use.args.children.push_back(child);
      }
    }
  } else if (form.first != nullptr && !first_argument.empty()) {
    use.args.children.push_back(*form.first);
    use.args.children.back().key = first_argument;
  } else if (form.first != nullptr) {
    diagnostics_.error("E112", form.first->loc,
                       fmt::format("`{}` takes no arguments", form.spelled));
  }
  if (scope.use != nullptr) {
    use.loc.use = scope.use;
    set_use(use.args, scope.use);
  }
  return use;
}

// The use's own name, given or automatic.
void Expander::take_name(Use& use, const std::string& class_name, ExpandScope& scope) {
  YamlNode* given = use.args.find("name");
  if (given != nullptr) {
    evaluate(*given, scope);
    set_counters(*given, scope.counters);
  }
  use.name = take_local_name(given, class_name, scope);
  use.name_loc = given != nullptr && given->is_scalar() ? given->loc : use.loc;
  check_name(use.name, use.name_loc);
  use.args.erase("name");
}

// `trainable: false` freezes all layers of a use.
void Expander::take_frozen(Use& use, const std::string& owner, const ExpandScope& scope) {
  static const Spec kTrainable = boolean("trainable", "true", "whether fit changes its weights");
  use.frozen = scope.frozen;
  YamlNode* trainable = use.args.find("trainable");
  if (trainable == nullptr) {
    return;
  }
  evaluate(*trainable, scope);
  if (!Reader(diagnostics_).value(*trainable, kTrainable, owner).boolean()) {
    use.frozen = trainable->loc;
  }
  use.args.erase("trainable");
}

void Expander::declare_use(const Use& use, ExpandScope& scope) {
  const bool is_new = scope.home->uses.insert(use.name).second;
  if (!is_new || scope.home->layers.contains(use.name)) {
    name_taken(scope.prefix + use.name, use.name_loc);
  }
}

void Expander::unknown_key(const YamlNode& key, const std::string& owner,
                           const std::vector<std::string>& known) {
  Diagnostic& d = diagnostics_.error("E111", key.key_loc,
                                     fmt::format("unknown argument `{}` of {}", key.key, owner));
  suggest(d, key.key, known);
  d.notes.push_back("arguments here: " + join(known, ", "));
}

// The outputs that `inputs` of a use names, or those of the entry before; in the order of the
// block's inputs when it is a map of them.
OutputNames Expander::read_inputs(const YamlNode* given, const BlockDefinition* block,
                                  const ExpandScope& scope) {
  if (given == nullptr || given->is_null()) {
    return scope.previous;
  }
  YamlNode names = *given;
  evaluate(names, scope);
  set_counters(names, scope.counters);
  if (names.is_map() && block != nullptr) {
    for (const YamlNode& child : names.children) {
      if (std::find(block->inputs.begin(), block->inputs.end(), child.key) == block->inputs.end()) {
        Diagnostic& d =
            diagnostics_.error("E121", child.key_loc,
                               fmt::format("block `{}` has no input `{}`", block->name, child.key));
        d.note(block->inputs.empty() ? "its input has no name"
                                     : "its inputs: " + join(block->inputs, ", "));
      }
    }
    std::vector<YamlNode> ordered;
    for (const std::string& input : block->inputs) {
      if (const YamlNode* found = names.find(input)) {
        ordered.push_back(*found);
      }
    }
    names.kind = YamlNode::Kind::kList;
    names.children = std::move(ordered);
  }
  rewrite(names, scope);
  OutputNames out;
  if (names.is_scalar()) {
    out.push_back(names.text);
  }
  for (const YamlNode& child : names.children) {
    if (child.is_scalar()) {
      out.push_back(child.text);
    } else {
      diagnostics_.error("E112", child.loc, "`inputs` must be names of layers");
    }
  }
  return out;
}

void Expander::add_use(const YamlNode& entry, const ObjectForm& form, const BlockDefinition& block,
                       ExpandScope& scope) {
  const std::vector<std::string> params = block.param_names();
  Use use = read_use(entry, form, params.empty() ? "" : params[0], scope);
  take_name(use, block.name, scope);
  take_frozen(use, fmt::format("block `{}`", block.name), scope);
  const YamlNode* given = use.args.find("inputs");
  const OutputNames inputs = read_inputs(given, &block, scope);
  use.args.erase("inputs");
  evaluate(use.args, scope);
  instantiate(block, use, inputs, use.args, "", scope);
}

// `Call: {layer: tower}` of a use of a block: the same layers again, with their weights.
bool Expander::add_block_call(const YamlNode& entry, const ObjectForm& form, ExpandScope& scope) {
  Use use = read_use(entry, form, "layer", scope);
  YamlNode* target = use.args.find("layer");
  if (target == nullptr) {
    return false;
  }
  evaluate(*target, scope);
  set_counters(*target, scope.counters);
  const std::string first = target->text.substr(0, target->text.find('/'));
  const ExpandScope* at = &scope;
  while (at != nullptr && !at->uses.contains(first)) {
    at = at->block == nullptr ? at->outer : nullptr;
  }
  if (!target->is_scalar() || at == nullptr) {
    return false;
  }
  const auto found = instances_.find(at->prefix + target->text);
  if (found == instances_.end()) {
    return false;
  }
  const Instance instance = found->second;
  for (const YamlNode& child : use.args.children) {
    if (child.key != "layer" && child.key != "name" && child.key != "inputs") {
      unknown_key(child, "`Call` of a block", {"layer", "name", "inputs"});
    }
  }
  take_name(use, "Call", scope);
  use.frozen = scope.frozen;
  const OutputNames inputs = read_inputs(use.args.find("inputs"), instance.block, scope);
  instantiate(*instance.block, use, inputs, instance.arguments,
              scope.is_shared() ? scope.shared_name(instance.weights_root) : instance.weights_root,
              scope);
  return true;
}

// Values of all parameters: given, or default.
YamlNode Expander::bind_params(const BlockDefinition& block, const YamlNode& given,
                               const SourceLoc& loc, const std::shared_ptr<const SourceUse>& use) {
  std::vector<std::string> known = block.param_names();
  const size_t num_params = known.size();
  known.insert(known.end(), {"name", "inputs", "trainable"});
  for (const YamlNode& child : given.children) {
    const auto end = known.begin() + static_cast<std::ptrdiff_t>(num_params);
    if (std::find(known.begin(), end, child.key) == end) {
      unknown_key(child, fmt::format("block `{}`", block.name), known);
    }
  }
  LocalNames bound;
  for (const BlockDefinition::Parameter& param : block.params) {
    const YamlNode* value = given.find(param.name);
    if (value != nullptr) {
      bound.values.push_back(*value);
      continue;
    }
    YamlNode own = param.default_value;
    set_use(own, use);
    if (param.is_required) {
      diagnostics_.error("E112", loc, fmt::format("block `{}` needs `{}`", block.name, param.name));
      own.failed = true;
    }
    expressions_.evaluate(own, &bound);  // those before it are known
    bound.values.push_back(std::move(own));
  }
  return YamlNode{.kind = YamlNode::Kind::kMap, .children = std::move(bound.values)};
}

void Expander::instantiate(const BlockDefinition& block, const Use& use, const OutputNames& inputs,
                           const YamlNode& arguments, const std::string& weights_root,
                           ExpandScope& scope) {
  declare_use(use, scope);
  const std::string full_name = scope.prefix + use.name;
  ExpandScope body;
  body.prefix = full_name + "/";
  body.block = &block;
  body.use = std::make_shared<SourceUse>(
      SourceUse{fmt::format("block `{}`, used as `{}`", block.name, full_name), use.loc});
  body.previous = inputs;
  body.frozen = use.frozen;
  body.own_root = weights_root.empty() ? scope.own_root : body.prefix;
  body.shared_root = weights_root.empty() ? scope.shared_root : weights_root;
  if (inputs.size() != block.num_inputs() && !inputs.empty()) {
    diagnostics_
        .error(
            "E121", use.loc,
            fmt::format("block `{}` takes {} input{}{}, not {}", block.name, block.num_inputs(),
                        block.num_inputs() == 1 ? "" : "s",
                        block.inputs.empty() ? "" : fmt::format(" ({})", join(block.inputs, ", ")),
                        inputs.size()))
        .help("name earlier layers in `inputs`");
  }
  for (size_t i = 0; i < block.inputs.size() && i < inputs.size(); ++i) {
    body.names[block.inputs[i]] = {inputs[i]};
  }
  const LocalNames locals{bind_params(block, arguments, use.loc, body.use).children};
  body.locals = &locals;
  Instance instance{&block, YamlNode{.kind = YamlNode::Kind::kMap, .children = locals.values},
                    body.is_shared() ? body.shared_name(body.prefix) : body.prefix};
  instances_[full_name] = std::move(instance);
  if (!block.failed) {
    add_entries(block.layers, body);
  }
  const OutputNames outputs = outputs_of(block, use.name, body, scope);
  scope.home->names[use.name] = outputs;
  use_outputs_[full_name] = outputs;
  scope.previous = outputs;
  if (outputs.size() == 1) {
    single_outputs_.emplace_back(full_name, outputs[0]);
  }
}

// The layers that compute the block's outputs; `outputs: {label: fc}` is `NAME/label` outside.
OutputNames Expander::outputs_of(const BlockDefinition& block, const std::string& name,
                                 ExpandScope& body, ExpandScope& scope) {
  if (block.outputs.is_null() || block.failed || gave_up_) {
    return body.previous;
  }
  YamlNode named = block.outputs;
  set_use(named, body.use);
  evaluate(named, body);
  const std::vector<YamlNode> one = {named};
  OutputNames out;
  for (const YamlNode& child : named.is_scalar() ? one : named.children) {
    if (!child.is_scalar()) {
      diagnostics_.error(
          "E112", child.loc,
          fmt::format("`outputs` of block `{}` must be names of its layers", block.name));
      continue;
    }
    const OutputNames found = resolve(child, body);
    if (named.is_map()) {
      scope.home->names[name + "/" + child.key] = found;
    }
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

}  // namespace meshtrain
