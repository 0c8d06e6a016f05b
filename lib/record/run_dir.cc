#include "record/run_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "config/run_files.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxMetrics = uint64_t{1} << 34;
constexpr int kMaxAttempts = 100;  // at an unused id; each has 65536 values a second

// What a shell or a pattern would take for something else becomes "_", with a hash of the name: two
// names hardly ever share a folder. Characters beyond ASCII are kept.
std::string file_name_of(std::string_view name) {
  constexpr size_t kLongest = 255, kOfHash = 5;
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x80 || std::isalnum(byte) != 0 || c == '-' || c == '_' ||
                       (c == '.' && !out.empty());
    out += plain ? c : '_';
  }
  if (out.empty() || (out == name && out.size() <= kLongest)) {
    return out.empty() ? "run" : out;
  }
  while (out.size() > kLongest - kOfHash) {
    size_t last = out.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(out[last]) & 0xc0u) == 0x80u) {
      --last;
    }
    out.resize(last);
  }
  return fmt::format("{}_{:04x}", out, hash_text(name) & 0xffffu);
}

Diagnostic cannot_create(const RunDirOptions& options, const std::string& path, int error_number) {
  Diagnostic out{Severity::kError,
                 "E142",
                 fmt::format("cannot create `{}`: {}", path, std::strerror(error_number)),
                 options.dir_loc,
                 {},
                 {}};
  return out.help("another place for results: -o DIR");
}

bool has_only_lock(const std::string& checkpoints) {
  const std::vector<std::string> names = folder_names(checkpoints);
  return names.empty() || (names.size() == 1 && names[0] == "LOCK");
}

// Whether all that is there is what is made before the run says its first word.
bool holds_nothing(const std::string& dir) {
  for (const std::string& name : folder_names(dir)) {
    const fs::path entry = fs::path(dir) / name;
    std::error_code error;
    const bool bare = name == run_files::kCheckpoints ? has_only_lock(entry.string())
                      : name == run_files::kMetrics   ? fs::is_empty(entry, error)
                                                      : false;
    if (!bare) {
      return false;
    }
  }
  return true;
}

// What keeps `dir` from being used, if it exists.
std::optional<Diagnostic> occupied(const RunDirOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(options.dir, error);
  if (!fs::exists(status)) {
    return std::nullopt;
  }
  std::string problem;
  if (!fs::is_directory(status)) {
    problem = "is not a folder";
  } else if (holds_nothing(options.dir)) {
    return std::nullopt;
  } else if (fs::exists(fs::path(options.dir) / run_files::kMetrics, error)) {
    problem = "holds another run";
  } else {
    problem = "is not empty";
  }
  Diagnostic out{Severity::kError, "E141", fmt::format("`{}` {}", options.dir, problem),
                 options.dir_loc,  {},     {}};
  return out.help(problem == "holds another run"
                      ? "--resume to continue it, or another folder"
                      : "another folder, or no -o for a new one under runs/ each time");
}

void point_latest_to(const fs::path& run) {
  try {
    replace_link(run.filename().string(), (run.parent_path() / "latest").string());
  } catch (const FileError&) {
    // `latest` is something of the user's
  }
}

// Makes a folder that did not exist; false when it did.
bool make_folder(const RunDirOptions& options, const std::string& path) {
  if (retrying([&] { return mkdir(path.c_str(), 0777); }) == 0) {
    return true;
  }
  if (errno != EEXIST) {
    throw ConfigError(cannot_create(options, path, errno));
  }
  return false;
}

// Whether a folder can be made in `path`: 0, or errno. Access rights alone do not tell (read-only
// and full disks, quotas, /proc).
int try_folder_in(const fs::path& path) {
  std::string name;
  const char* made = nullptr;
  do {
    name = (path / ".meshtrain-XXXXXX").string();
    made = mkdtemp(name.data());
  } while (made == nullptr && errno == EINTR);
  if (made == nullptr) {
    return errno;
  }
  rmdir(name.c_str());
  return 0;
}

// The nearest folder that exists must take a new one.
int try_below(const std::string& path) {
  fs::path existing = fs::absolute(path).lexically_normal();
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path()) {
    existing = existing.parent_path();
  }
  return try_folder_in(existing);
}

void make_parents(const RunDirOptions& options, const fs::path& path) {
  std::error_code error;
  do {
    fs::create_directories(path, error);
  } while (error == std::errc::interrupted);
  if (std::error_code none; error && !fs::is_directory(path, none)) {
    throw ConfigError(cannot_create(options, path.string(), error.value()));
  }
}

}  // namespace

void check_run_dir(const RunDirOptions& options, Diagnostics& diagnostics) {
  if (options.resume) {
    if (const int error_number = try_folder_in(options.dir); error_number != 0) {
      const Diagnostic problem = cannot_create(options, options.dir, error_number);
      diagnostics.error(problem.code, problem.loc, problem.message).notes = problem.notes;
    }
    return;
  }
  if (!options.dir.empty()) {
    if (const std::optional<Diagnostic> problem = occupied(options)) {
      diagnostics.error(problem->code, problem->loc, problem->message).notes = problem->notes;
      return;
    }
  }
  const std::string wanted = options.dir.empty() ? options.root : options.dir;
  if (const int error_number = try_below(wanted); error_number != 0) {
    const Diagnostic problem = cannot_create(options, wanted, error_number);
    diagnostics.error(problem.code, problem.loc, problem.message).notes = problem.notes;
  }
}

void check_can_make(const std::string& path, const SourceLoc& loc, Diagnostics& diagnostics) {
  if (const int error_number = try_below(path); error_number != 0) {
    diagnostics.error("E142", loc,
                      fmt::format("cannot write to `{}`: {}", path, std::strerror(error_number)));
  }
}

RunDir::RunDir(const RunDirOptions& options, LineLog::OnTrouble on_trouble)
    : on_trouble_(std::move(on_trouble)) {
  if (options.resume) {
    path_ = options.dir;
    return;
  }
  if (options.dir.empty()) {
    const fs::path parent = runs_folder(options);
    make_parents(options, parent);
    for (int attempt = 0;; ++attempt) {
      MESHTRAIN_CHECK(attempt < kMaxAttempts, "no unused folder name in `{}`", parent.string());
      path_ =
          (parent / (options.new_folder.empty() ? new_folder_name(attempt) : options.new_folder))
              .string();
      if (make_folder(options, path_)) {
        break;
      }
      if (!options.new_folder.empty()) {  // the caller would take that run for this one
        throw ConfigError(cannot_create(options, path_, EEXIST));
      }
    }
  } else {
    if (const std::optional<Diagnostic> problem = occupied(options)) {
      throw ConfigError(*problem);
    }
    make_parents(options, options.dir);
    path_ = options.dir;
  }
  try {
    make_folder(options, file(run_files::kCheckpoints));
    metrics_ = std::make_unique<LineLog>(file(run_files::kMetrics), on_trouble_);
  } catch (const FileError& error) {
    throw ConfigError(cannot_create(options, error.path(), error.error_number()));
  }
  is_named_ = options.dir.empty();
  is_new_ = true;
}

void RunDir::link_latest() const {
  if (is_named_) {
    point_latest_to(path_);
  }
}

void RunDir::discard() {
  if (std::exchange(is_new_, false)) {
    metrics_.reset();
    if (holds_nothing(path_)) {
      remove_folder(path_);  // what stays of it is empty
    }
  }
}

void RunDir::check_room(int64_t num_bytes) const {
  const std::optional<int64_t> free = free_bytes(path_);
  if (free && *free < num_bytes) {
    throw ConfigError("E142", {},
                      fmt::format("no room for the weights in `{}`: {} at the end, {} are free",
                                  path_, format_bytes(num_bytes), format_bytes(*free)))
        .help("another place for results: -o DIR");
  }
}

void RunDir::rewind(const TrainPosition& position) {
  const std::string path = file(run_files::kMetrics);
  std::error_code error;
  if (fs::exists(path, error)) {
    const std::string text = read_file(path, kMaxMetrics);
    const std::string rest = rewound_metrics(text, position);
    if (rest != text) {
      write_file_atomic(path, rest);
    }
  }
  metrics_ = std::make_unique<LineLog>(path, on_trouble_, true);
}

std::string RunDir::file(std::string_view name) const {
  return (fs::path(path_) / name).string();
}

void RunDir::sync() const {
  metrics_->sync();
  // A name is on the disk when the folder that has it is.
  sync_folder(path_);
  fs::path folder = fs::absolute(path_).lexically_normal();
  for (int level = 0; level < 3 && folder.has_relative_path(); ++level) {
    folder = folder.parent_path();
    try {
      sync_folder(folder.string());
    } catch (const FileError& error) {
      // One that may be entered but not read (mode 711) was there before the run.
      const int number = error.error_number();
      if (number != EACCES && number != EPERM && number != ENOENT) {  // ENOENT: sym/../x
        throw;
      }
    }
  }
}

void RunDir::write(std::string_view name, std::string_view text) const {
  write_file_atomic(file(name), text);
}

bool is_run_dir(const std::string& dir) {
  std::error_code error;
  return !dir.empty() && fs::is_directory(dir, error) &&
         fs::exists(fs::path(dir) / run_files::kMetrics, error) &&
         (fs::is_directory(fs::path(dir) / run_files::kCheckpoints, error) ||
          fs::exists(fs::path(dir) / run_files::kResolved, error));  // checkpoints were deleted
}

bool is_finished_run(const std::string& dir) {
  const std::string text = read_file((fs::path(dir) / run_files::kMetrics).string(), kMaxMetrics);
  const size_t end = text.find_last_not_of('\n');
  const size_t begin = end == std::string::npos ? end : text.rfind('\n', end) + 1;
  const nlohmann::json last = parse_json(begin == std::string::npos ? "" : text.substr(begin));
  return last.is_object() && last.value("event", "") == "end" && last.value("exit_code", -1) == 0;
}

std::string new_folder_name(int attempt) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local = {};
  localtime_r(&now.tv_sec, &local);
  const int64_t unique[] = {now.tv_sec, now.tv_nsec, getpid(), attempt};
  return fmt::format("{:04}-{:02}-{:02}_{:02}-{:02}-{:02}_{:04x}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec,
                     hash_bytes(unique, sizeof(unique)) & 0xffffu);
}

std::string runs_folder(const RunDirOptions& options) {
  fs::path folder = options.root;
  for (const std::string& part : split(options.name, '/')) {  // "sweep/mlp": a group of runs
    folder /= file_name_of(part);
  }
  return folder.string();
}

namespace {

// Whether a run that is resumed at `position` says the event again. `is_at_start`: only a start,
// and warnings of it, are before.
bool is_said_again(const nlohmann::json& event, bool is_at_start, const TrainPosition& position) {
  const auto number = [&](const char* key) {
    return event.contains(key) && event[key].is_number_integer() ? event[key].get<int64_t>() : 0;
  };
  const std::string kind = event.value("event", "");
  const int64_t epoch = number("epoch"), step = number("step");
  if (kind == "evaluate") {
    return true;
  }
  if (kind == "warning" && epoch == 0) {  // of a start, or of a run of an older version
    return is_at_start;
  }
  if (kind == "step" || kind == "validation" || (kind == "warning" && step > 0)) {
    return epoch > position.epoch + 1 || (epoch == position.epoch + 1 && step > position.batch);
  }
  return (kind == "epoch" || kind == "stop" || kind == "warning") && epoch > position.epoch;
}

}  // namespace

std::string rewound_metrics(std::string_view text, const TrainPosition& position) {
  std::string out;
  bool is_at_start = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) {
      break;
    }
    const std::string_view line = text.substr(0, end + 1);
    text.remove_prefix(end + 1);
    const nlohmann::json event = parse_json(line);
    if (!event.is_object() || !event.contains("event")) {
      continue;
    }
    is_at_start = event["event"] == "start" || (is_at_start && event["event"] == "warning");
    if (!is_said_again(event, is_at_start, position)) {
      out += line;
    }
  }
  return out;
}

}  // namespace meshtrain
