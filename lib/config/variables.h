// Names that a config declares and nobody uses, and names that somebody sets and nothing declares:
// the two sides of a misspelled variable (`vars`), block or profile.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "config/path.h"
#include "config/yaml.h"

namespace meshtrain {

// What a tree mentions: the names in its expressions, its keys and texts, and the targets of its
// aliases. Arguments of blocks and of Repeat hide variables of the same name.
class UsedNames {
 public:
  void add(const YamlNode& node);

  // Whether an expression names the variable ("width", "opt.rate"), a part of it or what it is in.
  bool has_variable(const std::string& name) const;
  // Whether an alias copies the node or something in it.
  bool has_alias_of(const YamlNode& node) const;
  // Whether a key, a text or an expression is or names this word; the keys of `blocks` do not
  // count.
  bool has_word(const std::string& word) const;

 private:
  using LocalCounts = std::map<std::string, int>;  // how many maps around give the name

  void add(const YamlNode& node, LocalCounts& locals);
  void add_expression(std::string_view text, const LocalCounts& locals);

  std::set<std::string> variables_, words_;
  std::set<std::tuple<const SourceFile*, int, int>> aliased_;  // places of values
};

// Adds an E111 for each variable that the change sets or removes, no file declares and no
// expression uses; true when there is none. `vars+={name: value}` declares.
bool check_variables(const YamlNode& root, const UsedNames& used, const Override& change,
                     Diagnostics& diagnostics);

// Adds a W111 for each variable and block of `root` that nothing uses and that `main_file` or the
// command line declares: what a shared base file offers may stay unused. `in_files` is what the
// files mention, profiles included, `in_all` what is left of it after all overrides.
void warn_unused(const YamlNode& root, const SourceFile* main_file, const UsedNames& in_files,
                 const UsedNames& in_all, Diagnostics& diagnostics);

}  // namespace meshtrain
