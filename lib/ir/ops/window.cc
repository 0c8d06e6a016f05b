#include "ir/ops/window.h"

#include "base/error.h"

namespace meshtrain {
namespace {

const std::vector<int64_t>& ints(const Attrs& attrs, std::string_view name) {
  const auto found = attrs.find(name);
  MESHTRAIN_CHECK(found != attrs.end(), "a window without `{}`", name);
  const auto* list = std::get_if<std::vector<int64_t>>(&found->second);
  MESHTRAIN_CHECK(list != nullptr, "`{}` of a window is no list of integers", name);
  return *list;
}

}  // namespace

Window window_of(const Attrs& attrs) {
  return {ints(attrs, "strides"), ints(attrs, "dilations"), ints(attrs, "pads_before"),
          ints(attrs, "pads_after")};
}

void set_window(Attrs& attrs, const Window& window) {
  attrs["strides"] = window.strides;
  attrs["dilations"] = window.dilations;
  attrs["pads_before"] = window.pads_before;
  attrs["pads_after"] = window.pads_after;
}

int64_t window_reach(const Window& window, size_t dim, int64_t cells) {
  return (cells - 1) * window.dilations[dim] + 1;
}

int64_t window_outputs(const Window& window, size_t dim, int64_t input, int64_t cells) {
  const int64_t room =
      input + window.pads_before[dim] + window.pads_after[dim] - window_reach(window, dim, cells);
  return room < 0 ? 0 : room / window.strides[dim] + 1;
}

}  // namespace meshtrain
