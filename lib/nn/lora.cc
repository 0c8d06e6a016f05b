#include "nn/lora.h"

#include <algorithm>
#include <map>
#include <memory>
#include <variant>

#include "base/suggest.h"
#include "base/text.h"
#include "mesh/layout_map.h"
#include "nn/compile.h"
#include "nn/layers.h"

namespace meshtrain {
namespace {

constexpr std::string_view kPrefix = "lora_";

size_t start_of_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? 0 : slash + 1;
}

bool can_have_factors(const Weight& weight) {
  return weight.shape.size() >= 2 && is_floating(weight.dtype) && weight.factor_of == kNone;
}

int64_t product_of(const Shape& shape, size_t begin, size_t end) {
  int64_t out = 1;
  for (size_t i = begin; i < end; ++i) {
    out *= shape[i];
  }
  return out;
}

// Keras' he_uniform; its fan is what one output of A sums.
Initializer first_factor(const Weight& weight) {
  ConfigValue name;
  name.data = std::string("he_uniform");
  const auto in = static_cast<double>(product_of(weight.shape, 0, weight.lora.inputs));
  return make_initializer(name, Fans{in, static_cast<double>(weight.lora.rank)});
}

// Where the weight is padded in memory, so are the rows or columns of the factor that meet them.
Weight factor(const Weight& weight, int index, char name, bool trainable) {
  const auto split = weight.shape.begin() + static_cast<ptrdiff_t>(weight.lora.inputs);
  const bool is_first = name == 'a';
  Weight out;
  out.path = lora_path(weight.path, name);
  out.shape = is_first ? Shape(weight.shape.begin(), split) : Shape{weight.lora.rank};
  out.shape.insert(out.shape.end(), is_first ? weight.shape.end() : split, weight.shape.end());
  if (is_first) {
    out.shape.push_back(weight.lora.rank);
  }
  out.dtype = dtype_size(weight.dtype) < 4 ? DType::kFloat32 : weight.dtype;
  out.trainable = trainable;
  out.initializer = is_first ? first_factor(weight) : filled_with(0);
  out.regularizer = weight.regularizer;
  const auto inputs = static_cast<int>(weight.lora.inputs);
  if (weight.pad_dim != kNone && (weight.pad_dim < inputs) == is_first) {
    out.pad_dim = is_first ? weight.pad_dim : weight.pad_dim - inputs + 1;
    out.pad_to = weight.pad_to;
  }
  out.factor_of = index;
  return out;
}

// The rules of model.lora; two that match one weight are an error.
class Rules {
 public:
  Rules(const std::vector<ModelConfig::Lora>& rules, Diagnostics& diagnostics)
      : rules_(rules), acts_(rules.size()), diagnostics_(diagnostics) {
    for (const ModelConfig::Lora& rule : rules) {
      patterns_.emplace_back(rule.pattern, rule.loc);
    }
  }

  const ModelConfig::Lora* find(const Weight& weight) {
    const ModelConfig::Lora* found = nullptr;
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].pattern != weight.path && !patterns_[i].full_match(weight.path)) {
        continue;
      }
      acts_[i] = true;
      if (found != nullptr) {
        diagnostics_
            .error("E121", rules_[i].loc,
                   fmt::format("two patterns of `lora` match `{}`: `{}` and `{}`", weight.path,
                               found->pattern, rules_[i].pattern))
            .help("write them so that one of them matches each weight");
      }
      found = &rules_[i];
    }
    return found;
  }

  void report_unused(const std::vector<std::string>& paths) const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (acts_[i]) {
        continue;
      }
      const std::string& pattern = rules_[i].pattern;
      Diagnostic& d = diagnostics_.error(
          "E121", rules_[i].loc,
          fmt::format("`{}` of `lora` matches no weight with two or more dimensions", pattern));
      suggest(d, pattern, paths);
      d.note(fmt::format("weights: {}", join(nearest_names(pattern, paths, 8), ", ")));
    }
  }

 private:
  const std::vector<ModelConfig::Lora>& rules_;
  std::vector<bool> acts_;
  std::vector<Pattern> patterns_;
  Diagnostics& diagnostics_;
};

void add_factors(Layer& layer, size_t index, bool trainable, Diagnostics& diagnostics) {
  if (layer.weights[index].constraint != nullptr) {
    diagnostics
        .error("E113", layer.weights[index].constraint->loc,
               fmt::format("`{}` has low-rank factors, which no constraint can hold",
                           layer.weights[index].path))
        .help("leave the constraint or the factors out");
    return;
  }
  for (const char name : {'a', 'b'}) {
    Weight made = factor(layer.weights[index], static_cast<int>(index), name, trainable);
    layer.weights.push_back(std::move(made));
  }
  Weight& weight = layer.weights[index];
  weight.trainable = false;
  weight.lora.b = static_cast<int>(layer.weights.size()) - 1;
  weight.lora.a = weight.lora.b - 1;
}

std::string letters_from(char first, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += static_cast<char>(first + static_cast<char>(i));
  }
  return out;
}

// Without the arguments of factors, in the layers within it, too.
void clear_arguments(ConfigValue& value);
void clear_arguments(ConfigObject& object) {
  for (auto& [name, value] : object.args) {
    if (name == "lora_rank" || name == "lora_alpha") {
      value.data = std::monostate{};
    } else {
      clear_arguments(value);
    }
  }
}
void clear_arguments(ConfigValue& value) {
  if (auto* object = std::get_if<std::shared_ptr<ConfigObject>>(&value.data)) {
    *object = std::make_shared<ConfigObject>(**object);
    clear_arguments(**object);
  } else if (auto* list = std::get_if<ConfigValue::List>(&value.data)) {
    for (ConfigValue& entry : *list) {
      clear_arguments(entry);
    }
  }
}

// W + scale * A B, row by row.
HostTensor multiplied_out(const HostTensor& weight, const HostTensor& a, const HostTensor& b,
                          double scale) {
  const int64_t rank = b.shape()[0], columns = b.size() / rank, rows = a.size() / rank;
  HostTensor out(weight.dtype(), weight.shape());
  const HostTensor right = b.cast(DType::kFloat64);
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t i = 0; i < rows; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = scale * a.at(i * rank + r);
      const double* from = right.data<double>() + r * columns;
      for (int64_t j = 0; j < columns; ++j) {
        row[static_cast<size_t>(j)] += factor * from[j];
      }
    }
    for (int64_t j = 0; j < columns; ++j) {
      out.set(i * columns + j, weight.at(i * columns + j) + row[static_cast<size_t>(j)]);
    }
  }
  return out;
}

}  // namespace

std::string lora_path(std::string_view weight, char factor) {
  const size_t at = start_of_name(weight);
  return fmt::format("{}{}{}_{}", weight.substr(0, at), kPrefix, weight.substr(at), factor);
}

bool is_lora_path(std::string_view path) {
  return starts_with(path.substr(start_of_name(path)), kPrefix);
}

void add_lora_factors(const std::vector<std::unique_ptr<Layer>>& layers,
                      const std::vector<ModelConfig::Lora>& rules, Diagnostics& diagnostics) {
  Rules wanted(rules, diagnostics);
  std::vector<std::string> paths;
  for (const auto& layer : layers) {
    const size_t count = layer->weights.size();
    for (size_t i = 0; i < count; ++i) {
      if (!can_have_factors(layer->weights[i])) {
        continue;
      }
      paths.push_back(layer->weights[i].path);
      bool trainable = layer->trainable;
      if (const ModelConfig::Lora* rule = wanted.find(layer->weights[i])) {
        Lora& lora = layer->weights[i].lora;
        lora.rank = rule->rank;
        lora.alpha = rule->alpha;
        trainable = true;  // whatever `frozen` says of the layer
      }
      if (layer->weights[i].lora.rank > 0) {
        add_factors(*layer, i, trainable, diagnostics);
      }
    }
  }
  if (!diagnostics.has_errors()) {
    wanted.report_unused(paths);
  }
}

ValueId merged_weight(Builder& builder, const FactoredWeight& weight) {
  if (weight.a == kNone) {
    return weight.base;
  }
  const std::string inputs = letters_from('a', builder.shape(weight.a).size() - 1);
  const std::string outputs = letters_from('A', builder.shape(weight.b).size() - 1);
  const ValueId product =
      builder.einsum(inputs + "z,z" + outputs + "->" + inputs + outputs, {weight.a, weight.b});
  return builder.add(weight.base, weight.scale == 1 ? product : builder.mul(product, weight.scale));
}

ValueId weighted_einsum(CallContext& context, const std::string& equation, ValueId x,
                        int weight_index) {
  Builder& b = context.builder;
  const FactoredWeight weight = context.factored ? context.factored(weight_index)
                                                 : FactoredWeight{context.weight(weight_index)};
  const size_t comma = equation.find(','), arrow = equation.find("->");
  const std::string input = equation.substr(0, comma);
  const std::string kernel = equation.substr(comma + 1, arrow - comma - 1);
  const std::string output = equation.substr(arrow + 2);
  const size_t inputs = weight.a == kNone ? 0 : b.shape(weight.a).size() - 1;
  const std::string of_a = kernel.substr(0, inputs), of_b = kernel.substr(inputs);
  const auto is_in = [](const std::string& letters) {
    return [&letters](char c) { return letters.find(c) != std::string::npos; };
  };
  // What A leaves must be all that B and the output need.
  const bool can_split = weight.a != kNone &&
                         std::all_of(of_b.begin(), of_b.end(), is_in(output)) &&
                         std::none_of(of_b.begin(), of_b.end(), is_in(input));
  if (!can_split) {
    return b.einsum(equation, {x, merged_weight(b, weight)});
  }
  char rank = 'a';
  while (is_in(equation)(rank)) {
    rank = rank == 'z' ? 'A' : static_cast<char>(rank + 1);
  }
  std::string between = output;
  std::erase_if(between, is_in(of_b));
  between += rank;
  const ValueId small = b.einsum(input + "," + of_a + rank + "->" + between, {x, weight.a});
  const ValueId change = b.einsum(between + "," + rank + of_b + "->" + output, {small, weight.b});
  return b.add(b.einsum(equation, {x, weight.base}),
               weight.scale == 1 ? change : b.mul(change, weight.scale));
}

Config without_lora(Config config) {
  config.model.lora.clear();
  for (LayerConfig& layer : config.model.layers) {
    clear_arguments(layer.object);
  }
  return config;
}

std::vector<NamedTensor> merge_lora(const Model& model, std::vector<NamedTensor> weights) {
  std::map<std::string_view, const HostTensor*> by_path;
  for (const NamedTensor& weight : weights) {
    by_path.emplace(weight.name, &weight.tensor);
  }
  std::map<std::string_view, HostTensor> merged;
  for (const Weight* weight : model.weights()) {
    const auto a = by_path.find(lora_path(weight->path, 'a'));
    const auto b = by_path.find(lora_path(weight->path, 'b'));
    if (weight->lora.rank > 0 && a != by_path.end() && b != by_path.end()) {
      merged.emplace(weight->path, multiplied_out(*by_path.at(weight->path), *a->second, *b->second,
                                                  weight->lora.scale()));
    }
  }
  std::erase_if(weights, [](const NamedTensor& weight) { return is_lora_path(weight.name); });
  for (NamedTensor& weight : weights) {
    if (const auto found = merged.find(weight.name); found != merged.end()) {
      weight.tensor = std::move(found->second);
    }
  }
  return weights;
}

bool has_lora(const Model& model) {
  return std::any_of(model.weights().begin(), model.weights().end(),
                     [](const Weight* weight) { return weight->factor_of != kNone; });
}

}  // namespace meshtrain
