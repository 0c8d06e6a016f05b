#include "config/variables.h"

#include <algorithm>
#include <cctype>

#include "base/suggest.h"
#include "base/text.h"
#include "config/expression_parser.h"

namespace meshtrain {
namespace {

std::tuple<const SourceFile*, int, int> place_of(const SourceLoc& loc) {
  return {loc.file.get(), loc.line, loc.column};
}

// The names that a map gives its own expressions: `params` of a block, `with` of a Repeat.
const YamlNode* locals_of(const YamlNode& node) {
  const YamlNode* params = node.is_map() ? node.find("params") : nullptr;
  return params != nullptr || !node.is_map() ? params : node.find("with");
}

std::vector<std::string> child_names(const YamlNode* node) {
  std::vector<std::string> names;
  for (size_t i = 0; node != nullptr && i < node->children.size(); ++i) {
    const YamlNode& child = node->children[i];
    names.push_back(node->is_map() ? child.key : child.text);
  }
  return names;
}

bool is_from_command_line(const SourceLoc& loc) {
  return loc.file != nullptr && loc.file->name == "command line";
}

void report_unknown(const std::string& name, const SourceLoc& loc, const YamlNode* siblings,
                    const std::string& prefix, Diagnostics& diagnostics) {
  std::vector<std::string> names = child_names(siblings);
  for (std::string& sibling : names) {
    sibling.insert(0, prefix);
  }
  Diagnostic& d = diagnostics.error("E111", loc, fmt::format("there is no variable `{}`", name));
  if (!suggest(d, name, names)) {
    d.help("declare it under `vars`, or name it in an expression");
    if (names.empty() && is_from_command_line(loc)) {
      d.help("a run has numbers in place of its variables: train its config.yaml anew");
    }
  }
  d.notes.push_back(names.empty() ? std::string("the configuration has no `vars`")
                                  : "variables: " + known_names(name, names));
}

}  // namespace

void UsedNames::add(const YamlNode& node) {
  LocalCounts locals;
  add(node, locals);
}

void UsedNames::add(const YamlNode& node, LocalCounts& locals) {
  if (node.alias_loc) {
    aliased_.insert(place_of(node.loc));
  }
  if (node.is_scalar()) {
    words_.insert(node.text);
    if (!node.is_final && (starts_with(node.text, "=") || node.text.find("${") != node.text.npos)) {
      add_expression(node.text, locals);
    }
    return;
  }
  const YamlNode* own = locals_of(node);
  if (own != nullptr) {
    add(*own, locals);  // its values see the names around it
  }
  const std::vector<std::string> names = child_names(own);
  for (const std::string& name : names) {
    ++locals[name];
  }
  for (const YamlNode& child : node.children) {
    if (node.key != "blocks") {
      words_.insert(child.key);
    }
    if (&child != own) {
      add(child, locals);
    }
  }
  for (const std::string& name : names) {
    --locals[name];
  }
}

// Takes every word with dots that begins with a letter: function names and quoted texts too.
void UsedNames::add_expression(std::string_view text, const LocalCounts& locals) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && (is_name_char(text[end]) || (end > begin && text[end] == '.'))) {
      ++end;
    }
    const std::string name(text.substr(begin, end - begin));
    begin = std::max(end, begin + 1);
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
      continue;
    }
    const auto local = locals.find(name.substr(0, name.find('.')));
    if (local == locals.end() || local->second == 0) {
      variables_.insert(starts_with(name, "vars.") ? name.substr(5) : name);
    }
    words_.insert(name);
  }
}

bool UsedNames::has_variable(const std::string& name) const {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
    if (variables_.contains(name.substr(0, dot))) {
      return true;
    }
  }
  const auto part = variables_.lower_bound(name + ".");
  return variables_.contains(name) || variables_.contains("vars") ||
         (part != variables_.end() && starts_with(*part, name + "."));
}

bool UsedNames::has_alias_of(const YamlNode& node) const {
  return aliased_.contains(place_of(node.loc)) ||
         std::any_of(node.children.begin(), node.children.end(),
                     [&](const YamlNode& child) { return has_alias_of(child); });
}

bool UsedNames::has_word(const std::string& word) const {
  return words_.contains(word);
}

bool check_variables(const YamlNode& root, const UsedNames& used, const Override& change,
                     Diagnostics& diagnostics) {
  const auto parts = parse_path(change.path);
  if (!parts || parts->front() != "vars") {
    return true;
  }
  const YamlNode* at = root.find("vars");
  const int errors = diagnostics.num_errors();
  if (parts->size() == 1) {
    for (const YamlNode& child : change.value.children) {
      const bool is_declared = at != nullptr && at->find(child.key) != nullptr;
      if (change.kind == Override::Kind::kSet && change.value.is_map() && !is_declared &&
          !used.has_variable(child.key)) {
        report_unknown(child.key, child.key_loc, at, "", diagnostics);
      }
    }
    return diagnostics.num_errors() == errors;
  }
  std::string prefix;
  for (size_t i = 1; i < parts->size(); ++i) {
    const YamlNode* next = at == nullptr ? nullptr : at->find((*parts)[i]);
    if (next == nullptr && (at == nullptr || at->is_map() || at->is_null())) {
      const std::string name = join(std::span(*parts).subspan(1), ".");
      if (!used.has_variable(name)) {
        report_unknown(name, change.path_loc, at, prefix, diagnostics);
      }
      break;
    }
    if (next == nullptr) {
      break;  // an entry of a list, or none: whoever changes it says so
    }
    prefix += (*parts)[i] + ".";
    at = next;
  }
  return diagnostics.num_errors() == errors;
}

void warn_unused(const YamlNode& root, const SourceFile* main_file, const UsedNames& in_files,
                 const UsedNames& in_all, Diagnostics& diagnostics) {
  const auto is_own = [&](const YamlNode& node) {
    return node.key_loc.file.get() == main_file || is_from_command_line(node.key_loc);
  };
  const YamlNode* vars = root.find("vars");
  for (size_t i = 0; vars != nullptr && i < vars->children.size(); ++i) {
    const YamlNode& variable = vars->children[i];
    const bool was_used = !is_from_command_line(variable.key_loc) &&
                          (in_files.has_variable(variable.key) || in_files.has_alias_of(variable));
    if (is_own(variable) && !was_used && !in_all.has_variable(variable.key)) {
      diagnostics
          .warning("W111", variable.key_loc,
                   fmt::format("nothing uses the variable `{}`", variable.key))
          .with_label("no expression names it")
          .help(fmt::format("write `={}` where it should act, or remove it", variable.key));
    }
  }
  const YamlNode* blocks = root.find("blocks");
  for (size_t i = 0; blocks != nullptr && i < blocks->children.size(); ++i) {
    const YamlNode& block = blocks->children[i];
    if (is_own(block) && !in_files.has_word(block.key) && !in_all.has_word(block.key)) {
      diagnostics
          .warning("W111", block.key_loc, fmt::format("nothing uses the block `{}`", block.key))
          .with_label("no layer names it")
          .help(fmt::format("write `- {}` under `layers`, or remove it", block.key));
    }
  }
}

}  // namespace meshtrain
