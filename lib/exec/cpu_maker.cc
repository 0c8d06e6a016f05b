#include "exec/cpu_maker.h"

#include <iterator>

#include "backend/cpu/channels.h"
#include "backend/cpu/conv.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/group.h"
#include "backend/cpu/lookup.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/optimizer.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/random.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/scan.h"
#include "backend/cpu/warp.h"
#include "comm/local/combine.h"

namespace meshtrain {

void CpuMaker::begin_step(std::string_view) {
  scratch_.begin_step();
}

void CpuMaker::begin_group() {
  group_begin_ = kernels_.size();
}

void CpuMaker::end_group() {
  if (kernels_.size() <= group_begin_ + 1)
    return;
  const auto first = kernels_.begin() + static_cast<std::ptrdiff_t>(group_begin_);
  cpu::KernelList members(std::make_move_iterator(first), std::make_move_iterator(kernels_.end()));
  kernels_.erase(first, kernels_.end());
  add(cpu::make_group(std::move(members)));
}

void CpuMaker::add(cpu::KernelList list) {
  for (cpu::KernelPtr& kernel : list)
    kernels_.push_back(std::move(kernel));
}

void CpuMaker::tape(const Shape& shape, const std::vector<View>& operands,
                    const std::vector<TapeInstruction>& tape,
                    const std::vector<TapeResult>& results) {
  add(cpu::make_tape(shape, operands, tape, results));
}

void CpuMaker::copy(const View& from, const View& to) {
  add(cpu::make_copy(from, to));
}

void CpuMaker::fill(const View& to, double value) {
  add(cpu::make_fill(to, value));
}

void CpuMaker::iota(const View& to, size_t axis, int64_t start) {
  add(cpu::make_iota(to, axis, start));
}

void CpuMaker::reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
                      const View& out) {
  add(cpu::make_reduce(reduction, x, reduced, out, scratch_));
}

void CpuMaker::matmul(const MatmulSpec& spec) {
  add(cpu::make_matmul(spec));
}

void CpuMaker::argmax(const ScanShape& shape, const std::byte* x, std::byte* out) {
  add(cpu::make_argmax(shape, x, out));
}

void CpuMaker::cumsum(const ScanShape& shape, const std::byte* x, std::byte* out) {
  add(cpu::make_cumsum(shape, x, out));
}

void CpuMaker::top_k(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values,
                     std::byte* indices) {
  add(cpu::make_top_k(shape, k, x, values, indices));
}

void CpuMaker::conv(const ConvShape& shape, const std::vector<ConvJob>& jobs) {
  add(cpu::make_conv(shape, jobs, scratch_));
}

void CpuMaker::conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs) {
  add(cpu::make_conv_dgrad(shape, jobs, scratch_));
}

void CpuMaker::conv_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs) {
  add(cpu::make_conv_wgrad(shape, jobs, scratch_));
}

void CpuMaker::channel_sums(DType dtype, int64_t rows, int64_t channels,
                            const std::vector<ChannelSumsJob>& jobs) {
  add(cpu::make_channel_sums(dtype, rows, channels, jobs, scratch_));
}

void CpuMaker::pool(PoolOp op, const PoolShape& shape, const std::vector<PoolJob>& jobs) {
  add(cpu::make_pool(op, shape, jobs));
}

void CpuMaker::gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                           std::byte* out) {
  add(cpu::make_gather_rows(shape, table, ids, out));
}

void CpuMaker::scatter_add_rows(const LookupShape& shape, const std::byte* updates,
                                const std::byte* ids, std::byte* out) {
  add(cpu::make_scatter_add_rows(shape, updates, ids, out));
}

void CpuMaker::one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out) {
  add(cpu::make_one_hot(shape, ids, out));
}

void CpuMaker::random_bits(const RandomPiece& piece, std::byte* out) {
  add(cpu::make_random_bits(piece, out));
}

void CpuMaker::dropout(const RandomPiece& piece, DType dtype, double rate, const std::byte* x,
                       std::byte* out) {
  add(cpu::make_dropout(piece, dtype, rate, x, out));
}

void CpuMaker::affine_warp(const WarpShape& shape, bool transposed, const std::byte* x,
                           const std::byte* transforms, std::byte* out) {
  const auto make = transposed ? cpu::make_affine_warp_transpose : cpu::make_affine_warp;
  add(make(shape, x, transforms, out));
}

void CpuMaker::optimizer(const OptimizerSpec& spec) {
  add(cpu::make_optimizer(spec));
}

void CpuMaker::combine(Reduction reduction, DType dtype, const std::vector<Region>& regions) {
  add(local::make_combine(reduction, dtype, regions));
}

}  // namespace meshtrain
