// Specs between BeginRowFusion and EndRowFusion: one kernel over rows where they are one, otherwise
// what each of them is by itself.
#include "backend/gpu/lowering.h"
#include "base/error.h"

namespace meshtrain::gpu {

// The one-hots of several devices are one call where their shards are contiguous.
void GpuLowering::add_row_one_hot(const OneHotSpec& spec) {
  const auto& [shape, ids, out] = spec;
  RowCall* const last = row_calls_->empty() ? nullptr : &row_calls_->back();
  const bool goes_on = last != nullptr && last->kind == RowCall::Kind::kOneHot &&
                       last->lookup.rows == shape.rows && last->lookup.start == shape.start &&
                       whole_access(last->operands[0], false).end == ids &&
                       whole_access(last->results[0].view, true).end == out;
  if (!goes_on) {
    row_calls_->emplace_back();
    row_calls_->back().operands.push_back(
        contiguous_view(const_cast<std::byte*>(ids), DType::kInt32, {}));
    row_calls_->back().results.push_back({0, contiguous_view(out, shape.dtype, {})});
  }
  RowCall& call = row_calls_->back();
  const int64_t ids_before = goes_on ? call.lookup.num_ids : 0;
  call.kind = RowCall::Kind::kOneHot;
  call.path = path_;
  call.lookup = shape;
  call.lookup.num_ids += ids_before;
  call.shape = {call.lookup.num_ids, shape.rows};
  call.operands[0] = contiguous_view(call.operands[0].data, DType::kInt32, {call.lookup.num_ids});
  call.results[0].view = contiguous_view(call.results[0].view.data, shape.dtype, call.shape);
}

void GpuLowering::make(const BeginRowFusion&) {
  row_calls_.emplace();
}

void GpuLowering::make(const EndRowFusion& spec) {
  MESHTRAIN_CHECK(row_calls_.has_value(), "rows that have not begun");
  std::vector<RowCall> calls = std::move(*row_calls_);
  row_calls_.reset();
  if (const std::optional<RowPlan> plan = plan_rows(calls, spec.read_later)) {
    path_ = calls[0].path;
    add(row_launch(*plan), row_accesses(*plan));
    return;
  }
  give_memory(calls, spec.read_later, [this](int64_t bytes) { return scratch(bytes); });
  for (const RowCall& call : calls) {
    path_ = call.path;
    switch (call.kind) {
      case RowCall::Kind::kTape:
        last_reads_ = call.last_reads;
        make(TapeSpec{call.shape, call.operands, call.tape, call.results});
        break;
      case RowCall::Kind::kCopy:
        make(CopySpec{call.operands[0], call.results[0].view});
        break;
      case RowCall::Kind::kReduce:
        make(ReduceSpec{call.reduction, call.operands[0], call.reduced, call.results[0].view});
        break;
      case RowCall::Kind::kOneHot:
        make(OneHotSpec{call.lookup, call.operands[0].data, call.results[0].view.data});
    }
  }
}

}  // namespace meshtrain::gpu
