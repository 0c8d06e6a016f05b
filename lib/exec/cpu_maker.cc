#include "exec/cpu_maker.h"

#include <iterator>

#include "backend/cpu/channels.h"
#include "backend/cpu/conv.h"
#include "backend/cpu/copy.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/group.h"
#include "backend/cpu/half_arrays.h"
#include "backend/cpu/lookup.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/optimizer.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/random.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/scan.h"
#include "backend/cpu/types.h"
#include "backend/cpu/warp.h"
#include "base/hash.h"
#include "comm/heartbeat_monitor.h"
#include "comm/local/combine.h"

namespace meshtrain {
namespace {

DType computed_in(DType dtype) {
  return cpu::is_half(dtype) ? DType::kFloat32 : dtype;
}
template <class Spec>
Spec computed(Spec spec) {
  spec.dtype = computed_in(spec.dtype);
  return spec;
}
int64_t elements_of(const ScanShape& shape) {
  return shape.outer * shape.size * shape.inner;
}

// What goes between processes. One unit, so that worker 0 runs it: the thread that made the group.
class TransferKernel final : public cpu::Kernel {
 public:
  TransferKernel(std::unique_ptr<Transfer> transfer, std::vector<Access> accesses,
                 std::shared_ptr<HeartbeatMonitor> monitor, const std::string& name,
                 uint64_t signature)
      : transfer_(std::move(transfer)),
        accesses_(std::move(accesses)),
        monitor_(std::move(monitor)),
        name_(monitor_ == nullptr ? "" : monitor_->keep(name)),
        signature_(signature) {}

  void run(int64_t, int64_t, std::byte*) const override {
    if (monitor_ == nullptr) {
      transfer_->run();
      return;
    }
    monitor_->enter(signature_, name_);
    try {
      transfer_->run();
    } catch (const std::exception& error) {  // other workers wait: no way back from here
      monitor_->fail(static_cast<int>(ExitCode::kRankLost),
                     fmt::format("error[E605]: {}: {}\n", name_, error.what()));
    }
    monitor_->leave();
  }
  void accesses(int64_t, int64_t, std::vector<Access>& out) const override {
    out.insert(out.end(), accesses_.begin(), accesses_.end());
  }
  double cost() const override { return 0; }

 private:
  std::unique_ptr<Transfer> transfer_;
  std::vector<Access> accesses_;
  std::shared_ptr<HeartbeatMonitor> monitor_;
  const char* name_;
  uint64_t signature_;
};

}  // namespace

void CpuMaker::begin_step(std::string_view path) {
  path_ = path;
  scratch_.begin_step();
}

void CpuMaker::begin_group() {
  group_begin_ = kernels_.size();
  in_group_ = true;
}

void CpuMaker::end_group() {
  in_group_ = false;
  const auto first = kernels_.begin() + static_cast<std::ptrdiff_t>(group_begin_);
  cpu::KernelList members(std::make_move_iterator(first), std::make_move_iterator(kernels_.end()));
  kernels_.erase(first, kernels_.end());
  for (cpu::KernelList* list : {&before_, &members, &after_}) {
    if (!list->empty())
      kernels_.push_back(cpu::make_group(std::move(*list)));
    list->clear();
  }
}

void CpuMaker::add(cpu::KernelPtr kernel) {
  cpu::KernelList list;
  list.push_back(std::move(kernel));
  add(std::move(list));
}

void CpuMaker::add(cpu::KernelList list) {
  const auto append = [&](cpu::KernelList& more) {
    for (cpu::KernelPtr& kernel : more)
      kernels_.push_back(std::move(kernel));
    more.clear();
  };
  if (!in_group_)
    append(before_);
  append(list);
  if (!in_group_)
    append(after_);
}

std::byte* CpuMaker::read(DType dtype, const void* data, int64_t elements) {
  auto* array = static_cast<std::byte*>(const_cast<void*>(data));
  if (!cpu::is_half(dtype) || data == nullptr)
    return array;
  cpu::HalfArrays arrays(dtype, elements);
  arrays.add(array);
  arrays.take_scratch(scratch_);
  before_.push_back(arrays.widen());
  return arrays.wide(array);
}

std::byte* CpuMaker::written(DType dtype, void* data, int64_t elements) {
  auto* array = static_cast<std::byte*>(data);
  if (!cpu::is_half(dtype) || data == nullptr)
    return array;
  cpu::HalfArrays arrays(dtype, elements);
  arrays.add(array);
  arrays.take_scratch(scratch_);
  after_.push_back(arrays.narrow());
  return arrays.wide(array);
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
  View wide = computed(to);
  wide.data = written(to.dtype, to.data, num_elements(to.shape));
  add(cpu::make_iota(wide, axis, start));
}

void CpuMaker::reduce(Reduction reduction, const View& x, const std::vector<bool>& reduced,
                      const View& out) {
  add(cpu::make_reduce(reduction, x, reduced, out, scratch_));
}

void CpuMaker::matmul(const MatmulSpec& spec) {
  add(cpu::make_matmul(spec));
}

void CpuMaker::argmax(const ScanShape& shape, const std::byte* x, std::byte* out) {
  add(cpu::make_argmax(computed(shape), read(shape.dtype, x, elements_of(shape)), out));
}

void CpuMaker::cumsum(const ScanShape& shape, const std::byte* x, std::byte* out) {
  const int64_t elements = elements_of(shape);
  add(cpu::make_cumsum(computed(shape), read(shape.dtype, x, elements),
                       written(shape.dtype, out, elements)));
}

void CpuMaker::top_k(const ScanShape& shape, int64_t k, const std::byte* x, std::byte* values,
                     std::byte* indices) {
  add(cpu::make_top_k(computed(shape), k, read(shape.dtype, x, elements_of(shape)),
                      written(shape.dtype, values, shape.outer * k), indices));
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
  add(cpu::make_pool(op, shape, jobs, scratch_));
}

void CpuMaker::gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                           std::byte* out) {
  add(cpu::make_gather_rows(shape, table, ids, out));
}

void CpuMaker::scatter_add_rows(const LookupShape& shape, const std::byte* updates,
                                const std::byte* ids, std::byte* out) {
  add(cpu::make_scatter_add_rows(computed(shape),
                                 read(shape.dtype, updates, shape.num_ids * shape.row_elements),
                                 ids, written(shape.dtype, out, shape.rows * shape.row_elements)));
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
  const int64_t elements = shape.images * shape.height * shape.width * shape.channels;
  add(make(computed(shape), read(shape.dtype, x, elements), transforms,
           written(shape.dtype, out, elements)));
}

void CpuMaker::optimizer(const OptimizerSpec& spec) {
  OptimizerSpec wide = computed(spec);
  const DType dtype = spec.dtype;
  const int64_t n = spec.num_elements;
  wide.args.param = read(dtype, spec.args.param, n);
  wide.args.grad = read(dtype, spec.args.grad, n);
  wide.args.new_param = written(dtype, spec.args.new_param, n);
  for (size_t i = 0; i < std::size(wide.args.slots); ++i) {
    wide.args.slots[i] = read(dtype, spec.args.slots[i], n);
    wide.args.new_slots[i] = written(dtype, spec.args.new_slots[i], n);
  }
  wide.rate = read(dtype, spec.rate, 1);
  wide.decay = read(dtype, spec.decay, 1);
  add(cpu::make_optimizer(wide));
}

void CpuMaker::combine(Reduction reduction, DType dtype, const std::vector<Region>& regions) {
  add(local::make_combine(reduction, dtype, regions));
}

void CpuMaker::exchange(const std::vector<Message>& sends, const std::vector<Message>& receives) {
  std::vector<Access> accesses;
  for (const Message& message : sends)
    accesses.push_back({message.data, message.data + message.bytes, false});
  for (const Message& message : receives)
    accesses.push_back({message.data, message.data + message.bytes, true});
  add(processes_.group->make_exchange(sends, receives), std::move(accesses));
}

void CpuMaker::all_reduce(Reduction reduction, DType dtype, std::byte* data, int64_t elements,
                          const std::vector<int>& ranks) {
  const int64_t bytes = elements * static_cast<int64_t>(dtype_size(dtype));
  add(processes_.group->make_all_reduce(reduction, dtype, data, elements, ranks),
      {{data, data + bytes, true}});
}

void CpuMaker::add(std::unique_ptr<Transfer> transfer, std::vector<Access> accesses) {
  // The same on all ranks, which prepare the same steps.
  const uint64_t signature = hash_text(path_);
  add(std::make_unique<TransferKernel>(std::move(transfer), std::move(accesses), processes_.monitor,
                                       path_, signature));
}

}  // namespace meshtrain
