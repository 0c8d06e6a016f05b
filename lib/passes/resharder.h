// Resharder: reshards values of a graph during partitioning.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash_index.h"
#include "mesh/reshard.h"
#include "passes/origins.h"
#include "passes/rewrite.h"

namespace meshtrain {

class Resharder {
 public:
  // Works on the new graph of `rewriter`. Both outlive this.
  Resharder(Rewriter& rewriter, const DeviceMesh& mesh) : rewriter_(rewriter), mesh_(mesh) {}

  Origins& origins() { return origins_; }

  // `reasons`: the origins of its split and partial axes; reasons for other axes are ignored.
  void set_sharding(ValueId value, Sharding sharding, Reasons reasons);
  const Reasons& why(ValueId value) const { return why_[value]; }

  // The node that reads the resharded value; collectives get its path and phase. `moved`: the
  // variable whose value or gradient is moved; empty: the value is named after its producer.
  struct Reader {
    std::string_view path;
    Phase phase;
    std::string_view moved;
    bool shares = true;  // what others resharded so
  };

  // Returns `value` resharded to `target` by the planner's moves; shared by all readers. `reasons`:
  // the origins of the target's axes.
  ValueId reshard(ValueId value, Sharding target, Reader reader, const Reasons& reasons);

 private:
  Graph& graph() { return rewriter_.to(); }
  ValueId append(const ReshardMove& move, ValueId value, Reader reader, const Reasons& reasons);
  std::string unique_path(std::string path);

  // Resharded values, which readers share.
  struct Shared {
    ValueId value;
    Sharding target;
    ValueId result;
  };

  Rewriter& rewriter_;
  const DeviceMesh& mesh_;
  Origins origins_;
  std::vector<Reasons> why_;  // beside the new graph's values
  std::vector<Shared> shared_;
  HashIndex shared_index_;
  std::unordered_map<std::string, int> path_uses_;
};

}  // namespace meshtrain
