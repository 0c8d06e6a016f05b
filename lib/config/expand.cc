#include "config/expand.h"

#include "config/expander.h"

namespace meshtrain {
namespace {

bool uses_expansion(const YamlNode& layers, const BlockDefinitions& blocks) {
  for (const YamlNode& entry : layers.children) {
    const auto form = object_form(entry, Category::kLayer);
    if (form && (form->spelled == kRepeat || blocks.contains(form->spelled))) {
      return true;
    }
  }
  return false;
}

}  // namespace

Expansion expand_blocks(YamlNode& root, Expressions& expressions, Diagnostics& diagnostics) {
  Expansion out;
  const BlockDefinitions blocks = take_blocks(root, diagnostics);
  for (const auto& [name, block] : blocks) {
    out.block_names.push_back(name);
  }
  YamlNode* model = root.find("model");
  YamlNode* layers = model == nullptr ? nullptr : model->find("layers");
  if (layers == nullptr || !layers->is_list() || !uses_expansion(*layers, blocks)) {
    return out;
  }
  const SourceLoc loc = layers->key_loc;
  Expander expander(blocks, expressions, diagnostics);
  expander.run(*layers);
  layers->children = expander.take_layers();
  out.outputs = expander.single_outputs();
  YamlNode* outputs = model->find("outputs");
  if (outputs != nullptr && !outputs->is_null()) {
    expressions.evaluate(*outputs);
    expander.rewrite_outputs(*outputs);
  } else if (const auto last = expander.unusual_outputs()) {
    YamlNode& added = model->at_or_add("outputs", loc);
    added.kind = YamlNode::Kind::kList;
    for (const std::string& name : *last) {
      added.children.push_back(YamlNode::scalar(name, loc));
    }
  }
  return out;
}

}  // namespace meshtrain
