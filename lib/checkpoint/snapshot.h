// Snapshot: the variables of a model as a checkpoint holds them, copied so that training can go on
// while they are written.
//
// Each distinct shard is written once in the whole run, by one of the processes that hold it: the
// one with the fewest bytes so far. Every process plans the files of all alike. A variable of which
// a process writes n shards gives one to each of n files; small ones go where the fewest bytes are.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format.h"
#include "exec/executor.h"

namespace meshtrain {

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

  // Plans the files; the data are the store's own until copy() is called, of a store on a GPU there
  // are none before. The store must outlive the snapshot.
  explicit Snapshot(VariableStore& store);

  // Copies this process's shards of every variable as they are now into memory of the snapshot's
  // own, which it keeps for the next time. Throws RuntimeFailure (exit 4) when there is no memory.
  void copy();
  // From now on the data are the store's own again, or a copy where these are on a GPU.
  void borrow();
  // Gives back the memory of copies; borrow() or copy() must come before the data are used again.
  void drop_copies() { copies_.clear(); }

  int64_t num_bytes() const { return num_bytes_; }        // of all tensors
  int64_t copied_bytes() const { return copied_bytes_; }  // of this process's copy
  // All, each with all its shards and the files that these are in.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const std::vector<File>& files() const { return files_; }  // that this process writes
  const VariableStore& store() const { return store_; }
  const DeviceMesh& mesh() const { return store_.part().mesh(); }
  // This process's shards of a variable, one after the other.
  const std::byte* shards(int variable) const { return data_[static_cast<size_t>(variable)]; }

 private:
  struct Plan;
  using Shards = std::vector<std::pair<size_t, size_t>>;  // of tensor, shard

  void add_tensors();
  void add_files(Plan& plan, const char* folder, bool weights);
  void add_files_of(Plan& plan, const char* folder, int rank, const Shards& shards);
  void point_to(std::vector<const std::byte*> variables);

  VariableStore& store_;
  std::vector<CheckpointTensor> tensors_;  // one for each variable
  std::vector<size_t> shard_bytes_;        // of each
  std::vector<File> files_;
  std::vector<const std::byte*> data_;  // by variable
  std::vector<HostTensor> copies_;
  int64_t num_bytes_ = 0, copied_bytes_ = 0;
};

// The key of a variable in a checkpoint.
std::string checkpoint_path(const Variable& variable);
TensorKind tensor_kind(const Variable& variable);
// layout.json: {path: layout}.
std::string layout_json(const std::vector<CheckpointTensor>& tensors);

}  // namespace meshtrain
