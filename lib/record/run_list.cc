#include "record/run_list.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/durable_file.h"
#include "base/json.h"
#include "config/run_files.h"
#include "record/run_dir.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostNotes = uint64_t{1} << 20;
constexpr uint64_t kMostMeta = uint64_t{16} << 20;

std::string notes_path(const std::string& run) {
  return run + "/" + run_files::kNotes;
}

// Throws E455 while a process has the lock of the run.
void check_unused(const std::string& run) {
  if (!is_run_dir(run)) {
    throw ConfigError("E400", {}, fmt::format("`{}` is no run", run));
  }
  if (run_use(run) == RunUse::kUsed) {
    throw ConfigError("E455", {}, fmt::format("`{}` is in use by another process", run));
  }
}

void remove_or_throw(const std::string& folder) {
  if (const auto problem = remove_folder(folder)) {
    throw RuntimeFailure(ExitCode::kWriteFailed, *problem);
  }
}

// After a run went: `latest` leads to the newest one that is left, or nowhere.
void mend_latest(const fs::path& folder) {
  const fs::path link = folder / "latest";
  std::error_code error;
  if (!fs::is_symlink(link, error) || fs::exists(link, error)) {
    return;
  }
  const std::string newest = newest_run(folder.string());
  newest.empty() ? static_cast<void>(fs::remove(link, error))
                 : replace_link(fs::path(newest).filename().string(), link.string());
}

// "2026-01-05T14:03:22Z": when a run began first.
std::string first_start(const std::string& run) {
  const std::string path = run + "/" + run_files::kMeta;
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    const nlohmann::json meta = parse_json(read_file(path, kMostMeta));
    const bool was_resumed = meta.is_object() && meta.contains("earlier") &&
                             meta["earlier"].is_array() && !meta["earlier"].empty();
    const nlohmann::json& first = was_resumed ? meta["earlier"][0] : meta;
    if (first.is_object() && first.contains("started") && first["started"].is_string()) {
      return first["started"];
    }
  }
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(last_written(run))));
}

}  // namespace

RunNotes read_notes(const std::string& run) {
  RunNotes out;
  std::error_code error;
  if (!fs::is_regular_file(notes_path(run), error)) {
    return out;
  }
  const nlohmann::json json = parse_json(read_file(notes_path(run), kMostNotes));
  if (!json.is_object()) {
    return out;
  }
  if (json.contains("note") && json["note"].is_string()) {
    out.note = json["note"];
  }
  if (json.contains("tags") && json["tags"].is_array()) {
    for (const nlohmann::json& tag : json["tags"]) {
      if (tag.is_string()) {
        out.tags.push_back(tag);
      }
    }
  }
  return out;
}

void write_notes(const std::string& run, const RunNotes& notes) {
  RunNotes sorted = notes;
  std::sort(sorted.tags.begin(), sorted.tags.end());
  sorted.tags.erase(std::unique(sorted.tags.begin(), sorted.tags.end()), sorted.tags.end());
  const nlohmann::ordered_json json = {{"tags", sorted.tags}, {"note", sorted.note}};
  write_file_atomic(notes_path(run),
                    json_text(json, 1, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

RunUse run_use(const std::string& run) {
  const int fd = open((run + "/checkpoints/LOCK").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return RunUse::kUnknown;
  }
  const bool is_used = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return is_used ? RunUse::kUsed : RunUse::kUnused;
}

std::vector<std::string> find_runs(const std::string& folder) {
  constexpr int kDeepest = 6;
  std::vector<std::string> out;
  if (is_run_dir(folder)) {
    return {folder};
  }
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_symlink(error) || !entry->is_directory(error)) {
      continue;
    }
    if (is_run_dir(entry->path().string())) {
      out.push_back(entry->path().string());
      entry.disable_recursion_pending();
    } else if (entry.depth() >= kDeepest) {
      entry.disable_recursion_pending();
    }
  }
  sort_oldest_first(out);
  std::stable_sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return fs::path(a).parent_path() < fs::path(b).parent_path();
  });
  return out;
}

void sort_oldest_first(std::vector<std::string>& runs) {
  std::vector<std::pair<std::string, std::string>> by_start;
  for (std::string& run : runs) {
    std::string start = first_start(run);
    by_start.emplace_back(std::move(start), std::move(run));
  }
  std::sort(by_start.begin(), by_start.end());
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i] = std::move(by_start[i].second);
  }
}

std::string newest_run(const std::string& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(fs::path(folder) / "latest", error);
  if (const std::string linked = (fs::path(folder) / target).string();
      !error && is_run_dir(linked)) {
    return linked;
  }
  std::vector<std::string> runs;
  for (const std::string& name : folder_names(folder)) {
    const std::string run = (fs::path(folder) / name).string();
    if (name != "latest" && is_real_folder(run) && is_run_dir(run)) {
      runs.push_back(run);
    }
  }
  sort_oldest_first(runs);
  return runs.empty() ? "" : runs.back();
}

bool has_weights(const std::string& run) {
  std::error_code error;
  return fs::is_regular_file(run + "/" + run_files::kWeights, error);
}

int64_t run_bytes(const std::string& run) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(run, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    if (entry->is_regular_file(gone) && !entry->is_symlink(gone)) {
      const uintmax_t size = entry->file_size(gone);
      bytes += gone ? 0 : static_cast<int64_t>(size);
    }
  }
  return bytes;
}

int64_t last_written(const std::string& run) {
  struct stat status = {};
  return stat((run + "/" + run_files::kMetrics).c_str(), &status) == 0 ? status.st_mtime : 0;
}

void remove_run(const std::string& run) {
  check_unused(run);
  const fs::path path = fs::absolute(run).lexically_normal();
  const fs::path folder =
      path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
  const fs::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
  const std::string deleting = (folder / fmt::format(".deleting.{}", name.string())).string();
  remove_folder(deleting);  // of a removal that a crash ended
  rename_to_new((folder / name).string(), deleting);
  remove_or_throw(deleting);
  mend_latest(folder);
}

int64_t remove_checkpoints(const std::string& run) {
  check_unused(run);
  std::error_code error;
  if (!has_weights(run)) {
    throw ConfigError(
        "E400", {}, fmt::format("`{}` has no final weights: its checkpoints are all it has", run));
  }
  const std::string folder = run + "/" + run_files::kCheckpoints;
  const int64_t before = run_bytes(folder);
  for (const std::string& name : folder_names(folder)) {
    const std::string path = folder + "/" + name;
    if (is_real_folder(path)) {
      remove_or_throw(path);
    } else if (name != "LOCK") {
      fs::remove(path, error);
    }
  }
  return before - run_bytes(folder);
}

}  // namespace meshtrain
