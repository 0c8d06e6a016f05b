#include "config/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/expression_parser.h"
#include "config/object_form.h"

namespace meshtrain {
namespace {

constexpr const char* kHelp = "write `Name: {params: {units: 64}, layers: [{Dense: =units}]}`";

class DefinitionReader {
 public:
  explicit DefinitionReader(Diagnostics& diagnostics) : diagnostics_(diagnostics) {}

  BlockDefinition read(YamlNode& node) {
    block_.name = node.key;
    block_.loc = node.key_loc;
    check_name(node);
    if (!node.is_map()) {
      fail("E112", node.is_null() ? node.key_loc : node.loc,
           fmt::format("block `{}` must be a map with `layers`", block_.name))
          .help(kHelp);
      return std::move(block_);
    }
    for (YamlNode& child : node.children) {
      read_key(child);
    }
    if (node.find("layers") == nullptr) {
      fail("E112", node.key_loc, fmt::format("block `{}` has no `layers`", block_.name))
          .help(kHelp);
    }
    return std::move(block_);
  }

 private:
  Diagnostic& fail(const char* code, const SourceLoc& loc, std::string message) {
    block_.failed = true;
    return diagnostics_.error(code, loc, std::move(message));
  }

  void check_name(const YamlNode& node) {
    const bool is_class = find_class(Category::kLayer, node.key) != nullptr ||
                          is_unsupported_class(Category::kLayer, node.key);
    if (is_class || !is_name_alone(node.key)) {
      fail("E113", node.key_loc,
           is_class ? fmt::format("block `{}` has the name of a layer", node.key)
                    : fmt::format("`{}` cannot name a block", node.key))
          .help("a name has letters, digits and `_`, and is none of a layer's class");
    }
  }

  void read_key(YamlNode& child) {
    static const std::vector<std::string> kKeys = {"params", "inputs", "layers", "outputs"};
    if (child.key == "params") {
      read_params(child);
    } else if (child.key == "inputs") {
      read_inputs(child);
    } else if (child.key == "layers") {
      read_layers(child);
    } else if (child.key == "outputs") {
      block_.outputs = std::move(child);
    } else {
      Diagnostic& d = fail("E111", child.key_loc,
                           fmt::format("unknown key `{}` in block `{}`", child.key, block_.name));
      suggest(d, child.key, kKeys);
      d.notes.push_back("keys here: " + join(kKeys, ", "));
    }
  }

  // A map of names and defaults; `{filters, strides: 1}` and [filters, strides] are fine too.
  void read_params(YamlNode& params) {
    if (params.is_list()) {
      for (YamlNode& child : params.children) {
        if (child.is_scalar()) {
          add_param(child.text, child.loc, YamlNode{.loc = child.loc});
        } else {
          fail("E112", child.loc,
               fmt::format("`params` of block `{}` must be names, or a map of names and values",
                           block_.name));
        }
      }
    } else if (params.is_map()) {
      for (YamlNode& child : params.children) {
        const std::string name = child.key;
        const SourceLoc loc = child.key_loc;
        add_param(name, loc, std::move(child));
      }
    } else if (!params.is_null()) {
      fail("E112", params.loc,
           fmt::format("`params` of block `{}` must be a map of names and values", block_.name))
          .help("write `params: {units: 64}`");
    }
  }

  void add_param(const std::string& name, const SourceLoc& loc, YamlNode value) {
    const bool is_reserved = name == "name" || name == "inputs" || name == "trainable";
    const std::vector<std::string> known = block_.param_names();
    if (is_reserved || !is_name_alone(name) || name == "i" || name == "true" || name == "false") {
      fail("E113", loc, fmt::format("`{}` cannot name a parameter", name))
          .help(is_reserved   ? fmt::format("every use of a block may have a `{}`", name)
                : name == "i" ? "`i` counts the repetitions of a Repeat"
                              : "a name has letters, digits and `_`");
    } else if (std::find(known.begin(), known.end(), name) != known.end()) {
      fail("E109", loc, fmt::format("parameter `{}` is there twice", name));
    } else {
      const bool is_required = value.is_null() && !value.explicit_null;
      value.key = name;
      block_.params.push_back({name, std::move(value), is_required});
    }
  }

  void read_inputs(const YamlNode& inputs) {
    const std::vector<YamlNode> one = {inputs};
    for (const YamlNode& child : inputs.is_scalar() ? one : inputs.children) {
      if (inputs.is_map() || !child.is_scalar() || child.text.empty() ||
          child.text.find('/') != std::string::npos) {
        fail("E112", child.loc,
             fmt::format("`inputs` of block `{}` must be names of its own for what it takes",
                         block_.name))
            .help("write `inputs: [x]`");
        return;
      }
      const auto& known = block_.inputs;
      if (std::find(known.begin(), known.end(), child.text) != known.end()) {
        fail("E121", child.loc,
             fmt::format("two inputs of block `{}` are named `{}`", block_.name, child.text));
        return;
      }
      block_.inputs.push_back(child.text);
    }
  }

  void read_layers(YamlNode& layers) {
    if (!layers.is_list() || layers.children.empty()) {
      fail("E112", layers.is_null() ? layers.key_loc : layers.loc,
           fmt::format("`layers` of block `{}` must be a list of layers", block_.name))
          .help("begin each layer with `- `");
      return;
    }
    block_.layers = std::move(layers.children);
  }

  Diagnostics& diagnostics_;
  BlockDefinition block_;
};

constexpr size_t kMaxBlockDepth = 64;  // blocks within each other

// Finds blocks that lead back to themselves.
class Recursion {
 public:
  Recursion(BlockDefinitions& blocks, Diagnostics& diagnostics)
      : blocks_(blocks), diagnostics_(diagnostics) {}

  void check(BlockDefinition& block) {
    if (!seen_.insert(block.name).second) {
      return;
    }
    path_.push_back(block.name);
    visit(block, block.layers);
    path_.pop_back();
  }

 private:
  void visit(BlockDefinition& block, const std::vector<YamlNode>& layers) {
    for (const YamlNode& entry : layers) {
      const auto form = object_form(entry, Category::kLayer);
      if (!form) {
        continue;  // reported where it is used
      }
      use(block, form->spelled, form->loc);
      if (form->spelled == "Repeat" && form->args != nullptr) {
        if (const YamlNode* named = form->args->find("block"); named != nullptr) {
          use(block, named->text, named->loc);
        }
        if (const YamlNode* inner = form->args->find("layers"); inner != nullptr) {
          visit(block, inner->children);
        }
      }
    }
  }

  void use(BlockDefinition& block, const std::string& name, const SourceLoc& loc) {
    const auto found = blocks_.find(name);
    if (found == blocks_.end()) {
      return;
    }
    const auto on_path = std::find(path_.begin(), path_.end(), name);
    if (on_path != path_.end()) {
      std::vector<std::string> cycle(on_path, path_.end());
      cycle.push_back(name);
      block.failed = true;
      diagnostics_
          .error("E121", loc,
                 fmt::format("block `{}` contains itself{}{}", name, cycle.size() > 2 ? ": " : "",
                             cycle.size() > 2 ? join(cycle, " -> ") : ""))
          .help("Repeat uses a block several times, one after the other");
    } else if (path_.size() >= kMaxBlockDepth) {
      block.failed = true;
      diagnostics_.error("E106", loc,
                         fmt::format("blocks within each other deeper than {}", kMaxBlockDepth));
    } else {
      check(found->second);
      block.failed = block.failed || found->second.failed;
    }
  }

  BlockDefinitions& blocks_;
  Diagnostics& diagnostics_;
  std::set<std::string> seen_;
  std::vector<std::string> path_;
};

}  // namespace

std::vector<std::string> BlockDefinition::param_names() const {
  std::vector<std::string> names;
  for (const Parameter& param : params) {
    names.push_back(param.name);
  }
  return names;
}

BlockDefinitions take_blocks(YamlNode& root, Diagnostics& diagnostics) {
  BlockDefinitions blocks;
  YamlNode* found = root.find("blocks");
  if (found == nullptr) {
    return blocks;
  }
  YamlNode section = *found;
  root.erase("blocks");
  if (!section.is_map() && !section.is_null()) {
    diagnostics.error("E112", section.loc, "`blocks` must be a map of names and groups of layers")
        .help(kHelp);
    return blocks;
  }
  for (YamlNode& child : section.children) {
    const std::string name = child.key;
    BlockDefinition block = DefinitionReader(diagnostics).read(child);
    if (find_class(Category::kLayer, name) == nullptr) {  // the layer is meant where it is used
      blocks.emplace(name, std::move(block));
    }
  }
  Recursion recursion(blocks, diagnostics);
  for (auto& [name, block] : blocks) {
    recursion.check(block);
  }
  return blocks;
}

}  // namespace meshtrain
