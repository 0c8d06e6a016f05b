#include "passes/origins.h"

#include <algorithm>

#include "ir/name_list.h"

namespace meshtrain {

void add_reasons(Reasons& to, const Reasons& from, AxisMask axes) {
  for (const Reason& reason : from) {
    if ((axes >> reason.axis & 1) != 0 && std::find(to.begin(), to.end(), reason) == to.end()) {
      to.push_back(reason);
    }
  }
}

int Origins::number(const std::string& name) {
  const auto [found, is_new] = numbers_.emplace(name, static_cast<int>(names_.size()));
  if (is_new) {
    names_.push_back(name);
  }
  return found->second;
}

Reasons Origins::of(const Value& value) {
  Reasons out;
  if (value.sharding_origin.empty() || value.sharding->dim_axes() == 0) {
    return out;
  }
  const auto [found, is_new] = parsed_.emplace(value.sharding_origin, Numbers{});
  Numbers& numbers = found->second;
  if (is_new) {
    for (const std::string& name : split_names(value.sharding_origin)) {
      numbers.push_back(number(name));
    }
  }
  size_t i = 0;
  for (const AxisList& axes : value.sharding->dims) {
    for (const int axis : axes) {
      out.push_back({axis, numbers[std::min(i, numbers.size() - 1)]});
      ++i;
    }
  }
  return out;
}

std::string Origins::names(const Reasons& reasons, AxisMask axes) const {
  Numbers numbers;
  for (const Reason& reason : reasons) {
    if ((axes >> reason.axis & 1) != 0) {
      numbers.push_back(reason.origin);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.resize(
      static_cast<size_t>(std::unique(numbers.begin(), numbers.end()) - numbers.begin()));
  std::string out;
  for (const int number : numbers) {
    add_name(out, names_[number]);
  }
  return out;
}

std::string Origins::text(const Reasons& reasons, const DimAxes& dims) const {
  std::string out;
  for (const AxisList& axes : dims) {
    for (const int axis : axes) {
      const auto reason = std::find_if(reasons.begin(), reasons.end(),
                                       [&](const Reason& r) { return r.axis == axis; });
      add_name(out, reason == reasons.end() ? "" : names_[reason->origin]);
    }
  }
  return out;
}

}  // namespace meshtrain
