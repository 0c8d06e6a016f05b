// meshtrain export: a model's weights, or the whole model, for others; above all for Keras.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "cli.h"
#include "engine/setup.h"
#include "engine/weights.h"
#include "given_run.h"
#include "interop/keras/export_json.h"
#include "interop/keras/export_python.h"
#include "interop/keras/weights.h"
#include "interop/save_model.h"
#include "train/learned_file.h"
#include "train/load_weights.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

enum class Format { kModel, kPython, kJson };

Format format_of(const std::string& path) {
  const std::string lower = to_lower(path);
  if (ends_with(lower, ".py") || ends_with(lower, ".json")) {
    return ends_with(lower, ".py") ? Format::kPython : Format::kJson;
  }
  if (model_format(path) != ModelFormat::kNone) {
    return Format::kModel;
  }
  refuse(
      "E140", fmt::format("cannot tell what to write from the name `{}`", path),
      "end it with .keras, .weights.h5, .npz, .safetensors, .json (architecture) or .py (a Keras "
      "script)");
}

// Returns the path of the weights; "" when none are given.
std::string weights_path(const Arguments& a, const GivenRun& given, const Config& config) {
  const std::string& weights = weights_of(given, config);
  const std::string path = weights.empty() ? "" : weights_in(weights);
  if (path != weights && !a.quiet) {
    err_stream().write(fmt::format("weights     {}\n", path));
  }
  return path;
}

std::vector<NamedTensor> read_weights_of(const Setup& setup, const std::string& path) {
  return fitting_weights(read_weights_in(path, &setup.model()), wanted_weights(setup.model()), path,
                         {});
}

// Seconds since 1970 when the file was last changed.
int64_t time_of(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_mtime) : 0;
}

std::vector<H5Vars> vars_of(const Setup& setup, const std::vector<NamedTensor>& weights) {
  return keras_vars(setup.model(), weights, setup.config().model.is_sequential);
}

// "model.py" -> "model.weights.h5"
std::string weights_beside(const std::string& script) {
  return fs::path(script).replace_extension(".weights.h5").string();
}

// Mesh and resolved layouts in the words of keras.distribution.
KerasDistribution distribution_of(const Setup& setup) {
  const DeviceMesh& mesh = setup.mesh();
  KerasDistribution out;
  out.mesh_shape = mesh.shape();
  out.axis_names = mesh.axis_names();
  const AxisList& batch = setup.distribution().batch_axes;
  out.batch_axis = batch.empty() ? mesh.axis_names()[0] : mesh.axis_names()[batch[0]];
  if (batch.size() > 1) {
    out.notes.push_back("The batch lies on several axes in the config; Keras knows one.");
  }
  if (setup.distribution().zero > 0) {
    out.notes.push_back(
        fmt::format("The config has `zero: {}`, which Keras does not know; results are the same.",
                    setup.distribution().zero));
  }
  const auto add = [&](const std::string& path, const Sharding& sharding, const LayoutRule* rule) {
    if (sharding.is_replicated()) {
      return;
    }
    KerasDistribution::Layout layout{path, {}, rule == nullptr ? "" : rule->key};
    layout.rule = layout.rule == path ? "" : layout.rule;
    for (const AxisList& axes : sharding.dims) {
      if (axes.size() > 1) {
        out.notes.push_back(fmt::format(
            "{} has several axes on one dimension; Keras takes one, so it stays whole.", path));
        return;
      }
      layout.axes.push_back(axes.empty() ? "" : mesh.axis_names()[axes[0]]);
    }
    out.layouts.push_back(std::move(layout));
  };
  const ResolvedLayouts& layouts = setup.layouts();
  const auto& weights = setup.model().weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    add(weights[i]->path, layouts.weights[i], layouts.rules[i]);
  }
  for (const auto& [key, sharding] : layouts.pins) {
    const auto rule = layouts.pin_rules.find(key);
    add(key, sharding, rule == layouts.pin_rules.end() ? nullptr : rule->second);
  }
  return out;
}

void write_script(const Arguments& a, const Setup& setup, const std::string& weights) {
  const std::string beside = weights.empty() ? "" : weights_beside(a.output);
  const std::string script =
      keras_script(setup.config(), setup.model(), distribution_of(setup), a.words.front(),
                   beside.empty() ? "" : fs::path(beside).filename().string());
  if (!beside.empty()) {
    write_h5(beside, vars_of(setup, read_weights_of(setup, weights)));
  }
  write_file_atomic(a.output, std::string_view(script));
}

void write(const Arguments& a, const Setup& setup, Format format, const std::string& weights) {
  const std::string& path = a.output;
  if (format == Format::kPython) {
    return write_script(a, setup, weights);
  }
  if (format == Format::kJson) {
    const std::string json = keras_json(setup.config(), setup.model());
    return write_file_atomic(path, std::string_view(json));
  }
  if (weights.empty()) {
    refuse("E140", "no weights given",
           "give a run, or --weights FILE, for example runs/NAME/latest/weights.safetensors");
  }
  write_model(path, setup.config(), setup.model(), read_weights_of(setup, weights),
              time_of(weights));
}

}  // namespace

int run_export(const Arguments& a) {
  const Format format = format_of(a.output);
  const GivenRun given = given_run(a, false);
  const Config config = load_config(given.options);
  const Setup setup(config, nullptr);
  show_warnings(setup.warnings(), a);
  const std::string weights = format == Format::kJson ? "" : weights_path(a, given, config);
  const LearnedPtr learned = weights.empty() ? nullptr : learned_for(given, config);
  write(a, setup, format, weights);
  std::vector<std::string> written = {a.output};
  if (!weights.empty()) {
    if (format == Format::kPython) {
      written.push_back(weights_beside(a.output));
    }
    if (std::string path = write_learned_beside(written.back(), learned); !path.empty()) {
      written.push_back(std::move(path));
    }
  }
  if (!a.quiet) {
    err_stream().write(fmt::format("wrote {}\n", join(written, " and ")));
  }
  return 0;
}

}  // namespace meshtrain
