// KernelMaker of GPUs: from what steps compute to commands. Needs no GPU.
//
// maker_*.cc hold one family of kernels each; all of them add Launches whose text they generate,
// Matmuls and Convs. Sizes and strides stand in the text as constants, addresses are arguments, so
// that equal computations on different memory are one kernel.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/command.h"
#include "backend/gpu/rows.h"
#include "backend/gpu/runs.h"
#include "backend/kernel_maker.h"

namespace meshtrain::gpu {

class GpuMaker final : public KernelMaker {
 public:
  // `allocate`: memory of the device, which lives as long as the commands; called when a
  // step needs more scratch than steps before it.
  explicit GpuMaker(std::function<std::byte*(int64_t bytes)> allocate);
  std::vector<Command> take() { return std::move(commands_); }
  // Memory that is read by nothing behind the step that begins next, until this is called again: a
  // product there need not be stored by itself (maker_epilogue.cc).
  void set_last_reads(std::vector<Access> memory) { last_reads_ = std::move(memory); }

  void begin_step(std::string_view path) override;
  std::byte* scratch(int64_t bytes) override;
  void begin_group() override {}
  void end_group() override {}
  // Results that are not read later may be at addresses where there is no memory.
  void begin_rows() override { row_calls_.emplace(); }
  void end_rows(const std::vector<const std::byte*>& read_later) override;

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
  bool has_gathers() const override { return true; }
  void all_gather(const std::byte* from, std::byte* to, int64_t bytes,
                  const std::vector<int>& ranks) override;
  void reduce_scatter(Reduction reduction, DType dtype, const std::byte* from, std::byte* to,
                      int64_t elements, const std::vector<int>& ranks) override;

 private:
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
  void add_row_one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out);
  void give_memory(std::vector<RowCall>& calls, const std::vector<const std::byte*>& read_later);
  void add(Conv conv);
  // The tape's command is the last one.
  void fold_into_product(const Shape& shape, const std::vector<View>& operands,
                         const std::vector<TapeInstruction>& tape,
                         const std::vector<TapeResult>& results);
  std::optional<size_t> maker_of(const Access& memory) const;
  template <class What>
  void add_communication(What what, std::vector<Access> accesses);
  void add_images(const ConvShape& shape, ConvOp op, const std::vector<ConvJob>& jobs);
  // The gradient of one kernel: of each run apart, and their sum.
  void add_wgrad(const ConvShape& shape, bool in_library, const std::vector<Run>& runs,
                 std::byte* to);

  struct Block {
    std::byte* memory;
    int64_t bytes;
    bool is_used;
    int64_t free_at;  // number of communications before which no other step may have it
  };
  std::function<std::byte*(int64_t)> allocate_;
  std::vector<Block> blocks_;
  std::vector<Command> commands_;
  std::vector<Access> last_reads_;
  std::optional<std::vector<RowCall>> row_calls_;  // since begin_rows
  std::string path_;
  int64_t communications_ = 0;  // so far
  bool communicates_ = false;   // this step
};

}  // namespace meshtrain::gpu
