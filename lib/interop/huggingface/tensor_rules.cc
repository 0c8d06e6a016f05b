// Source: the modules and parameters of transformers' modeling_gpt2, modeling_llama, modeling_bert
// and modeling_vit; ours are those of Keras Hub's backbones.
#include "interop/huggingface/tensor_rules.h"

#include <fmt/format.h>

namespace meshtrain {
namespace {

class Rules {
 public:
  explicit Rules(const HuggingFaceModel& model) : m_(model) {}

  std::vector<TensorRule> all() {
    switch (m_.family) {
      case HuggingFaceFamily::kGpt2:
        add_gpt2();
        break;
      case HuggingFaceFamily::kLlama:
        add_llama();
        break;
      case HuggingFaceFamily::kBert:
        add_bert();
        break;
      case HuggingFaceFamily::kVit:
        add_vit();
        break;
    }
    return std::move(rules_);
  }

 private:
  void add(std::string theirs, Shape shape, TensorChange change, std::vector<std::string> ours) {
    rules_.push_back({std::move(theirs), std::move(shape), change, std::move(ours)});
  }
  void add(std::string theirs, Shape shape, std::string ours) {
    add(std::move(theirs), std::move(shape), TensorChange::kNone, {std::move(ours)});
  }
  void add_norm(const std::string& theirs, const std::string& ours) {
    add(theirs + ".weight", {m_.width}, ours + "/gamma");
    add(theirs + ".bias", {m_.width}, ours + "/beta");
  }
  // A Linear: from `in` features to `out`.
  void add_linear(const std::string& theirs, int64_t in, int64_t out, const std::string& ours,
                  bool has_bias = true) {
    add(theirs + ".weight", {out, in}, TensorChange::kTranspose, {ours + "/kernel"});
    if (has_bias) {
      add(theirs + ".bias", {out}, ours + "/bias");
    }
  }
  // A Conv1D of GPT-2; several of ours are its columns.
  void add_conv1d(const std::string& theirs, int64_t in, int64_t out,
                  const std::vector<std::string>& ours) {
    for (const auto& [end, our_end] : {std::pair{".weight", "/kernel"}, {".bias", "/bias"}}) {
      std::vector<std::string> parts;
      for (const std::string& part : ours) {
        parts.push_back(part + our_end);
      }
      const bool is_bias = our_end == std::string("/bias");
      add(theirs + end, is_bias ? Shape{out} : Shape{in, out}, TensorChange::kNone,
          std::move(parts));
    }
  }
  void add_head(const std::string& theirs, int64_t out, const std::string& ours) {
    const size_t first = rules_.size();
    add_linear(theirs, m_.width, out, ours);
    for (size_t i = first; i < rules_.size(); ++i) {
      rules_[i].in_base = false;
    }
  }
  // The head of a language model that has a table of its own.
  void add_token_head() {
    if (m_.has_head && !m_.is_tied) {
      add("lm_head.weight", {m_.tokens, m_.width}, TensorChange::kTranspose,
          {"token_embedding/reverse_embeddings"});
      rules_.back().in_base = false;
    }
  }

  void add_gpt2() {
    add("wte.weight", {m_.tokens, m_.width}, "token_embedding/embeddings");
    add("wpe.weight", {m_.positions, m_.width}, "position_embedding/embeddings");
    for (int64_t i = 0; i < m_.depth; ++i) {
      const std::string theirs = fmt::format("h.{}.", i);
      const std::string ours = fmt::format("transformer_layer_{}/", i);
      add_norm(theirs + "ln_1", ours + "self_attention_layer_norm");
      const std::string self = ours + "self_attention/";
      add_conv1d(theirs + "attn.c_attn", m_.width, 3 * m_.width,
                 {self + "query", self + "key", self + "value"});
      add_conv1d(theirs + "attn.c_proj", m_.width, m_.width, {self + "attention_output"});
      add_norm(theirs + "ln_2", ours + "feedforward_layer_norm");
      add_conv1d(theirs + "mlp.c_fc", m_.width, m_.inner,
                 {ours + "feedforward_intermediate_dense"});
      add_conv1d(theirs + "mlp.c_proj", m_.inner, m_.width, {ours + "feedforward_output_dense"});
    }
    add_norm("ln_f", "layer_norm");
    add_token_head();
  }

  void add_llama() {
    add("embed_tokens.weight", {m_.tokens, m_.width}, "token_embedding/embeddings");
    for (int64_t i = 0; i < m_.depth; ++i) {
      const std::string theirs = fmt::format("layers.{}.", i);
      const std::string ours = fmt::format("transformer_layer_{}/", i);
      add(theirs + "input_layernorm.weight", {m_.width}, ours + "self_attention_layernorm/scale");
      const std::string attn = theirs + "self_attn.", self = ours + "self_attention/";
      const bool bias = m_.attention_bias;
      const int64_t all = m_.heads * m_.head_size, shared = m_.key_heads * m_.head_size;
      add_linear(attn + "q_proj", m_.width, all, self + "query", bias);
      add_linear(attn + "k_proj", m_.width, shared, self + "key", bias);
      add_linear(attn + "v_proj", m_.width, shared, self + "value", bias);
      add_linear(attn + "o_proj", all, m_.width, self + "attention_output", bias);
      add(theirs + "post_attention_layernorm.weight", {m_.width},
          ours + "feedforward_layernorm/scale");
      const bool mlp_bias = m_.feedforward_bias;
      add_linear(theirs + "mlp.gate_proj", m_.width, m_.inner, ours + "feedforward_gate_dense",
                 mlp_bias);
      add_linear(theirs + "mlp.up_proj", m_.width, m_.inner,
                 ours + "feedforward_intermediate_dense", mlp_bias);
      add_linear(theirs + "mlp.down_proj", m_.inner, m_.width, ours + "feedforward_output_dense",
                 mlp_bias);
    }
    add("norm.weight", {m_.width}, "sequence_output_layernorm/scale");
    add_token_head();
  }

  // A block of BERT or ViT: the same layer here, with its norms before or after.
  void add_encoder_block(const std::string& theirs, const std::string& ours,
                         const std::string& attention, const std::string& norm,
                         const std::string& output_norm) {
    const std::string self = ours + "self_attention_layer/";
    add_linear(theirs + attention + ".query", m_.width, m_.width, self + "query");
    add_linear(theirs + attention + ".key", m_.width, m_.width, self + "key");
    add_linear(theirs + attention + ".value", m_.width, m_.width, self + "value");
    add_linear(theirs + "attention.output.dense", m_.width, m_.width, self + "attention_output");
    add_norm(theirs + norm, ours + "self_attention_layer_norm");
    add_linear(theirs + "intermediate.dense", m_.width, m_.inner,
               ours + "feedforward_intermediate_dense");
    add_linear(theirs + "output.dense", m_.inner, m_.width, ours + "feedforward_output_dense");
    add_norm(theirs + output_norm, ours + "feedforward_layer_norm");
  }
  void add_classifier() {
    if (m_.has_pooler) {
      add_linear("pooler.dense", m_.width, m_.width, "pooled_dense");
    }
    if (m_.has_head && !m_.is_masked) {
      add_head("classifier", m_.classes, "classifier");
    }
  }
  // The head of a masked language model, whose second product is the table of tokens.
  void add_masked_head() {
    const size_t first = rules_.size();
    add("cls.predictions.bias", {m_.tokens}, "masked_lm_head/output_bias");
    add_linear("cls.predictions.transform.dense", m_.width, m_.width,
               "masked_lm_head/intermediate_dense");
    add_norm("cls.predictions.transform.LayerNorm", "masked_lm_head/intermediate_layer_norm");
    for (size_t i = first; i < rules_.size(); ++i) {
      rules_[i].in_base = false;
    }
  }

  void add_bert() {
    add("embeddings.word_embeddings.weight", {m_.tokens, m_.width}, "token_embedding/embeddings");
    add("embeddings.position_embeddings.weight", {m_.positions, m_.width},
        "position_embedding/embeddings");
    add("embeddings.token_type_embeddings.weight", {m_.segments, m_.width},
        "segment_embedding/embeddings");
    add_norm("embeddings.LayerNorm", "embeddings_layer_norm");
    for (int64_t i = 0; i < m_.depth; ++i) {
      add_encoder_block(fmt::format("encoder.layer.{}.", i),
                        fmt::format("transformer_layer_{}/", i), "attention.self",
                        "attention.output.LayerNorm", "output.LayerNorm");
    }
    add_classifier();
    if (m_.is_masked) {
      add_masked_head();
    }
  }

  void add_vit() {
    const std::string ours = "patching_and_embedding/";
    const int64_t patches = (m_.height / m_.patch) * (m_.image_width / m_.patch);
    add("embeddings.cls_token", {1, 1, m_.width}, ours + "class_token");
    add("embeddings.position_embeddings", {1, patches + 1, m_.width},
        ours + "position_embedding/embeddings");
    add("embeddings.patch_embeddings.projection.weight",
        {m_.width, m_.channels, m_.patch, m_.patch}, TensorChange::kImages,
        {ours + "patch_embedding/kernel"});
    add("embeddings.patch_embeddings.projection.bias", {m_.width}, ours + "patch_embedding/bias");
    for (int64_t i = 0; i < m_.depth; ++i) {
      add_encoder_block(fmt::format("encoder.layer.{}.", i),
                        fmt::format("transformer_layer_{}/", i), "attention.attention",
                        "layernorm_before", "layernorm_after");
    }
    add_norm("layernorm", "layer_norm");
    add_classifier();
  }

  const HuggingFaceModel& m_;
  std::vector<TensorRule> rules_;
};

// The order of dimensions that makes ours of theirs.
std::vector<size_t> order_of(TensorChange change, size_t rank) {
  switch (change) {
    case TensorChange::kTranspose:
      return {1, 0};
    case TensorChange::kImages:
      return {2, 3, 1, 0};
    case TensorChange::kNone:
      break;
  }
  std::vector<size_t> same(rank);
  for (size_t i = 0; i < rank; ++i) {
    same[i] = i;
  }
  return same;
}

std::vector<size_t> inverse(const std::vector<size_t>& order) {
  std::vector<size_t> out(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    out[order[i]] = i;
  }
  return out;
}

// Dimension i of the result is dimension order[i] of `x`.
HostTensor permuted(const HostTensor& x, const std::vector<size_t>& order) {
  const size_t rank = order.size(), size = dtype_size(x.dtype());
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank - 1; i > 0; --i) {
    strides[i - 1] = strides[i] * x.shape()[i];
  }
  Shape shape;
  for (const size_t dim : order) {
    shape.push_back(x.shape()[dim]);
  }
  HostTensor out(x.dtype(), shape);
  std::vector<int64_t> at(rank, 0);
  int64_t from = 0;
  for (int64_t to = 0; to < out.size(); ++to) {
    std::copy_n(x.bytes() + from * static_cast<int64_t>(size), size,
                out.bytes() + to * static_cast<int64_t>(size));
    for (size_t i = rank; i-- > 0;) {
      from += strides[order[i]];
      if (++at[i] < shape[i]) {
        break;
      }
      from -= at[i] * strides[order[i]];
      at[i] = 0;
    }
  }
  return out;
}

bool is_same_order(const TensorRule& rule) {
  return rule.change == TensorChange::kNone;
}

}  // namespace

std::vector<TensorRule> tensor_rules(const HuggingFaceModel& model) {
  return Rules(model).all();
}

std::string base_prefix(HuggingFaceFamily family) {
  switch (family) {
    case HuggingFaceFamily::kGpt2:
      return "transformer.";
    case HuggingFaceFamily::kLlama:
      return "model.";
    case HuggingFaceFamily::kBert:
      return "bert.";
    case HuggingFaceFamily::kVit:
      return "vit.";
  }
  return "";
}

std::string file_name_of(const TensorRule& rule, const HuggingFaceModel& model) {
  return (rule.in_base && model.has_head ? base_prefix(model.family) : "") + rule.theirs;
}

std::vector<HostTensor> to_ours(const TensorRule& rule, HostTensor theirs,
                                const std::vector<Shape>& shapes) {
  HostTensor whole = is_same_order(rule)
                         ? std::move(theirs)
                         : permuted(theirs, order_of(rule.change, rule.shape.size()));
  std::vector<HostTensor> out;
  if (shapes.size() == 1) {
    whole.reshape(shapes[0]);
    out.push_back(std::move(whole));
    return out;
  }
  const auto parts = static_cast<int64_t>(shapes.size());
  const int64_t columns = whole.shape().back(), rows = whole.size() / columns;
  const auto width = static_cast<int64_t>(dtype_size(whole.dtype())) * (columns / parts);
  for (int64_t part = 0; part < parts; ++part) {
    HostTensor& part_tensor = out.emplace_back(whole.dtype(), shapes[static_cast<size_t>(part)]);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(whole.bytes() + (row * parts + part) * width, width,
                  part_tensor.bytes() + row * width);
    }
  }
  return out;
}

HostTensor to_theirs(const TensorRule& rule, const std::vector<const HostTensor*>& ours) {
  const std::vector<size_t> order = order_of(rule.change, rule.shape.size());
  Shape changed;  // of theirs, in our order
  for (const size_t dim : order) {
    changed.push_back(rule.shape[dim]);
  }
  HostTensor whole(ours[0]->dtype(), changed);
  const auto parts = static_cast<int64_t>(ours.size());
  const int64_t columns = changed.back(), rows = whole.size() / columns;
  const auto width = static_cast<int64_t>(dtype_size(whole.dtype())) * (columns / parts);
  for (int64_t part = 0; part < parts; ++part) {
    const HostTensor& part_tensor = *ours[static_cast<size_t>(part)];
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(part_tensor.bytes() + row * width, width,
                  whole.bytes() + (row * parts + part) * width);
    }
  }
  return is_same_order(rule) ? std::move(whole) : permuted(whole, inverse(order));
}

}  // namespace meshtrain
