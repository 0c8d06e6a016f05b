#include "train/checkpoint_writer.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "tensor/safetensors.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_json.h"
#include "train/not_finite.h"

namespace meshtrain {
namespace {

std::string hex_checksum(std::string_view text) {
  return checksum128(std::as_bytes(std::span(text)));
}

// One save in its temporary folder.
class Writer {
 public:
  Writer(std::string temporary, const Snapshot& snapshot, const CheckpointNotes& notes)
      : temporary_(std::move(temporary)), snapshot_(snapshot), notes_(notes) {
    manifest_.written_by = notes.written_by;
    manifest_.run_id = notes.run_id;
    manifest_.parent_run = notes.parent_run;
    manifest_.time = notes.time;
    manifest_.step = notes.state.position.step;
    manifest_.epoch = notes.state.position.epoch;
    manifest_.cursor = notes.state.cursor;
    manifest_.loss = notes.loss;
    manifest_.mesh = snapshot.mesh().axes();
    manifest_.tensors = snapshot.tensors();
    manifest_.model_signature = model_signature(manifest_.tensors);
    manifest_.plan_signature = plan_signature(manifest_.mesh, manifest_.tensors);
  }

  void write() {
    make_new_folder(temporary_);
    make_new_folder(file("model"));
    make_new_folder(file("optimizer"));
    for (const Snapshot::File& shard : snapshot_.files()) {
      write_shard(shard);
    }
    for (const auto& [name, text] : notes_.texts) {
      write_text(name, text);
      if (name == "config.resolved.yaml") {
        manifest_.config_checksum = hex_checksum(text);
      }
    }
    write_text("layout.json", layout_json(manifest_.tensors));
    write_text("state.json", state_text(notes_.state));
    write_text("manifest.json", manifest_text(manifest_));
    sync_files();
    sync_folder(file("model"));
    sync_folder(file("optimizer"));
    sync_folder(temporary_);
  }

  int64_t num_bytes() const { return num_bytes_; }
  const std::string& problem() const { return problem_; }

 private:
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }

  // The file stays open: synced together at the end, all files take little longer than one.
  NewFile& create(const std::string& name) {
    constexpr size_t kMostOpen = 64;
    if (open_.size() == kMostOpen) {
      sync_files();
    }
    return *open_.emplace_back(std::make_unique<NewFile>(file(name)));
  }

  void written(const NewFile& out, const std::string& name) {
    num_bytes_ += static_cast<int64_t>(out.size());
    manifest_.files[name] = {out.size(), out.checksum()};
  }

  void sync_files() {
    for (const auto& each : open_) {
      each->finish();
    }
    open_.clear();
  }

  void write_text(const std::string& name, const std::string& text) {
    NewFile& out = create(name);
    out.write(text);
    written(out, name);
  }

  StringMap metadata(const Snapshot::File& shard) const {
    Json offsets = Json::object();
    for (const Snapshot::Piece& piece : shard.pieces) {
      const CheckpointTensor& tensor = manifest_.tensors[piece.tensor];
      offsets[tensor.path] = {{"saved_offsets", tensor.pieces[piece.piece].offset}};
    }
    return {{"format", "pt"},
            {"DCP_VERSION", "1.0"},
            {"DCP_SHARDING_INFO", json_text(offsets)},
            {"meshtrain_step", std::to_string(manifest_.step)}};
  }

  void write_shard(const Snapshot::File& shard) {
    std::vector<TensorView> views;
    for (const Snapshot::Piece& piece : shard.pieces) {
      const CheckpointTensor& tensor = manifest_.tensors[piece.tensor];
      views.push_back({tensor.path,
                       tensor.dtype,
                       tensor.pieces[piece.piece].shape,
                       {piece.data, piece.num_bytes}});
    }
    const SafetensorsHead head = make_safetensors_head(views, metadata(shard));
    NewFile& out = create(shard.name);
    out.write(head.bytes);
    for (const size_t i : head.order) {
      write_piece(shard.pieces[i], out);
    }
    written(out, shard.name);
  }

  void write_piece(const Snapshot::Piece& from, NewFile& out) {
    CheckpointTensor& tensor = manifest_.tensors[from.tensor];
    CheckpointPiece& piece = tensor.pieces[from.piece];
    NotFinite found;
    piece.begin = out.size();
    piece.end = piece.begin + from.num_bytes;
    for (size_t at = 0; at < from.num_bytes; at += kChecksumBlock) {
      const std::span<const std::byte> block(from.data + at,
                                             std::min(kChecksumBlock, from.num_bytes - at));
      found += not_finite(tensor, block);
      piece.blocks.push_back(hash_bytes(block.data(), block.size()));
      out.write(block);
    }
    if (problem_.empty() && found.any()) {
      problem_ = fmt::format("{} has {}", tensor.path, in_words(found));
    }
  }

  std::string temporary_;
  const Snapshot& snapshot_;
  const CheckpointNotes& notes_;
  Manifest manifest_;
  std::vector<std::unique_ptr<NewFile>> open_;  // written, not yet synced
  std::string problem_;                         // first tensor that is not finite
  int64_t num_bytes_ = 0;
};

// Keeps one state that is not finite, for whoever wants to see why.
void reject(const std::string& folder, const std::string& temporary, int64_t step) {
  const std::string rejected = folder + "/rejected";
  remove_folder(rejected);
  make_new_folder(rejected);
  rename_to_new(temporary, rejected + "/" + checkpoint_name(step));
}

std::string explain(const FileError& error, int64_t step, const std::string& folder,
                    int64_t num_bytes) {
  const int number = error.error_number();
  const char* code = number == EIO                                             ? "E422"
                     : number == EEXIST                                        ? "E456"
                     : number == ENOSPC || number == EDQUOT || number == EFBIG ? "E420"
                                                                               : "E421";
  std::string out = fmt::format("[{}] step {} was not saved: {}", code, step, error.what());
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

namespace {

// `commit` gives the finished folder its name.
SaveResult write_as(const std::string& folder, const std::string& name, const Snapshot& snapshot,
                    const CheckpointNotes& notes, const std::function<void()>& before_commit,
                    void (*commit)(const std::string& from, const std::string& to)) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t step = notes.state.position.step;
  const std::string temporary = fmt::format("{}/tmp.{}.{}", folder, name, notes.run_id);
  const std::string path = fmt::format("{}/{}", folder, name);
  SaveResult result;
  try {
    remove_folder(temporary);  // of a save that failed before
    Writer writer(temporary, snapshot, notes);
    writer.write();
    result.num_bytes = writer.num_bytes();
    result.not_finite = writer.problem();
    if (!result.not_finite.empty()) {
      reject(folder, temporary, step);
      return result;
    }
    if (before_commit) {
      before_commit();
    }
    commit(temporary, path);
    sync_folder(folder);
    result.saved = true;
    result.path = path;
  } catch (const FileError& error) {
    result.error = explain(error, step, folder, snapshot.num_bytes());
    remove_folder(temporary);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// What was at `to` is a checkpoint, or nothing.
void exchange(const std::string& from, const std::string& to) {
  std::error_code error;
  if (!std::filesystem::exists(to + "/manifest.json", error)) {
    return rename_to_new(from, to);
  }
  exchange_names(from, to);
  // Before the old one goes: of an exchange that a crash undoes it must be whole.
  sync_folder(std::filesystem::path(to).parent_path().string());
  remove_folder(from);
}

}  // namespace

SaveResult write_checkpoint(const std::string& folder, const Snapshot& snapshot,
                            const CheckpointNotes& notes,
                            const std::function<void()>& before_commit) {
  return write_as(folder, checkpoint_name(notes.state.position.step), snapshot, notes,
                  before_commit, rename_to_new);
}

SaveResult replace_checkpoint(const std::string& path, const Snapshot& snapshot,
                              const CheckpointNotes& notes,
                              const std::function<void()>& before_commit) {
  const std::filesystem::path place(path);
  const std::string folder = place.has_parent_path() ? place.parent_path().string() : ".";
  SaveResult result;
  try {
    make_folders(folder);
  } catch (const FileError& error) {
    result.error = explain(error, notes.state.position.step, folder, 0);
    return result;
  }
  return write_as(folder, place.filename().string(), snapshot, notes, before_commit, exchange);
}

}  // namespace meshtrain
