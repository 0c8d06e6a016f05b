// show_config: the whole config as YAML, defaults included, each line with the origin of its value.
#include <algorithm>

#include "base/text.h"
#include "config/catalogue.h"
#include "config/flow.h"
#include "config/load.h"
#include "config/path.h"
#include "config/resolve.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

// "mlp.yaml:12", "--mesh", "command line", "environment HOME at mlp.yaml:3", "default"
std::string origin(const ConfigValue& value) {
  if (value.is_default || !value.loc) {
    return "default";
  }
  const SourceFile& file = *value.loc.file;
  const std::string_view line = file.line(value.loc.line);
  if (file.name == "command line") {
    return starts_with(line, "--") ? std::string(line.substr(0, line.find_first_of(" =")))
                                   : fmt::format("command line: {}", line.substr(0, 60));
  }
  if (const std::string_view noted = noted_origin(file, value.loc.line); !noted.empty()) {
    return std::string(noted);
  }
  const std::string place = fmt::format("{}:{}", file.name, value.loc.line);
  const size_t begin =
      std::min(static_cast<size_t>(std::max(0, value.loc.column - 1)), line.size());
  std::string_view written = line.substr(begin, static_cast<size_t>(value.loc.length));
  if (!written.empty() && (written[0] == '"' || written[0] == '\'')) {
    written.remove_prefix(1);
    written.remove_suffix(!written.empty() ? 1 : 0);
  }
  const size_t reference = written.find("${env:");
  if (reference != std::string_view::npos) {
    const std::string_view name = written.substr(reference + 6);
    return fmt::format("environment {} at {}", name.substr(0, name.find_first_of(",}")), place);
  }
  if (starts_with(written, "=") || written.find("${") != std::string_view::npos) {
    return fmt::format("{} ({})", place, written);
  }
  return place;
}

enum class Show { kAll, kOrigins, kMinimal };

class Printer {
 public:
  explicit Printer(Show show) : show_(show) {}

  // `section`: whose keys they are, null where their defaults are not known.
  void dict(const ConfigValue& value, int indent, const Section* section = nullptr) {
    for (const auto& [key, entry] : value.dict()) {
      const Spec* const spec = section == nullptr ? nullptr : section->find(key);
      if (!is_left_out(entry, spec)) {
        named(yaml_key(key), entry, indent, spec);
      }
    }
  }

  std::string text() const {
    std::string out;
    size_t width = 0;
    for (const auto& [line, note] : lines_) {
      width = std::max(width, line.size());
    }
    width = std::min<size_t>(width, 60);
    for (const auto& [line, note] : lines_) {
      out += line;
      if (show_ == Show::kOrigins && !note.empty()) {
        out += std::string(line.size() < width ? width - line.size() : 0, ' ') + "  # " + note;
      }
      out += '\n';
    }
    return out;
  }

 private:
  static bool is_object_list(const ConfigValue& value) {
    return value.is_list() && !value.list().empty() && value.list()[0].is_object();
  }

  void add(int indent, std::string text, std::string note) {
    lines_.emplace_back(std::string(static_cast<size_t>(indent), ' ') + std::move(text),
                        std::move(note));
  }

  // Whether nothing is lost without the value: it is the default, or written as it.
  bool is_left_out(const ConfigValue& value, const Spec* spec) const {
    if (show_ != Show::kMinimal) {
      return false;
    }
    return says_default(value, spec) && (value.is_default || !null_is_value(spec));
  }

  void named(const std::string& key, const ConfigValue& value, int indent, const Spec* spec) {
    if (value.is_dict() && !value.dict().empty()) {
      add(indent, key + ":", "");
      const size_t before = lines_.size();
      dict(value, indent + 2, spec == nullptr ? nullptr : spec->section);
      if (lines_.size() == before) {
        lines_.pop_back();  // a section of defaults
      }
    } else if (value.is_object() && !value.object().args.empty()) {
      add(indent, key + ":", "");
      const size_t before = lines_.size();
      object(value, "", indent + 2);
      if (lines_.size() == before + 1) {  // the class alone
        lines_[before - 1].first += " " + std::string(trim(lines_[before].first));
        lines_.pop_back();
      }
    } else if (is_object_list(value)) {
      add(indent, key + ":", "");
      for (const ConfigValue& entry : value.list()) {
        object(entry, "- ", indent + 2);
      }
    } else {
      add(indent, fmt::format("{}: {}", key, yaml_flow(value)), origin(value));
    }
  }

  // Class and arguments, in the order of the class.
  void object(const ConfigValue& value, const std::string& prefix, int indent) {
    const ConfigObject& object = value.object();
    // Aliases such as `mse` are the names in the logs, so they are kept.
    add(indent,
        fmt::format("{}{}{}", prefix, yaml_key(object.spelled), object.args.empty() ? "" : ":"),
        origin(value));
    const size_t head = lines_.size() - 1;
    const int inner = indent + static_cast<int>(prefix.size()) + 2;
    for (const Spec* const spec : order_of(object)) {
      const ConfigValue& arg = object.arg(spec->name);
      if (is_left_out(arg, spec)) {
        continue;
      }
      if (arg.is_object() && has_given_arguments(arg.object())) {
        add(inner, spec->name + ":", "");
        this->object(arg, "", inner + 2);
      } else {
        add(inner, fmt::format("{}: {}", spec->name, yaml_argument(spec->name, arg)), origin(arg));
      }
    }
    if (lines_.size() == head + 1 && ends_with(lines_[head].first, ":")) {
      lines_[head].first.pop_back();  // the class alone
    }
  }

  static std::vector<const Spec*> order_of(const ConfigObject& object) {
    std::vector<const Spec*> args;
    if (const ClassSpec* const spec = spec_of(object)) {
      for (const Spec& arg : spec->args) {
        if (arg.kind != ValueKind::kUnsupported) {
          args.push_back(&arg);
        }
      }
    }
    return args;
  }

  Show show_;
  std::vector<std::pair<std::string, std::string>> lines_;
};

std::string shown(const LoadOptions& options, Show show) {
  const ResolvedConfig resolved = resolve_config(options);
  ConfigValue tree = resolved.tree;
  // They have done their work.
  std::erase_if(std::get<ConfigValue::Dict>(tree.data),
                [](const auto& entry) { return entry.first == "vars" || entry.first == "blocks"; });
  Printer printer(show);
  printer.dict(tree, 0, &root_section());
  return printer.text();
}

}  // namespace

std::string show_config(const LoadOptions& options, bool with_origin) {
  return shown(options, with_origin ? Show::kOrigins : Show::kAll);
}

std::string minimal_config(const LoadOptions& options) {
  return shown(options, Show::kMinimal);
}

}  // namespace meshtrain
