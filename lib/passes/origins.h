// Origins: why values are split or partial over mesh axes, for the causes of collectives. Names and
// their text are those of propagate().
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace meshtrain {

// A value is split or partial over `axis` because of `origin` (Origins::name). A sum can be partial
// because of several origins: one for each split operand.
struct Reason {
  int axis;
  int origin;
  bool operator==(const Reason&) const = default;
};
using Reasons = SmallVector<Reason, 2>;

// Adds the reasons of `from` for the axes of the mask that `to` does not have.
void add_reasons(Reasons& to, const Reasons& from, AxisMask axes = ~AxisMask{0});

class Origins {
 public:
  int number(const std::string& name);
  // Why `value` is split over the axes of its dims, by its sharding_origin.
  Reasons of(const Value& value);
  // The names for the axes of the mask, each once, in the order of their numbers; a list as
  // ir/name_list.h has it.
  std::string names(const Reasons& reasons, AxisMask axes) const;
  // A sharding_origin for these dims.
  std::string text(const Reasons& reasons, const DimAxes& dims) const;

 private:
  using Numbers = SmallVector<int, 2>;

  std::vector<std::string> names_;
  std::unordered_map<std::string, int> numbers_;     // of names_
  std::unordered_map<std::string, Numbers> parsed_;  // of each text seen
};

}  // namespace meshtrain
