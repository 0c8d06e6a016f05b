// Expander: Repeat.
#include <algorithm>
#include <cctype>

#include "base/suggest.h"
#include "base/text.h"
#include "config/expander.h"
#include "config/expression_parser.h"
#include "config/reader.h"

namespace meshtrain {
namespace {

// Whether names made from `text` differ with the counter.
bool has_counter(const std::string& text, const std::string& counter) {
  return text.find("{" + counter + "}") != std::string::npos ||
         text.find("{" + counter + ":a}") != std::string::npos || text[0] == '=';
}

}  // namespace

struct Expander::Repetition {
  Use use;
  int64_t times = 0, start = 0;  // the counter begins with `start`
  const BlockDefinition* block = nullptr;
  YamlNode layers, with, outputs, remat;
  bool is_named = false;
  bool is_layer = false;             // `block` is a class of layers
  std::string counter = "i";         // its name in names and expressions
  OutputNames inputs;                // of the next repetition
  std::vector<std::string> formals;  // their names within `layers`
};

void Expander::add_repeat(const YamlNode& entry, const ObjectForm& form, ExpandScope& scope) {
  Repetition repetition;
  repetition.use = read_use(entry, form, "times", scope);
  if (!read_repeat(repetition, scope) || !check_repeat(repetition, scope)) {
    scope.home->uses.insert(repetition.use.name);
    return;
  }
  const size_t num_inputs = repetition.inputs.size();
  for (int64_t i = 0; i < repetition.times && !gave_up_; ++i) {
    const OutputNames outputs = repeat_once(repetition, i, scope);
    if (outputs.size() > num_inputs && num_inputs > 0 && i + 1 < repetition.times) {
      diagnostics_
          .error("E121", repetition.use.loc,
                 fmt::format("a repetition has {} outputs and {} input{}: the next one cannot take "
                             "them",
                             outputs.size(), num_inputs, num_inputs == 1 ? "" : "s"))
          .help("choose one with `outputs`");
      return;
    }
    scope.previous = outputs;
    if (outputs.size() > num_inputs) {
      repetition.inputs = outputs;
    } else {  // what a repetition does not replace, all of them take
      std::copy(outputs.begin(), outputs.end(), repetition.inputs.begin());
    }
  }
  if (repetition.times == 0) {
    scope.previous = repetition.inputs;
  }
}

bool Expander::read_repeat(Repetition& repetition, ExpandScope& scope) {
  const int errors = diagnostics_.num_errors();
  Use& use = repetition.use;
  read_repeat_arguments(repetition, scope);
  take_frozen(use, "`Repeat`", scope);
  const auto take = [&](const char* key) {
    YamlNode* found = use.args.find(key);
    return found == nullptr ? YamlNode{} : std::move(*found);
  };
  const YamlNode block = take("block");
  repetition.layers = take("layers");
  repetition.with = take("with");
  repetition.outputs = take("outputs");
  repetition.remat = take("remat");
  repetition.is_named = use.args.find("name") != nullptr && use.args.find("name")->is_scalar();
  const bool names_block = block.is_scalar() && !block.failed;
  repetition.is_layer = names_block && blocks_.find(block.text) == blocks_.end() &&
                        find_class(Category::kLayer, block.text) != nullptr;
  if (repetition.is_layer && repetition.layers.is_null()) {
    repeat_class(repetition, block);
  } else if (names_block) {
    repetition.block = find_repeated_block(block);
  }
  if ((block.is_null() == repetition.layers.is_null() && !repetition.is_layer) ||
      (!block.is_null() && !block.is_scalar())) {
    diagnostics_.error("E112", use.loc, "`Repeat` needs either `layers` or the name of a `block`")
        .help("write `Repeat: {times: 2, layers: [{Dense: 64}, ReLU]}`");
  }
  YamlNode* inputs = use.args.find("inputs");
  if (inputs != nullptr && inputs->is_map() && repetition.block == nullptr) {
    for (const YamlNode& child : inputs->children) {
      repetition.formals.push_back(child.key);
    }
    inputs->kind = YamlNode::Kind::kList;
  }
  repetition.inputs = read_inputs(inputs, repetition.block, scope);
  return diagnostics_.num_errors() == errors;
}

// A class of layers in the place of a block: `layers` with one layer, which has the name of the
// Repeat and the arguments of `with`.
void Expander::repeat_class(Repetition& repetition, const YamlNode& class_name) {
  YamlNode layer;
  layer.kind = YamlNode::Kind::kMap;
  layer.loc = class_name.loc;
  YamlNode& args = layer.at_or_add(class_name.text, class_name.loc);
  args = repetition.with.is_map() ? repetition.with : args;
  args.kind = YamlNode::Kind::kMap;
  args.key = class_name.text;
  args.loc = args.key_loc = class_name.loc;
  if (const YamlNode* name = repetition.use.args.find("name"); repetition.is_named) {
    YamlNode& own = args.at_or_add("name", name->loc);
    const std::string key = own.key;
    own = *name;
    own.key = key;
  }
  repetition.layers.kind = YamlNode::Kind::kList;
  repetition.layers.loc = class_name.loc;
  repetition.layers.children = {std::move(layer)};
  repetition.with = YamlNode{};
  repetition.is_named = false;
}

// `times`, and what is wrong with the arguments as such.
void Expander::read_repeat_arguments(Repetition& repetition, const ExpandScope& scope) {
  static const ClassSpec& spec = *find_class(Category::kLayer, kRepeat);
  bool has_times = false;
  for (YamlNode& child : repetition.use.args.children) {
    const Spec* known = spec.find(child.key);
    if (known == nullptr) {
      unknown_key(child, "`Repeat`", spec.arg_names());
      continue;
    }
    if (known->kind == ValueKind::kInt || known->name == "block") {
      evaluate(child, scope);
    }
    const bool is_read_later = known->kind == ValueKind::kObjectList ||
                               known->kind == ValueKind::kMap || known->kind == ValueKind::kBool;
    const ConfigValue value =
        is_read_later ? ConfigValue{} : Reader(diagnostics_).value(child, *known, "`Repeat`");
    if (known->name == "times") {
      has_times = true;
      const int64_t times = value.integer();
      repetition.times = most_times_ > 0 ? std::min(times, most_times_) : times;
    } else if (known->name == "start" && value.is_int()) {
      repetition.start = value.integer();
    } else if (known->name == "as" && value.is_string()) {
      repetition.counter = value.string();
      if (!is_name_alone(repetition.counter)) {
        diagnostics_
            .error("E113", child.loc, fmt::format("`as` of `Repeat` cannot be `{}`", child.text))
            .help("a name of letters, digits and _, such as j");
      }
    }
  }
  if (!has_times) {
    const Spec& times = *spec.find("times");
    diagnostics_.error("E112", repetition.use.loc,
                       fmt::format("`Repeat` needs `{}`: {}", times.name, times.help));
  }
}

// Null, after an error, when there is no such block.
const BlockDefinition* Expander::find_repeated_block(const YamlNode& name) {
  const auto found = blocks_.find(name.text);
  if (found != blocks_.end()) {
    return &found->second;
  }
  std::vector<std::string> names;
  for (const auto& [block, definition] : blocks_) {
    names.push_back(block);
  }
  Diagnostic& d =
      diagnostics_.error("E122", name.loc, fmt::format("`{}` is none of `blocks`", name.text));
  suggest(d, name.text, names);
  d.note(names.empty() ? "the configuration has no `blocks`"
                       : "blocks: " + join(nearest_names(name.text, names, 8), ", "));
  return nullptr;
}

// What would go wrong in every repetition, said once.
bool Expander::check_repeat(const Repetition& repetition, const ExpandScope& scope) {
  const int errors = diagnostics_.num_errors();
  const Use& use = repetition.use;
  if (repetition.block == nullptr &&
      (!repetition.layers.is_list() || repetition.layers.children.empty())) {
    diagnostics_
        .error("E112", repetition.layers.loc, "`layers` of `Repeat` must be a list of layers")
        .help("begin each layer with `- `");
  }
  if (!repetition.with.is_null() && !repetition.with.is_map()) {
    diagnostics_
        .error("E112", repetition.with.loc, "`with` of `Repeat` must be a map of names and values")
        .help("write `with: {filters: =16 * 2 ** i}`");
  }
  if (!repetition.remat.is_null() && !repetition.is_named && !repetition.is_layer &&
      repetition.block == nullptr) {
    diagnostics_.error("E112", repetition.remat.loc, "`remat` of `Repeat` needs its `name`")
        .help("write `name: block_{i}`, which its layers then begin with");
  }
  if (repetition.block != nullptr && !repetition.outputs.is_null()) {
    diagnostics_
        .error("E111", repetition.outputs.key_loc, "`outputs` of `Repeat` are those of its block")
        .help(fmt::format("write them in block `{}`", repetition.block->name));
  }
  if (repetition.is_named && repetition.times > 1) {
    const YamlNode& name = *use.args.find("name");
    std::map<std::string, int64_t> known = scope.counters;
    known[repetition.counter] = 0;
    const std::string mark = "{" + repetition.counter + "}";
    if (check_counters(name, known) && !has_counter(name.text, repetition.counter)) {
      diagnostics_
          .error(
              "E121", name.loc,
              fmt::format("{} repetitions cannot all be named `{}`", repetition.times, name.text))
          .help(fmt::format("write `name: {0}_{1}`; {1} counts from {2}", name.text, mark,
                            repetition.start));
    }
  } else if (repetition.times > 1) {
    check_layer_names(repetition, scope);
  }
  return diagnostics_.num_errors() == errors;
}

// Without a name of the Repeat its layers stand side by side with those of the next repetition.
void Expander::check_layer_names(const Repetition& repetition, const ExpandScope& scope) {
  std::map<std::string, int64_t> known = scope.counters;
  known[repetition.counter] = 0;
  const std::string mark = "{" + repetition.counter + "}";
  for (const YamlNode& entry : repetition.layers.children) {
    const auto form = object_form(entry, Category::kLayer);
    const YamlNode* name = form && form->args != nullptr ? form->args->find("name") : nullptr;
    std::map<std::string, int64_t> known_there = known;
    if (name != nullptr && form->spelled == kRepeat) {  // has a counter of its own
      const YamlNode* as = form->args->find("as");
      known_there[as != nullptr && as->is_scalar() ? as->text : "i"] = 0;
    }
    if (name != nullptr && name->is_scalar() && check_counters(*name, known_there) &&
        !has_counter(name->text, repetition.counter)) {
      diagnostics_
          .error("E121", name->loc,
                 fmt::format("`{}` would be there {} times", name->text, repetition.times))
          .help(fmt::format("write `name: {0}_{1}`, or give the Repeat a name: `name: block_{1}`",
                            name->text, mark));
    }
  }
}

// Reports a placeholder of a name that counts nothing.
bool Expander::check_counters(const YamlNode& name, std::map<std::string, int64_t> known) {
  const std::string mark = name.is_scalar() ? unknown_counter(name.text, known) : "";
  if (mark.empty()) {
    return true;
  }
  std::vector<std::string> marks;
  for (const auto& [counter, value] : known) {
    marks.push_back("{" + counter + "}");
  }
  diagnostics_
      .error("E113", name.loc, fmt::format("`{}` in `{}` counts nothing here", mark, name.text))
      .help(fmt::format("known here: {}; `as: {}` of a Repeat names its counter", join(marks, ", "),
                        mark.substr(1, mark.size() - 2)));
  return false;
}

OutputNames Expander::repeat_once(Repetition& repetition, int64_t index, ExpandScope& scope) {
  ExpandScope around;
  around.continue_from(scope);
  around.counters = scope.counters;
  const int64_t count = repetition.start + index;
  around.counters[repetition.counter] = count;
  around.previous = repetition.inputs;
  around.use = std::make_shared<SourceUse>(SourceUse{
      fmt::format("repetition {} of {}", index + 1, repetition.times), repetition.use.loc});
  LocalNames counter{{YamlNode::scalar(fmt::format("{}", count), repetition.use.loc)},
                     scope.locals};
  counter.values[0].key = repetition.counter;
  around.locals = &counter;
  YamlNode with = repetition.with;
  with.kind = YamlNode::Kind::kMap;
  set_use(with, around.use);  // what is wrong in it is wrong in all, and is said once
  evaluate(with, around);
  const LocalNames locals{with.children, &counter};
  around.locals = &locals;
  around.frozen = repetition.use.frozen;
  if (repetition.block == nullptr) {
    return repeat_layers(repetition, around);
  }
  Use use = repetition.use;
  take_name(use, repetition.block->name, around);
  keep_remat(repetition.remat, around.prefix + use.name);
  instantiate(*repetition.block, use, repetition.inputs, with, "", around);
  return around.previous;
}

void Expander::keep_remat(const YamlNode& remat, const std::string& name) {
  if (!remat.is_null()) {
    remats_.push_back(remat);
    remats_.back().key = name;
  }
}

OutputNames Expander::repeat_layers(Repetition& repetition, ExpandScope& around) {
  ExpandScope body;
  body.continue_from(around);
  body.counters = around.counters;
  body.previous = around.previous;
  if (repetition.is_named) {
    Use use = repetition.use;
    take_name(use, std::string(kRepeat), around);
    declare_use(use, around);
    body.prefix = around.prefix + use.name + "/";
    body.home = &body;
    repetition.use.name = use.name;
    keep_remat(repetition.remat, around.prefix + use.name);
  }
  for (size_t f = 0; f < repetition.formals.size() && f < repetition.inputs.size(); ++f) {
    body.names[repetition.formals[f]] = {repetition.inputs[f]};
  }
  add_entries(repetition.layers.children, body);
  if (repetition.is_layer) {
    keep_remat(repetition.remat, last_);
  }
  OutputNames outputs = body.previous;
  if (!repetition.outputs.is_null() && !gave_up_) {
    YamlNode named = repetition.outputs;
    set_use(named, around.use);
    outputs = read_inputs(&named, nullptr, body);
  }
  if (repetition.is_named) {
    around.home->names[repetition.use.name] = outputs;
    use_outputs_[around.prefix + repetition.use.name] = outputs;
    if (outputs.size() == 1) {
      single_outputs_.emplace_back(around.prefix + repetition.use.name, outputs[0]);
    }
  }
  return outputs;
}

}  // namespace meshtrain
