// What one process writes of a checkpoint, and what it tells rank 0 of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_file.h"
#include "checkpoint/file_gather.h"
#include "checkpoint/snapshot.h"
#include "tensor/safetensors.h"

namespace meshtrain {

struct WrittenPart {
  struct Shard {
    size_t tensor = 0, index = 0;
    uint64_t begin = 0, end = 0;   // bytes of the file
    std::vector<uint64_t> blocks;  // checksums: checkpoint_format.h
  };
  std::string error;       // why not: "[E420] step 500 was not saved: ..."
  std::string non_finite;  // "d1/kernel has 3 NaN"
  std::string replicas;    // replica_hashes()
  std::map<std::string, CheckpointFile> files;
  std::vector<Shard> shards;
};
std::string part_text(const WrittenPart& part);
WrittenPart parse_part(std::string_view text);

// Writes files into a folder that is there, or sends them to rank 0, which does: then each call may
// wait for the others in a round of `gather`. Throws RuntimeFailure (exit 74).
class PartWriter {
 public:
  explicit PartWriter(std::string folder, FileGather* gather = nullptr)
      : folder_(std::move(folder)), gather_(gather) {}

  // This process's shards, checksums and finiteness in one pass.
  void write_shard_files(const Snapshot& snapshot, int64_t step);
  void write_text(const std::string& name, const std::string& text);
  // Files, and the folders that have them.
  void sync();

  const WrittenPart& part() const { return part_; }

 private:
  OutputFile& create(const std::string& name);
  void written(const OutputFile& out, const std::string& name);
  void sync_files();
  void write_shard_file(const Snapshot& snapshot, const Snapshot::File& file, int64_t step);
  void write_shard(const CheckpointTensor& tensor, const Snapshot::Shard& from, OutputFile& out);

  std::string folder_;
  FileGather* gather_;
  std::vector<std::unique_ptr<OutputFile>> open_;  // written, not yet synced
  WrittenPart part_;
};

}  // namespace meshtrain
