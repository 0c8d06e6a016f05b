// Where the names of layers are looked up while blocks are expanded.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/blocks.h"
#include "config/expression.h"
#include "config/layer_names.h"

namespace meshtrain {

// Full names of layers: of the several outputs of a block.
using OutputNames = std::vector<std::string>;

// One use of a block, a repetition of a Repeat, or the list of the model itself.
struct ExpandScope {
  std::string prefix;                        // "stage_0/"
  const ExpandScope* outer = nullptr;        // whose names are visible too; null for a block
  ExpandScope* home = this;                  // a Repeat without name writes into another list
  const BlockDefinition* block = nullptr;    // whose body this is
  const LocalNames* locals = nullptr;        // of expressions
  std::shared_ptr<const SourceUse> use;      // null at the top
  std::optional<int64_t> index;              // what `{i}` stands for
  std::optional<SourceLoc> frozen;           // of `trainable: false` of a use around
  std::map<std::string, OutputNames> names;  // inputs, and uses of blocks
  std::set<std::string> layers, uses;        // names of the entries of this list
  NameCounter counter;                       // of automatic names
  OutputNames previous;                      // what the entry before computes
  // The layers of this use are those of an earlier one (Call of a block): own prefix and its.
  std::string own_root, shared_root;

  ExpandScope() = default;
  ExpandScope(const ExpandScope&) = delete;  // `home` may point to itself
  ExpandScope& operator=(const ExpandScope&) = delete;

  // A list of entries within this one, which goes on with its locals and place.
  void continue_from(ExpandScope& around);
  bool is_top() const { return use == nullptr; }
  bool is_shared() const { return !shared_root.empty(); }
  // The layer whose weights the layer `full_name` of a shared use has.
  std::string shared_name(const std::string& full_name) const;
  std::vector<std::string> known_names() const;
};

// What `name` stands for within `scope`; a name that nothing declares is left as it is at the top,
// and nothing within a block, which sees its inputs and layers only.
std::optional<OutputNames> find_outputs(const std::string& name, const ExpandScope& scope);

}  // namespace meshtrain
