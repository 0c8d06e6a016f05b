#include "interop/keras/import_unused.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/printable.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// Of each call: whether an output of the model is computed from it. Inputs stand before a call.
std::vector<bool> used_calls(const KerasModel& model) {
  std::vector<bool> out(model.calls.size(), false);
  for (const auto& [name, call] : model.outputs) {
    out[static_cast<size_t>(call)] = true;
  }
  for (size_t i = out.size(); i-- > 0;) {
    const KerasCall& call = model.calls[i];
    if (!out[i]) {
      continue;
    }
    for (const int input : call.inputs) {
      out[static_cast<size_t>(input)] = true;
    }
    if (call.result_of >= 0) {
      out[static_cast<size_t>(call.result_of)] = true;
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {  // all outputs of a call stay with it
    const int source = model.calls[i].result_of;
    out[i] = out[i] || (source >= 0 && out[static_cast<size_t>(source)]);
  }
  return out;
}

// Keeps those of `items` that are `kept`. Returns the new index of each.
template <typename T>
std::vector<int> keep_only(std::vector<T>& items, const std::vector<bool>& kept) {
  std::vector<int> index(items.size(), -1);
  size_t next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (kept[i]) {
      index[i] = static_cast<int>(next);
      if (next != i) {
        items[next] = std::move(items[i]);
      }
      ++next;
    }
  }
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(next), items.end());
  return index;
}

void note_left_out(KerasModel& model, const std::vector<bool>& kept) {
  std::vector<std::string> names;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const KerasLayer& layer = model.layers[i];
    if (kept[i]) {
      continue;
    }
    names.push_back(fmt::format("`{}` ({})", printable(layer.name), layer.class_name));
    if (!layer.group.empty()) {
      model.left_out.push_back(layer.group);
    }
  }
  if (!names.empty()) {
    model.dropped.push_back(fmt::format("layer{} {}: no output is computed from {}",
                                        names.size() > 1 ? "s" : "", join(names, ", "),
                                        names.size() > 1 ? "them" : "it"));
  }
}

}  // namespace

void leave_out_unused(KerasModel& model) {
  const std::vector<bool> used = used_calls(model);
  if (std::find(used.begin(), used.end(), false) == used.end()) {
    return;
  }
  const std::vector<int> call_index = keep_only(model.calls, used);
  std::vector<bool> kept(model.layers.size(), false);
  for (const KerasCall& call : model.calls) {
    kept[static_cast<size_t>(call.layer)] = true;
  }
  note_left_out(model, kept);
  const std::vector<int> layer_index = keep_only(model.layers, kept);
  const auto renumber = [&](int& call) { call = call_index[static_cast<size_t>(call)]; };
  for (KerasCall& call : model.calls) {
    call.layer = layer_index[static_cast<size_t>(call.layer)];
    std::for_each(call.inputs.begin(), call.inputs.end(), renumber);
    if (call.result_of >= 0) {
      renumber(call.result_of);
    }
  }
  for (auto& [name, call] : model.outputs) {
    renumber(call);
  }
}

void forget_unread_scores(KerasModel& model) {
  std::set<int> read;
  for (const KerasCall& call : model.calls) {
    read.insert(call.inputs.begin(), call.inputs.end());
  }
  for (const auto& [name, call] : model.outputs) {
    read.insert(call);
  }
  for (size_t i = 0; i < model.calls.size(); ++i) {
    const int source = model.calls[i].result_of;
    if (source >= 0 && !read.contains(static_cast<int>(i))) {
      std::erase(model.calls[static_cast<size_t>(source)].keywords.flags, kReturnsScores);
    }
  }
}

}  // namespace meshtrain
