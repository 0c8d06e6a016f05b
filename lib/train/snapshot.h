// Snapshot: the variables of a model as a checkpoint holds them, copied so that training can go on
// while they are written.
//
// Each distinct piece is written once. A variable that lies in n pieces gives one to each of n
// files; small ones go where the fewest bytes are.
#pragma once

#include <cstddef>
#include <vector>

#include "exec/executor.h"
#include "train/checkpoint_format.h"

namespace meshtrain {

class Snapshot {
 public:
  struct Piece {
    size_t tensor = 0;  // index into tensors()
    size_t piece = 0;   // of that tensor
    const std::byte* data = nullptr;
    size_t num_bytes = 0;
  };
  struct File {
    std::string name;  // "model/shard-00001-model-00001-of-00001.safetensors"
    std::vector<Piece> pieces;
  };

  // Plans the files; the data are the store's own until copy() is called, of a store on a GPU there
  // are none before. The store must outlive the snapshot.
  Snapshot(VariableStore& store, const DeviceMesh& mesh);

  // Copies every variable as it is now into memory of the snapshot's own, which it keeps for the
  // next time. Throws RuntimeFailure (exit 4) when there is no memory.
  void copy();
  // From now on the data are the store's own again, or a copy where these are on a GPU.
  void borrow();
  // The same, and gives back the memory of copies.
  void drop_copies();

  int64_t num_bytes() const { return num_bytes_; }
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const std::vector<File>& files() const { return files_; }
  const DeviceMesh& mesh() const { return mesh_; }

 private:
  void add_files(const char* folder, bool weights);
  void point_to(const std::vector<const std::byte*>& variables);

  VariableStore& store_;
  DeviceMesh mesh_;
  std::vector<CheckpointTensor> tensors_;  // one for each variable
  std::vector<size_t> piece_bytes_;        // of each
  std::vector<File> files_;
  std::vector<HostTensor> copies_;
  int64_t num_bytes_ = 0;
};

// The key of a variable in a checkpoint.
std::string checkpoint_path(const Variable& variable);
TensorKind tensor_kind(const Variable& variable);
// layout.json: {path: layout}.
std::string layout_json(const std::vector<CheckpointTensor>& tensors);

}  // namespace meshtrain
