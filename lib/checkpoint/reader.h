// Reads checkpoints and trusts none: every byte is compared with the manifest's checksums before it
// gets into a model.
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
  // Reads manifest and state. Throws ConfigError (exit 6): E400 no checkpoint there, E402 or E403
  // manifest damaged, E404 a file is missing or has another size, E405 a shard's header is damaged,
  // E406 links and other things that are no plain files, E407 shards that do not tile a tensor,
  // E408 a newer format, E409 the system refuses to read.
  explicit CheckpointReader(std::string path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  const TrainState& state() const { return state_; }
  int64_t num_bytes() const;  // of all files
  // A text of the checkpoint ("config.resolved.yaml"), compared with its checksum; empty when the
  // checkpoint has none of that name.
  std::string text(const std::string& name) const;

  const CheckpointTensor* find(std::string_view path) const;  // null when there is none
  // The whole tensor, put together from its shards. Throws ConfigError E404, E409.
  HostTensor read(const CheckpointTensor& tensor) const;
  // A box of it, row-major: of the files only the blocks that have some of it.
  void read_box(const CheckpointTensor& tensor, std::span<const int64_t> offset, const Shape& shape,
                std::byte* to) const;
  // Closes all open files; a later read opens its file again.
  void close_files() const { open_.clear(); }
  // Compares every byte with the checksums. Throws ConfigError E404 with file, tensor and place,
  // E414 for weights or optimizer state that are not finite.
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

// Whether `path` is the folder of a checkpoint, whole or not.
bool is_checkpoint(const std::string& path);
// Steps of the checkpoints in `folder`, newest first: folders with digits as names, no links.
std::vector<int64_t> checkpoint_steps(const std::string& folder);
// The step of a name like "000500"; -1 for other names.
int64_t step_of_name(std::string_view name);

// Whether a checkpoint that threw this may be as good as it was: a newer program, or a later try,
// may read it.
bool is_only_not_read(const ConfigError& error);

// What a checkpoint must be good for; throws ConfigError where it is not.
using CheckpointCheck = std::function<void(const CheckpointReader&)>;

// The newest checkpoint in `folder` that passes `check`. Damaged ones on the way are skipped with a
// warning that says how many steps are lost; null when none is left. Throws ConfigError E408, E409
// of one that is not known to be damaged, but that cannot be read by this program or now.
struct NewestCheckpoint {
  std::unique_ptr<CheckpointReader> reader;
  std::vector<int64_t> damaged;  // steps
  std::vector<std::string> warnings;
};
NewestCheckpoint newest_checkpoint(const std::string& folder,
                                   const CheckpointCheck& check = &CheckpointReader::verify);

}  // namespace meshtrain
