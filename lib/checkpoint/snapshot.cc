#include "checkpoint/snapshot.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace meshtrain {
namespace {

constexpr size_t kAlignment = 64;
constexpr std::string_view kCachePath = "cache/";  // as passes/incremental.cc names them

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

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

}  // namespace

bool is_state(const Variable& variable) {
  return variable.role != VariableRole::kMetric || !variable.path.starts_with(kCachePath);
}

std::string checkpoint_path(const Variable& variable) {
  return variable.role == VariableRole::kMetric ? "metrics/" + variable.path : variable.path;
}

namespace {

// The processes that hold each distinct shard over a set of axes.
struct Holders {
  Holders(const MeshPart& part, AxisMask axes) : by_shard(part.mesh().size_of(axes)) {
    const DeviceMesh& mesh = part.mesh();
    for (int64_t device = 0; device < mesh.num_devices(); ++device) {
      auto& all = by_shard[static_cast<size_t>(distinct_shard(mesh, axes, device))];
      all.insert(part.process_of(device));
    }
    for (int64_t shard = 0; shard < part.num_shards(axes); ++shard) {
      const int64_t device = part.device_of(axes, shard);
      local[static_cast<size_t>(distinct_shard(mesh, axes, device))] = static_cast<size_t>(shard);
    }
  }
  std::vector<std::set<int>> by_shard;  // processes
  std::map<size_t, size_t> local;       // of the shards that this process holds: which of its own
};

}  // namespace

// The state of planning, equal on every process.
struct Snapshot::Plan {
  const Holders& holders(const MeshPart& part, AxisMask axes) {
    return by_axes.try_emplace(axes, part, axes).first->second;
  }
  std::map<AxisMask, Holders> by_axes;
  std::vector<size_t> bytes;  // that each process writes
  size_t num_files = 0;       // of the folder
};

Snapshot::Snapshot(VariableStore& store) : store_(store) {
  add_tensors();
  Plan plan;
  plan.bytes.resize(static_cast<size_t>(store.part().processes()));
  add_files(plan, "model", true);
  add_files(plan, "optimizer", false);
  if (store.device() == nullptr) {
    borrow();
  }
}

void Snapshot::add_tensors() {
  for (size_t v = 0; v < store_.variables().size(); ++v) {
    const Variable& variable = store_.variables()[v];
    if (!is_state(variable)) {
      break;
    }
    const Sharding& storage = variable.layout.storage;
    CheckpointTensor tensor{.path = checkpoint_path(variable),
                            .kind = tensor_kind(variable),
                            .trainable = variable.trainable,
                            .dtype = variable.dtype,
                            .shape = variable.own_shape(),
                            .layout = sharding_string(storage, mesh()),
                            .shards = {}};
    const AxisMask axes = storage.used_axes();
    std::vector<size_t> places;
    for (int64_t p = 0; p < mesh().size_of(axes); ++p) {
      const std::vector<int64_t> start =
          local_start(variable.shape, storage, mesh(), device_of_shard(mesh(), axes, p));
      Shape shape = local_shape(variable.shape, storage, mesh());
      for (size_t d = 0; d < shape.size(); ++d)
        shape[d] = std::min(shape[d], tensor.shape[d] - start[d]);
      if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < 0; }) ||
          (!variable.unpadded.empty() && num_elements(shape) == 0))
        continue;  // zeros that fill up the variable
      num_bytes_ += num_elements(shape) * static_cast<int64_t>(dtype_size(variable.dtype));
      tensor.shards.push_back(
          {.file = {}, .offset = Shape(start.begin(), start.end()), .shape = shape});
      places.push_back(static_cast<size_t>(p));
    }
    places_.push_back(std::move(places));
    shard_bytes_.push_back(static_cast<size_t>(store_.shard_bytes(static_cast<int>(v))));
    copied_bytes_ += static_cast<int64_t>(
        aligned(shard_bytes_.back() * static_cast<size_t>(store_.part().num_shards(axes))));
    tensors_.push_back(std::move(tensor));
  }
}

void Snapshot::add_files(Plan& plan, const char* folder, bool weights) {
  std::vector<size_t> order;  // most shards first, then the largest
  for (size_t t = 0; t < tensors_.size(); ++t) {
    if ((tensors_[t].kind == TensorKind::kWeight) == weights) {
      order.push_back(t);
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto rank = [&](size_t t) {
      return std::make_pair(tensors_[t].shards.size(), shard_bytes_[t]);
    };
    return rank(a) > rank(b);
  });
  // The shards that each process writes, tensor after tensor.
  std::vector<Shards> written(plan.bytes.size());
  for (const size_t t : order) {
    const AxisMask axes = store_.variables()[t].layout.storage.used_axes();
    const Holders& holders = plan.holders(store_.part(), axes);
    for (size_t p = 0; p < tensors_[t].shards.size(); ++p) {
      const std::set<int>& able = holders.by_shard[places_[t][p]];
      const int writer = *std::min_element(able.begin(), able.end(), [&](int a, int b) {
        return plan.bytes[static_cast<size_t>(a)] < plan.bytes[static_cast<size_t>(b)];
      });
      plan.bytes[static_cast<size_t>(writer)] += shard_bytes_[t];
      written[static_cast<size_t>(writer)].emplace_back(t, p);
    }
  }
  plan.num_files = 0;
  for (size_t rank = 0; rank < written.size(); ++rank) {
    add_files_of(plan, folder, static_cast<int>(rank), written[rank]);
  }
}

void Snapshot::add_files_of(Plan& plan, const char* folder, int rank, const Shards& shards) {
  std::map<size_t, size_t> count;  // of each tensor
  size_t num_files = 0;
  for (const auto& [t, p] : shards) {
    num_files = std::max(num_files, ++count[t]);
  }
  std::vector<File> files(num_files);
  const std::string writer =
      plan.bytes.size() > 1 ? fmt::format("rank-{:05}-", rank) : std::string();
  for (File& file : files) {
    file.name = fmt::format("{}/shard-{:05}-{}model-00001-of-00001.safetensors", folder,
                            ++plan.num_files, writer);
  }
  std::vector<size_t> load(num_files, 0), taken(num_files, tensors_.size());
  for (const auto& [t, p] : shards) {
    size_t best = num_files;
    for (size_t f = 0; f < num_files; ++f) {  // a key occurs once in a file
      if (taken[f] != t && (best == num_files || load[f] < load[best])) {
        best = f;
      }
    }
    taken[best] = t;
    load[best] += shard_bytes_[t];
    tensors_[t].shards[p].file = files[best].name;
    const Holders& holders =
        plan.holders(store_.part(), store_.variables()[t].layout.storage.used_axes());
    const auto own = holders.local.find(places_[t][p]);
    files[best].shards.push_back(
        {.tensor = t,
         .index = p,
         .local = own == holders.local.end() ? 0 : own->second,
         .data = nullptr,
         .num_bytes = static_cast<size_t>(num_elements(tensors_[t].shards[p].shape)) *
                      dtype_size(tensors_[t].dtype)});
  }
  if (rank == store_.part().rank()) {
    std::move(files.begin(), files.end(), std::back_inserter(files_));
  }
}

void Snapshot::point_to(std::vector<const std::byte*> variables) {
  data_ = std::move(variables);
  cut_.clear();
  for (File& file : files_) {
    for (Shard& shard : file.shards) {
      shard.data = data_[shard.tensor] + shard.local * shard_bytes_[shard.tensor];
      if (shard.num_bytes < shard_bytes_[shard.tensor])
        shard.data = without_padding(shard);
    }
  }
}

// Rows at the end are left out where they are; the ends of rows only in a copy.
const std::byte* Snapshot::without_padding(const Shard& shard) {
  const CheckpointTensor& tensor = tensors_[shard.tensor];
  const Variable& variable = store_.variables()[shard.tensor];
  const Shape &shape = tensor.shards[shard.index].shape,
              stored = local_shape(variable.shape, variable.layout.storage, mesh());
  if (std::equal(shape.begin() + 1, shape.end(), stored.begin() + 1))
    return shard.data;
  HostTensor whole(tensor.dtype, stored);
  std::copy_n(shard.data, whole.num_bytes(), whole.bytes());
  cut_.push_back(whole.resized(shape));
  return cut_.back().bytes();
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
  point_to(std::move(variables));
}

void Snapshot::copy() {
  if (copies_.empty()) {
    copies_.emplace_back(DType::kUInt8, Shape{std::max<int64_t>(copied_bytes_, 1)});
  }
  std::vector<const std::byte*> variables;
  std::byte* to = copies_[0].bytes();
  for (size_t v = 0; v < tensors_.size(); ++v) {
    store_.copy_shards(static_cast<int>(v), to);
    variables.push_back(to);
    to += aligned(static_cast<size_t>(store_.map(static_cast<int>(v)).total_bytes()));
  }
  point_to(std::move(variables));
}

std::string layout_json(const std::vector<CheckpointTensor>& tensors) {
  nlohmann::json out = nlohmann::json::object();
  for (const CheckpointTensor& tensor : tensors) {
    out[tensor.path] = tensor.layout;
  }
  return out.dump(1) + "\n";
}

}  // namespace meshtrain
