#include "checkpoint/mirror.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "comm/rendezvous.h"
#include "engine/signals.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopying = "copying a checkpoint to other hosts";
constexpr size_t kCopiedAtOnce = size_t{8} << 20;

// The content of a path on one process.
struct Seen {
  std::string sum;  // the same for the same content only: a manifest has the checksums of all else
  std::string problem;  // where it cannot be read
};

Seen look_at(const std::string& path) {
  try {
    const InputFile file(is_checkpoint(path) ? path + "/manifest.json" : path);
    Checksum128 sum;
    std::vector<std::byte> part(std::min<uint64_t>(kCopiedAtOnce, file.size()));
    for (uint64_t at = 0; at < file.size(); at += part.size()) {
      part.resize(std::min<uint64_t>(part.size(), file.size() - at));
      file.read_at(at, part.data(), part.size());
      sum.update(part);
    }
    return {sum.hex(), ""};
  } catch (const FileError& error) {
    return {"", error.what()};
  }
}

// Returns the files to copy: names below `path`, or "" for `path` itself, and their bytes.
std::map<std::string, uint64_t> files_of(const std::string& path) {
  if (!is_checkpoint(path)) {
    return {{"", InputFile(path).size()}};
  }
  const CheckpointReader reader(path);
  std::map<std::string, uint64_t> out;
  for (const auto& [name, file] : reader.manifest().files) {
    out[name] = file.size;
  }
  out["manifest.json"] = InputFile(path + "/manifest.json").size();
  return out;
}

std::string below(const std::string& path, const std::string& name) {
  return name.empty() ? path : path + "/" + name;
}

// Bytes `at` and what follows of a file of rank 0's.
std::string next_part(const InputFile& file, uint64_t at) {
  std::string bytes(std::min<uint64_t>(kCopiedAtOnce, file.size() - at), '\0');
  file.read_at(at, reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  return bytes;
}

// Stores what one process receives. After an error it stores nothing more: rank 0 continues for the
// others, and all get the error at the end.
class Keeper {
 public:
  void begin(const std::string& path) {
    attempt([&] {
      make_folders(fs::path(path).parent_path().string());
      file_ = std::make_unique<NewFile>(path);
    });
  }
  void keep(const std::string& part) {
    attempt([&] { file_->write(part); });
  }
  void end() {
    attempt([&] { file_->finish(); });
  }
  void throw_if_failed() const {
    if (error_ != nullptr) {
      std::rethrow_exception(error_);
    }
  }

 private:
  template <class F>
  void attempt(F&& action) {
    try {
      if (error_ == nullptr) {
        action();
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  std::unique_ptr<NewFile> file_;
  std::exception_ptr error_;
};

std::string temporary_folder() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (error) {
    throw FileError(ExitCode::kWriteFailed,
                    "no folder for temporary files (TMPDIR):", folder.string(), error.value());
  }
  return folder.string();
}

void check_room(const std::string& folder, uint64_t bytes) {
  const std::optional<int64_t> free = free_bytes(folder);
  if (free && static_cast<uint64_t>(*free) < bytes) {
    throw ConfigError(
        "E457", {},
        fmt::format("no room for a copy of the checkpoint in `{}`: it has {}, {} are free", folder,
                    format_bytes(static_cast<int64_t>(bytes)), format_bytes(*free)))
        .help("TMPDIR names another folder for temporary files");
  }
}

}  // namespace

Mirror::Mirror(const Coordinator& coordinator, const std::string& path, bool may_copy)
    : path_(path) {
  if (coordinator.is_alone()) {
    return;
  }
  Seen seen;
  {
    const auto announced = coordinator.announce(kCopying);
    seen = look_at(path);
  }
  const std::vector<std::string> all = coordinator.all_gather(kCopying, seen.sum);
  const bool is_blind = seen.sum != all[0];
  if (std::count(all.begin(), all.end(), all[0]) == coordinator.size()) {
    return;
  }
  if (may_copy) {
    copy(coordinator, path, is_blind);
    return;
  }
  coordinator.on_all_ranks(kCopying, [&] {
    if (is_blind) {
      throw ConfigError("E457", {},
                        fmt::format("does not see what rank 0 sees as `{}`: {}", path,
                                    seen.problem.empty() ? "another is there" : seen.problem))
          .help("a folder that all hosts share, or `checkpoint: {gather: root}`");
    }
  });
}

void Mirror::Folder::make(const Coordinator& coordinator) {
  const std::string made = temporary_folder() + "/meshtrain-" + to_text(random_token());
  make_new_folder(made, 0700);
  path_ = made;
  if (const auto& monitor = coordinator.processes().monitor; monitor != nullptr) {
    on_abort_.emplace(monitor->on_abort([made] {
      if (remove_folder(made)) {  // a file may have been made meanwhile
        remove_folder(made);
      }
    }));
  }
}

void Mirror::Folder::remove() {
  on_abort_.reset();  // waits for it
  if (!path_.empty()) {
    remove_folder(std::exchange(path_, ""));
  }
}

// Each process that needs a copy creates a folder with a unique name, and takes the first that it
// sees: one for all that share a host's disk.
void Mirror::choose_folder(const Coordinator& coordinator, const std::string& name, bool is_blind) {
  coordinator.on_all_ranks(kCopying, [&] {
    if (is_blind) {
      folder_.make(coordinator);
    }
  });
  for (const std::string& folder : coordinator.all_gather(kCopying, folder_.path())) {
    if (is_blind && !folder.empty() && is_real_folder(folder)) {
      path_ = below(folder, name);
      break;
    }
  }
  coordinator.all_gather(kCopying, "");  // all have looked
  if (fs::path(path_).parent_path() != folder_.path()) {
    folder_.remove();
  }
}

void Mirror::copy(const Coordinator& coordinator, const std::string& from, bool is_blind) {
  const auto files = parse_json(coordinator.broadcast(kCopying, [&] {
                       return json_text(nlohmann::json(files_of(from)));
                     })).get<std::map<std::string, uint64_t>>();
  const bool is_file = files.begin()->first.empty();
  catch_stop_signals();  // which would leave the folder behind
  choose_folder(coordinator, is_file ? fs::path(from).filename().string() : "checkpoint", is_blind);
  const bool keeps = !folder_.path().empty();
  uint64_t total = 0;
  for (const auto& [name, size] : files) {
    total += size;
  }
  coordinator.on_all_ranks(kCopying, [&] {
    if (keeps) {
      check_room(folder_.path(), total);
    }
  });
  Keeper keeper;
  for (const auto& [name, size] : files) {
    if (keeps) {
      keeper.begin(below(path_, name));
    }
    std::optional<InputFile> file;
    for (uint64_t at = 0; at < size; at += kCopiedAtOnce) {
      const auto announced = coordinator.announce(kCopying);
      coordinator.on_all_ranks(kCopying, [] { throw_if_stopped("the copying of a checkpoint"); });
      const std::string part = coordinator.broadcast(
          kCopying, [&] { return next_part(file ? *file : file.emplace(below(from, name)), at); });
      if (keeps) {
        keeper.keep(part);
      }
    }
    if (keeps) {
      keeper.end();
    }
  }
  coordinator.on_all_ranks(kCopying, [&] { keeper.throw_if_failed(); });
}

}  // namespace meshtrain
