// Launches of device/cross_entropy.cuh.
#include <fmt/format.h>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kClassesOfWarp = 1024;  // more are computed by a block

}  // namespace

void GpuLowering::make(const CrossEntropySpec& spec) {
  const CrossEntropyShape& n = spec.shape;
  MESHTRAIN_CHECK(is_floating(n.dtype), "{}", dtype_name(n.dtype));
  if (n.tokens == 0)
    return;
  const auto item = static_cast<int64_t>(dtype_size(n.dtype));
  int pack = largest_pack(item);
  while (n.row % pack != 0 || !is_aligned(spec.logits, pack * item))
    pack /= 2;
  const int64_t lanes = n.classes <= kClassesOfWarp ? 32 : kThreads;
  const int64_t rows = kThreads / lanes;
  Launch launch;
  launch.blocks = static_cast<uint64_t>((n.tokens + rows - 1) / rows);
  launch.work = 3 * n.tokens * n.classes;
  const int64_t of_tokens = n.tokens * static_cast<int64_t>(dtype_size(n.loss_dtype()));
  const int64_t logits = ((n.tokens - 1) * n.row + n.classes) * item;
  const std::vector<Use> arrays = {{spec.logits, logits, spec.weights != nullptr},
                                   {spec.ids, 4 * n.tokens, false},
                                   {spec.loss, of_tokens, true},
                                   {spec.hits, of_tokens, true},
                                   {spec.largest, of_tokens, true},
                                   {spec.sum, of_tokens, true},
                                   {spec.picked, of_tokens, true},
                                   {spec.first, of_tokens, true},
                                   {spec.weights, of_tokens, false},
                                   {spec.lse, of_tokens, false}};
  std::vector<Use> uses;
  for (const Use& use : arrays) {
    launch.args.push_back(address(use.data));
    if (use.data != nullptr)
      uses.push_back(use);
  }
  const auto flag = [](bool value) { return std::string_view(value ? "true" : "false"); };
  launch.body = make_body(
      "cross_entropy",
      call_text("cross_entropy",
                {struct_text("CrossEntropy", {{"tokens", n.tokens},
                                              {"classes", n.classes},
                                              {"row", n.row},
                                              {"start", n.start},
                                              {"global_classes", n.global_classes},
                                              {"lanes", lanes},
                                              {"pack", int64_t{pack}},
                                              {"has_weights", flag(spec.weights != nullptr)},
                                              {"has_lse", flag(spec.lse != nullptr)}}),
                 std::string(type_name(n.dtype))},
                true),
      static_cast<unsigned>(16 * kThreads / 32), true, "cross_entropy");
  add(std::move(launch), uses);
}

}  // namespace meshtrain::gpu
