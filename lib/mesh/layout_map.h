// TensorLayout and LayoutMap: the user's sharding directives, apart from the model, as
// keras.distribution has them (Keras 3.16, distribution_lib.py).
//
//   LayoutMap map(mesh);
//   map.set("d1/kernel", TensorLayout{{{}, {"model"}}});
//   map.set(".*bias", TensorLayout{{{"model"}}});
//   map.find("d1/bias")          // the second entry
//
// Differences from Keras, on purpose: a dimension may name several axes; invalid patterns, unknown
// axes and keys that act on nothing are found when the map is made or finished, not at a lookup.
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

// What is made of a rule that acts on nothing (`checks.unmatched_rule`).
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

  // The rule for `path`: an exact key wins; else every key must match the whole path; nothing when
  // none does. `model_name` is tolerated as a leading "<model name>/" in keys. Throws ConfigError
  // E203 naming both lines when two patterns match.
  const LayoutRule* find(std::string_view path, std::string_view model_name = {}) const;

  // All rules (indices into rules()) that compete for `path`: the exact keys where there are any,
  // else the matching patterns. find() wants at most one.
  std::vector<size_t> candidates(std::string_view path, std::string_view model_name = {}) const;
  // Whether the pattern of rule `rule` matches `path`, exact keys elsewhere or not.
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

// The Sharding that `layout` means for a tensor of `shape`, without axes of size 1. Its axes are
// those of the mesh, each once, as LayoutMap::set checks. Adds to `diagnostics` and returns nothing
// when it cannot be: E205 too many entries, E204 a dimension that its axes do not divide (names the
// tensor, the dimension, both sizes, and mesh sizes that would fit). Dimensions of kUnknownDim (the
// batch) are taken to divide.
std::optional<Sharding> resolve_layout(const TensorLayout& layout, std::string_view tensor_path,
                                       const Shape& shape, const DeviceMesh& mesh,
                                       Diagnostics& diagnostics);

// What a rule of the map may name: a variable path or "<layer path>/output".
struct LayoutTarget {
  std::string path;
  Shape shape;
  int64_t element_bytes = 4;
};

// Which rule each target got, and E202/W203 for the rules that act on nothing: an error with the
// nearest paths (and the corrected pattern when it would have matched as a search) and the bytes
// that stay whole on every device because of it; only a warning
// when the key is "<layer>/<name>" of a layer in `layer_paths` that lacks that variable, and as the
// map's unmatched() says.
std::vector<const LayoutRule*> match_layouts(const LayoutMap& map,
                                             const std::vector<LayoutTarget>& targets,
                                             const std::vector<std::string>& layer_paths,
                                             std::string_view model_name, Diagnostics& diagnostics);

}  // namespace meshtrain
