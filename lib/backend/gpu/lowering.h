// Lowers KernelSpecs to the commands of a GPU. Needs no GPU.
//
// Each lower_*.cc has one family of kernels: the `make` of their specs. They add Launches with
// generated text, Matmuls, Convs and Attentions. Sizes and strides are constants of the text and
// addresses are arguments, so that equal computations on different memory are one kernel.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/command.h"
#include "backend/gpu/row_fusion.h"
#include "backend/gpu/runs.h"
#include "backend/kernel_spec.h"

namespace meshtrain::gpu {

class GpuLowering {
 public:
  // `allocate`: returns memory of the device that lives as long as the commands. It is called when
  // a step needs more scratch than the steps before.
  explicit GpuLowering(std::function<std::byte*(int64_t bytes)> allocate);
  void lower(KernelSpecs specs);
  void lower(KernelSpec spec);
  std::vector<Command> take() { return std::move(commands_); }

 private:
  void make(const StepSpec& spec);
#define MESHTRAIN_MAKE(Spec) void make(const Spec& spec);
  MESHTRAIN_KERNEL_SPECS(MESHTRAIN_MAKE)
#undef MESHTRAIN_MAKE

  std::byte* scratch(int64_t bytes);
  // Arrays that a launch reads and writes.
  struct Use {
    const std::byte* data;
    int64_t bytes;
    bool is_write;
  };
  void add(Launch launch, const std::vector<Use>& uses);
  void add(Launch launch, std::vector<Access> accesses);
  void add(Matmul matmul);
  void add_in_parts(Matmul matmul);
  void add_row_one_hot(const OneHotSpec& spec);
  void add(Conv conv);
  void join(size_t first, Attention attention);
  // The tape's command is the last one.
  void fuse_into_product(const TapeSpec& tape);
  std::optional<size_t> producer_of(const Access& memory) const;
  template <class What>
  void add_communication(What what, std::vector<Access> accesses);
  // Returns where a kernel finds the words, which launches write there.
  std::byte* store(const std::vector<LaunchArg>& words);
  void add_images(const ConvShape& shape, ConvOp op, const std::vector<ConvJob>& jobs);
  // The gradient of one kernel: of each run apart, and their sum.
  void add_wgrad(const ConvShape& shape, bool in_library, const std::vector<Run>& runs,
                 std::byte* to);

  struct Block {
    std::byte* memory;
    int64_t bytes;
    bool is_used;
    int64_t free_at;  // number of communications before which no other step may use it
  };
  std::function<std::byte*(int64_t)> allocate_;
  std::vector<Block> blocks_;
  ScratchNames names_;
  std::vector<Command> commands_;
  std::vector<Access> last_reads_;                 // of this step
  std::optional<std::vector<RowCall>> row_calls_;  // since BeginRowFusion
  std::string path_;
  int64_t communications_ = 0;  // so far
  bool communicates_ = false;   // this step
};

}  // namespace meshtrain::gpu
