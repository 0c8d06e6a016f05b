#include "record/run_meta.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/host.h"
#include "base/json.h"
#include "base/text.h"
#include "config/run_files.h"
#include "record/run_log.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Ordered = nlohmann::ordered_json;

constexpr uint64_t kMaxMeta = uint64_t{1} << 26;
constexpr uint64_t kMaxGit = uint64_t{1} << 26;

// The text of a small file without the line feed at its end; empty when it cannot be read.
std::string text_in(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return "";
  }
  try {
    return std::string(trim(read_file(path.string(), kMaxGit)));
  } catch (const FileError&) {
    return "";
  }
}

// "ref: refs/heads/main" leads to a file of that name or to a line of packed-refs.
std::string commit_of(const fs::path& git, const std::string& reference) {
  const std::string common = text_in(git / "commondir");  // of a linked work tree
  const fs::path shared = common.empty() ? git : git / common;
  const std::string commit = text_in(shared / reference);
  if (!commit.empty()) {
    return commit;
  }
  for (const std::string& line : split(text_in(shared / "packed-refs"), '\n')) {
    if (ends_with(line, " " + reference)) {
      return line.substr(0, line.find(' '));
    }
  }
  return "";
}

std::string dumped(const Ordered& json) {
  return json_text(json, 1, Ordered::error_handler_t::replace) + "\n";
}

// Without links; of a folder that is there.
std::string real_path(const std::string& path) {
  std::error_code error;
  return path.empty() ? "" : fs::weakly_canonical(path, error).string();
}

Ordered files_json(const std::vector<TrainingFile>& files) {
  Ordered list = Ordered::array();
  for (const TrainingFile& file : files) {
    list.push_back({{"path", file.path}, {"bytes", file.bytes}, {"modified", file.modified}});
  }
  return list;
}

Ordered earlier_runs(const std::string& path) {
  std::error_code error;
  Ordered last =
      fs::exists(path, error) ? parse_json<Ordered>(read_file(path, kMaxMeta)) : Ordered();
  if (!last.is_object()) {
    return Ordered::array();
  }
  Ordered earlier = last.value("earlier", Ordered::array());
  last.erase("earlier");
  earlier.push_back(std::move(last));
  return earlier;
}

}  // namespace

RunMeta::RunMeta(std::string path, const RunInfo& info,
                 const std::vector<std::string>& command_line)
    : path_(std::move(path)) {
  std::error_code error;
  const std::string folder = fs::current_path(error).string();
  const std::optional<GitState> git = git_state(folder);
  const Ordered meta = {
      {"version", info.version},
      {"command_line", command_line},
      {"folder", folder},
      {"run_dir", real_path(info.run_dir)},
      {"host", host_name()},
      {"pid", getpid()},
      {"git", git ? Ordered{{"commit", git->commit}, {"branch", git->branch}} : Ordered()},
      {"name", info.name},
      {"seed", info.seed},
      {"dtype_policy", info.dtype_policy},
      {"mesh", {{"shape", info.mesh_shape}, {"axis_names", info.axis_names}}},
      {"devices", info.devices},
      {"resumed_from", info.resumed_from.empty() ? Ordered() : Ordered(info.resumed_from)},
      {"training_files", files_json(info.training_files)},
      {"started", utc_time_ms()},
      {"ended", nullptr},
      {"exit_code", nullptr},
      {"message", nullptr},
      {"stopped", nullptr},
      {"earlier", earlier_runs(path_)}};
  text_ = dumped(meta);
  write_file_atomic(path_, text_);
}

void RunMeta::end(int exit_code, std::string_view message, std::string_view stopped) {
  Ordered meta = parse_json<Ordered>(text_);
  meta["ended"] = utc_time_ms();
  meta["exit_code"] = exit_code;
  meta["message"] = message.empty() ? Ordered() : Ordered(message);
  meta["stopped"] = stopped.empty() ? Ordered() : Ordered(stopped);
  write_file_atomic(path_, dumped(meta));
}

std::vector<TrainingFile> file_states(const std::vector<std::string>& paths) {
  std::vector<TrainingFile> states;
  for (const std::string& path : paths) {
    struct stat info = {};
    if (::stat(path.c_str(), &info) == 0) {
      std::error_code error;
      states.push_back({fs::absolute(path, error).lexically_normal().string(),
                        S_ISREG(info.st_mode) ? static_cast<int64_t>(info.st_size) : 0,
                        static_cast<int64_t>(info.st_mtime)});
    }
  }
  return states;
}

std::vector<std::string> changed_training_files(const std::string& folder) {
  std::vector<std::string> changed;
  try {
    const Ordered meta = parse_json<Ordered>(read_file(folder + "/meta.json", kMaxMeta));
    for (const Ordered& file : meta.value("training_files", Ordered::array())) {
      for (const TrainingFile& now : file_states({file.at("path").get<std::string>()})) {
        if (now.bytes != file.at("bytes") || now.modified != file.at("modified")) {
          changed.push_back(now.path);
        }
      }
    }
  } catch (const FileError&) {  // no meta.json
  } catch (const nlohmann::json::exception&) {
  }
  return changed;
}

std::vector<std::string> former_places(const std::string& folder) {
  std::vector<std::string> places;
  try {
    const Ordered meta = parse_json<Ordered>(read_file(folder + "/" + run_files::kMeta, kMaxMeta));
    places.push_back(meta.at("run_dir").get<std::string>());
    const Ordered earlier = meta.value("earlier", Ordered::array());
    for (auto start = earlier.rbegin(); start != earlier.rend(); ++start) {
      places.push_back(start->at("run_dir").get<std::string>());
    }
  } catch (const FileError&) {                  // no meta.json
  } catch (const nlohmann::json::exception&) {  // a start of an older version
  }
  return places;
}

std::optional<GitState> git_state(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::absolute(folder, error).lexically_normal();
  while (!fs::exists(place / ".git", error) && place.has_relative_path()) {
    place = place.parent_path();
  }
  fs::path git = place / ".git";
  const std::string link = text_in(git);  // a file in linked work trees and submodules
  constexpr std::string_view kLink = "gitdir: ";
  if (starts_with(link, kLink)) {
    git = place / link.substr(kLink.size());
  }
  const std::string head = text_in(git / "HEAD");
  if (head.empty()) {
    return std::nullopt;
  }
  constexpr std::string_view kReference = "ref: ";
  if (!starts_with(head, kReference)) {
    return GitState{.commit = head, .branch = ""};
  }
  const std::string reference = head.substr(kReference.size());
  constexpr std::string_view kBranch = "refs/heads/";
  return GitState{
      .commit = commit_of(git, reference),
      .branch = starts_with(reference, kBranch) ? reference.substr(kBranch.size()) : reference};
}

}  // namespace meshtrain
