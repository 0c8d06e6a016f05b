#include "passes/resharder.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "ir/op.h"
#include "passes/factors.h"

namespace meshtrain {

void Resharder::set_sharding(ValueId value, Sharding sharding, Reasons reasons) {
  const AxisMask used = sharding.used_axes();
  erase_if(reasons, [&](const Reason& reason) { return (used >> reason.axis & 1) == 0; });
  graph().values[value].sharding_origin = origins_.text(reasons, sharding.dims);
  graph().values[value].sharding = std::move(sharding);
  why_.resize(std::max(why_.size(), graph().values.size()));
  why_[value] = std::move(reasons);
}

ValueId Resharder::reshard(ValueId value, Sharding target, Reader reader, const Reasons& reasons) {
  const Sharding& source = *graph().values[value].sharding;
  target.combine = target.partial != 0 ? source.combine : Combine::kSum;
  if (source == target) {
    return value;
  }
  const uint64_t hash = hash_mix(static_cast<uint64_t>(value), target.partial);
  const int known = shared_index_.find(hash, [&](int id) {
    return shared_[static_cast<size_t>(id)].value == value &&
           shared_[static_cast<size_t>(id)].target == target;
  });
  if (known != HashIndex::kAbsent && reader.shares) {
    return shared_[static_cast<size_t>(known)].result;
  }
  const Shape shape = graph().values[value].shape;
  const DType dtype = graph().values[value].dtype;
  const Node& maker = graph().producer(value);
  const std::string moved(!reader.moved.empty()  ? reader.moved
                          : maker.has_attr("of") ? maker.attr_string("of")
                                                 : maker.path);
  reader.moved = moved;
  ValueId now = value;
  for (const ReshardMove& move : plan_reshard(source, target, shape, dtype, mesh_)) {
    now = append(move, now, reader, reasons);
  }
  shared_index_.add(hash, static_cast<int>(shared_.size()));
  shared_.push_back({value, std::move(target), now});
  return now;
}

std::string Resharder::unique_path(std::string path) {
  const int uses = path_uses_[path]++;
  return uses == 0 ? path : fmt::format("{}_{}", path, uses);
}

ValueId Resharder::append(const ReshardMove& move, ValueId value, Reader reader,
                          const Reasons& reasons) {
  const Value& source = graph().values[value];
  // A permute names the axes that its dimension has afterwards.
  const bool permutes = move.kind == MoveKind::kPermute;
  const AxisList& axes = permutes ? move.result.dims[move.dim] : move.axes;
  const AxisMask before = permutes ? mask_of(source.sharding->dims[move.dim]) : 0;
  Reasons all = why(value);
  add_reasons(all, reasons);
  Node node;
  node.op = &collective_op(move.kind);
  node.inputs = {value};
  node.attrs = {{"axes", std::vector<int64_t>(axes.begin(), axes.end())},
                {"cause", origins_.names(all, before | mask_of(axes))},
                {"combine", std::string(combine_name(source.sharding->combine))},
                {"dim", int64_t{move.dim}},
                {"of", std::string(reader.moved)},
                {"to_dim", int64_t{move.to_dim}}};
  node.path = unique_path(fmt::format("{}/{}", reader.path, node.op->name));
  node.phase = reader.phase;
  const ValueId result = rewriter_.append(std::move(node), {source.shape, source.dtype});
  set_sharding(result, move.result, all);
  return result;
}

}  // namespace meshtrain
