#include "backend/gpu/module_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/hash.h"

namespace meshtrain::gpu {
namespace {

constexpr const char* kBarrier = "  __syncthreads();\n";
std::string instances_text(const std::string& body, size_t count, size_t words) {
  if (count == 1)
    return fmt::format("  mt::{}(params.v, blockIdx.x, shared);\n", body);
  return fmt::format(
      "  const unsigned instance = mt::instance_of(params, {0}u);\n"
      "  mt::{1}(params.v + {0} + instance * {2}, blockIdx.x - (unsigned)params.v[instance], "
      "shared);\n",
      count, body, words);
}

// A launch from its first block to its last, computed by one block; its arguments begin at `first`.
std::string blocks_text(const Launch& launch, size_t first) {
  const KernelBody& body = *launch.body;
  const std::string args = fmt::format("params.v + {}", first);
  if (launch.blocks == 1)
    return fmt::format("  mt::{}({}, 0u, shared);\n", body.name, args);
  const bool shares = body.has_barriers || body.shared_bytes > 0;
  return fmt::format(
      "  for (unsigned block = 0; block < {}u; ++block) {{ {}mt::{}({}, block, shared); }}\n",
      launch.blocks, shares ? "if (block > 0) __syncthreads(); " : "", body.name, args);
}

}  // namespace

ModuleText::ModuleText() {
  device_.add(kElementwise);
}

std::string ModuleText::take() {
  return device_.take() + std::move(text_);
}

void ModuleText::add_body(const KernelBody& body) {
  if (!names_.insert(body.name).second)
    return;
  device_.add(body.device);
  text_ += fmt::format(
      "namespace mt {{\n"
      "static __device__ void {}(const unsigned long long* arg, unsigned block, "
      "unsigned char* shared) {{\n{}}}\n"
      "}}  // namespace mt\n",
      body.name, body.text);
}

void ModuleText::add_kernel(const KernelCall& call, const std::string& text, bool needs_registers) {
  if (!names_.insert(call.kernel).second)
    return;
  text_ += fmt::format(R"(extern "C" __global__ void __launch_bounds__(mt::kThreads{})
{}(const __grid_constant__ mt::Params<{}> params) {{
  extern __shared__ __align__(16) unsigned char shared[];
{}}}
)",
                       needs_registers ? ", 1" : "", call.kernel,
                       std::max<size_t>(call.params.size(), 1), text);
}

KernelCall ModuleText::instances(const std::vector<const Launch*>& launches) {
  const KernelBody& body = *launches[0]->body;
  KernelCall call;
  call.shared_bytes = body.shared_bytes;
  call.has_barriers = body.has_barriers;
  uint64_t blocks = 0;
  for (const Launch* launch : launches) {
    if (launches.size() > 1)
      call.params.push_back(blocks);
    blocks += launch->blocks;
  }
  for (const Launch* launch : launches)
    call.params.insert(call.params.end(), launch->args.begin(), launch->args.end());
  call.grid = static_cast<unsigned>(blocks);
  call.kernel = fmt::format("{}_x{}_{}", body.name, launches.size(), launches[0]->args.size());
  add_body(body);
  add_kernel(call, instances_text(body.name, launches.size(), launches[0]->args.size()),
             body.needs_registers);
  return call;
}

KernelCall ModuleText::chain(const std::vector<std::vector<const Launch*>>& stages) {
  KernelCall call;
  call.has_barriers = true;
  std::string text;
  bool is_shared_used = false;  // since the last barrier
  bool needs_registers = false;
  for (const std::vector<const Launch*>& stage : stages) {
    // The next stage reads the results of this one.
    text += text.empty() ? "" : kBarrier;
    is_shared_used = false;
    for (const Launch* launch : stage) {
      const KernelBody& body = *launch->body;
      add_body(body);
      call.shared_bytes = std::max(call.shared_bytes, body.shared_bytes);
      needs_registers = needs_registers || body.needs_registers;
      text += is_shared_used && body.shared_bytes > 0 ? kBarrier : "";
      is_shared_used = is_shared_used || body.shared_bytes > 0;
      text += blocks_text(*launch, call.params.size());
      call.params.insert(call.params.end(), launch->args.begin(), launch->args.end());
    }
  }
  // The text of a last launch does not say how many arguments it takes.
  call.kernel = fmt::format("chain_{}_{}", hex64(hash_text(text)), call.params.size());
  add_kernel(call, text, needs_registers);
  return call;
}

}  // namespace meshtrain::gpu
