// meshtrain explain: what a code of a message, a key of the config or a class of Keras means here.
#include "config/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/columns.h"
#include "base/environment_names.h"
#include "base/error_codes.h"
#include "base/printable.h"
#include "base/text.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct ExplainOptions {
  std::string word;
  bool markdown = false;
};

std::string code_text(const ErrorCode& entry) {
  if (starts_with(entry.code, "W")) {
    return fmt::format("{}: {} (a warning)\n\n{}\n", entry.code, entry.title, entry.text);
  }
  const ConfigError sample(std::string(entry.code), {}, "");
  return fmt::format("{}: {} (exit code {})\n\n{}\n", entry.code, entry.title,
                     static_cast<int>(sample.exit_code()), entry.text);
}

std::string in_capitals(std::string word) {
  std::transform(word.begin(), word.end(), word.begin(), ::toupper);
  return word;
}

std::string environment_text(const std::string& word, const EnvironmentName& entry) {
  using Reader = EnvironmentName::Reader;
  const char* reader = entry.reader == Reader::kUser        ? "a variable of the environment"
                       : entry.reader == Reader::kDeveloper ? "for developers"
                       : entry.reader == Reader::kProgram   ? "set by this program itself"
                                                            : "of the project's tests";
  return fmt::format("{}: {} ({})\n", word, entry.text, reader);
}

std::string all_codes() {
  std::vector<std::vector<std::string>> rows;
  for (const ErrorCode& entry : error_codes()) {
    rows.push_back({std::string(entry.code), std::string(entry.title)});
  }
  return aligned_columns(rows) +
         "\n`meshtrain explain WORD` takes one of these, a key of the config (fit.batch_size), a "
         "class\n(Dense), an argument of one (Dense.units) or a variable of the environment "
         "(MESHTRAIN_DATA).\n";
}

int run_explain(const ExplainOptions& options, Invocation&) {
  const std::string& word = options.word;
  if (options.markdown) {
    out_stream().write(explain_markdown());
    return 0;
  }
  if (word.empty()) {
    out_stream().write(all_codes());
    return 0;
  }
  if (const ErrorCode* code = find_error_code(in_capitals(word))) {
    out_stream().write(code_text(*code));
    return 0;
  }
  if (const EnvironmentName* name = find_environment_name(word)) {
    out_stream().write(environment_text(word, *name));
    return 0;
  }
  if (const auto text = explain_word(word)) {
    out_stream().write(*text);
    return 0;
  }
  ConfigError error("E140", {},
                    fmt::format("`{}` is no code, no key and no class", printable(word)));
  std::vector<std::string> words = explained_words();
  for (const EnvironmentName& name : environment_names()) {
    words.emplace_back(name.name);
  }
  if (const auto nearest = nearest_name(word, words)) {
    error.help(fmt::format("did you mean `{}`?", *nearest));
  }
  error.note("`meshtrain explain` lists the codes, `meshtrain schema` the keys");
  throw error;
}

}  // namespace

void add_explain(Subcommands& to) {
  auto [app, options, subcommand] = to.add<ExplainOptions>(
      "explain", "What the code of a message, a key or a class means", run_explain);
  app.add_option("WORD", options.word,
                 "E204, fit.batch_size, Dense, Dense.units, MESHTRAIN_DATA; none: all codes");
  app.add_flag("--markdown", options.markdown, "Every key and class of a config, as Markdown");
  add_color_flag(app);
}

}  // namespace meshtrain
