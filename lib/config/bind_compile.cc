#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/optimizer_members.h"

namespace meshtrain {
namespace {

class CompileBinder {
 public:
  CompileBinder(const ModelConfig& model, Diagnostics& diagnostics) : diagnostics_(diagnostics) {
    for (const auto& [name, layer] : model.outputs) {
      outputs_.push_back(name);
    }
  }

  // A loss for all, one per output in order, or by the output's name.
  std::vector<OutputObject> losses(const ConfigValue& value) {
    std::vector<OutputObject> out;
    if (value.is_object()) {
      out.push_back({"", value.object()});
    } else if (value.is_list()) {
      if (fits_outputs(value, "loss")) {
        for (size_t i = 0; i < value.list().size(); ++i) {
          out.push_back({outputs_.size() == 1 ? "" : outputs_[i], value.list()[i].object()});
        }
      }
    } else if (value.is_dict()) {
      for (const auto& [name, entry] : value.dict()) {
        if (is_output(name, entry.loc) && entry.is_object()) {
          out.push_back({name, entry.object()});
        }
      }
    }
    return out;
  }

  // Metrics for all, or by the output's name.
  std::vector<OutputObject> metrics(const ConfigValue& value) {
    std::vector<OutputObject> out;
    const auto add = [&](const std::string& name, const ConfigValue& entry) {
      if (entry.is_object()) {
        out.push_back({name, entry.object()});
      } else if (entry.is_list()) {
        for (const ConfigValue& one : entry.list()) {
          out.push_back({name, one.object()});
        }
      }
    };
    if (!value.is_dict()) {
      add("", value);
      return out;
    }
    for (const auto& [name, entry] : value.dict()) {
      if (is_output(name, entry.loc)) {
        add(name, entry);
      }
    }
    return out;
  }

  // A null in a list of losses leaves its output without one.
  void name_losses(ConfigValue& value) {
    if (value.is_list() && has_entry(value, &ConfigValue::is_null) &&
        value.list().size() == outputs_.size()) {
      name_entries(value);
    }
  }

  // A list with as many entries as there are outputs has one for each, as in Keras, or a list for
  // each; one of another length is for all outputs.
  void name_metrics(ConfigValue& value, const char* key) {
    if (!value.is_list()) {
      return;
    }
    const bool has_lists = has_entry(value, &ConfigValue::is_list);
    if (has_lists ? fits_outputs(value, key)
                  : outputs_.size() > 1 && value.list().size() == outputs_.size()) {
      name_entries(value);
    } else if (has_lists) {
      value.data = ConfigValue::List{};
    } else {
      std::erase_if(std::get<ConfigValue::List>(value.data),
                    [](const ConfigValue& entry) { return entry.is_null(); });
    }
  }

  std::vector<std::pair<std::string, Located<double>>> weights(const ConfigValue& value) {
    std::vector<std::pair<std::string, Located<double>>> out;
    const auto add = [&](const std::string& name, const ConfigValue& entry) {
      out.emplace_back(name, located<double>(entry, entry.number()));
    };
    if (value.is_number() && !outputs_.empty()) {
      if (outputs_.size() > 1) {
        diagnostics_.error(
            "E113", value.loc,
            fmt::format("`loss_weights` is one number for {} outputs", outputs_.size()));
      }
      add(outputs_[0], value);
    } else if (value.is_list() && fits_outputs(value, "loss_weights")) {
      for (size_t i = 0; i < value.list().size(); ++i) {
        add(outputs_[i], value.list()[i]);
      }
    } else if (value.is_dict()) {
      for (const auto& [name, entry] : value.dict()) {
        if (is_output(name, entry.loc)) {
          add(name, entry);
        }
      }
    }
    return out;
  }

  void optimizer(const ConfigObject& object) {
    for (const OptimizerMember& member : optimizer_members(object)) {
      rule(*member.config);
    }
  }

 private:
  void rule(const ConfigObject& object) {
    std::vector<std::string> given;
    for (const char* name : {"clipnorm", "clipvalue", "global_clipnorm"}) {
      if (object.has(name)) {
        given.emplace_back(name);
      }
    }
    if (given.size() > 1) {
      diagnostics_.error("E113", object.loc_of(given[1]),
                         fmt::format("`{}` and `{}` exclude each other", given[0], given[1]));
    }
    if (!object.has("learning_rate")) {
      return;
    }
    const ConfigValue& rate = object.arg("learning_rate");
    if (rate.is_object() && rate.object().class_name == "PiecewiseConstantDecay") {
      piecewise(rate.object());
    }
  }

  void piecewise(const ConfigObject& schedule) {
    const ConfigValue& boundaries = schedule.arg("boundaries");
    const ConfigValue& values = schedule.arg("values");
    const size_t count = boundaries.is_list() ? boundaries.list().size() : 1;
    const size_t num_values = values.is_list() ? values.list().size() : 1;
    if (num_values != count + 1) {
      diagnostics_.error("E113", values.loc,
                         fmt::format("`values` has {} entries for {} boundaries; it needs {}",
                                     num_values, count, count + 1));
    }
    if (boundaries.is_list()) {
      const std::vector<int64_t> steps = boundaries.integers();
      if (!std::is_sorted(steps.begin(), steps.end())) {
        diagnostics_.error("E113", boundaries.loc, "`boundaries` must increase");
      }
    }
  }

  static bool has_entry(const ConfigValue& list, bool (ConfigValue::*is_such)() const) {
    return std::any_of(list.list().begin(), list.list().end(),
                       [&](const ConfigValue& entry) { return (entry.*is_such)(); });
  }

  // Puts the names of the outputs in front of the entries, in the tree too; null ones go.
  void name_entries(ConfigValue& value) {
    ConfigValue::Dict named;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      ConfigValue& entry = std::get<ConfigValue::List>(value.data)[i];
      if (!entry.is_null()) {
        named.emplace_back(outputs_[i], std::move(entry));
      }
    }
    value.data = std::move(named);
  }

  bool fits_outputs(const ConfigValue& list, const char* key) {
    if (outputs_.empty() || list.list().size() == outputs_.size()) {
      return !outputs_.empty();
    }
    diagnostics_
        .error("E113", list.loc,
               fmt::format("`{}` has {} entries for {} {}", key, list.list().size(),
                           outputs_.size(), outputs_.size() == 1 ? "output" : "outputs"))
        .help(fmt::format("one for each of: {}", join(outputs_, ", ")));
    return false;
  }

  bool is_output(const std::string& name, const SourceLoc& loc) {
    if (outputs_.empty() || std::find(outputs_.begin(), outputs_.end(), name) != outputs_.end()) {
      return true;
    }
    Diagnostic& d =
        diagnostics_.error("E121", loc, fmt::format("`{}` is no output of the model", name));
    suggest(d, name, outputs_);
    d.notes.push_back(fmt::format("outputs: {}", join(outputs_, ", ")));
    return false;
  }

  Diagnostics& diagnostics_;
  std::vector<std::string> outputs_;
};

}  // namespace

void bind_compile(ConfigValue& tree, const ModelConfig& model, CompileConfig& out,
                  Diagnostics& diagnostics) {
  CompileBinder binder(model, diagnostics);
  const ConfigValue& optimizer = tree.field("optimizer");
  if (optimizer.is_object()) {
    out.optimizer = optimizer.object();
    binder.optimizer(out.optimizer);
  }
  binder.name_losses(tree.field("loss"));
  out.loss = binder.losses(tree.field("loss"));
  for (const auto& [key, metrics] :
       {std::pair{"metrics", &out.metrics}, std::pair{"weighted_metrics", &out.weighted_metrics}}) {
    ConfigValue& value = tree.field(key);
    binder.name_metrics(value, key);
    *metrics = binder.metrics(value);
  }
  out.loss_weights = binder.weights(tree.field("loss_weights"));
}

}  // namespace meshtrain
