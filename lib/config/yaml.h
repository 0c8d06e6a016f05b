// YAML text to a tree that remembers its places. yaml-cpp is used through its event interface only;
// the tree, its limits and everything that yaml-cpp 0.7 lets through silently (a second document,
// repeated keys, content after the end, an unclosed quote, cyclic aliases) are ours.
//
// What a scalar means (a number, a boolean, text) is not decided here but by the schema.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"

namespace meshtrain {

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  bool quoted = false;         // the scalar was written in quotes
  bool explicit_null = false;  // `null` or `~` was written; a key without a value otherwise
  bool failed = false;         // its expression could not be evaluated; already reported
  bool is_final = false;       // a text that an expression gave: none itself, whatever is in it
  std::string text;            // of a scalar
  SourceLoc loc;               // of the value; of the key where the value is empty
  std::string key;             // when this is a map's entry
  SourceLoc key_loc;
  SourceLoc alias_loc;             // of the `*alias` that put it here, if one did
  std::vector<YamlNode> children;  // of a list or a map, in file order

  bool is_null() const { return kind == Kind::kNull; }
  bool is_scalar() const { return kind == Kind::kScalar; }
  bool is_list() const { return kind == Kind::kList; }
  bool is_map() const { return kind == Kind::kMap; }
  // An unquoted scalar with this text.
  bool is_plain(std::string_view wanted) const { return is_scalar() && !quoted && text == wanted; }

  // The entry of a map, or nullptr. Linear: maps that may be large are walked in order instead.
  const YamlNode* find(std::string_view name) const;
  YamlNode* find(std::string_view name);
  bool erase(std::string_view name);  // true when there was one
  // The entry of a map, added as an empty one at the end when absent.
  YamlNode& at_or_add(std::string_view name, const SourceLoc& loc);

  static YamlNode scalar(std::string text, const SourceLoc& loc, bool quoted = false);
};

constexpr int kMaxYamlDepth = 64;
constexpr int kMaxYamlNodes = 100000;

// One document. Problems go to `diagnostics` (E104 syntax, E105 second document, E106 depth, E107
// aliases, E108 unknown alias, E109 repeated key, E110 tags, E112 a malformed merge key); nothing
// is returned when the text cannot be understood at all, a null node when it is empty.
std::optional<YamlNode> parse_yaml(const std::shared_ptr<const SourceFile>& source,
                                   Diagnostics& diagnostics);

// The same for `text` that stands at `at` in a larger source, on one line: an override's value.
std::optional<YamlNode> parse_yaml_at(std::string_view text, const SourceLoc& at,
                                      Diagnostics& diagnostics);

}  // namespace meshtrain
