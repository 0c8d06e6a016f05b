// Checkpoints of variables without a model: any mesh and layout, contents that tell each element.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "exec/executor.h"

namespace meshtrain::test {

struct MeshCase {
  std::vector<int64_t> shape;
  std::vector<std::string> axes;
  std::string kernel, bias;  // layouts of (24, 48) and (48,)
};

inline const std::vector<MeshCase>& mesh_cases() {
  static const std::vector<MeshCase> kCases = {{{1}, {"a"}, "[null, null]", "[null]"},
                                               {{2}, {"a"}, "[a, null]", "[a]"},
                                               {{3}, {"a"}, "[null, a]", "[a]"},
                                               {{4}, {"a"}, "[a, null]", "[null]"},
                                               {{6}, {"a"}, "[null, a]", "[null]"},
                                               {{8}, {"a"}, "[a, null]", "[a]"},
                                               {{2, 2}, {"a", "b"}, "[a, b]", "[b]"},
                                               {{2, 4}, {"a", "b"}, "[b, a]", "[a]"},
                                               {{4, 2}, {"a", "b"}, "[[a, b], null]", "[[a, b]]"},
                                               {{2, 3}, {"a", "b"}, "[null, [b, a]]", "[[b, a]]"},
                                               {{2, 2, 2}, {"a", "b", "c"}, "[[a, c], b]", "[c]"},
                                               {{3, 2, 4}, {"a", "b", "c"}, "[c, [a, b]]", "[a]"}};
  return kCases;
}

inline DeviceMesh mesh_of(const MeshCase& c) {
  return DeviceMesh(c.shape, c.axes);
}

inline std::vector<Variable> variables_of(const MeshCase& c) {
  const DeviceMesh mesh = mesh_of(c);
  const auto add = [&](const char* path, Shape shape, DType dtype, VariableRole role,
                       const std::string& layout) {
    Variable variable;
    variable.path = path;
    variable.shape = std::move(shape);
    variable.dtype = dtype;
    variable.role = role;
    variable.trainable = role == VariableRole::kWeight;
    variable.layout.storage = parse_sharding(layout, mesh);
    return variable;
  };
  using Role = VariableRole;
  return {add("d/kernel", {24, 48}, DType::kFloat32, Role::kWeight, c.kernel),
          add("d/bias", {48}, DType::kFloat64, Role::kWeight, c.bias),
          add("adam/iteration", {}, DType::kInt64, Role::kScalar, "[]"),
          add("adam/d_kernel_momentum", {24, 48}, DType::kFloat32, Role::kSlot, c.kernel),
          add("adam/d_bias_momentum", {48}, DType::kFloat64, Role::kSlot, "[null]"),
          add("loss/total", {}, DType::kFloat32, Role::kMetric, "[]"),
          add("mask/count", {5}, DType::kUInt8, Role::kMetric, "[null]")};
}

// The same global tensors on every mesh.
inline HostTensor content_of(const Variable& variable, uint64_t seed) {
  HostTensor out(variable.dtype, variable.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = hash_mix(hash_text(variable.path) + seed, static_cast<uint64_t>(i));
    out.set(i, is_floating(variable.dtype)
                   ? static_cast<double>(bits >> 11) / 9007199254740992.0 - 0.5
                   : static_cast<double>(bits % 200));
  }
  return out;
}

struct Stored {
  explicit Stored(const MeshCase& c, uint64_t seed = 1) : Stored(c, seed, MeshPart(mesh_of(c))) {}
  // What one of several processes has of it.
  Stored(const MeshCase& c, uint64_t seed, const MeshPart& part,
         std::shared_ptr<ProcessGroup> group = nullptr)
      : mesh(mesh_of(c)), store(part, variables_of(c), nullptr, {std::move(group)}) {
    for (size_t v = 0; v < store.variables().size(); ++v) {
      store.write(static_cast<int>(v), content_of(store.variables()[v], seed));
    }
  }
  DeviceMesh mesh;
  VariableStore store;
};

inline CheckpointNotes notes_of(int64_t step) {
  CheckpointNotes notes;
  notes.state.position = {.step = step, .epoch = 1, .batch = 3};
  notes.state.iterations = step;
  notes.state.callbacks["EarlyStopping"] = R"({"best":0.25,"wait":2})";
  notes.written_by = "meshtrain test";
  notes.run_id = "0123abcd";
  notes.time = "2026-01-05T14:03:22Z";
  notes.texts = {{"config.yaml", "name: x\n"}, {"config.resolved.yaml", "name: x\n"}};
  return notes;
}

inline SaveResult save_step(const std::string& folder, Stored& stored, int64_t step) {
  const Snapshot snapshot(stored.store);
  return write_checkpoint(folder, snapshot, notes_of(step));
}

}  // namespace meshtrain::test
