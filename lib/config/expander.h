// The work of expand_blocks: writes the layers that uses of blocks and Repeats stand for.
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
#include "config/object_form.h"

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
  std::map<std::string, int64_t> counters;   // what `{i}` and the like stand for
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

  // Begins a list of entries within `around`, with its locals and place.
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

class Expander {
 public:
  Expander(const BlockDefinitions& blocks, Expressions& expressions, Diagnostics& diagnostics,
           int64_t most_times)
      : blocks_(blocks),
        expressions_(expressions),
        diagnostics_(diagnostics),
        most_times_(most_times) {}

  void run(const YamlNode& layers);
  std::vector<YamlNode> take_layers() { return std::move(layers_); }
  // `model.outputs`: names of uses become names of layers. Of several outputs, one that is a use
  // keeps the name of the use.
  void rewrite_outputs(YamlNode& outputs);
  // What the last entry computes, when that is not just the last layer.
  std::optional<OutputNames> unusual_outputs() const;
  // `remat` of each repetition that has one; the keys are the names of the repetitions.
  const std::vector<YamlNode>& remats() const { return remats_; }
  // Of each use of a block that has one output: its name and the layer's.
  const std::vector<std::pair<std::string, std::string>>& single_outputs() const {
    return single_outputs_;
  }

 private:
  // An entry that is a use of a block, a Repeat or a Call of a block.
  struct Use {
    SourceLoc loc;  // of its class
    YamlNode args;  // a map
    std::string name;
    SourceLoc name_loc;
    std::optional<SourceLoc> frozen;  // of `trainable: false`
  };
  // A use of a block that a Call may repeat with the same weights.
  struct Instance {
    const BlockDefinition* block = nullptr;
    YamlNode arguments;        // as bound to the parameters
    std::string weights_root;  // prefix of the layers that own the weights
  };
  struct Repetition;

  void add_entries(const std::vector<YamlNode>& entries, ExpandScope& scope);
  void add_entry(const YamlNode& entry, ExpandScope& scope);

  // Layers.
  void add_top_layer(const YamlNode& entry, const ObjectForm& form);
  void add_inner_layer(YamlNode layer, const ObjectForm& form, ExpandScope& scope);
  void connect(YamlNode& args, const SourceLoc& loc, const ExpandScope& scope);
  void emit(YamlNode layer, const std::string& local_name, ExpandScope& scope);

  // Uses of blocks and Calls of them.
  void add_use(const YamlNode& entry, const ObjectForm& form, const BlockDefinition& block,
               ExpandScope& scope);
  bool add_block_call(const YamlNode& entry, const ObjectForm& form, ExpandScope& scope);
  void instantiate(const BlockDefinition& block, const Use& use, const OutputNames& inputs,
                   const YamlNode& arguments, const std::string& weights_root, ExpandScope& scope);
  YamlNode bind_params(const BlockDefinition& block, const YamlNode& given, const SourceLoc& loc,
                       const std::shared_ptr<const SourceUse>& use);
  OutputNames outputs_of(const BlockDefinition& block, const std::string& name, ExpandScope& body,
                         ExpandScope& scope);

  // Repeat (expand_repeat.cc).
  void add_repeat(const YamlNode& entry, const ObjectForm& form, ExpandScope& scope);
  bool read_repeat(Repetition& repetition, ExpandScope& scope);
  void read_repeat_arguments(Repetition& repetition, const ExpandScope& scope);
  void repeat_class(Repetition& repetition, const YamlNode& class_name);
  const BlockDefinition* find_repeated_block(const YamlNode& name);
  bool check_repeat(const Repetition& repetition, const ExpandScope& scope);
  void check_layer_names(const Repetition& repetition, const ExpandScope& scope);
  bool check_counters(const YamlNode& name, std::map<std::string, int64_t> known);
  OutputNames repeat_once(Repetition& repetition, int64_t index, ExpandScope& scope);
  OutputNames repeat_layers(Repetition& repetition, ExpandScope& around);
  void keep_remat(const YamlNode& remat, const std::string& name);

  // Names and values.
  Use read_use(const YamlNode& entry, const ObjectForm& form, const std::string& first_argument,
               const ExpandScope& scope);
  void take_name(Use& use, const std::string& class_name, ExpandScope& scope);
  std::string take_local_name(const YamlNode* given, const std::string& class_name,
                              ExpandScope& scope);
  void take_frozen(Use& use, const std::string& owner, const ExpandScope& scope);
  void check_name(const std::string& name, const SourceLoc& loc);
  void name_taken(const std::string& full_name, const SourceLoc& loc);
  void declare_use(const Use& use, ExpandScope& scope);
  void unknown_key(const YamlNode& key, const std::string& owner,
                   const std::vector<std::string>& known);
  OutputNames read_inputs(const YamlNode* given, const BlockDefinition* block,
                          const ExpandScope& scope);
  OutputNames resolve(const YamlNode& name, const ExpandScope& scope);
  void rewrite(YamlNode& names, const ExpandScope& scope);
  void evaluate(YamlNode& node, const ExpandScope& scope);
  bool charge(const YamlNode& node);

  const BlockDefinitions& blocks_;
  Expressions& expressions_;
  Diagnostics& diagnostics_;
  int64_t most_times_ = 0;  // of a Repeat; 0: as many as it says
  ExpandScope top_;
  std::vector<YamlNode> layers_;
  std::string last_;  // full name of the last layer
  std::map<std::string, Instance> instances_;
  std::map<std::string, OutputNames> use_outputs_;  // by the full name of a use
  std::vector<std::pair<std::string, std::string>> single_outputs_;
  std::vector<YamlNode> remats_;
  size_t num_nodes_ = 0;
  size_t num_entries_ = 0;
  size_t depth_ = 0;
  bool gave_up_ = false;
};

inline constexpr std::string_view kRepeat = "Repeat";

// Makes the places of `node` and of all in it those of a use.
void set_use(YamlNode& node, const std::shared_ptr<const SourceUse>& use);
// `{i}` in names.
void set_counters(YamlNode& names, const std::map<std::string, int64_t>& counters);
// The first placeholder in `text` that is none of these: "{j}"; "" when there is none.
std::string unknown_counter(const std::string& text, const std::map<std::string, int64_t>& known);

}  // namespace meshtrain
