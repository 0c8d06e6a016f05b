// meshtrain summary: Keras' table of layers, with where their weights and outputs lie.
//
// The table is that of Keras 3 (keras/src/utils/summary_utils.py on an 80-column terminal): heavy
// lines around the header, widths that grow where a text needs more.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "cli.h"
#include "mesh/visualize.h"
#include "train/setup.h"

namespace meshtrain {
namespace {

using Lines = std::vector<std::string>;  // of one cell

struct Column {
  std::string header;
  bool right = false;
  size_t width = 0;  // between the blanks; at least what Keras gives it
};

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

std::string repeat(std::string_view text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    out += text;
  }
  return out;
}

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<Lines> row) {
    for (size_t c = 0; c < row.size(); ++c) {
      for (const std::string& line : row[c]) {
        columns_[c].width = std::max(columns_[c].width, columns_of(line));
      }
    }
    rows_.push_back(std::move(row));
  }

  std::string text() const {
    std::vector<Lines> header;
    for (const Column& column : columns_) {
      header.push_back({column.header});
    }
    std::string out = rule("┏", "━", "┳", "┓") + row_text(header, "┃");
    out += rule("┡", "━", "╇", "┩");
    for (size_t r = 0; r < rows_.size(); ++r) {
      out += (r > 0 ? rule("├", "─", "┼", "┤") : "") + row_text(rows_[r], "│");
    }
    return out + rule("└", "─", "┴", "┘");
  }

 private:
  std::string rule(std::string_view left, std::string_view line, std::string_view middle,
                   std::string_view right) const {
    std::string out(left);
    for (size_t c = 0; c < columns_.size(); ++c) {
      out += repeat(line, columns_[c].width + 2);
      out += c + 1 < columns_.size() ? middle : right;
    }
    return out + "\n";
  }

  std::string row_text(const std::vector<Lines>& row, std::string_view bar) const {
    size_t height = 1;
    for (const Lines& cell : row) {
      height = std::max(height, cell.size());
    }
    std::string out;
    for (size_t line = 0; line < height; ++line) {
      for (size_t c = 0; c < row.size(); ++c) {
        const std::string text = line < row[c].size() ? row[c][line] : "";
        const std::string blank(columns_[c].width - columns_of(text), ' ');
        out += fmt::format("{} {}{} ", bar, columns_[c].right ? blank : text,
                           columns_[c].right ? text : blank);
      }
      out += fmt::format("{}\n", bar);
    }
    return out;
  }

  std::vector<Column> columns_;
  std::vector<std::vector<Lines>> rows_;
};

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
Lines layout_lines(const Setup& setup, const Layer& layer) {
  Lines lines;
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
  Lines inputs;  // "d1[0][0]"
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
  std::vector<Column> columns = chain ? std::vector<Column>{{"Layer (type)", false, 31},
                                                            {"Output Shape", false, 22},
                                                            {"Param #", true, 13}}
                                      : std::vector<Column>{{"Layer (type)", false, 19},
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
    std::vector<Lines> row = {{fmt::format("{} ({})", layer.name, layer.class_name)},
                              {shape_string(use.first->output_shape)},
                              {format_thousands(count_params(layer))}};
    if (!chain) {
      row.push_back(use.inputs.empty() ? Lines{"-"} : use.inputs);
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

// Draws the pieces of `name`: a weight's path, "<layer>/output" that is pinned, or "batch".
std::string drawing(const Setup& setup, const std::string& name, bool color) {
  const DeviceMesh& mesh = setup.mesh();
  const auto draw = [&](const std::string& title, const Shape& shape, const Sharding& sharding) {
    return fmt::format("{} {} {}\n{}\n", title, shape_string(shape),
                       sharding_string(sharding, mesh),
                       draw_sharding(shape, sharding, mesh, color));
  };
  std::string out;
  std::vector<std::string> known = {"batch"};
  if (name.empty() || name == "batch") {
    const int64_t batch = setup.config().fit.batch_size;
    for (const ValueType& input : setup.data().inputs) {
      Shape shape = {batch};
      shape.insert(shape.end(), input.shape.begin(), input.shape.end());
      std::replace(shape.begin(), shape.end(), kUnknownDim, int64_t{1});
      Sharding sharding = Sharding::replicated(shape.size());
      sharding.dims[0] = setup.distribution().batch_axes;
      out += draw("batch", shape, sharding);
    }
  }
  for (const Variable& variable : setup.variables()) {
    if (variable.role != VariableRole::kWeight) {
      continue;
    }
    known.push_back(variable.path);
    if (name.empty() || name == variable.path) {
      out += draw(variable.path, variable.shape, variable.layout.storage);
    }
  }
  for (const auto& [key, sharding] : setup.layouts().pins) {
    known.push_back(key);
    if (name.empty() || name == key) {
      for (const Model::Call& call : setup.model().calls()) {
        if (setup.model().layers()[call.layer]->name + "/output" == key) {
          Shape shape = call.output_shape;
          std::replace(shape.begin(), shape.end(), kUnknownDim,
                       setup.config().fit.batch_size.value);
          out += draw(key, shape, sharding);
        }
      }
    }
  }
  if (out.empty()) {
    Diagnostics diagnostics;
    Diagnostic& error = diagnostics.error(
        "E140", {}, fmt::format("`--sharding {}`: no such variable or pinned output", name));
    error.note("nearest: " + join(nearest_names(name, known, 4), ", "));
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
