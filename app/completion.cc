#include "completion.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "config/complete.h"
#include "config/explain.h"
#include "config/merge.h"
#include "config/run_files.h"
#include "help.h"
#include "templates.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// A command line up to the word that is completed.
struct Line {
  const CLI::App* app = nullptr;           // the subcommand
  const CLI::Option* open_flag = nullptr;  // a flag whose value comes next
  Words positionals;
};

const CLI::App* subcommand_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (each->get_name() == name) {
      return each;
    }
  }
  return nullptr;
}

const CLI::Option* flag_of(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  for (const CLI::Option* option : app.get_options()) {
    const Words names = all_names(*option);
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return option;
    }
  }
  return nullptr;
}

bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-';
}

Line read_line(const CLI::App& app, const Words& words) {
  Line line{&app, nullptr, {}};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (line.open_flag != nullptr) {
      line.open_flag = nullptr;
    } else if (is_flag(word)) {
      const CLI::Option* flag = flag_of(*line.app, word);
      const bool has_value = word.find('=') != std::string::npos;
      line.open_flag =
          flag != nullptr && !has_value && flag->get_expected_min() > 0 ? flag : nullptr;
    } else if (const CLI::App* inner = subcommand_of(*line.app, word);
               inner != nullptr && line.positionals.empty()) {
      line.app = inner;
    } else {
      line.positionals.push_back(word);
    }
  }
  return line;
}

// "text|json" of a flag's type; nothing where a part of it is more than a word.
Words words_of_type(const std::string& type) {
  Words parts = split(type, '|');
  const bool are_words =
      parts.size() > 1 && std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
        return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || c == '-';
        });
      });
  return are_words ? parts : Words();
}

// The config that a positional names: a file, or that of a run.
std::optional<YamlNode> config_of(const Words& positionals) {
  for (const std::string& word : positionals) {
    std::error_code ignored;
    const fs::path path =
        fs::is_directory(word, ignored) ? fs::path(word) / run_files::kConfig : fs::path(word);
    if (word.find('=') == std::string::npos && fs::is_regular_file(path, ignored)) {
      Diagnostics diagnostics;
      YamlNode root = load_file(path, diagnostics);
      return diagnostics.has_errors() ? std::nullopt : std::optional(std::move(root));
    }
  }
  return std::nullopt;
}

// runs/NAME: the names of runs in the folder of runs.
Words run_names() {
  Words out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("runs", error)) {
    if (entry.is_directory(error)) {
      out.push_back("runs/" + entry.path().filename().string());
    }
  }
  return out;
}

Words profiles_of(const Line& line) {
  const std::optional<YamlNode> config = config_of(line.positionals);
  const YamlNode* profiles = config ? config->find("profiles") : nullptr;
  Words out;
  for (size_t i = 0; profiles != nullptr && i < profiles->children.size(); ++i) {
    out.push_back(profiles->children[i].key);
  }
  return out;
}

Words values_of(const CLI::Option& flag, const Line& line) {
  return flag.check_lname("profile") ? profiles_of(line) : words_of_type(flag.get_type_name());
}

Words template_names() {
  Words out;
  for (const Template& each : templates()) {
    out.emplace_back(each.name);
  }
  return out;
}

// What stands without a flag: overrides after a config or a run, and names.
Words positionals_of(const Line& line, const std::string& word) {
  for (const CLI::Option* option : line.app->get_options()) {
    if (!option->get_positional()) {
      continue;
    }
    const std::string name = option->get_name(true, false) + option->get_option_text();
    if (name.find("KEY=VALUE") != std::string::npos) {
      if (const std::optional<YamlNode> config = config_of(line.positionals)) {
        return complete_override(word, &*config);
      }
    }
    const bool is_run = name.find("RUN") != std::string::npos;
    if (is_run && (line.positionals.empty() || option->get_expected_max() > 1)) {
      return run_names();
    }
    if (line.positionals.empty()) {
      return line.app->get_name() == "explain" ? explained_words()
             : line.app->get_name() == "init"  ? template_names()
                                               : words_of_type(option->get_type_name());
    }
  }
  return {};
}

}  // namespace

Words completions(const CLI::App& app, const Words& words) {
  const std::string word = words.empty() ? "" : words.back();
  const Line line = read_line(app, words);
  const size_t equals = word.find('=');
  Words all;
  std::string before;
  if (line.open_flag != nullptr) {
    all = values_of(*line.open_flag, line);
  } else if (is_flag(word) && equals != std::string::npos) {
    const CLI::Option* flag = flag_of(*line.app, word);
    all = flag == nullptr ? Words() : values_of(*flag, line);
    before = word.substr(0, equals + 1);
  } else if (starts_with(word, "-")) {
    all = option_names(*line.app);
  } else if (!subcommand_names(*line.app).empty()) {
    all = line.positionals.empty() ? subcommand_names(*line.app) : Words();
  } else {
    all = positionals_of(line, word);
  }
  Words out;
  for (const std::string& each : all) {
    if (starts_with(before + each, word)) {
      out.push_back(before + each);
    }
  }
  return out;
}

}  // namespace meshtrain
