#include "engine/model_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/table.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// "621.13 KB", as Keras writes sizes.
std::string keras_size(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KB", "MB", "GB", "TB"};
  double size = static_cast<double>(bytes);
  for (const char* unit : kUnits) {
    if (size / 1024 < 1) {
      return fmt::format("{:.2f} {}", size, unit);
    }
    size /= 1024;
  }
  return fmt::format("{:.2f} PB", size);
}

const Variable* find_variable(const Setup& setup, std::string_view path) {
  const auto& all = setup.variables();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Variable& v) { return v.path == path; });
  return found == all.end() ? nullptr : &*found;
}

// "kernel [null, model]" for each weight, "output [data, null]" where the output is pinned.
Table::Lines layout_lines(const Setup& setup, const Layer& layer) {
  Table::Lines lines;
  for (const Weight& weight : layer.weights) {
    const Variable* variable = find_variable(setup, weight.path);
    const std::string name = weight.path.substr(weight.path.rfind('/') + 1);
    if (variable && !variable->layout.storage.is_replicated()) {
      lines.push_back(
          fmt::format("{} {}", name, sharding_string(variable->layout.storage, setup.mesh())));
    } else {
      lines.push_back(name + " replicated");
    }
  }
  const auto pin = setup.layouts().pins.find(layer.name + "/output");
  if (pin != setup.layouts().pins.end()) {
    lines.push_back(fmt::format("output {}", sharding_string(pin->second, setup.mesh())));
  }
  return lines;
}

int64_t count_params(const Layer& layer) {
  int64_t count = 0;
  for (const Weight& weight : layer.weights) {
    count += num_elements(weight.shape);
  }
  return count;
}

// What Keras says of the inputs of call `index`: "d1[0][0]", with the numbers of the call of that
// layer and of its output.
Table::Lines connections(const Model& model, const Model::Call& call) {
  Table::Lines lines;
  for (const int input : call.inputs) {
    const Model::Call& from = model.calls()[static_cast<size_t>(input)];
    const auto earlier = std::count_if(
        model.calls().begin(), model.calls().begin() + model.computing(input), [&](const auto& c) {
          return !from.is_input && c.layer == from.layer && c.result_of == kNone;
        });
    const std::string& name = from.is_input ? from.name : model.layers()[from.layer]->name;
    lines.push_back(
        fmt::format("{}[{}][{}]", name, earlier, from.result_of == kNone ? 0 : 1 + from.result));
  }
  return lines;
}

// The inputs of all calls of the layer that `call` uses.
Table::Lines all_connections(const Model& model, const Model::Call& call) {
  Table::Lines lines;
  for (const Model::Call& other : model.calls()) {
    if (&other == &call || (!call.is_input && other.layer == call.layer)) {
      const Table::Lines more = connections(model, other);
      lines.insert(lines.end(), more.begin(), more.end());
    }
  }
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    lines[i] += ",";
  }
  return lines.empty() ? Table::Lines{"-"} : lines;
}

// Whether an earlier call uses the same layer.
bool is_repeated(const Model& model, const Model::Call& call) {
  const auto first = std::find_if(model.calls().begin(), model.calls().end(), [&](const auto& c) {
    return !call.is_input && c.layer == call.layer;
  });
  return !call.is_input && &*first != &call;
}

// Whether layers follow one another in a line, each used once: Keras then has no "Connected to".
bool is_chain(const Model& model) {
  for (size_t i = 0; i < model.calls().size(); ++i) {
    const Model::Call& call = model.calls()[i];
    const bool follows = call.is_input
                             ? i == 0
                             : call.inputs.size() == 1 && call.inputs[0] + 1 == static_cast<int>(i);
    if (!follows || is_repeated(model, call)) {
      return false;
    }
  }
  return true;
}

std::string layer_table(const Setup& setup) {
  const Model& model = setup.model();
  const bool chain = is_chain(model);
  std::vector<Table::Column> columns =
      chain ? std::vector<Table::Column>{{"Layer (type)", false, 31},
                                         {"Output Shape", false, 22},
                                         {"Param #", true, 13}}
            : std::vector<Table::Column>{{"Layer (type)", false, 19},
                                         {"Output Shape", false, 17},
                                         {"Param #", true, 10},
                                         {"Connected to", false, 17}};
  const bool sharded = setup.mesh().num_devices() > 1;
  if (sharded) {
    columns.push_back({"Layout", false, 6});
  }
  Table table(columns);
  for (const Model::Call& call : model.calls()) {
    if (is_repeated(model, call) || (call.is_input && setup.config().model.is_sequential)) {
      continue;  // Keras' Sequential hides its input
    }
    const Layer* layer = call.is_input ? nullptr : model.layers()[call.layer].get();
    std::vector<Table::Lines> row = {{fmt::format("{} ({})", layer ? layer->name : call.name,
                                                  layer ? layer->class_name : "InputLayer")},
                                     {shape_string(call.output_shape)},
                                     {layer ? format_thousands(count_params(*layer)) : "0"}};
    if (!chain) {
      row.push_back(all_connections(model, call));
    }
    if (sharded) {
      row.push_back(layer ? layout_lines(setup, *layer) : Table::Lines{});
    }
    table.add(std::move(row));
  }
  return table.text();
}

std::string totals(const Model& model) {
  int64_t count[2] = {}, bytes[2] = {};  // not trainable, trainable
  for (const Weight* weight : model.weights()) {
    const int64_t size = num_elements(weight->shape);
    count[weight->trainable] += size;
    bytes[weight->trainable] += size * static_cast<int64_t>(dtype_size(weight->dtype));
  }
  const auto line = [](const char* name, int64_t number, int64_t size) {
    return fmt::format(" {}: {} ({})\n", name, format_thousands(number), keras_size(size));
  };
  return line("Total params", count[0] + count[1], bytes[0] + bytes[1]) +
         line("Trainable params", count[1], bytes[1]) +
         line("Non-trainable params", count[0], bytes[0]);
}

}  // namespace

std::string model_summary(const Setup& setup) {
  return fmt::format("Model: \"{}\"\n{}{}", setup.model().name(), layer_table(setup),
                     totals(setup.model()));
}

}  // namespace meshtrain
