// EinsumDense. Source: Keras 3 layers/core/einsum_dense.py.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "nn/arguments.h"
#include "nn/compile.h"
#include "nn/layers.h"
#include "nn/lora.h"

namespace meshtrain {
namespace {

// An equation "input,kernel->output"; "..." stands for dimensions of input and output, at the
// beginning of both or at the end of both, and is written as `elided` fresh letters here.
struct Equation {
  std::string input, kernel, output;
  bool elided_left = false, elided_right = false;

  // With letters in place of the dots, for an input of `rank` dimensions.
  Equation for_rank(size_t rank) const {
    const size_t count = rank - input.size();
    std::string fresh;
    for (char c = 'A'; fresh.size() < count && c <= 'z';
         c = c == 'Z' ? 'a' : static_cast<char>(c + 1)) {
      if ((input + kernel + output).find(c) == std::string::npos) {
        fresh += c;
      }
    }
    Equation out = *this;
    out.elided_left = out.elided_right = false;
    out.input = elided_left ? fresh + input : input + fresh;
    out.output = elided_left ? fresh + output : output + fresh;
    return out;
  }

  std::string text() const { return input + "," + kernel + "->" + output; }
};

bool only_letters(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

bool has_repeats(std::string text) {
  std::sort(text.begin(), text.end());
  return std::adjacent_find(text.begin(), text.end()) != text.end();
}

// Removes "..." from one end of `text`; returns -1 at the left, 1 at the right, 0 when absent.
int take_dots(std::string& text) {
  if (starts_with(text, "...")) {
    text.erase(0, 3);
    return -1;
  }
  if (ends_with(text, "...")) {
    text.resize(text.size() - 3);
    return 1;
  }
  return 0;
}

std::optional<Equation> parse_equation(std::string text) {
  std::erase(text, ' ');
  const size_t comma = text.find(',');
  const size_t arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  Equation e{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
             text.substr(arrow + 2)};
  const int input_dots = take_dots(e.input);
  const int output_dots = take_dots(e.output);
  if (input_dots != output_dots) {
    return std::nullopt;
  }
  e.elided_left = input_dots < 0;
  e.elided_right = input_dots > 0;
  for (const std::string* part : {&e.input, &e.kernel, &e.output}) {
    if (!only_letters(*part) || has_repeats(*part)) {
      return std::nullopt;
    }
  }
  return e;
}

bool contains(const std::string& letters, char c) {
  return letters.find(c) != std::string::npos;
}

// Sizes of the letters of an expanded equation.
using LetterSizes = std::map<char, int64_t>;

class EinsumDense : public ConfiguredLayer {
 public:
  using ConfiguredLayer::ConfiguredLayer;

  Shape build(std::span<const Shape> inputs, Diagnostics& diagnostics) override {
    if (!takes_one(inputs, diagnostics)) {
      return failed_shape();
    }
    const std::optional<Equation> parsed = parse_equation(config_.string("equation"));
    if (!parsed) {
      argument_error(diagnostics, "equation",
                     fmt::format("`{}` is not understood", config_.string("equation")))
          .help(
              "write letters as in `ab,bc->ac`, `...x,y->...z` or `x...,y->z...`; no letter twice "
              "in one part");
      return failed_shape();
    }
    const size_t letters = parsed->input.size();
    const bool has_dots = parsed->elided_left || parsed->elided_right;
    if (inputs[0].size() < letters || (!has_dots && inputs[0].size() != letters)) {
      shape_error(diagnostics, inputs,
                  fmt::format("the equation `{}` is for inputs of rank {}{}",
                              config_.string("equation"), letters, has_dots ? " or more" : ""))
          .help("one letter per dimension, the batch's too; `...` stands for those in front");
      return failed_shape();
    }
    equation_ = parsed->for_rank(inputs[0].size());
    sizes_.clear();
    Shape output;
    if (!set_sizes(*parsed, inputs, output, diagnostics) ||
        !add_weights(*parsed, inputs, diagnostics)) {
      return failed_shape();
    }
    return activated_shape(inputs, output, diagnostics);
  }

  ValueId call(CallContext& context, std::span<const ValueId> inputs) override {
    Builder& b = context.builder;
    // A shared layer may be called with another rank than it was last built for.
    const Equation equation =
        parse_equation(config_.string("equation"))->for_rank(b.shape(inputs[0]).size());
    ValueId x = weighted_einsum(context, equation.text(), to_compute(context, inputs[0]), kernel_);
    if (bias_ != kNone) {
      x = b.add(x, context.weight(bias_));
    }
    return add_activation(b, value_or_null(config_, "activation"), x);
  }

 private:
  // Sizes of all letters; checks that input, `output_shape` and equation agree.
  bool set_sizes(const Equation& written, std::span<const Shape> inputs, Shape& output,
                 Diagnostics& diagnostics) {
    const Shape& input = inputs[0];
    for (size_t i = 0; i < input.size(); ++i) {
      sizes_[equation_.input[i]] = input[i];
    }
    if (!sizes_.contains(equation_.output[0])) {
      argument_error(diagnostics, "equation",
                     fmt::format("begins its output with `{}`, which is not in the input",
                                 equation_.output[0]))
          .help("the first dimension is the batch and must stay");
      return false;
    }
    // The entries of `output_shape` belong, in order, to the output's letters that are neither the
    // batch (the first) nor elided.
    const size_t elided = equation_.output.size() - written.output.size();
    const size_t begin = written.elided_left ? std::max<size_t>(elided, 1) : 1;
    const size_t end = equation_.output.size() - (written.elided_right ? elided : 0);
    const std::vector<int64_t> given = integers_of(config_.arg("output_shape"));
    if (given.size() != end - begin) {
      argument_error(diagnostics, "output_shape",
                     fmt::format("has {} entries, but the output `{}` has {} dimensions besides "
                                 "the batch{}",
                                 given.size(), written.output, end - begin,
                                 elided > 0 ? " and those of the dots" : ""));
      return false;
    }
    for (size_t i = begin; i < end; ++i) {
      const char letter = equation_.output[i];
      const int64_t size = given[i - begin];
      const int64_t known = sizes_.try_emplace(letter, size).first->second;
      if (size != kUnknownDim && known != kUnknownDim && size != known) {
        argument_error(diagnostics, "output_shape",
                       fmt::format("says {} where `{}` is {} in the input {}", size, letter, known,
                                   shape_string(input)));
        return false;
      }
      sizes_[letter] = known == kUnknownDim ? size : known;
    }
    for (const char letter : equation_.output) {
      output.push_back(sizes_.at(letter));
    }
    return true;
  }

  bool add_weights(const Equation& written, std::span<const Shape> inputs,
                   Diagnostics& diagnostics) {
    Shape kernel;
    Fans fans{1, 1};
    for (const char letter : equation_.kernel) {
      const auto size = sizes_.find(letter);
      if (size == sizes_.end() || size->second == kUnknownDim) {
        shape_error(diagnostics, inputs,
                    fmt::format("the size of `{}` in the kernel is not known", letter))
            .help("write it in `output_shape` or in the Input's `shape`");
        return false;
      }
      kernel.push_back(size->second);
      const bool in_input = contains(equation_.input, letter);
      const bool in_output = contains(equation_.output, letter);
      fans.in *= in_input && !in_output ? static_cast<double>(size->second) : 1;
      fans.out *= in_output && !in_input ? static_cast<double>(size->second) : 1;
    }
    kernel_ = add_weight("kernel", kernel, variable_dtype,
                         make_initializer(config_.arg("kernel_initializer"), fans));
    const std::string bias_axes = string_or(config_, "bias_axes", "");
    if (bias_axes.empty()) {
      return true;
    }
    size_t first = written.output.size();
    for (const char letter : bias_axes) {
      const size_t at = written.output.find(letter);
      if (at == std::string::npos || sizes_[letter] == kUnknownDim) {
        argument_error(diagnostics, "bias_axes",
                       fmt::format("names `{}`, which is no output letter of known size", letter));
        return false;
      }
      first = std::min(first, at);
    }
    // From the first such letter to the end, 1 where the bias is broadcast.
    Shape bias;
    for (size_t i = equation_.output.find(written.output[first]); i < equation_.output.size();
         ++i) {
      bias.push_back(contains(bias_axes, equation_.output[i]) ? sizes_[equation_.output[i]] : 1);
    }
    bias_ =
        add_weight("bias", bias, variable_dtype, make_initializer(config_.arg("bias_initializer")));
    return true;
  }

  Equation equation_;
  LetterSizes sizes_;
  int kernel_ = kNone;
  int bias_ = kNone;
};

}  // namespace

std::vector<LayerEntry> einsum_dense_layers() {
  return {{"EinsumDense", make_as<EinsumDense>}};
}

}  // namespace meshtrain
