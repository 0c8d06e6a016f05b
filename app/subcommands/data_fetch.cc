// meshtrain data fetch: the data sets with a name.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/host.h"
#include "base/text.h"
#include "data/fetch.h"
#include "data/named_sets.h"
#include "engine/signals.h"
#include "output.h"
#include "record/download_line.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct DataFetchOptions {
  std::vector<std::string> sets;
  std::string folder, mirror;
  double timeout = 30;
  bool offline = false, quiet = false;
};

// The sets named, each once; E140 for a name that is none.
std::vector<const NamedSet*> chosen_sets(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const NamedSet& set : named_sets()) {
    known.emplace_back(set.name);
  }
  std::vector<const NamedSet*> sets;
  Diagnostics problems;
  for (const std::string& name : names) {
    if (const NamedSet* set = find_named_set(name)) {
      sets.push_back(set);
      continue;
    }
    const auto nearest = nearest_name(name, known);
    problems.error("E140", {}, fmt::format("no data set `{}`", name))
        .help(nearest ? fmt::format("did you mean `{}`?", *nearest)
                      : "data sets: " + join(known, ", "));
  }
  problems.throw_if_errors();
  return sets;
}

std::string fetch_file(const SetFile& file, const std::string& folder,
                       const DataFetchOptions& options) {
  Download download{file.url, folder + "/" + file.path, file.num_bytes, file.sha256};
  if (!options.mirror.empty()) {
    download.url = options.mirror + (options.mirror.ends_with('/') ? "" : "/") + file.path;
  }
  std::error_code error;
  if ((options.offline || std::getenv("MESHTRAIN_OFFLINE") != nullptr) &&
      !std::filesystem::exists(download.path, error)) {
    throw ConfigError("E325", {},
                      fmt::format("`{}` is not there, and no network may be used", download.path));
  }
  std::optional<DownloadLine> line;
  if (!options.quiet && err_stream().is_terminal()) {
    line.emplace(file.path, file.num_bytes, steady_seconds, show_unless(false));
  }
  FetchOptions fetching;
  fetching.timeout_seconds = options.timeout;
  fetching.on_progress = [&](uint64_t bytes) {
    if (line) {
      line->update(bytes);
    }
    return stop_signal() != 0;
  };
  switch (fetch(download, fetching)) {
    case Fetched::kWasThere:
      return fmt::format("{}: is there, SHA-256 verified\n", download.path);
    case Fetched::kDownloaded:
      return fmt::format("{}: {} bytes, SHA-256 verified\n", download.path,
                         format_thousands(static_cast<int64_t>(file.num_bytes)));
    default:
      throw StopRequested(
          stop_signal() == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated,
          fmt::format("stopped; the next `meshtrain data fetch` continues {}.part", download.path));
  }
}

int run_data_fetch(const DataFetchOptions& options, Invocation& invocation) {
  const std::vector<const NamedSet*> sets = chosen_sets(options.sets);
  const std::string folder = options.folder.empty() ? datasets_folder() : options.folder;
  invocation.started = true;
  catch_stop_signals();
  Diagnostics problems;
  for (const NamedSet* set : sets) {
    try {
      for (const SetFile& file : set->files) {
        out_stream().write(fetch_file(file, folder, options));
      }
    } catch (const ConfigError& error) {
      const Diagnostic& failed = error.diagnostics().list().front();
      Diagnostic& problem = problems.error(failed.code, {}, failed.message);
      if (failed.code == "E325") {
        for (const std::string& step : manual_steps(*set, folder)) {
          problem.note("or by hand: " + step);
        }
      }
    }
  }
  problems.throw_if_errors();
  return 0;
}

}  // namespace

void add_data_fetch(Subcommands& to) {
  auto [app, options, subcommand] = to.add<DataFetchOptions>(
      "data fetch", "Download the files of mnist, fashion_mnist, cifar10 or cifar100",
      run_data_fetch);
  app.add_option("SET", options.sets, "Data sets by name")->required();
  app.add_option("--dir", options.folder,
                 "Where they go; default $MESHTRAIN_CACHE/datasets or "
                 "~/.cache/meshtrain/datasets. A config finds them there or in its data.dir")
      ->type_name("DIR");
  app.add_option("--mirror", options.mirror,
                 "Take them from here instead, named as they are in DIR")
      ->type_name("URL");
  app.add_option("--timeout", options.timeout,
                 "Seconds to wait for a connection, and for each byte; default 30")
      ->type_name("SECONDS")
      ->check(number_between(1, 1e6));
  app.add_flag("--offline", options.offline,
               "Use no network: check what is there, say where the rest comes from");
  add_quiet_flag(app, options.quiet, "No progress");
  add_color_flag(app);
}

}  // namespace meshtrain
