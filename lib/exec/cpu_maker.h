// KernelMaker of the CPU backend: collects cpu::Kernels.
#pragma once

#include "backend/cpu/kernel.h"
#include "backend/kernel_maker.h"
#include "comm/process_group.h"
#include "exec/memory.h"

namespace meshtrain {

class CpuMaker final : public KernelMaker {
 public:
  // `scratch` must live as long as the kernels.
  explicit CpuMaker(StepScratch& scratch, Processes processes = {})
      : scratch_(scratch), processes_(std::move(processes)) {}
  cpu::KernelList take() { return std::move(kernels_); }

  void begin_step(std::string_view path) override;
  std::byte* scratch(int64_t bytes) override { return scratch_.take(bytes); }
  void begin_group() override;
  void end_group() override;

  void tape(const Shape& shape, const std::vector<View>& operands,
            const std::vector<TapeInstruction>& tape,
            const std::vector<TapeResult>& results) override;
  void copy(const View& from, const View& to) override;
  void fill(const View& to, double value) override;
  void iota(const View& to, size_t axis, int64_t start) override;
  void reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
              const View& out) override;
  void matmul(const MatmulSpec& spec) override;
  void argmax(const ScanShape& shape, const std::byte* x, std::byte* out) override;
  void cumsum(const ScanShape& shape, const std::byte* x, std::byte* out) override;
  void top_k(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values,
             std::byte* indices) override;
  void conv(const ConvShape& shape, const std::vector<ConvJob>& jobs) override;
  void conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs) override;
  void conv_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs) override;
  void channel_sums(DType dtype, int64_t rows, int64_t channels,
                    const std::vector<ChannelSumsJob>& jobs) override;
  void pool(PoolOp op, const PoolShape& shape, const std::vector<PoolJob>& jobs) override;
  void gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                   std::byte* out) override;
  void scatter_add_rows(const LookupShape& shape, const std::byte* updates, const std::byte* ids,
                        std::byte* out) override;
  void one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out) override;
  void random_bits(const RandomPiece& piece, std::byte* out) override;
  void dropout(const RandomPiece& piece, DType dtype, double rate, const std::byte* x,
               std::byte* out) override;
  void affine_warp(const WarpShape& shape, bool transposed, const std::byte* x,
                   const std::byte* transforms, std::byte* out) override;
  void optimizer(const OptimizerSpec& spec) override;
  void combine(Reduction reduction, DType dtype, const std::vector<Region>& regions) override;
  void exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) override;
  void all_reduce(Reduction reduction, DType dtype, std::byte* data, int64_t elements,
                  const std::vector<int>& ranks) override;

 private:
  void add(cpu::KernelPtr kernel);
  void add(std::unique_ptr<Transfer> transfer, std::vector<Access> accesses);
  void add(cpu::KernelList list);
  // For kernels that have no loops for 16 bits: `elements` of them as float32 in scratch, converted
  // before (after) the kernel that is added next. Other types: the array itself.
  std::byte* read(DType dtype, const void* data, int64_t elements);
  std::byte* written(DType dtype, void* data, int64_t elements);

  StepScratch& scratch_;
  Processes processes_;
  std::string path_;  // of the step
  cpu::KernelList kernels_;
  size_t group_begin_ = 0;
  bool in_group_ = false;
  cpu::KernelList before_, after_;  // conversions around the members of a group, or the next kernel
};

}  // namespace meshtrain
