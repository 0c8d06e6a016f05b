#include "backend/cpu/primitive.h"

#include <omp.h>

#include <algorithm>

#include "backend/cpu/conv_region.h"
#include "base/error.h"

namespace meshtrain::cpu {
namespace {

// On the CPU a stream has no state: execution is synchronous, on the calling thread.
const dnnl::stream& stream() {
  static const dnnl::stream instance(dnnl_engine());
  return instance;
}

}  // namespace

const dnnl::engine& dnnl_engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::memory::data_type dnnl_type(DType dtype) {
  MESHTRAIN_CHECK(dtype == DType::kFloat32 || dtype == DType::kBFloat16, "oneDNN on {}",
                  dtype_name(dtype));
  return dtype == DType::kFloat32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

OneThread::OneThread() : before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
OneThread::~OneThread() {
  omp_set_num_threads(before_);
}

dnnl::primitive_attr own_scratch() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

void PrimitiveCalls::add(const dnnl::primitive& primitive, const dnnl::memory::desc& scratch,
                         const std::vector<Argument>& arguments) {
  Call call;
  call.primitive = primitive;
  for (const Argument& argument : arguments) {
    // oneDNN has no memory of constants.
    std::byte* data = const_cast<std::byte*>(argument.data);
    call.memories.emplace_back(*argument.desc, dnnl_engine(), data);
    call.arguments.push_back({argument.name, call.memories.back().get()});
    call.accesses.push_back({data, data + argument.desc->get_size(), argument.is_write});
  }
  if (scratch.get_size() > 0) {
    call.scratch = dnnl::memory(scratch, dnnl_engine(), DNNL_MEMORY_NONE);
    call.arguments.push_back({DNNL_ARG_SCRATCHPAD, call.scratch.get()});
    scratch_bytes_ = std::max(scratch_bytes_, scratch.get_size());
  }
  stream();  // made now, not within a step
  calls_.push_back(std::move(call));
}

void PrimitiveCalls::accesses(int64_t begin, int64_t end, std::vector<Access>& out) const {
  if (begin >= end)
    return;
  for (size_t a = 0; a < calls_[begin].accesses.size(); ++a) {
    for (int64_t i = begin; i < end; ++i) {
      const Access& access = calls_[i].accesses[a];
      if (i == begin || access.begin != calls_[i - 1].accesses[a].begin)
        add_access(out, access.begin, access.end - access.begin, access.is_write);
    }
  }
}

void PrimitiveCalls::run(int64_t begin, int64_t end, std::byte* scratch) const {
  for (int64_t i = begin; i < end; ++i) {
    const Call& call = calls_[i];
    // Workers keep their units from step to step as a rule.
    if (call.scratch && call.scratch.get_data_handle() != scratch)
      call.scratch.set_data_handle(scratch);
    const dnnl_status_t status =
        dnnl_primitive_execute(call.primitive.get(), stream().get(),
                               static_cast<int>(call.arguments.size()), call.arguments.data());
    MESHTRAIN_CHECK(status == dnnl_success, "oneDNN cannot compute: status {}",
                    static_cast<int>(status));
  }
}

}  // namespace meshtrain::cpu
