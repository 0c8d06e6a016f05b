#include "ir/graph.h"

#include "base/error.h"
#include "ir/op.h"

namespace meshtrain {
namespace {

template <class T>
const T& attr_of(const Node& node, std::string_view name, std::string_view type) {
  const auto found = node.attrs.find(name);
  const std::string_view op = node.op != nullptr ? node.op->name : "no op";
  MESHTRAIN_CHECK(found != node.attrs.end(), "{} ({}) has no attribute `{}`", node.path, op, name);
  const T* value = std::get_if<T>(&found->second);
  MESHTRAIN_CHECK(value != nullptr, "{} ({}): attribute `{}` is no {}", node.path, op, name, type);
  return *value;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "unknown";
}

int64_t Node::attr_int(std::string_view name) const {
  return attr_of<int64_t>(*this, name, "integer");
}

double Node::attr_double(std::string_view name) const {
  return attr_of<double>(*this, name, "floating-point number");
}

const std::string& Node::attr_string(std::string_view name) const {
  return attr_of<std::string>(*this, name, "string");
}

const std::vector<int64_t>& Node::attr_ints(std::string_view name) const {
  return attr_of<std::vector<int64_t>>(*this, name, "list of integers");
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> counts(values.size(), 0);
  for (const Node& node : nodes) {
    for (ValueId input : node.inputs) {
      ++counts[input];
    }
  }
  for (const Output& output : outputs) {
    ++counts[output.value];
  }
  for (const Update& update : updates) {
    ++counts[update.value];
  }
  return counts;
}

}  // namespace meshtrain
