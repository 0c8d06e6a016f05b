// Reads checkpoints without trust: every byte is compared with the manifest's checksums before it
// is used.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "checkpoint/format.h"
#include "tensor/host_tensor.h"
#include "tensor/safetensors.h"

namespace meshtrain {

class CheckpointReader {
 public:
  // Reads manifest and state. Throws ConfigError (exit 6):
  //   E400 no checkpoint, E402 or E403 manifest damaged, E404 a file is missing or truncated,
  //   E405 the header of a shard file is damaged, E406 a link or another special file,
  //   E407 shards do not tile a tensor, E408 a newer format, E409 the system refuses to read.
  explicit CheckpointReader(std::string path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const TrainState& state() const { return state_; }
  int64_t num_bytes() const;  // of all files
  // Returns a text of the checkpoint ("config.resolved.yaml"), compared with its checksum; empty
  // when there is none of that name.
  std::string text(const std::string& name) const;

  const CheckpointTensor* find(std::string_view path) const;  // null when there is none
  // Returns the whole tensor, assembled from its shards. Throws ConfigError E404, E409.
  HostTensor read(const CheckpointTensor& tensor) const;
  // Reads a box of the tensor, row-major. Reads only the file blocks that overlap the box.
  void read_box(const CheckpointTensor& tensor, std::span<const int64_t> offset, const Shape& shape,
                std::byte* to) const;
  // Closes all open files; a later read opens its file again.
  void close_files() const { open_.clear(); }
  // Compares every byte with the checksums. Throws ConfigError E404 with file, tensor and position,
  // E414 for non-finite weights or optimizer state.
  void verify() const;

 private:
  void check_files() const;
  void check_shard_files() const;
  void verify_file(const std::string& name, const CheckpointFile& file) const;
  void verify_tensor(const CheckpointTensor& tensor, std::vector<std::byte>& buffer) const;
  const InputFile& opened(const std::string& file) const;
  // Reads a block of a shard, compared with its checksum, and returns its size.
  size_t read_block(const CheckpointTensor& tensor, const CheckpointShard& shard, size_t block,
                    std::byte* to) const;

  std::string path_;
  Manifest manifest_;
  TrainState state_;
  mutable std::map<std::string, InputFile> open_;  // files that were read
};

// Returns whether `path` is the folder of a checkpoint, complete or not.
bool is_checkpoint(const std::string& path);
// Returns the steps of the checkpoints in `folder`, newest first: folders named by digits, no
// links.
std::vector<int64_t> checkpoint_steps(const std::string& folder);
// Returns the step of a name like "000500"; -1 for other names.
int64_t step_of_name(std::string_view name);

// Returns true when the checkpoint itself may be intact: a newer version of the program, or a
// retry, may be able to read it.
bool is_only_not_read(const ConfigError& error);

// A test of a checkpoint; throws ConfigError when the checkpoint fails it.
using CheckpointCheck = std::function<void(const CheckpointReader&)>;

// The newest checkpoint in `folder` that passes `check`; null when there is none. Damaged newer
// ones are skipped with a warning that names the steps lost. When one is deleted while it is
// checked, as a run in progress deletes its old ones, the folder is listed again. Throws
// ConfigError E408, E409 for one that may be intact but cannot be read by this program or at this
// time.
struct NewestCheckpoint {
  std::unique_ptr<CheckpointReader> reader;
  std::vector<int64_t> damaged;  // steps
  std::vector<std::string> warnings;
};
NewestCheckpoint newest_checkpoint(const std::string& folder,
                                   const CheckpointCheck& check = &CheckpointReader::verify);

}  // namespace meshtrain
