// Where the files of Keras Hub's models have their weights. Groups are attributes of its classes,
// and classes counted within a model.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "interop/keras/hub.h"

namespace meshtrain {
namespace {

// The layers of an imported model that are no blocks, and their groups: the first one in the file
// counts.
struct HubGroup {
  const char* layer;
  std::vector<const char*> groups;
};

const std::vector<HubGroup>& hub_layers() {
  static const std::vector<HubGroup> kLayers = {
      {"token_embedding", {"reversible_embedding"}},
      {"position_embedding", {"position_embedding"}},
      {"segment_embedding", {"embedding"}},
      {"embeddings_layer_norm", {"layer_normalization"}},
      {"layer_norm", {"layer_normalization", "vi_t_encoder/layer_norm"}},
      {"sequence_output_layernorm", {"llama_layer_norm", "mistral_layer_normalization"}},
      {"patching_and_embedding", {"vi_t_patching_and_embedding"}},
      {"pooled_dense", {"dense"}},
  };
  return kLayers;
}

constexpr const char* kHubBlocks[] = {"transformer_encoder", "transformer_decoder",
                                      "llama_transformer_decoder", "mistral_transformer_decoder",
                                      "vi_t_encoder/encoder_layers/vi_t_encoder_block"};

class HubGroups {
 public:
  HubGroups(const Model& model, const H5File& file) : model_(model), file_(file) {}

  std::vector<KerasGroup> find() {
    find_backbone();
    if (block_.empty()) {
      return {};
    }
    std::vector<KerasGroup> out;
    std::set<std::string> used;
    for (const auto& layer : model_.layers()) {
      const std::string group = layer->weights.empty() ? "" : group_of(layer->name);
      const bool is_head = kHeads.contains(layer->name);
      if (!group.empty()) {
        used.insert(group);
        out.push_back({layer->name, group});
      } else if (!layer->weights.empty() && !is_head) {
        return {};
      }
    }
    if (!used.contains("layers/dense") && layer_named("classifier") && has("layers/dense")) {
      return {};  // a model of layers, which has its classifier beside its blocks
    }
    leave_out_heads(out);
    return out;
  }

 private:
  inline static const std::set<std::string> kHeads = {"pooled_dense", "classifier",
                                                      "masked_lm_head"};

  bool has(const std::string& group) const {
    return std::any_of(file_.datasets.begin(), file_.datasets.end(), [&](const NamedTensor& each) {
      return starts_with(each.name, group + "/");
    });
  }
  const Layer* layer_named(const std::string& name) const {
    for (const auto& layer : model_.layers()) {
      if (layer->name == name) {
        return layer.get();
      }
    }
    return nullptr;
  }

  // Where the layers of the backbone are, and the name of its blocks.
  void find_backbone() {
    for (const NamedTensor& each : file_.datasets) {
      const size_t end = each.name.find("backbone/layers/");
      if (starts_with(each.name, kTask) && end != std::string::npos) {
        backbone_ = each.name.substr(0, end) + "backbone/layers/";
        break;
      }
    }
    for (const char* block : kHubBlocks) {
      block_ = has(backbone_ + block) ? block : block_;
    }
  }

  // Empty when the file has none.
  std::string group_of(const std::string& layer) const {
    if (starts_with(layer, kBlock)) {
      return group_in_block(layer);
    }
    for (const HubGroup& each : hub_layers()) {
      for (const char* group : each.groups) {
        if (layer == each.layer && has(backbone_ + group)) {
          return backbone_ + group;
        }
      }
    }
    return kHeads.contains(layer) ? group_of_head(layer) : "";
  }

  std::string group_in_block(const std::string& layer) const {
    const size_t begin = std::string(kBlock).size(), slash = layer.find('/');
    const std::string index = layer.substr(begin, slash - begin);
    std::string group = backbone_ + block_ + (index == "0" ? "" : "_" + index);
    if (slash != std::string::npos) {
      group +=
          "/_" + layer.substr(slash + 1) + (ends_with(layer, "/self_attention") ? "_layer" : "");
    }
    return has(group) ? group : "";
  }

  // Of a task. ViT's pooler is its first Dense; BERT's is in the backbone.
  std::string group_of_head(const std::string& layer) const {
    if (layer == "masked_lm_head") {
      return has("layers/masked_lm_head") ? "layers/masked_lm_head" : "";
    }
    if (backbone_ == kTask) {
      return "";
    }
    const bool is_second =
        layer == "classifier" && layer_named("pooled_dense") && !has(backbone_ + "dense");
    const std::string group = is_second ? "layers/dense_1" : "layers/dense";
    return has(group) ? group : "";
  }

  // A backbone has no use for the table of logits, and a masked language model none for the pooler.
  void leave_out_heads(std::vector<KerasGroup>& groups) const {
    const Layer* table = layer_named("token_embedding");
    const auto is_reverse = [](const Weight& weight) {
      return weight.path.ends_with("/reverse_embeddings");
    };
    if (table != nullptr &&
        std::none_of(table->weights.begin(), table->weights.end(), is_reverse)) {
      groups.push_back({"", backbone_ + "reversible_embedding/vars/1"});
    }
    if (layer_named("pooled_dense") == nullptr) {
      groups.push_back({"", backbone_ + "dense"});
    }
    if (layer_named("masked_lm_head") == nullptr) {
      groups.push_back({"", "layers/masked_lm_head"});
    }
  }

  static constexpr const char* kTask = "layers/";
  static constexpr const char* kBlock = "transformer_layer_";
  const Model& model_;
  const H5File& file_;
  std::string backbone_ = kTask, block_;
};

}  // namespace

std::vector<KerasGroup> hub_groups(const Model& model, const H5File& file) {
  return HubGroups(model, file).find();
}

void rename_vit_blocks(H5File& file) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"/layer_norm_1/", "/_self_attention_layer_norm/"},
      {"/mha/", "/_self_attention_layer/"},
      {"/layer_norm_2/", "/_feedforward_layer_norm/"},
      {"/mlp/dense_1/", "/_feedforward_intermediate_dense/"},
      {"/mlp/dense_2/", "/_feedforward_output_dense/"}};
  for (NamedTensor& dataset : file.datasets) {
    for (const auto& [theirs, ours] : kNames) {
      const size_t at = dataset.name.find(theirs);
      if (at != std::string::npos && dataset.name.find("/vi_t_encoder_block") < at) {
        dataset.name.replace(at, theirs.size(), ours);
      }
    }
  }
}

}  // namespace meshtrain
