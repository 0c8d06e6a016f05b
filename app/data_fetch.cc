// meshtrain data fetch: the data sets with a name.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/text.h"
#include "cli.h"
#include "data/fetch.h"
#include "data/named_sets.h"
#include "engine/signals.h"

namespace meshtrain {
namespace {

// "mnist.npz   5.2 MiB of 11 MiB, 48%, 2.1 MiB/s", over itself, on a terminal.
class ProgressLine {
 public:
  ProgressLine(const SetFile& file, bool is_quiet)
      : file_(file), is_shown_(!is_quiet && err_stream().is_terminal()) {}
  ~ProgressLine() {
    if (is_drawn_) {
      err_stream().write("\r\x1b[K");
    }
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(uint64_t bytes) {
    const double now = seconds_now();
    if (!is_shown_ || now < drawn_ + 0.1) {
      return;
    }
    if (!is_drawn_) {
      first_bytes_ = bytes;
      first_ = now;
    }
    const auto rate = static_cast<int64_t>(static_cast<double>(bytes - first_bytes_) /
                                           std::max(now - first_, 0.1));
    err_stream().write(fmt::format("\r\x1b[K{}   {} of {}, {}%, {}/s", file_.path,
                                   format_bytes(static_cast<int64_t>(bytes)),
                                   format_bytes(static_cast<int64_t>(file_.num_bytes)),
                                   bytes * 100 / file_.num_bytes, format_bytes(rate)));
    drawn_ = now;
    is_drawn_ = true;
  }

 private:
  const SetFile& file_;
  bool is_shown_, is_drawn_ = false;
  double drawn_ = 0, first_ = 0;
  uint64_t first_bytes_ = 0;
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
                       const FetchArguments& fetching, bool is_quiet) {
  Download download{file.url, folder + "/" + file.path, file.num_bytes, file.sha256};
  if (!fetching.mirror.empty()) {
    download.url = fetching.mirror + (fetching.mirror.ends_with('/') ? "" : "/") + file.path;
  }
  std::error_code error;
  if ((fetching.offline || std::getenv("MESHTRAIN_OFFLINE") != nullptr) &&
      !std::filesystem::exists(download.path, error)) {
    throw ConfigError("E325", {},
                      fmt::format("`{}` is not there, and no network may be used", download.path));
  }
  ProgressLine line(file, is_quiet);
  FetchOptions options;
  options.timeout_seconds = fetching.timeout;
  options.on_progress = [&](uint64_t bytes) {
    line.update(bytes);
    return stop_signal() != 0;
  };
  switch (fetch(download, options)) {
    case Fetched::kWasThere:
      return fmt::format("{}: is there, SHA-256 verified\n", download.path);
    case Fetched::kDownloaded:
      return fmt::format("{}: {} bytes, SHA-256 verified\n", download.path,
                         format_thousands(static_cast<int64_t>(file.num_bytes)));
    default:
      throw StopRequested(
          stop_signal() == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated,
          fmt::format("stopped; the next `meshtrain data fetch` goes on with {}.part",
                      download.path));
  }
}

}  // namespace

int run_data_fetch(const Arguments& arguments, bool& started) {
  const FetchArguments& fetching = arguments.fetch;
  const std::vector<const NamedSet*> sets = chosen_sets(fetching.sets);
  const std::string folder = fetching.folder.empty() ? datasets_folder() : fetching.folder;
  started = true;
  catch_stop_signals();
  Diagnostics problems;
  for (const NamedSet* set : sets) {
    try {
      for (const SetFile& file : set->files) {
        out_stream().write(fetch_file(file, folder, fetching, arguments.quiet));
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

}  // namespace meshtrain
