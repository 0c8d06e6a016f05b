// expand_blocks, and Expander: entries and layers.
#include "config/expander.h"

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/expand.h"

namespace meshtrain {
namespace {

constexpr size_t kMaxEntries = 10 * kMaxExpandedLayers;  // visited, layers or not
constexpr size_t kMaxExpandedNodes = 10 * kMaxYamlNodes;
constexpr size_t kMaxDepth = 64;  // uses and Repeats within each other

size_t count_nodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& child : node.children) {
    count += count_nodes(child);
  }
  return count;
}

YamlNode name_node(std::string text, const SourceLoc& loc) {
  YamlNode node = YamlNode::scalar(std::move(text), loc, true);
  node.key = "name";
  node.key_loc = loc;
  return node;
}

bool uses_expansion(const YamlNode& layers, const BlockDefinitions& blocks) {
  for (const YamlNode& entry : layers.children) {
    const auto form = object_form(entry, Category::kLayer);
    if (form && (form->spelled == kRepeat || blocks.contains(form->spelled))) {
      return true;
    }
  }
  return false;
}

}  // namespace

void ExpandScope::continue_from(ExpandScope& around) {
  prefix = around.prefix;
  outer = &around;
  home = around.home;
  locals = around.locals;
  use = around.use;
  frozen = around.frozen;
  own_root = around.own_root;
  shared_root = around.shared_root;
}

std::string ExpandScope::shared_name(const std::string& full_name) const {
  return starts_with(full_name, own_root) ? shared_root + full_name.substr(own_root.size())
                                          : full_name;
}

std::vector<std::string> ExpandScope::known_names() const {
  std::vector<std::string> out;
  for (const ExpandScope* scope = this; scope != nullptr; scope = scope->outer) {
    for (const auto& [name, outputs] : scope->names) {
      out.push_back(name);
    }
    out.insert(out.end(), scope->layers.begin(), scope->layers.end());
  }
  return out;
}

std::optional<OutputNames> find_outputs(const std::string& name, const ExpandScope& scope) {
  const std::string first = name.substr(0, name.find('/'));
  const std::string layer = split_output(first).first;  // `l` of `l.state_h`
  for (const ExpandScope* at = &scope; at != nullptr; at = at->outer) {
    const auto found = at->names.find(name);
    if (found != at->names.end()) {
      return found->second;
    }
    if (at->layers.contains(first) || at->uses.contains(first) || at->layers.contains(layer)) {
      return OutputNames{at->prefix + name};
    }
    if (at->block != nullptr) {
      return std::nullopt;
    }
  }
  return OutputNames{name};
}

void set_use(YamlNode& node, const std::shared_ptr<const SourceUse>& use) {
  node.loc.use = use;
  node.key_loc.use = use;
  for (YamlNode& child : node.children) {
    set_use(child, use);
  }
}

namespace {

void replace_all(std::string& text, const std::string& mark, const std::string& by) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + by.size())) {
    text.replace(at, mark.size(), by);
  }
}

// a, b, ..., z, aa, ab, ...
std::string letters_of(int64_t value) {
  std::string out;
  for (; value >= 0; value = value / 26 - 1) {
    out.insert(out.begin(), static_cast<char>('a' + value % 26));
  }
  return out;
}

}  // namespace

void set_counters(YamlNode& names, const std::map<std::string, int64_t>& counters) {
  for (const auto& [name, value] : counters) {
    replace_all(names.text, "{" + name + "}", fmt::format("{}", value));
    replace_all(names.text, "{" + name + ":a}", letters_of(value));
  }
  for (YamlNode& child : names.children) {
    set_counters(child, counters);
  }
}

std::string unknown_counter(const std::string& text, const std::map<std::string, int64_t>& known) {
  for (size_t at = text.find('{'); at != std::string::npos; at = text.find('{', at + 1)) {
    const size_t end = text.find('}', at);
    std::string name = end == std::string::npos ? "" : text.substr(at + 1, end - at - 1);
    name = name.substr(0, name.size() - (ends_with(name, ":a") ? 2 : 0));
    if (!name.empty() && !known.contains(name)) {
      return "{" + name + "}";
    }
  }
  return "";
}

void Expander::run(const YamlNode& layers) {
  add_entries(layers.children, top_);
}

std::optional<OutputNames> Expander::unusual_outputs() const {
  const bool is_usual = top_.previous.empty() || top_.previous == OutputNames{last_};
  return is_usual ? std::nullopt : std::optional(top_.previous);
}

bool Expander::charge(const YamlNode& node) {
  num_nodes_ += count_nodes(node);
  ++num_entries_;
  const bool too_many_layers = layers_.size() >= kMaxExpandedLayers;
  if (!gave_up_ &&
      (too_many_layers || num_nodes_ > kMaxExpandedNodes || num_entries_ > kMaxEntries)) {
    gave_up_ = true;
    diagnostics_
        .error("E106", node.loc,
               too_many_layers
                   ? fmt::format("blocks and Repeat make more than {} layers", kMaxExpandedLayers)
                   : fmt::format("blocks and Repeat expand to more than {} entries",
                                 num_nodes_ > kMaxExpandedNodes ? kMaxExpandedNodes : kMaxEntries))
        .help("lower `times`");
  }
  return !gave_up_;
}

void Expander::add_entries(const std::vector<YamlNode>& entries, ExpandScope& scope) {
  if (depth_ >= kMaxDepth) {
    if (!gave_up_) {
      diagnostics_.error("E106", entries.empty() ? SourceLoc() : entries[0].loc,
                         fmt::format("uses within each other deeper than {}", kMaxDepth));
    }
    gave_up_ = true;
    return;
  }
  ++depth_;
  for (const YamlNode& entry : entries) {
    if (!charge(entry)) {
      break;
    }
    add_entry(entry, scope);
  }
  --depth_;
}

void Expander::add_entry(const YamlNode& entry, ExpandScope& scope) {
  const auto form = object_form(entry, Category::kLayer);
  if (!form) {  // reported when it is read
    emit(entry, "", scope);
    return;
  }
  const auto block = blocks_.find(form->spelled);
  if (block != blocks_.end()) {
    add_use(entry, *form, block->second, scope);
  } else if (form->spelled == kRepeat) {
    add_repeat(entry, *form, scope);
  } else if (form->spelled != "Call" || !add_block_call(entry, *form, scope)) {
    if (scope.is_top()) {
      add_top_layer(entry, *form);
    } else {
      add_inner_layer(entry, *form, scope);
    }
  }
}

void Expander::evaluate(YamlNode& node, const ExpandScope& scope) {
  expressions_.evaluate(node, scope.locals);
}

// The name of an entry within its list: given, or counted.
std::string Expander::take_local_name(const YamlNode* given, const std::string& class_name,
                                      ExpandScope& scope) {
  if (given != nullptr && !given->failed && (given->is_map() || given->is_list())) {
    diagnostics_.error("E112", given->loc,
                       fmt::format("`name` of `{}` must be a text", class_name));
  }
  return given != nullptr && given->is_scalar() && !given->failed && !given->text.empty()
             ? given->text
             : scope.home->counter.next(class_name);
}

void Expander::check_name(const std::string& name, const SourceLoc& loc) {
  if (name.find('/') != std::string::npos) {
    diagnostics_.error("E113", loc,
                       fmt::format("the name `{}` contains `/`, which separates the names of "
                                   "blocks and layers",
                                   name));
  } else if (const std::string mark = unknown_counter(name, {}); !mark.empty()) {
    diagnostics_.error("E113", loc, fmt::format("`{}` in `{}` counts nothing here", mark, name))
        .help("only a Repeat counts; give a block its number as a parameter");
  }
}

namespace {

// The texts of a scalar, or of what is in a list or a map of them.
std::vector<std::string> texts_of(const YamlNode& node) {
  if (node.is_scalar()) {
    return node.is_null() ? std::vector<std::string>() : std::vector{node.text};
  }
  std::vector<std::string> out;
  for (const YamlNode& child : node.children) {
    out.push_back(child.text);
  }
  return out;
}

// The function of a Lambda names its inputs as they were written, before they became layers.
void keep_names(const std::string& class_name, const std::vector<std::string>& written,
                YamlNode& args) {
  const YamlNode* inputs = args.find("inputs");
  if (class_name != "Lambda" || inputs == nullptr || args.find("names") != nullptr) {
    return;
  }
  const std::vector<std::string> now = texts_of(*inputs);
  if (written.size() != now.size() || written == now) {
    return;
  }
  const SourceLoc loc = inputs->loc;
  YamlNode names{.kind = YamlNode::Kind::kList, .loc = loc, .key = "names", .key_loc = loc};
  for (const std::string& name : written) {
    names.children.push_back(YamlNode::scalar(name, loc, true));
  }
  args.at_or_add("names", loc) = std::move(names);
}

}  // namespace

// Copies a layer of the model's own list; only names of uses change.
void Expander::add_top_layer(const YamlNode& entry, const ObjectForm& form) {
  YamlNode layer = entry;
  const auto own = object_form(layer, Category::kLayer);
  auto* args = const_cast<YamlNode*>(own->args);  // part of `layer`
  YamlNode* name = args == nullptr ? nullptr : args->find("name");
  if (name != nullptr) {
    evaluate(*name, top_);
  }
  const std::string local_name = take_local_name(name, form.spelled, top_);
  YamlNode* inputs = args == nullptr ? nullptr : args->find("inputs");
  if (inputs != nullptr && !inputs->is_null()) {
    evaluate(*inputs, top_);
    const std::vector<std::string> written = texts_of(*inputs);
    rewrite(*inputs, top_);
    keep_names(form.spelled, written, *args);
  } else if (form.spelled != "Input" && !top_.previous.empty() &&
             top_.previous != OutputNames{last_}) {
    if (YamlNode* all = normalize_object(layer, Category::kLayer)) {
      connect(*all, form.loc, top_);
    }
  }
  emit(std::move(layer), local_name, top_);
}

// A copy for one use: named after it, connected within it, its expressions evaluated.
void Expander::add_inner_layer(YamlNode layer, const ObjectForm& form, ExpandScope& scope) {
  const std::string class_name = form.spelled;
  SourceLoc loc = form.loc;
  loc.use = scope.use;
  layer.key.clear();
  YamlNode* args = normalize_object(layer, Category::kLayer);
  set_use(layer, scope.use);
  evaluate(layer, scope);
  if (args == nullptr) {  // reported when it is read
    emit(std::move(layer), "", scope);
    return;
  }
  if (class_name == "Input") {
    diagnostics_.error("E121", loc, "an Input cannot stand in a block or a Repeat")
        .help("put it into `model.layers`, and name it in the `inputs` of the use");
  }
  for (const char* key : {"name", "inputs", "layer", "token_embedding"}) {
    if (YamlNode* names = args->find(key)) {
      set_counters(*names, scope.counters);
    }
  }
  const YamlNode* given = args->find("name");
  const bool is_given = given != nullptr && given->is_scalar();
  const SourceLoc name_loc = is_given ? given->loc : loc;
  const std::string local_name = take_local_name(given, class_name, scope);
  check_name(local_name, name_loc);
  const std::string full_name = scope.prefix + local_name;
  if (is_given || !scope.prefix.empty()) {
    args->at_or_add("name", name_loc) = name_node(full_name, name_loc);
  }
  if (class_name != "Input") {
    const YamlNode* inputs = args->find("inputs");
    const std::vector<std::string> written =
        inputs == nullptr ? std::vector<std::string>() : texts_of(*inputs);
    connect(*args, loc, scope);
    keep_names(class_name, written, *args);
  }
  if (scope.frozen && class_name != "Call") {
    YamlNode frozen = YamlNode::scalar("false", *scope.frozen);
    frozen.key = "trainable";
    args->at_or_add("trainable", *scope.frozen) = std::move(frozen);
  }
  const std::string_view shares = argument_of_shared_layer(class_name);
  YamlNode* target = shares.empty() ? nullptr : args->find(shares);
  if (target != nullptr && target->is_scalar()) {
    rewrite(*target, scope);
    target->text = scope.is_shared() ? scope.shared_name(target->text) : target->text;
  }
  if (scope.is_shared() && class_name != "Call") {
    YamlNode call{.kind = YamlNode::Kind::kMap, .loc = loc};
    YamlNode& inner = call.at_or_add("Call", loc);
    for (const char* key : {"name", "inputs"}) {
      if (const YamlNode* kept = args->find(key)) {
        inner.at_or_add(key, loc) = *kept;
      }
    }
    inner.at_or_add("layer", loc);
    inner.children.back().kind = YamlNode::Kind::kScalar;
    inner.children.back().quoted = true;
    inner.children.back().text = scope.shared_name(full_name);
    layer = std::move(call);
  }
  emit(std::move(layer), local_name, scope);
}

// Writes `inputs` where the entry before in the list is not what the layer takes.
void Expander::connect(YamlNode& args, const SourceLoc& loc, const ExpandScope& scope) {
  YamlNode* inputs = args.find("inputs");
  if (inputs != nullptr && !inputs->is_null()) {
    rewrite(*inputs, scope);
    return;
  }
  if (scope.previous.empty() || scope.previous == OutputNames{last_}) {
    return;
  }
  YamlNode list{.kind = YamlNode::Kind::kList, .loc = loc, .key = "inputs", .key_loc = loc};
  for (const std::string& name : scope.previous) {
    list.children.push_back(YamlNode::scalar(name, loc, true));
  }
  args.at_or_add("inputs", loc) = std::move(list);
}

void Expander::emit(YamlNode layer, const std::string& local_name, ExpandScope& scope) {
  last_ = scope.prefix + local_name;
  scope.previous = {last_};
  if (!local_name.empty()) {
    scope.home->layers.insert(local_name);
    if (scope.home->uses.contains(local_name)) {
      name_taken(last_, layer.loc);
    }
  }
  layers_.push_back(std::move(layer));
}

void Expander::name_taken(const std::string& full_name, const SourceLoc& loc) {
  diagnostics_.error("E121", loc, fmt::format("two layers or blocks are named `{}`", full_name))
      .help("give each a `name` of its own");
}

OutputNames Expander::resolve(const YamlNode& name, const ExpandScope& scope) {
  if (const auto found = find_outputs(name.text, scope)) {
    const auto inner = found->size() == 1 ? use_outputs_.find(found->front()) : use_outputs_.end();
    return inner == use_outputs_.end() ? *found : inner->second;  // a use within a use
  }
  const ExpandScope* body = &scope;
  while (body->block == nullptr) {
    body = body->outer;
  }
  const std::vector<std::string> known = scope.known_names();
  Diagnostic& d =
      diagnostics_.error("E121", name.loc,
                         fmt::format("`{}` is no input and no layer above in block `{}`", name.text,
                                     body->block->name));
  suggest(d, name.text, known);
  if (!known.empty()) {
    d.note(fmt::format("known here: {}", join(nearest_names(name.text, known, 8), ", ")));
  }
  d.help("a block sees its own layers and what `inputs` gives it");
  return {};
}

// Names in `inputs` or `outputs` become names of layers.
void Expander::rewrite(YamlNode& names, const ExpandScope& scope) {
  if (names.is_scalar() && !names.failed) {
    const OutputNames found = resolve(names, scope);
    if (found.size() == 1) {
      names.text = found[0];
      return;
    }
    names.failed = found.empty();
    names.kind = found.empty() ? names.kind : YamlNode::Kind::kList;
    for (const std::string& name : found) {
      names.children.push_back(YamlNode::scalar(name, names.loc, true));
    }
  } else if (names.is_list()) {
    std::vector<YamlNode> all;
    for (YamlNode& child : names.children) {
      rewrite(child, scope);
      if (child.is_list()) {
        all.insert(all.end(), child.children.begin(), child.children.end());
      } else {
        all.push_back(std::move(child));
      }
    }
    names.children = std::move(all);
  } else if (names.is_map()) {
    for (YamlNode& child : names.children) {
      if (!child.is_scalar()) {
        diagnostics_.error("E112", child.loc,
                           fmt::format("`{}` takes the name of one input", child.key));
        child.failed = true;
        continue;
      }
      const std::string written = child.text;
      rewrite(child, scope);
      if (child.is_list()) {
        std::vector<std::string> outputs;
        for (const YamlNode& output : child.children) {
          outputs.push_back(output.text);
        }
        diagnostics_
            .error("E121", child.loc,
                   fmt::format("`{}` has {} outputs; one is wanted here", written, outputs.size()))
            .note("they are " + join(outputs, ", "));
        child.failed = true;
      }
    }
  }
}

void Expander::rewrite_outputs(YamlNode& outputs) {
  const std::vector<YamlNode> written = outputs.children;
  const bool is_list_of_names =
      outputs.is_list() && written.size() > 1 &&
      std::all_of(written.begin(), written.end(),
                  [](const YamlNode& entry) { return entry.is_scalar(); });
  rewrite(outputs, top_);
  if (!is_list_of_names || outputs.children.size() != written.size()) {
    return;
  }
  YamlNode named = outputs;
  named.kind = YamlNode::Kind::kMap;
  std::set<std::string> names;
  bool is_any_use = false;
  for (size_t i = 0; i < written.size(); ++i) {
    is_any_use = is_any_use || outputs.children[i].text != written[i].text;
    named.children[i].key = written[i].text;
    named.children[i].key_loc = written[i].loc;
    names.insert(written[i].text);
  }
  if (is_any_use && names.size() == written.size()) {
    outputs = std::move(named);
  }
}

Expansion expand_blocks(YamlNode& root, Expressions& expressions, Diagnostics& diagnostics,
                        int64_t most_times) {
  Expansion out;
  const BlockDefinitions blocks = take_blocks(root, diagnostics);
  for (const auto& [name, block] : blocks) {
    out.block_names.push_back(name);
  }
  YamlNode* model = root.find("model");
  YamlNode* layers = model == nullptr ? nullptr : model->find("layers");
  if (layers == nullptr || !layers->is_list() || !uses_expansion(*layers, blocks)) {
    return out;
  }
  const SourceLoc loc = layers->key_loc;
  Expander expander(blocks, expressions, diagnostics, most_times);
  expander.run(*layers);
  layers->children = expander.take_layers();
  out.outputs = expander.single_outputs();
  for (const YamlNode& remat : expander.remats()) {
    YamlNode& all = model->at_or_add("remat", remat.loc);
    all.kind = YamlNode::Kind::kMap;
    if (all.find(remat.key) == nullptr) {  // what the file says of it by its name counts
      all.children.push_back(remat);
    }
  }
  YamlNode* outputs = model->find("outputs");
  if (outputs != nullptr && !outputs->is_null()) {
    expressions.evaluate(*outputs);
    expander.rewrite_outputs(*outputs);
  } else if (const auto last = expander.unusual_outputs()) {
    YamlNode& added = model->at_or_add("outputs", loc);
    added.kind = YamlNode::Kind::kList;
    for (const std::string& name : *last) {
      added.children.push_back(YamlNode::scalar(name, loc));
    }
  }
  return out;
}

}  // namespace meshtrain
