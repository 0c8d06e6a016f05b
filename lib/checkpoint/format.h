// The format of checkpoints: manifest.json and state.json.
//
//   checkpoints/
//     000500/                        name = step; there only when complete
//       manifest.json                all files below with checksums; written last
//       state.json                   counters, position in the data, metrics' and callbacks' state
//       config.yaml  config.resolved.yaml  layout.json
//       model/shard-00001-model-00001-of-00001.safetensors       one file per distinct shard
//       optimizer/shard-00001-model-00001-of-00001.safetensors   slots, scalars, metrics
//     best -> 000450                 for people
//     tmp.000600.<run>/              being written
//     trash.000400.<run>/            being deleted
//     aside.000550.<n>/              quarantine: damaged, or newer than the one that was resumed
//     rejected/000480/               not finite, at most one
//     LOCK                           flock; host, process and run
//
// Readers accept at most 1 GiB of manifest and 16 MiB of state, 32 levels, and no key twice.
// Writers never exceed these limits. Unknown keys are ignored; an unknown major version is an
// error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/logs.h"
#include "mesh/device_mesh.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace meshtrain {

inline constexpr int kCheckpointMajor = 1;
inline constexpr int kCheckpointMinor = 0;
inline constexpr size_t kChecksumBlock = size_t{4} << 20;

// A shard of a tensor: a box, in one file. The key in the manifest is `pieces`.
struct CheckpointShard {
  std::string file;     // "model/shard-00001-model-00001-of-00001.safetensors"
  Shape offset, shape;  // in the whole tensor
  uint64_t begin = 0;   // bytes of the file
  uint64_t end = 0;
  std::vector<uint64_t> blocks;  // xxh3 of each kChecksumBlock bytes, the last one shorter
};

enum class TensorKind : uint8_t { kWeight, kSlot, kScalar, kMetric };
std::string_view tensor_kind_name(TensorKind kind);  // "weight"

struct CheckpointTensor {
  std::string path;  // key in the files: "d1/kernel"; metrics begin with "metrics/"
  TensorKind kind = TensorKind::kWeight;
  bool trainable = false;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::string layout;  // "[data, null]"
  std::vector<CheckpointShard> shards;
};

struct CheckpointFile {
  uint64_t size = 0;
  std::string xxh3_128;
};

// The position of training in the data, and which data and order it refers to.
struct DataCursor {
  std::string data;  // checksum of the samples as fit reads them: restore.h
  std::string description;
  int64_t num_samples = 0;
  int64_t batch_size = 0;
  int64_t steps_per_epoch = 0;
  bool shuffle = true;
  std::string remainder = "keep";
  int64_t seed = 0;
};

struct TrainState {
  TrainPosition position;
  int64_t iterations = 0;     // of the optimizer
  double learning_rate = -1;  // set by a callback; negative: the optimizer's own
  DataCursor cursor;
  std::string monitor;                           // the log that `best` tracks
  double best = 0;                               // its best value so far
  int64_t best_step = -1;                        // -1: none yet
  std::map<std::string, std::string> callbacks;  // JSON of each
};

struct Manifest {
  int major = kCheckpointMajor, minor = kCheckpointMinor;
  std::string written_by, run_id, parent_run, time;
  int64_t step = 0, epoch = 0;
  std::string config_checksum, model_signature;
  std::string plan_signature;  // "" in older checkpoints
  std::vector<MeshAxis> mesh;
  int64_t processes = 1;  // 1 in older checkpoints
  std::vector<CheckpointTensor> tensors;
  std::map<std::string, CheckpointFile> files;
  DataCursor cursor;
  double loss = 0;  // of the last step
};

// Returns a hash of the weights' paths, shapes and dtypes.
std::string model_signature(const std::vector<CheckpointTensor>& tensors);
// Returns a hash of the mesh and of every tensor's sharding on it.
std::string plan_signature(const std::vector<MeshAxis>& mesh,
                           const std::vector<CheckpointTensor>& tensors);

std::string manifest_text(const Manifest& manifest);
std::string state_text(const TrainState& state);
// `path` is for messages. Throws ConfigError: E402 no such JSON, E403 changed after it was written,
// E406 a file name outside of the checkpoint, E407 shards that overlap or leave a gap, E408 a newer
// format.
Manifest parse_manifest(std::string_view text, const std::string& path);
TrainState parse_state(std::string_view text, const std::string& path);
// Throws ConfigError E407 unless the shards cover the tensor: they must be in it, not overlap, and
// have as many elements as it has. `path` is the manifest's, for messages.
void check_tiling(const CheckpointTensor& tensor, const std::string& path);

}  // namespace meshtrain
