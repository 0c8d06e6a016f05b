// meshtrain summary: Keras' table of layers, with where their weights and outputs lie.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli.h"
#include "mesh/visualize.h"
#include "table.h"
#include "train/setup.h"

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

// Where the first call of `layer` is, and the calls that feed any call of it.
struct LayerUse {
  const Model::Call* first = nullptr;
  Table::Lines inputs;  // "d1[0][0]"
};

LayerUse use_of(const Model& model, int layer) {
  LayerUse use;
  for (const Model::Call& call : model.calls()) {
    if (call.layer != layer) {
      continue;
    }
    use.first = use.first ? use.first : &call;
    for (const int input : call.inputs) {
      const Model::Call& from = model.calls()[static_cast<size_t>(input)];
      const auto node = std::count_if(model.calls().begin(), model.calls().begin() + input,
                                      [&](const Model::Call& c) { return c.layer == from.layer; });
      use.inputs.push_back(fmt::format("{}[{}][0]", model.layers()[from.layer]->name, node));
    }
  }
  for (size_t i = 0; i + 1 < use.inputs.size(); ++i) {
    use.inputs[i] += ",";
  }
  return use;
}

// Whether layers follow one another in a line, each used once: Keras then has no "Connected to".
bool is_chain(const Model& model) {
  for (size_t i = 0; i < model.calls().size(); ++i) {
    const Model::Call& call = model.calls()[i];
    const bool follows = call.is_input
                             ? i == 0
                             : call.inputs.size() == 1 && call.inputs[0] + 1 == static_cast<int>(i);
    if (!follows || std::count_if(model.calls().begin(), model.calls().end(),
                                  [&](const auto& c) { return c.layer == call.layer; }) != 1) {
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
  for (size_t i = 0; i < model.layers().size(); ++i) {
    const Layer& layer = *model.layers()[i];
    const LayerUse use = use_of(model, static_cast<int>(i));
    if (!use.first || (use.first->is_input && setup.config().model.is_sequential)) {
      continue;  // Keras' Sequential hides its input
    }
    std::vector<Table::Lines> row = {{fmt::format("{} ({})", layer.name, layer.class_name)},
                                     {shape_string(use.first->output_shape)},
                                     {format_thousands(count_params(layer))}};
    if (!chain) {
      row.push_back(use.inputs.empty() ? Table::Lines{"-"} : use.inputs);
    }
    if (sharded) {
      row.push_back(layout_lines(setup, layer));
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

struct Drawn {
  std::string name;
  Shape shape;
  Sharding sharding;
};

// Everything that can be drawn: the batch of each input, the weights, the pinned outputs.
std::vector<Drawn> drawable(const Setup& setup) {
  const int64_t batch = setup.config().fit.batch_size;
  std::vector<Drawn> out;
  for (const ValueType& input : setup.data().inputs) {
    Shape shape = {batch};
    shape.insert(shape.end(), input.shape.begin(), input.shape.end());
    Sharding sharding = Sharding::replicated(shape.size());
    if (batch % setup.mesh().size_of(setup.distribution().batch_axes) == 0) {
      sharding.dims[0] = setup.distribution().batch_axes;
    }
    out.push_back({"batch", shape, sharding});
  }
  for (const Variable& variable : setup.variables()) {
    if (variable.role == VariableRole::kWeight) {
      out.push_back({variable.path, variable.shape, variable.layout.storage});
    }
  }
  for (const Model::Call& call : setup.model().calls()) {
    const std::string key = setup.model().layers()[call.layer]->name + "/output";
    const auto pin = setup.layouts().pins.find(key);
    if (pin != setup.layouts().pins.end()) {
      Shape shape = call.output_shape;
      shape[0] = batch;
      out.push_back({key, shape, pin->second});
    }
  }
  for (Drawn& drawn : out) {
    std::replace(drawn.shape.begin(), drawn.shape.end(), kUnknownDim, int64_t{1});
  }
  return out;
}

// Draws the pieces of `name`, or of everything when it is empty.
std::string drawing(const Setup& setup, const std::string& name, bool color) {
  std::string out;
  std::vector<std::string> known;
  for (const Drawn& drawn : drawable(setup)) {
    known.push_back(drawn.name);
    if (name.empty() || name == drawn.name) {
      out += fmt::format("{} {} {}\n{}\n", drawn.name, shape_string(drawn.shape),
                         sharding_string(drawn.sharding, setup.mesh()),
                         draw_sharding(drawn.shape, drawn.sharding, setup.mesh(), color));
    }
  }
  if (out.empty()) {
    Diagnostics diagnostics;
    diagnostics
        .error("E140", {}, fmt::format("`--sharding={}`: no such variable or pinned output", name))
        .note("nearest: " + join(nearest_names(name, known, 4), ", "));
    throw ConfigError(diagnostics);
  }
  return out;
}

int summary(const Arguments& arguments) {
  const Config config = load_config(load_options(arguments, false));
  const Setup setup(config, nullptr);
  const bool color = use_color(arguments.color, out_stream());
  if (arguments.draw_sharding) {
    out_stream().write(drawing(setup, arguments.sharding, color));
  } else {
    out_stream().write(fmt::format("Model: \"{}\"\n{}{}", setup.model().name(), layer_table(setup),
                                   totals(setup.model())));
  }
  show_warnings(setup.warnings(), arguments);
  return 0;
}

}  // namespace

void add_summary(Command command) {
  Arguments& a = command.arguments;
  CLI::App& verb =
      *command.app.add_subcommand("summary", "Keras' table of layers, with their layouts");
  add_config_arguments(verb, a);
  CLI::Option* sharding =
      verb.add_option("--sharding", a.sharding,
                      "Draw which device holds which part of a variable, of LAYER/output or of the "
                      "batch; without a name of all of them. As --sharding=NAME")
          ->type_name("[=NAME]")
          ->expected(0, 1)
          ->allow_extra_args(false)
          ->group("Output");
  add_color_flag(verb, a);
  verb.callback([command, sharding] {
    command.arguments.draw_sharding = sharding->count() > 0;
    command.action = [command] { return summary(command.arguments); };
  });
}

}  // namespace meshtrain
