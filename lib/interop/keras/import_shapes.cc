#include "interop/keras/import_shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int64_t kMaxInputSize = int64_t{1} << 40;

std::vector<KerasLayer*> inputs_of(KerasModel& model) {
  std::vector<KerasLayer*> out;
  for (KerasLayer& layer : model.layers) {
    if (layer.class_name == "Input") {
      out.push_back(&layer);
    }
  }
  return out;
}

// The sizes of an Input, batch included; null when there are none.
Json* sizes_of(KerasLayer& input) {
  for (const char* key : {"batch_shape", "batch_input_shape"}) {
    const auto found = input.config.find(key);
    if (found != input.config.end() && found->is_array() && !found->empty()) {
      return &*found;
    }
  }
  return nullptr;
}

// "None, 3" of [null, null, 3]; `unknown` in place of None.
std::string sizes_text(const Json& sizes, const char* unknown, const char* separator) {
  std::vector<std::string> out;
  for (size_t i = 1; i < sizes.size(); ++i) {
    out.push_back(sizes[i].is_null() ? unknown : sizes[i].dump());
  }
  return join(out, separator);
}

std::string name_list(const std::vector<KerasLayer*>& inputs) {
  std::vector<std::string> out;
  for (const KerasLayer* input : inputs) {
    out.push_back(fmt::format("`{}`", printable(input->name)));
  }
  return join(out, ", ");
}

KerasLayer& input_named(const std::vector<KerasLayer*>& inputs, const std::string& name) {
  if (name.empty() && inputs.size() == 1) {
    return *inputs[0];
  }
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const KerasLayer* input) {
    return input->name == name && !name.empty();
  });
  if (found != inputs.end()) {
    return **found;
  }
  throw ConfigError(
      "E140", {},
      name.empty()
          ? fmt::format("--shape without a name, but the model has {} inputs", inputs.size())
          : fmt::format("--shape: the model has no input `{}`", printable(name)))
      .help(fmt::format("write --shape INPUT=SIZE,SIZE,...; inputs are {}", name_list(inputs)));
}

void set_sizes(KerasLayer& input, const std::vector<int64_t>& given) {
  Json* sizes = sizes_of(input);
  if (sizes == nullptr) {
    return;  // reported with the layer
  }
  bool fits = sizes->size() == given.size() + 1;
  for (size_t i = 0; fits && i < given.size(); ++i) {
    const Json& size = (*sizes)[i + 1];
    fits = size.is_null() || size == given[i];
  }
  if (!fits) {
    throw ConfigError("E140", {},
                      fmt::format("--shape {} does not fit the input `{}`, which is ({})",
                                  fmt::format("{}", fmt::join(given, ",")), printable(input.name),
                                  sizes_text(*sizes, "None", ", ")))
        .help(fmt::format("give every size without the batch, and numbers only for None: "
                          "--shape {}={}",
                          printable(input.name), sizes_text(*sizes, "SIZE", ",")));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    (*sizes)[i + 1] = given[i];
  }
}

}  // namespace

InputShape parse_input_shape(const std::string& text) {
  const size_t equals = text.rfind('=');
  const size_t begin = equals == std::string::npos ? 0 : equals + 1;
  InputShape out;
  out.input = begin == 0 ? "" : text.substr(0, equals);
  for (const std::string& word : split(std::string_view(text).substr(begin), ',')) {
    const auto size = parse_number<int64_t>(word);
    if (!size || *size < 1 || *size > kMaxInputSize || (begin > 0 && out.input.empty())) {
      throw ConfigError("E140", {}, fmt::format("--shape `{}` is no shape", printable(text)))
          .help("write [INPUT=]SIZE,SIZE,... without the batch, such as --shape 224,224,3");
    }
    out.sizes.push_back(*size);
  }
  return out;
}

void set_input_shapes(KerasModel& model, const std::vector<InputShape>& shapes) {
  const std::vector<KerasLayer*> inputs = inputs_of(model);
  std::set<std::string> done;
  for (const InputShape& shape : shapes) {
    KerasLayer& input = input_named(inputs, shape.input);
    if (!done.insert(input.name).second) {
      throw ConfigError("E140", {},
                        fmt::format("two --shape for the input `{}`", printable(input.name)))
          .help("leave one out");
    }
    set_sizes(input, shape.sizes);
  }
}

std::vector<std::string> open_input_shapes(const KerasModel& model) {
  std::vector<std::string> out;
  for (const KerasLayer& layer : model.layers) {
    KerasLayer input = layer;
    const Json* sizes = layer.class_name == "Input" ? sizes_of(input) : nullptr;
    if (sizes != nullptr && std::any_of(sizes->begin() + 1, sizes->end(),
                                        [](const Json& size) { return size.is_null(); })) {
      out.push_back(fmt::format("{}={}", printable(layer.name), sizes_text(*sizes, "SIZE", ",")));
    }
  }
  return out;
}

}  // namespace meshtrain
