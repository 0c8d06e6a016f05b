#include "train/snapshot.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace meshtrain {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

TensorKind tensor_kind(const Variable& variable) {
  switch (variable.role) {
    case VariableRole::kWeight:
      return TensorKind::kWeight;
    case VariableRole::kSlot:
      return TensorKind::kSlot;
    case VariableRole::kScalar:
      return TensorKind::kScalar;
    case VariableRole::kMetric:
      break;
  }
  return TensorKind::kMetric;
}

std::string checkpoint_path(const Variable& variable) {
  return variable.role == VariableRole::kMetric ? "metrics/" + variable.path : variable.path;
}

Snapshot::Snapshot(VariableStore& store, const DeviceMesh& mesh) : store_(store), mesh_(mesh) {
  for (size_t v = 0; v < store.variables().size(); ++v) {
    const Variable& variable = store.variables()[v];
    const Sharding& storage = variable.layout.storage;
    CheckpointTensor tensor{.path = checkpoint_path(variable),
                            .kind = tensor_kind(variable),
                            .trainable = variable.trainable,
                            .dtype = variable.dtype,
                            .shape = variable.shape,
                            .layout = sharding_string(storage, mesh),
                            .pieces = {}};
    const AxisMask axes = storage.used_axes();
    const Shape local = local_shape(variable.shape, storage, mesh);
    for (int64_t p = 0; p < mesh.size_of(axes); ++p) {
      const std::vector<int64_t> start =
          local_start(variable.shape, storage, mesh, device_of_piece(mesh, axes, p));
      tensor.pieces.push_back(
          {.file = {}, .offset = Shape(start.begin(), start.end()), .shape = local});
    }
    piece_bytes_.push_back(static_cast<size_t>(store.piece_bytes(static_cast<int>(v))));
    num_bytes_ += static_cast<int64_t>(piece_bytes_.back() * tensor.pieces.size());
    tensors_.push_back(std::move(tensor));
  }
  add_files("model", true);
  add_files("optimizer", false);
  if (store.device() == nullptr) {
    borrow();
  }
}

void Snapshot::add_files(const char* folder, bool weights) {
  std::vector<size_t> order;  // most pieces first, then the largest
  size_t num_files = 0;
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if ((tensors_[t].kind == TensorKind::kWeight) == weights) {
      order.push_back(t);
      num_files = std::max(num_files, tensors_[t].pieces.size());
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto rank = [&](size_t t) {
      return std::make_pair(tensors_[t].pieces.size(), piece_bytes_[t]);
    };
    return rank(a) > rank(b);
  });
  const size_t first = files_.size();
  for (size_t f = 0; f < num_files; ++f) {
    files_.push_back(
        {fmt::format("{}/shard-{:05}-model-00001-of-00001.safetensors", folder, f + 1), {}});
  }
  std::vector<size_t> load(num_files, 0);
  for (const size_t t : order) {
    std::set<size_t> taken;  // a key occurs once in a file
    for (size_t p = 0; p < tensors_[t].pieces.size(); ++p) {
      size_t best = num_files;
      for (size_t f = 0; f < num_files; ++f) {
        if (!taken.contains(f) && (best == num_files || load[f] < load[best])) {
          best = f;
        }
      }
      taken.insert(best);
      load[best] += piece_bytes_[t];
      tensors_[t].pieces[p].file = files_[first + best].name;
      files_[first + best].pieces.push_back({t, p, nullptr, piece_bytes_[t]});
    }
  }
}

void Snapshot::point_to(const std::vector<const std::byte*>& variables) {
  for (File& file : files_) {
    for (Piece& piece : file.pieces) {
      piece.data = variables[piece.tensor] + piece.piece * piece_bytes_[piece.tensor];
    }
  }
}

void Snapshot::borrow() {
  if (store_.device() != nullptr) {  // the host cannot read there
    copy();
    return;
  }
  std::vector<const std::byte*> variables;
  for (size_t v = 0; v < tensors_.size(); ++v) {
    variables.push_back(store_.data(static_cast<int>(v)));
  }
  point_to(variables);
}

void Snapshot::drop_copies() {
  copies_.clear();
  borrow();
}

void Snapshot::copy() {
  if (copies_.empty()) {
    size_t total = 0;
    for (size_t v = 0; v < tensors_.size(); ++v) {
      total += aligned(piece_bytes_[v] * tensors_[v].pieces.size());
    }
    copies_.emplace_back(DType::kUInt8, Shape{static_cast<int64_t>(std::max<size_t>(total, 1))});
  }
  std::vector<const std::byte*> variables;
  std::byte* to = copies_[0].bytes();
  for (size_t v = 0; v < tensors_.size(); ++v) {
    const size_t bytes = piece_bytes_[v] * tensors_[v].pieces.size();
    store_.copy_pieces(static_cast<int>(v), to);
    variables.push_back(to);
    to += aligned(bytes);
  }
  point_to(variables);
}

std::string layout_json(const std::vector<CheckpointTensor>& tensors) {
  nlohmann::json out = nlohmann::json::object();
  for (const CheckpointTensor& tensor : tensors) {
    out[tensor.path] = tensor.layout;
  }
  return out.dump(1) + "\n";
}

}  // namespace meshtrain
