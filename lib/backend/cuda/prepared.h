// Commands as calls of the runtime and the libraries, each ready to be enqueued.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/attention.h"
#include "backend/cuda/communicators.h"
#include "backend/cuda/conv.h"
#include "backend/cuda/core.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/modules.h"
#include "backend/cuda/workspaces.h"
#include "backend/gpu/merge_launches.h"

namespace meshtrain::cuda {

// What makes calls: one of each for a device.
struct Makers {
  explicit Makers(Core& core)
      : core(core),
        cache(core.options.cache_dir),
        modules(core, cache),
        matmuls(core, cache, modules),
        convs(core, cache),
        attentions(core),
        workspaces(core) {}

  Core& core;
  Cache cache;
  Modules modules;
  Matmuls matmuls;
  Convs convs;
  Attentions attentions;
  Workspaces workspaces;
};

// Moves addresses in windows to the part of a step.
class Shift {
 public:
  Shift(std::span<const gpu::Window> windows, int64_t step) : windows_(windows), step_(step) {}
  uint64_t operator()(uint64_t value) const;
  template <class Byte>
  Byte* operator()(Byte* address) const {
    return reinterpret_cast<Byte*>((*this)(reinterpret_cast<uint64_t>(address)));
  }

 private:
  std::span<const gpu::Window> windows_;
  int64_t step_;
};

class Prepared {
 public:
  // Merges the commands. finish() follows before anything else.
  Prepared(Makers& makers, const std::vector<gpu::Command>& commands);
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  // Begins to compile the kernels on other threads.
  void begin_compile() const;
  // Waits for the kernels, and makes every call ready. Does nothing the second time.
  void finish();

  size_t num_calls() const { return calls_.size(); }
  // Earlier calls that must have ended when a call begins.
  const std::vector<int>& after(size_t call) const { return after_[call]; }
  const gpu::Call& call(size_t index) const { return calls_[index]; }
  bool communicates(size_t call) const { return gpu::communicates(calls_[call].what); }
  const gpu::Traffic& traffic() const { return traffic_; }
  // Calls that no other one waits for.
  std::vector<int> last_calls() const;
  void enqueue(size_t call, const Shift& shift, CUstream stream) const;

 private:
  // ncclComm_t: of what communicates.
  using Ready = std::variant<CUfunction, const MatmulPlan*, const ConvPlan*, const AttentionPlan*,
                             ncclComm_t>;
  Ready make_ready(const gpu::Call& call, const Module* module);
  Communicators& communicators() const;
  // False where there is no memory for them.
  bool assign_workspaces();
  void find_workspaces(const Module* module);
  static size_t workspace_bytes(const Ready& call);
  void launch(CUfunction kernel, const gpu::KernelCall& call, const Shift& shift,
              CUstream stream) const;

  Makers& makers_;
  gpu::Traffic traffic_;
  std::vector<std::byte*> memory_;  // of turned filters
  std::string module_;              // text of the kernels; "" without kernels, and once finished
  bool is_finished_ = false;
  std::vector<gpu::Call> calls_;
  std::vector<Ready> ready_;
  std::vector<std::vector<int>> after_;
  std::vector<std::byte*> workspaces_;
};

// The same for equal commands: everything that they consist of, as text.
std::string fingerprint(const std::vector<gpu::Command>& commands);

}  // namespace meshtrain::cuda
