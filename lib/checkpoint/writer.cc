#include "checkpoint/writer.h"

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <new>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/json.h"
#include "checkpoint/part.h"
#include "checkpoint/reader.h"
#include "checkpoint/replicas.h"
#include "config/run_files.h"

namespace meshtrain {
namespace {

std::string hex_checksum(std::string_view text) {
  return checksum128(std::as_bytes(std::span(text)));
}

// The checkpoint would exceed the limits of readers.
class Unreadable : public RuntimeFailure {
 public:
  explicit Unreadable(const std::string& why) : RuntimeFailure(ExitCode::kWriteFailed, why) {}
};

// Returns whether the folder is a checkpoint: foreign folders are never deleted.
bool is_whole(const std::string& path) {
  std::error_code error;
  return is_real_folder(path) && is_real_folder(path + "/model") &&
         std::filesystem::exists(path + "/manifest.json", error) &&
         std::filesystem::exists(path + "/state.json", error);
}

// Keeps one non-finite state for analysis.
void reject(const std::string& folder, const std::string& temporary, int64_t step) {
  const std::string rejected = folder + "/rejected";
  for (const std::string& name : folder_names(rejected)) {
    const std::string path = rejected + "/" + name;
    if (step_of_name(name) >= 0 && is_whole(path)) {
      remove_folder(path);
    }
  }
  make_folders(rejected);
  rename_to_new(temporary, rejected + "/" + checkpoint_name(step));
}

std::string explain(const std::exception& error, int64_t step, const std::string& folder,
                    int64_t num_bytes, const std::string& who = "") {
  const auto* file = dynamic_cast<const FileError*>(&error);
  const int number = file == nullptr ? 0 : file->error_number();
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const char* code = lacks_memory                                              ? "E632"
                     : dynamic_cast<const Unreadable*>(&error) != nullptr      ? "E423"
                     : number == EIO                                           ? "E422"
                     : number == EEXIST                                        ? "E456"
                     : number == ENOSPC || number == EDQUOT || number == EFBIG ? "E420"
                                                                               : "E421";
  std::string out =
      fmt::format("[{}] step {} was not saved: {}{}", code, step, who.empty() ? "" : who + ": ",
                  lacks_memory ? "out of memory" : error.what());
  if (number == EEXIST) {
    out += "; there is one already, and it is not replaced";
  }
  if (number == ENOSPC) {
    const std::optional<int64_t> free = free_bytes(folder);
    out += fmt::format(" (needs {}{})", format_bytes(num_bytes),
                       free ? ", " + format_bytes(*free) + " free" : "");
  }
  return out;
}

}  // namespace

std::string checkpoint_name(int64_t step) {
  return fmt::format("{:06}", step);
}

std::string checkpoint_name_or_none(int64_t step) {
  return step < 0 ? "none" : checkpoint_name(step);
}

namespace {

std::string result_text(const SaveResult& result) {
  return json_text(Json{{"path", result.path},
                        {"saved", result.saved},
                        {"error", result.error},
                        {"non_finite", result.non_finite},
                        {"unequal", result.unequal},
                        {"num_bytes", result.num_bytes},
                        {"seconds", result.seconds}},
                   -1, Json::error_handler_t::replace);
}

SaveResult parse_result(std::string_view text) {
  const Json json = parse_json(text);
  return {.path = json.at("path"),
          .saved = json.at("saved"),
          .error = json.at("error"),
          .non_finite = json.at("non_finite"),
          .unequal = json.at("unequal"),
          .num_bytes = json.at("num_bytes"),
          .seconds = json.at("seconds")};
}

// True while it lives.
class Marked {
 public:
  explicit Marked(std::atomic<bool>* mark) : mark_(mark) { set(true); }
  ~Marked() { set(false); }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  void set(bool value) {
    if (mark_ != nullptr) {
      *mark_ = value;
    }
  }
  std::atomic<bool>* mark_;
};

// One save in its temporary folder. Rank 0 makes the folder, each process writes its files into it,
// rank 0 looks at what the others tell, writes the rest and gives the folder its name. In between
// all learn how far it came.
class Save {
 public:
  Save(std::string folder, const std::string& name, const Snapshot& snapshot,
       const CheckpointNotes& notes, const SaveOptions& options, bool replaces)
      : folder_(std::move(folder)),
        temporary_(fmt::format("{}/tmp.{}.{}", folder_, name, notes.run_id)),
        path_(fmt::format("{}/{}", folder_, name)),
        snapshot_(snapshot),
        notes_(notes),
        options_(options),
        replaces_(replaces),
        gather_(options.gather, options.part_bytes),
        writer_(temporary_, options.sees_folder ? nullptr : &gather_) {}

  SaveResult run() {
    SaveResult result;
    on_rank_zero(result, [&] {
      if (replaces_) {
        make_folders(folder_);
      }
      remove_failed();
      make_new_folder(temporary_);
      make_new_folder(temporary_ + "/model");
      make_new_folder(temporary_ + "/optimizer");
      if (is_alone()) {
        writer_.write_shard_files(snapshot_, step());
        complete({writer_.part()}, result);
      }
    });
    if (is_alone() || !result.error.empty()) {
      return result;
    }
    const std::vector<std::string> parts = options_.all_gather(write_part());
    on_rank_zero(result, [&] { complete_all(parts, result); });
    return result;
  }

 private:
  bool is_alone() const { return options_.all_gather == nullptr; }
  bool is_first() const { return options_.rank == 0; }
  int64_t step() const { return notes_.state.position.step; }

  // Removes the files of an earlier save that failed.
  void remove_failed() {
    holds_old_ = replaces_ && is_real_folder(temporary_);
    if (holds_old_) {
      sync_folder(folder_);
    }
    holds_old_ = false;
    remove_folder(temporary_);
  }

  // Runs `action` on rank 0; all processes get its result.
  void on_rank_zero(SaveResult& result, const std::function<void()>& action) {
    if (is_first()) {
      try {
        action();
      } catch (const std::exception& error) {  // else the others would wait for it
        fail(result, explain(error, step(), folder_, snapshot_.num_bytes(), options_.name));
      }
      result.seconds = std::chrono::duration<double>(Time::now() - start_).count();
    }
    if (!is_alone()) {
      result = parse_result(options_.all_gather(is_first() ? result_text(result) : "")[0]);
    }
  }

  void fail(SaveResult& result, const std::string& error) {
    result.error = error;
    if (holds_old_) {
      result.error += fmt::format("; the one before may be in `{}`", temporary_);
    } else {
      remove_folder(temporary_);
    }
  }

  // Writes and syncs the shards of this process. Returns its report to the others.
  std::string write_part() {
    std::string report;
    try {
      writer_.write_shard_files(snapshot_, step());
      if (options_.gather && is_first()) {
        received_ = gather_.receive(temporary_);
      }
      writer_.sync();
      WrittenPart part = writer_.part();
      part.replicas = replica_hashes(snapshot_.store(),
                                     [&](int variable) { return snapshot_.shards(variable); });
      report = part_text(part);
    } catch (const std::exception& error) {
      WrittenPart part;
      part.error = explain(error, step(), folder_, snapshot_.num_bytes(), options_.name);
      report = part_text(part);
    }
    if (options_.gather) {
      gather_.end(is_first());
    }
    return report;
  }

  void complete_all(const std::vector<std::string>& texts, SaveResult& result) {
    const Marked committing(options_.is_committing);
    std::vector<WrittenPart> parts;
    std::vector<std::string> replicas;
    for (const std::string& text : texts) {
      parts.push_back(parse_part(text));
      replicas.push_back(parts.back().replicas);
    }
    for (const WrittenPart& part : parts) {
      if (result.error.empty() && !part.error.empty()) {
        fail(result, part.error);
      }
    }
    if (result.error.empty()) {
      result.unequal = replica_difference(snapshot_.store(), replicas);
      if (result.unequal.empty()) {
        check_there(parts);
        complete(parts, result);
      } else {
        remove_folder(temporary_);
      }
    }
  }

  // Checks that the files of other processes are complete in this folder.
  void check_there(const std::vector<WrittenPart>& parts) const {
    for (const WrittenPart& part : parts) {
      for (const auto& [name, file] : part.files) {
        const std::string path = temporary_ + "/" + name;
        const InputFile there(path, InputFile::Links::kRefuse);
        const auto came = received_.find(name);
        if (came != received_.end() && came->second.xxh3_128 != file.xxh3_128) {
          throw FileError(ExitCode::kWriteFailed, "other bytes came than were sent of", path, EIO);
        }
        if (there.size() != file.size) {
          throw FileError(
              ExitCode::kWriteFailed,
              fmt::format("of {} bytes that were written {} are in", file.size, there.size()), path,
              EIO);
        }
      }
    }
  }

  void complete(const std::vector<WrittenPart>& parts, SaveResult& result) {
    Manifest manifest = make_manifest(parts);
    for (const WrittenPart& part : parts) {
      result.non_finite = result.non_finite.empty() ? part.non_finite : result.non_finite;
    }
    write_texts(manifest);
    writer_.sync();
    for (const auto& [name, file] : manifest.files) {
      result.num_bytes += static_cast<int64_t>(file.size);
    }
    if (!result.non_finite.empty()) {
      return reject(folder_, temporary_, step());
    }
    if (options_.before_commit) {
      options_.before_commit();
    }
    commit();
    result.saved = true;
    result.path = path_;
  }

  // Takes the place of a whole checkpoint if it may; anything else there is an error.
  void commit() {
    if (replaces_ && is_whole(path_)) {
      exchange_names(temporary_, path_);
      holds_old_ = true;
      // Before the old checkpoint is deleted: it must be complete when a crash undoes the exchange.
      sync_folder(folder_);
      remove_folder(temporary_);
    } else {
      rename_to_new(temporary_, path_);
    }
    sync_folder(folder_);
  }

  Manifest make_manifest(const std::vector<WrittenPart>& parts) const {
    Manifest manifest;
    manifest.written_by = notes_.written_by;
    manifest.run_id = notes_.run_id;
    manifest.parent_run = notes_.parent_run;
    manifest.time = notes_.time;
    manifest.step = step();
    manifest.epoch = notes_.state.position.epoch;
    manifest.cursor = notes_.state.cursor;
    manifest.loss = notes_.loss;
    manifest.processes = notes_.processes;
    manifest.mesh = snapshot_.mesh().axes();
    manifest.tensors = snapshot_.tensors();
    manifest.model_signature = model_signature(manifest.tensors);
    manifest.plan_signature = plan_signature(manifest.mesh, manifest.tensors);
    for (const WrittenPart& part : parts) {
      manifest.files.insert(part.files.begin(), part.files.end());
      for (const WrittenPart::Shard& from : part.shards) {
        CheckpointShard& shard = manifest.tensors.at(from.tensor).shards.at(from.index);
        shard.begin = from.begin;
        shard.end = from.end;
        shard.blocks = from.blocks;
      }
    }
    for (const CheckpointTensor& tensor : manifest.tensors) {
      check_tiling(tensor, temporary_);
    }
    return manifest;
  }

  // Reads texts with limits before they are saved, so that every checkpoint is readable.
  template <class F>
  void check_readable(const std::string& name, const std::string& text, F&& parse) const {
    const std::string path = temporary_ + "/" + name;
    try {
      parse(text, path);
    } catch (const ConfigError& error) {
      const Diagnostic& first = error.diagnostics().list().front();
      throw Unreadable(
          fmt::format("nobody could read it again: [{}] {}", first.code, first.message));
    }
  }

  void write_texts(Manifest& manifest) {
    const auto write = [&](const std::string& name, const std::string& text) {
      if (name != "manifest.json" && text.size() > max_text_bytes(name)) {
        throw Unreadable(fmt::format("`{}` has {} bytes; at most {} could be read again", name,
                                     text.size(), max_text_bytes(name)));
      }
      writer_.write_text(name, text);
      manifest.files[name] = writer_.part().files.at(name);
    };
    for (const auto& [name, text] : notes_.texts) {
      write(name, text);
      if (name == run_files::kResolved) {
        manifest.config_checksum = hex_checksum(text);
      }
    }
    write(run_files::kLayout, layout_json(manifest.tensors));
    const std::string state = state_text(notes_.state);
    check_readable("state.json", state, parse_state);
    write("state.json", state);
    const std::string text = manifest_text(manifest);
    check_readable("manifest.json", text, parse_manifest);
    write("manifest.json", text);
  }

  using Time = std::chrono::steady_clock;

  std::string folder_, temporary_, path_;
  const Snapshot& snapshot_;
  const CheckpointNotes& notes_;
  const SaveOptions& options_;
  bool replaces_;
  FileGather gather_;
  std::map<std::string, CheckpointFile> received_;
  PartWriter writer_;
  // The temporary folder may be the old one, to which a crash gives its name back as long as the
  // folder around them is not synced.
  bool holds_old_ = false;
  Time::time_point start_ = Time::now();
};

}  // namespace

SaveResult write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                            const CheckpointNotes& notes, const SaveOptions& options) {
  return Save(folder, checkpoint_name(notes.state.position.step), snapshot, notes, options, false)
      .run();
}

SaveResult replace_checkpoint(const std::string& path, const Snapshot& snapshot,
                              const CheckpointNotes& notes, const SaveOptions& options) {
  const std::filesystem::path place(path);
  const std::string folder = place.has_parent_path() ? place.parent_path().string() : ".";
  return Save(folder, place.filename().string(), snapshot, notes, options, true).run();
}

}  // namespace meshtrain
