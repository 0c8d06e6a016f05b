// The part of a checkpoint that one process writes, and its report to rank 0.
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
    std::vector<uint64_t> blocks;  // checksums: format.h
  };
  std::string error;       // "[E420] step 500 was not saved: ..."; "" on success
  std::string non_finite;  // "d1/kernel has 3 NaN"
  std::string replicas;    // replica_hashes()
  std::map<std::string, CheckpointFile> files;
  std::vector<Shard> shards;
};
std::string part_text(const WrittenPart& part);
WrittenPart parse_part(std::string_view text);

// Writes files into an existing folder or, with `gather`, sends them to rank 0, which writes them.
// With `gather`, each call may wait for a round of all processes. Throws RuntimeFailure (exit 74).
class PartWriter {
 public:
  explicit PartWriter(std::string folder, FileGather* gather = nullptr)
      : folder_(std::move(folder)), gather_(gather) {}

  // Writes the shards of this process; computes checksums and finiteness in the same pass.
  void write_shard_files(const Snapshot& snapshot, int64_t step);
  void write_text(const std::string& name, const std::string& text);
  // Syncs all files and their folders.
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
