#include "help.h"

#include <fmt/format.h>

#include "base/columns.h"
#include "base/environment_names.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr const char* kFooter = R"(
Exit codes:
  0 finished          1 unexpected failure        2 bad command line or config
  3 bad data          4 mesh or memory            5 diverged (NaN or infinity in the loss)
  6 bad weights       7 a check failed            8 another rank or host was lost
  74 could not write  75 stopped, resumable       130, 143 interrupted, terminated
Environment:
{}`meshtrain SUBCOMMAND --help` lists the flags of a subcommand.)";

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    std::string text = CLI::Formatter::make_help(app, std::move(name), mode);
    for (size_t at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n")) {
      text.erase(at, 1);
    }
    return text;
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) {
      const bool is_list = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
      return option->get_name(true, false) + (is_list ? "..." : "");
    }
    return join(all_names(*option), ", ");
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    const bool is_flag = option->get_type_size() == 0;
    const std::string text = !option->get_option_text().empty()    ? option->get_option_text()
                             : is_flag || option->get_positional() ? ""
                                                                   : option->get_type_name();
    return text.empty() || starts_with(text, "[=") ? text : " " + text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string out = option->get_description();
    if (!option->get_default_str().empty()) {
      out += "; default " + option->get_default_str();
    }
    return out + (option->get_required() && !option->get_positional() ? " (required)" : "");
  }

  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = make_option_name(option, true);
    return (option->get_required() ? name : "[" + name + "]") + make_option_opts(option);
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  return std::make_shared<HelpFormatter>();
}

std::string help_footer() {
  std::vector<std::vector<std::string>> rows;
  for (const EnvironmentName& entry : environment_names()) {
    if (entry.reader == EnvironmentName::Reader::kUser) {
      rows.push_back({"  " + std::string(entry.name), std::string(entry.text)});
    }
  }
  return fmt::format(kFooter, aligned_columns(rows));
}

std::vector<std::string> all_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
  }
  return *chosen;
}

std::string full_name(const CLI::App& chosen) {
  return (chosen.get_parent() == nullptr ? "" : full_name(*chosen.get_parent()) + " ") +
         chosen.get_name();
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* chosen : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!chosen->get_group().empty()) {
      names.push_back(chosen->get_name());
    }
  }
  return names;
}

}  // namespace meshtrain
