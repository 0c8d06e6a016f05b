// Reader: objects with a class (layers, losses, ...) and lists of them.
#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/suggest.h"
#include "base/text.h"
#include "config/cells.h"
#include "config/other_names.h"
#include "config/reader.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

bool names_class(Category category, const YamlNode& node) {
  return node.is_map() &&
         (node.find("class_name") != nullptr || node.find("type") != nullptr ||
          std::any_of(node.children.begin(), node.children.end(), [&](const YamlNode& child) {
            return find_class(category, child.key) != nullptr ||
                   is_unsupported_class(category, child.key);
          }));
}

bool is_any_class(Category category, const std::string& name) {
  return find_class(category, name) != nullptr || is_unsupported_class(category, name) ||
         !instead_of(category, name).empty();
}

// `{CrossEntropyLoss: {ignore_index: -100}}`: a class that there is not, and no map by output,
// whose entries are classes.
bool names_other_class(Category category, const YamlNode& node) {
  if (!node.is_map() || node.children.size() != 1 || !node.children[0].is_map()) {
    return false;
  }
  const std::vector<YamlNode>& arguments = node.children[0].children;
  return (!arguments.empty() || is_any_class(category, node.children[0].key)) &&
         std::none_of(arguments.begin(), arguments.end(), [&](const YamlNode& argument) {
           return argument.is_map() || is_any_class(category, argument.key);
         });
}

// `keras.optimizers.Adam` and `Adam(learning_rate=0.001)`, as Python writes it: Adam.
std::string bare_class(const std::string& spelled) {
  const std::string path = spelled.substr(0, spelled.find('('));
  return path.substr(path.rfind('.') + 1);  // all of it when there is no dot
}

}  // namespace

ConfigValue Reader::object_value(const YamlNode& node, Category category) {
  if (node.failed) {
    return make_value(std::monostate{}, node.loc);
  }
  ObjectPtr made = object(node, category);
  if (made == nullptr) {
    return make_value(std::monostate{}, node.loc);
  }
  return make_value(std::move(made), node.loc);
}

Reader::ObjectPtr Reader::object(const YamlNode& node, Category category) {
  ObjectFormProblem problem;
  const std::optional<ObjectForm> form = object_form(node, category, &problem);
  if (!form) {
    Diagnostic& d = diagnostics_.error("E112", problem.loc, problem.message);
    if (!problem.help.empty()) {
      d.help(problem.help);
    }
    add_context(d);
    return nullptr;
  }
  const ClassSpec* spec = find_class(category, form->spelled);
  if (spec == nullptr) {
    return unknown_class(*form, category);
  }
  // The name `Accuracy` alone is the word.
  const bool is_bare =
      form->args == nullptr && form->first == nullptr && node.find("class_name") == nullptr;
  if (const ClassSpec* word = find_word(category, form->spelled); is_bare && word != nullptr) {
    spec = word;
  }
  auto object = std::make_shared<ConfigObject>();
  object->class_name = spec->name;
  object->spelled = form->spelled;
  object->loc = form->loc;
  if (form->first == nullptr) {
    arguments(form->args, form->skipped, *spec, *object);
    return object;
  }
  if (spec->args.empty() || (form->first->is_list() && spec->args[0].kind == ValueKind::kInt)) {
    Diagnostic& d =
        diagnostics_.error("E112", form->first->loc,
                           fmt::format("`{}` takes {}, not {}", form->spelled,
                                       spec->args.empty() ? "no arguments" : "a map of arguments",
                                       kind_name(*form->first)));
    if (!spec->args.empty()) {
      d.help(fmt::format("arguments have names: `{}: {{{}: ...}}`", form->spelled,
                         spec->args[0].name));
    }
    return nullptr;
  }
  YamlNode args{.kind = YamlNode::Kind::kMap, .loc = form->first->loc};
  args.children.push_back(*form->first);
  args.children[0].key = spec->args[0].name;
  arguments(&args, {}, *spec, *object);
  return object;
}

void Reader::arguments(const YamlNode* args, const std::string& skipped, const ClassSpec& spec,
                       ConfigObject& object) {
  const std::string owner = fmt::format("`{}`", spec.name);
  if (args != nullptr) {
    for (const YamlNode& child : args->children) {
      if (!skipped.empty() && child.key == skipped) {
        continue;
      }
      if (const Spec* arg = spec.find(child.key)) {
        // A list of cells is written as the `cell` of an RNN.
        const bool is_list = spec.name == "StackedRNNCells" && !context_.empty();
        std::string own = is_list ? context_ : fmt::format("`{}` of {}", arg->name, owner);
        const std::string around = std::exchange(context_, std::move(own));
        object.args[arg->name] = value(child, *arg, owner);
        context_ = around;
        check_name(*arg, object.args[arg->name]);
      } else {
        Diagnostic& problem = unknown_key(child, owner, true, spec.arg_names());
        if (!spec.unknown_help.empty()) {
          problem.help(spec.unknown_help);
        }
      }
    }
  }
  for (const Spec& arg : spec.args) {
    if (object.args.find(arg.name) != object.args.end()) {
      continue;
    }
    if (arg.is_required && context_.starts_with("`cell` of ") && !is_cell_class(spec.name)) {
      diagnostics_
          .error("E112", object.loc, fmt::format("{} is {}, which is no cell", context_, spec.name))
          .help("write SimpleRNNCell, LSTMCell or GRUCell, or a list of them");
    } else if (arg.is_required) {
      diagnostics_.error("E112", object.loc,
                         fmt::format("{} needs `{}`: {}", owner, arg.name, arg.help));
    }
    object.args.emplace(
        arg.name, arg.is_required ? fallback(arg, object.loc) : default_value(arg, object.loc));
  }
}

// Names are keys in files of weights, which take no others.
void Reader::check_name(const Spec& arg, const ConfigValue& value) {
  constexpr size_t kMostBytes = 128;
  if (arg.name != "name" || !value.is_string()) {
    return;
  }
  const std::string& name = value.string();
  if (without_controls(name) != name) {
    diagnostics_.error("E113", value.loc,
                       fmt::format("the name `{}` has control characters", printable(name)));
  } else if (name.size() > kMostBytes) {
    diagnostics_.error("E113", value.loc,
                       fmt::format("the name `{}` has {} bytes; {} are allowed", printable(name),
                                   name.size(), kMostBytes));
  }
}

// Says which argument an object was read for.
void Reader::add_context(Diagnostic& d) const {
  if (!context_.empty()) {
    d.note("for " + context_);
  }
}

namespace {

// Whether one of `names` has `word` within: "glorot" of GlorotNormal.
bool is_part_of_any(const std::string& word, const std::vector<std::string>& names) {
  const std::string lower = to_lower(word);
  return lower.size() > 2 && std::any_of(names.begin(), names.end(), [&](const std::string& name) {
           return to_lower(name).find(lower) != std::string::npos;
         });
}

}  // namespace

Reader::ObjectPtr Reader::unknown_class(const ObjectForm& form, Category category) {
  const std::string_view what = category_name(category);
  const std::string bare = bare_class(form.spelled);
  const bool is_number = try_number(form.spelled).has_value();
  const std::string other = instead_of(category, is_number ? form.spelled : bare);
  if (is_unsupported_class(category, bare)) {
    Diagnostic& d =
        diagnostics_.error("E122", form.loc, fmt::format("{} `{}` is not supported", what, bare));
    if (!other.empty()) {
      d.help(other);
    }
    add_context(d);
  } else if (const std::string_view instead = refusal(category, bare); !instead.empty()) {
    diagnostics_.error("E122", form.loc, fmt::format("there is no {} `{}` here", what, bare))
        .help(instead);
  } else {
    std::vector<std::string> names = class_names(category);
    if (category == Category::kLayer) {
      names.insert(names.end(), block_names_.begin(), block_names_.end());
    }
    Diagnostic& d =
        diagnostics_.error("E122", form.loc, fmt::format("unknown {} `{}`", what, form.spelled));
    const bool is_near = other.empty() && !is_number && suggest(d, bare, names);
    if (!other.empty()) {
      d.help(other);
    }
    if (form.spelled.starts_with("lambda ") || form.spelled.starts_with("=")) {
      d.help(
          category == Category::kActivation
              ? "a function of your own is a layer: `Lambda: \"=x * 2\"`"
              : "a function of your own is an expression: `=mean(abs(y_true - y_pred), axis=-1)`");
    } else if (form.spelled.find('(') != std::string::npos) {
      d.help(fmt::format("arguments are a map: `{}: {{name: value}}`", bare));
    }
    if (names.size() <= 8) {
      d.notes.push_back("known: " + join(names, ", "));
    } else if (is_near || (other.empty() && is_part_of_any(bare, names))) {
      d.notes.push_back("nearest: " + join(nearest_names(bare, names, 3), ", "));
    } else if (other.empty()) {
      d.notes.push_back(fmt::format("`meshtrain explain {}` lists all", class_kind_word(category)));
    }
    add_context(d);
  }
  if (category != Category::kLayer) {
    return nullptr;
  }
  // Its name and inputs are needed to judge the layers around it.
  static const ClassSpec& input_like = *find_class(Category::kLayer, "Identity");
  auto object = std::make_shared<ConfigObject>();
  object->class_name = form.spelled;
  object->spelled = form.spelled;
  object->loc = form.loc;
  for (const char* name : {"name", "inputs"}) {
    const Spec& arg = *input_like.find(name);
    const YamlNode* given = form.args == nullptr ? nullptr : form.args->find(name);
    object->args[name] = given != nullptr ? value(*given, arg, fmt::format("`{}`", form.spelled))
                                          : default_value(arg, form.loc);
  }
  return object;
}

ConfigValue Reader::object_list(const YamlNode& node, const Spec& spec, const std::string& owner) {
  ConfigValue::List list;
  if (!node.is_list()) {
    if (spec.category == Category::kLayer) {
      wrong("E112", node.loc, spec, owner, fmt::format("must be a list, not {}", kind_name(node)))
          .help("begin each layer with `- `");
      return make_value(std::move(list), node.loc);
    }
    list.push_back(object_value(node, spec.category));
  } else {
    for (const YamlNode& child : node.children) {
      list.push_back(object_value(child, spec.category));
    }
  }
  std::erase_if(list, [](const ConfigValue& entry) { return entry.is_null(); });
  return make_value(std::move(list), node.loc);
}

// Of a list an entry that is null, or could not be read, keeps its place.
ConfigValue Reader::per_output(const YamlNode& node, const Spec& spec, const std::string& owner) {
  const auto one = [&](const YamlNode& child) {
    if (spec.kind == ValueKind::kObjectsPerOutput && child.is_list()) {
      return object_list(child, spec, owner);
    }
    const bool is_none = child.is_null() ? child.explicit_null : is_python_none(child);
    return is_none ? make_value(std::monostate{}, child.loc) : object_value(child, spec.category);
  };
  if (node.is_list()) {
    ConfigValue::List list;
    std::transform(node.children.begin(), node.children.end(), std::back_inserter(list), one);
    return make_value(std::move(list), node.loc);
  }
  if (!node.is_map() || names_class(spec.category, node) ||
      names_other_class(spec.category, node)) {
    return object_value(node, spec.category);
  }
  ConfigValue::Dict dict;
  for (const YamlNode& child : node.children) {
    dict.emplace_back(child.key, one(child));
    dict.back().second.loc = child.key_loc;
    if (dict.back().second.is_null()) {
      dict.pop_back();
    }
  }
  return make_value(std::move(dict), node.loc);
}

ConfigObject default_object(Category category, std::string_view class_name) {
  const ClassSpec* const spec = find_class(category, class_name);
  MESHTRAIN_CHECK(spec != nullptr, "no class {}", class_name);
  Diagnostics diagnostics;
  Reader reader(diagnostics);
  ConfigObject object;
  object.class_name = object.spelled = spec->name;
  for (const Spec& arg : spec->args) {
    object.args[arg.name] = reader.default_value(arg, {});
  }
  return object;
}

}  // namespace meshtrain
