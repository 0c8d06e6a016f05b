// TensorLayout and LayoutMap: the user's sharding directives, apart from the model, as
// keras.distribution has them (Keras 3.16, distribution_lib.py).
//
//   LayoutMap map(mesh);
//   map.set("d1/kernel", TensorLayout{{{}, {"model"}}});
//   map.set(".*bias", TensorLayout{{{"model"}}});
//   map.find("d1/bias")          // the second entry
//
// Differences from Keras, on purpose: a dimension may name several axes; invalid patterns, unknown
// axes and keys that act on nothing are errors when the map is built, not at a lookup.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "base/words.h"
#include "mesh/sharding.h"

namespace meshtrain {

// One entry per dimension: the axes (major to minor) that split it; empty = replicated there.
// Fewer entries than the tensor's rank leave the rest replicated; more are an error.
struct TensorLayout {
  std::vector<std::vector<std::string>> dims;
  SourceLoc loc;                                  // of the whole layout in the config, if any
  std::vector<std::vector<SourceLoc>> axis_locs;  // of each axis name; empty when built in code

  std::string to_string() const;  // "[null, model]"
};

// A regular expression in Python-compatible syntax (PCRE2) with match limits. Copies share it.
class Pattern {
 public:
  // Throws ConfigError E201 with the position and PCRE2's reason.
  explicit Pattern(std::string_view regex, SourceLoc loc = {});

  bool full_match(std::string_view text) const;  // E201 when the match limit is hit
  bool search(std::string_view text) const;      // anywhere in the text

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  bool match(std::string_view text, bool whole) const;
};

struct LayoutRule {
  std::string key;
  SourceLoc loc;  // of the key
  TensorLayout layout;
};

// How a rule that acts on nothing is reported (`checks.unmatched_rule`).
enum class Unmatched : uint8_t { kError, kWarn, kOff };
constexpr auto words(Unmatched) {
  return word_list("error", "warn", "off");
}

class LayoutMap {
 public:
  LayoutMap() = default;
  // `search`: a key may match anywhere in the path, as Keras did before 3.14 (`layout_match:
  // search`).
  explicit LayoutMap(DeviceMesh mesh, bool search = false)
      : mesh_(std::move(mesh)), search_(search) {}

  const DeviceMesh& mesh() const { return mesh_; }
  bool search() const { return search_; }
  Unmatched unmatched() const { return unmatched_; }
  void set_unmatched(Unmatched unmatched) { unmatched_ = unmatched; }
  const std::vector<LayoutRule>& rules() const { return rules_; }
  size_t size() const { return rules_.size(); }

  // Appends a rule. Throws ConfigError: E203 repeated key, E201 invalid pattern, E205 an axis that
  // is not in the mesh or occurs twice.
  void set(LayoutRule rule);
  void set(std::string key, TensorLayout layout) {
    set(LayoutRule{std::move(key), {}, std::move(layout)});
  }
  void erase(std::string_view key);  // exact key; throws Error when absent

  // Returns the rule for `path`, or null: an exact key wins; else a key must match the whole path.
  // `model_name` is tolerated as a leading "<model name>/" in keys. Throws ConfigError
  // E203 naming both lines when two patterns match.
  const LayoutRule* find(std::string_view path, std::string_view model_name = {}) const;

  // All rules (indices into rules()) that compete for `path`: the exact keys where there are any,
  // else the matching patterns. find() requires at most one.
  std::vector<size_t> candidates(std::string_view path, std::string_view model_name = {}) const;
  // Returns whether the pattern of rule `rule` matches `path`, regardless of exact keys.
  bool matches(size_t rule, std::string_view path, std::string_view model_name = {}) const;
  // Adds the E203 for `path` that the rules `hits` compete for.
  Diagnostic& add_ambiguity(std::string_view path, const std::vector<size_t>& hits,
                            Diagnostics& diagnostics) const;

 private:
  DeviceMesh mesh_;
  bool search_ = false;
  Unmatched unmatched_ = Unmatched::kError;
  std::vector<LayoutRule> rules_;
  std::vector<Pattern> patterns_;  // beside rules_
};

// Returns the Sharding that `layout` means for a tensor of `shape`, without axes of size 1. The
// axes must be distinct axes of the mesh, as LayoutMap::set checks. On failure, adds to
// `diagnostics` and returns nothing: E205 too many entries, E204 a dimension that its axes do not
// divide (names the tensor, the dimension, both sizes, and mesh sizes that would fit). Dimensions
// of kUnknownDim (the batch) are taken to divide. `pad_dim`: see LayoutTarget.
std::optional<Sharding> resolve_layout(const TensorLayout& layout, std::string_view tensor_path,
                                       const Shape& shape, const DeviceMesh& mesh,
                                       Diagnostics& diagnostics, int pad_dim = -1);

// A possible target of a rule: a variable path or "<layer path>/output".
struct LayoutTarget {
  std::string path;
  Shape shape;
  int64_t element_bytes = 4;
  int pad_dim = -1;  // the dimension that `pad_to` of its layer fills up; -1: none
};

// Returns the rule of each target, null for none. Adds E202 for each rule that acts on nothing,
// with the nearest paths, a corrected pattern where a search would match, and the bytes that are
// replicated because of it. The finding is only the warning W203 when the key is "<layer>/<name>"
// of a layer in `layer_paths` without that variable, or when unmatched() is kWarn.
std::vector<const LayoutRule*> match_layouts(const LayoutMap& map,
                                             const std::vector<LayoutTarget>& targets,
                                             const std::vector<std::string>& layer_paths,
                                             std::string_view model_name, Diagnostics& diagnostics);

}  // namespace meshtrain
