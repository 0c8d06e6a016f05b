#include "config/object_form.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshtrain {
namespace {

// Keys of Keras' JSON beside class_name and config that say nothing here.
bool is_keras_extra(const std::string& key) {
  return key == "module" || key == "registered_name" || key == "build_config" ||
         key == "compile_config";
}

// Of a functional model's JSON: a layer's name, again, and what it takes.
bool is_graph_key(const std::string& key) {
  return key == "inbound_nodes" || key == "name";
}

void set_problem(ObjectFormProblem* problem, const SourceLoc& loc, std::string message,
                 std::string help) {
  if (problem != nullptr) {
    *problem = {loc, std::move(message), std::move(help)};
  }
}

std::string example(Category category) {
  switch (category) {
    case Category::kLayer:
      return "write `- Dense: {units: 10}`, `- Dropout: 0.4` or `- Flatten`";
    case Category::kSource:
      return "write `digits` or `{source: npz, path: train.npz}`";
    default: {
      const std::string name = std::string(classes(category)[0].name);
      return fmt::format("write `{}`, or `{}: {{...}}` with arguments", name, name);
    }
  }
}

// `Activation: {leaky_relu: 0.3}`: the map is the first argument, itself an object.
bool is_first_argument(Category category, const YamlNode& entry) {
  const ClassSpec* spec = find_class(category, entry.key);
  return spec != nullptr && !spec->args.empty() && entry.children.size() == 1 &&
         spec->args[0].kind == ValueKind::kActivation &&
         spec->find(entry.children[0].key) == nullptr &&
         find_class(Category::kActivation, entry.children[0].key) != nullptr;
}

bool is_argument_of_source(const std::string& key) {
  const auto all = classes(Category::kSource);
  return std::any_of(all.begin(), all.end(),
                     [&](const ClassSpec& spec) { return spec.find(key) != nullptr; });
}

// Whether the key says nothing that `config` does not say.
bool check_graph_key(const YamlNode& child, const YamlNode* config, ObjectFormProblem* problem) {
  if (child.key == "inbound_nodes") {
    if (child.is_null() || (!child.is_scalar() && child.children.empty())) {
      return true;
    }
    set_problem(problem, child.key_loc, "`inbound_nodes` is not read here",
                "write `inputs` into `config`, or use `meshtrain import model.json`");
    return false;
  }
  const YamlNode* own = config == nullptr ? nullptr : config->find("name");
  if (child.is_null() || (own != nullptr && own->is_scalar() && own->text == child.text)) {
    return true;
  }
  set_problem(problem, child.key_loc, "`name` beside `class_name` is not the one in `config`",
              "write it into `config`");
  return false;
}

std::optional<ObjectForm> keras_form(const YamlNode& node, const YamlNode& name,
                                     ObjectFormProblem* problem) {
  ObjectForm form{name.text, name.loc, nullptr, nullptr, {}};
  for (const YamlNode& child : node.children) {
    if (child.key == "config" && !child.is_null()) {
      if (!child.is_map()) {
        set_problem(problem, child.loc, "`config` must be a map of arguments", "");
        return std::nullopt;
      }
      form.args = &child;
    } else if (is_graph_key(child.key)) {
      if (!check_graph_key(child, node.find("config"), problem)) {
        return std::nullopt;
      }
    } else if (child.key != "class_name" && child.key != "config" && !is_keras_extra(child.key)) {
      set_problem(problem, child.key_loc,
                  fmt::format("`{}` is no key beside `class_name`", child.key),
                  "arguments belong in `config`");
      return std::nullopt;
    }
  }
  return form;
}

// `class: Dense`, as other programs have it; nullptr where no value names a class.
const YamlNode* class_under_other_key(const YamlNode& node, Category category) {
  for (const YamlNode& child : node.children) {
    const bool is_word = child.key == "class" || child.key == "kind" || child.key == "layer";
    if (is_word && child.is_scalar() && find_class(category, child.text) != nullptr) {
      return &child;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<ObjectForm> object_form(const YamlNode& node, Category category,
                                      ObjectFormProblem* problem) {
  if (node.is_scalar()) {
    return ObjectForm{node.text, node.loc, nullptr, nullptr, {}};
  }
  if (!node.is_map() || node.children.empty()) {
    set_problem(
        problem, node.loc,
        fmt::format("{} {} is expected here",
                    category == Category::kOptimizer || category == Category::kInitializer ||
                            category == Category::kActivation
                        ? "an"
                        : "a",
                    category_name(category)),
        example(category));
    return std::nullopt;
  }
  const YamlNode* name = node.find("class_name");
  if (name != nullptr && name->is_scalar()) {
    return keras_form(node, *name, problem);
  }
  const std::string key(class_key(category));
  name = node.find(key);
  if (name != nullptr && name->is_scalar() && find_class(category, key) == nullptr) {
    return ObjectForm{name->text, name->loc, &node, nullptr, key};
  }
  if (const YamlNode* other = class_under_other_key(node, category)) {
    set_problem(problem, other->key_loc, fmt::format("this names no {}", category_name(category)),
                fmt::format("write `{}: {}`", key, other->text));
    return std::nullopt;
  }
  const YamlNode& only = node.children[0];
  if (node.children.size() > 1) {
    const bool is_class = find_class(category, only.key) != nullptr;
    set_problem(problem, is_class ? node.children[1].key_loc : node.loc,
                is_class ? fmt::format("`{}` stands beside `{}`, not inside of it",
                                       node.children[1].key, only.key)
                         : fmt::format("this names no {}", category_name(category)),
                is_class
                    ? fmt::format("indent the arguments of `{}` deeper than its name", only.key)
                    : example(category));
    return std::nullopt;
  }
  if (category == Category::kSource && find_class(category, only.key) == nullptr &&
      is_argument_of_source(only.key)) {
    set_problem(problem, node.loc, "this names no data source",
                fmt::format("`{0}` is an argument: write `{{source: csv, {0}: ...}}`", only.key));
    return std::nullopt;
  }
  ObjectForm form{only.key, only.key_loc, nullptr, nullptr, {}};
  if (only.is_map() && !is_first_argument(category, only)) {
    form.args = &only;
  } else if (!only.is_null() || only.explicit_null) {
    form.first = &only;
  }
  return form;
}

YamlNode* normalize_object(YamlNode& node, Category category) {
  const std::optional<ObjectForm> form = object_form(node, category);
  if (!form) {
    return nullptr;
  }
  const ClassSpec* spec = find_class(category, form->spelled);
  const bool keeps_class_inside = category == Category::kSource;
  YamlNode args{.kind = YamlNode::Kind::kMap, .loc = node.loc};
  if (keeps_class_inside) {
    args.children.push_back(YamlNode::scalar(form->spelled, form->loc));
    args.children.back().key = class_key(category);
    args.children.back().key_loc = form->loc;
  }
  if (form->args != nullptr) {
    for (const YamlNode& child : form->args->children) {
      if (child.key != form->skipped || form->skipped.empty()) {
        args.children.push_back(child);
      }
    }
  } else if (form->first != nullptr) {
    if (spec == nullptr || spec->args.empty()) {
      return nullptr;
    }
    args.children.push_back(*form->first);
    args.children.back().key = spec->args[0].name;
  }
  if (keeps_class_inside) {
    args.key = node.key;
    args.key_loc = node.key_loc;
    node = std::move(args);
    return &node;
  }
  YamlNode whole{
      .kind = YamlNode::Kind::kMap, .loc = node.loc, .key = node.key, .key_loc = node.key_loc};
  args.key = form->spelled;
  args.key_loc = form->loc;
  whole.children.push_back(std::move(args));
  node = std::move(whole);
  return &node.children[0];
}

}  // namespace meshtrain
