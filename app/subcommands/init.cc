// meshtrain init: a commented config to start from.
#include <fmt/format.h>

#include <filesystem>

#include "applications.h"
#include "base/columns.h"
#include "base/host.h"
#include "base/text.h"
#include "data/draft_config.h"
#include "output.h"
#include "subcommand.h"
#include "templates.h"

namespace meshtrain {
namespace {

struct InitOptions {
  std::string name, from, label;
};

// The first sentence of the comment that a template begins with.
std::string first_sentence(std::string_view text) {
  std::vector<std::string> words;
  for (const std::string& line : split(text, '\n')) {
    if (!starts_with(line, "#")) {
      break;
    }
    for (const std::string& word : split(trim(line.substr(1)), ' ')) {
      words.push_back(word);
      if (ends_with(word, ".")) {
        return join(words, " ");
      }
    }
  }
  return join(words, " ");
}

std::string list_templates() {
  std::vector<std::vector<std::string>> rows;
  for (const Template& entry : templates()) {
    rows.push_back({std::string(entry.name), first_sentence(entry.text)});
  }
  for (const std::string& name : application_names()) {
    rows.push_back({name, first_sentence(*application_config(name))});
  }
  return aligned_columns(rows);
}

// The data that templates name stand beside the configs they are made from, in the sources and in a
// package: where they are found, their place is written, so that the config trains from anywhere.
std::string with_data(std::string text) {
  namespace fs = std::filesystem;
  constexpr std::string_view kBeside = "../datasets/";
  if (text.find(kBeside) == std::string::npos) {
    return text;
  }
  std::error_code error;
  fs::path folder = fs::path(program_path()).parent_path();
  while (!fs::exists(folder / "datasets/tales.txt", error) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  const std::string found = (folder / "datasets/").string();
  if (!fs::exists(found + "tales.txt", error)) {
    err_stream().write("warning: its data, meshtrain's datasets/, are not beside this program\n");
    return text;
  }
  for (size_t at = 0; (at = text.find(kBeside, at)) != std::string::npos; at += found.size()) {
    text.replace(at, kBeside.size(), found);
  }
  return text;
}

int run_init(const InitOptions& options, Invocation&) {
  if (!options.from.empty()) {
    out_stream().write(draft_config(options.from, options.label));
    return 0;
  }
  if (options.name.empty()) {
    out_stream().write(list_templates());
    return 0;
  }
  std::vector<std::string> names;
  for (const Template& entry : templates()) {
    if (entry.name == options.name) {
      out_stream().write(with_data(std::string(entry.text)));
      return 0;
    }
    names.emplace_back(entry.name);
  }
  if (const auto network = application_config(options.name)) {
    out_stream().write(*network);
    return 0;
  }
  for (std::string& name : application_names()) {
    names.push_back(std::move(name));
  }
  ConfigError error("E140", {}, fmt::format("no template `{}`", options.name));
  if (const auto nearest = nearest_name(options.name, names)) {
    error.help(fmt::format("did you mean `{}`?", *nearest));
  }
  error.note("`meshtrain init` lists the templates");
  throw error;
}

}  // namespace

void add_init(Subcommands& to) {
  auto [app, options, subcommand] =
      to.add<InitOptions>("init",
                          "Print a commented config to start from, a template or one made from "
                          "data; without either, list "
                          "the templates",
                          run_init);
  CLI::Option* const name = app.add_option("TEMPLATE", options.name, "Name of the template");
  CLI::Option* const from =
      app.add_option(
             "--from", options.from,
             "Writes a config from data: a table, a text, an .npz, HDF5 or IDX file, a folder of "
             "images or texts with one folder per class, or of images with masks")
          ->type_name("FILE|FOLDER")
          ->excludes(name);
  app.add_option("--label", options.label, "The column or array to predict, with --from")
      ->type_name("NAME")
      ->needs(from);
}

}  // namespace meshtrain
