// Snapshot: the variables of a model as a checkpoint holds them, copied so that training continues
// while they are written.
//
// One process writes each distinct shard: among its holders, the one with the fewest bytes so far.
// Every process computes the same plan. When a process writes n shards of a variable, they are in n
// different files; small variables are in the file with the fewest bytes.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format.h"
#include "exec/executor.h"

namespace meshtrain {

// False for caches of decode steps, which are behind all other variables and empty between texts.
bool is_state(const Variable& variable);

class Snapshot {
 public:
  struct Shard {
    size_t tensor = 0;  // index into tensors()
    size_t index = 0;   // of that tensor
    size_t local = 0;   // the same among those that this process holds
    const std::byte* data = nullptr;
    size_t num_bytes = 0;
  };
  struct File {
    // "model/shard-00001-model-00001-of-00001.safetensors"; of several processes
    // "model/shard-00002-rank-00001-model-00001-of-00001.safetensors"
    std::string name;
    std::vector<Shard> shards;
  };

  // Plans the files. Until copy() is called, the data are the store's own memory; a store on a GPU
  // has none. The store must outlive the snapshot.
  explicit Snapshot(VariableStore& store);

  // Copies the current shards of this process into memory of the snapshot, which it reuses for the
  // next copy. Throws RuntimeFailure (exit 4) when allocation fails.
  void copy();
  // Makes the data the store's own memory again, or a copy of it on a GPU.
  void borrow();
  // Frees the copies. Call borrow() or copy() before the data are used again.
  void drop_copies() { copies_.clear(); }

  int64_t num_bytes() const { return num_bytes_; }        // of all tensors
  int64_t copied_bytes() const { return copied_bytes_; }  // of this process's copy
  // All tensors, each with all its shards and their files.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const std::vector<File>& files() const { return files_; }  // written by this process
  const VariableStore& store() const { return store_; }
  const DeviceMesh& mesh() const { return store_.part().mesh(); }
  // Returns this process's shards of a variable, one after the other.
  const std::byte* shards(int variable) const { return data_[static_cast<size_t>(variable)]; }

 private:
  struct Plan;
  using Shards = std::vector<std::pair<size_t, size_t>>;  // of tensor, shard

  void add_tensors();
  void add_files(Plan& plan, const char* folder, bool weights);
  void add_files_of(Plan& plan, const char* folder, int rank, const Shards& shards);
  void point_to(std::vector<const std::byte*> variables);
  const std::byte* without_padding(const Shard& shard);

  VariableStore& store_;
  std::vector<CheckpointTensor> tensors_;  // one for each variable
  std::vector<size_t> shard_bytes_;        // of each, in memory
  // Of each tensor's shards: the number among all distinct shards, some of which have nothing but
  // zeros that fill up the variable.
  std::vector<std::vector<size_t>> places_;
  std::vector<File> files_;
  std::vector<const std::byte*> data_;  // by variable
  std::vector<HostTensor> copies_, cut_;
  int64_t num_bytes_ = 0, copied_bytes_ = 0;
};

// The key of a variable in a checkpoint.
std::string checkpoint_path(const Variable& variable);
// layout.json: {path: layout}.
std::string layout_json(const std::vector<CheckpointTensor>& tensors);

}  // namespace meshtrain
