#include <algorithm>

#include "exec/executor.h"
#include "exec/pieces.h"

namespace meshtrain {

VariableStore::VariableStore(const DeviceMesh& mesh, std::vector<Variable> variables)
    : mesh_(mesh), variables_(std::move(variables)) {
  for (const Variable& variable : variables_) {
    const PieceMap map(mesh_, variable.layout.storage, variable.shape, variable.dtype);
    storage_.emplace_back(DType::kUInt8, Shape{std::max<int64_t>(map.total_bytes(), 1)});
  }
}

int VariableStore::find(std::string_view path) const {
  for (size_t v = 0; v < variables_.size(); ++v) {
    if (variables_[v].path == path)
      return static_cast<int>(v);
  }
  return kNone;
}

std::byte* VariableStore::data(int variable) {
  return storage_[variable].bytes();
}

int64_t VariableStore::piece_bytes(int variable) const {
  const Variable& v = variables_[variable];
  return PieceMap(mesh_, v.layout.storage, v.shape, v.dtype).piece_bytes();
}

HostTensor VariableStore::read(int variable) const {
  const Variable& v = variables_[variable];
  HostTensor whole(v.dtype, v.shape);
  PieceMap(mesh_, v.layout.storage, v.shape, v.dtype)
      .gather(storage_[variable].bytes(), whole.bytes());
  return whole;
}

void VariableStore::write(int variable, const HostTensor& value) {
  const Variable& v = variables_[variable];
  MESHTRAIN_CHECK(value.shape() == v.shape && value.dtype() == v.dtype, "{} is {} {}, not {} {}",
                  v.path, dtype_name(v.dtype), shape_string(v.shape), dtype_name(value.dtype()),
                  shape_string(value.shape()));
  PieceMap(mesh_, v.layout.storage, v.shape, v.dtype)
      .scatter(value.bytes(), storage_[variable].bytes());
}

void VariableStore::fill(int variable, double value) {
  HostTensor whole(variables_[variable].dtype, variables_[variable].shape);
  for (int64_t i = 0; i < whole.size(); ++i)
    whole.set(i, value);
  write(variable, whole);
}

int64_t VariableStore::total_bytes() const {
  int64_t bytes = 0;
  for (size_t v = 0; v < variables_.size(); ++v) {
    const Variable& variable = variables_[v];
    bytes += PieceMap(mesh_, variable.layout.storage, variable.shape, variable.dtype).total_bytes();
  }
  return bytes;
}

}  // namespace meshtrain
