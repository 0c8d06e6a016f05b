#include "backend/cuda/prepared.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "backend/cuda/filters.h"
#include "backend/gpu/epilogue.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

constexpr int kMostWorkspaces = 4;

// Of a kernel's parameter, which is never empty.
size_t num_words(const gpu::KernelCall& call) {
  return std::max<size_t>(call.params.size(), 1);
}

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace

size_t Prepared::workspace_bytes(const Ready& call) {
  if (const auto* matmul = std::get_if<const MatmulPlan*>(&call))
    return (*matmul)->workspace_bytes;
  if (const auto* conv = std::get_if<const ConvPlan*>(&call))
    return (*conv)->workspace_bytes;
  if (const auto* attention = std::get_if<const AttentionPlan*>(&call))
    return (*attention)->workspace_bytes;
  return 0;
}

uint64_t Shift::operator()(uint64_t value) const {
  for (const gpu::Window& window : windows_) {
    const uint64_t begin = reinterpret_cast<uint64_t>(window.begin);
    if (value >= begin && value < begin + static_cast<uint64_t>(window.bytes))
      return value + static_cast<uint64_t>(step_ * window.stride);
  }
  return value;
}

Prepared::Prepared(Makers& makers, const std::vector<gpu::Command>& commands)
    : makers_(makers), traffic_(gpu::traffic_of(commands)) {
  Core& core = makers.core;
  const auto allocate = [&](int64_t bytes) {
    const size_t size = static_cast<size_t>(bytes);
    std::byte* const data = core.allocate(size, "turned filter");
    memory_.push_back(data);
    // Trials of the convolutions read it before there is a filter to turn.
    core.check(driver().cuMemsetD8Async(device_address(data), 0, size, core.work),
               "cuMemsetD8Async");
    return data;
  };
  try {
    const auto is_whole = [&](const gpu::Command& command) {
      const PathScope scope(core, command.path);
      if (const auto* attention = std::get_if<gpu::Attention>(&command.what))
        return makers.attentions.find_plan(*attention) != nullptr;
      return makers.matmuls.is_fused(std::get<gpu::Matmul>(command.what));
    };
    gpu::MergedLaunches joined =
        gpu::merge_launches(turn_filters(gpu::with_parts(commands, is_whole), allocate));
    calls_ = std::move(joined.calls);
    const bool has_kernels = std::any_of(calls_.begin(), calls_.end(), [](const gpu::Call& call) {
      return std::holds_alternative<gpu::KernelCall>(call.what);
    });
    if (has_kernels)
      module_ = std::move(joined.module);
  } catch (...) {
    for (std::byte* data : memory_)
      free_memory(data);
    throw;
  }
}

void Prepared::begin_compile() const {
  if (!module_.empty())
    makers_.modules.begin(module_);
}

void Prepared::finish() {
  if (is_finished_)
    return;
  const Module* const module = module_.empty() ? nullptr : &makers_.modules.load(module_);
  for (const gpu::Call& call : calls_) {
    const PathScope scope(makers_.core, call.path);
    ready_.push_back(make_ready(call, module));
  }
  find_workspaces(module);
  module_ = {};
  is_finished_ = true;
}

Prepared::Ready Prepared::make_ready(const gpu::Call& call, const Module* module) {
  return std::visit(
      Overloaded{[&](const gpu::KernelCall& kernel) -> Ready {
                   return module->kernel(kernel.kernel, kernel.shared_bytes,
                                         num_words(kernel) * sizeof(uint64_t));
                 },
                 [&](const gpu::Matmul& matmul) -> Ready { return &makers_.matmuls.plan(matmul); },
                 [&](const gpu::Conv& conv) -> Ready { return &makers_.convs.plan(conv); },
                 [&](const gpu::Attention& attention) -> Ready {
                   return makers_.attentions.find_plan(attention);
                 },
                 [&](const ExchangeSpec&) -> Ready { return communicators().world(); },
                 [&](const auto& of_ranks) -> Ready { return communicators().of(of_ranks.ranks); }},
      call.what);
}

Communicators& Prepared::communicators() const {
  Communicators* const all = makers_.core.communicators;
  MESHTRAIN_CHECK(all != nullptr, "{}: the device has joined no others", makers_.core.path);
  return *all;
}

Prepared::~Prepared() {
  for (std::byte* data : memory_)
    free_memory(data);
}

// Where memory is short, convolutions do with less, which may round otherwise: not where several
// processes must round alike.
void Prepared::find_workspaces(const Module* module) {
  while (!assign_workspaces()) {
    const Core& core = makers_.core;
    if (!core.options.measure || !makers_.convs.save_workspace())
      core.check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc (workspace)");
    for (size_t i = 0; i < calls_.size(); ++i) {
      const PathScope scope(makers_.core, calls_[i].path);
      if (std::holds_alternative<gpu::Conv>(calls_[i].what))
        ready_[i] = make_ready(calls_[i], module);
    }
  }
}

bool Prepared::assign_workspaces() {
  std::vector<std::vector<int>> after;
  std::vector<size_t> bytes;
  for (size_t i = 0; i < calls_.size(); ++i) {
    after.push_back(calls_[i].after);
    bytes.push_back(workspace_bytes(ready_[i]));
  }
  WorkspaceShares shares = share_workspaces(after, bytes, kMostWorkspaces);
  after_ = std::move(shares.after);
  std::vector<size_t> most(kMostWorkspaces);
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (shares.workspace[i] >= 0) {
      size_t& size = most[static_cast<size_t>(shares.workspace[i])];
      size = std::max(size, bytes[i]);
    }
  }
  workspaces_.assign(calls_.size(), nullptr);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const int workspace = shares.workspace[i];
    if (workspace < 0)
      continue;
    workspaces_[i] = makers_.workspaces.memory(workspace, most[static_cast<size_t>(workspace)]);
    if (workspaces_[i] == nullptr)
      return false;
  }
  return true;
}

std::vector<int> Prepared::last_calls() const {
  std::vector<bool> is_last(calls_.size(), true);
  for (const std::vector<int>& before : after_) {
    for (const int call : before)
      is_last[static_cast<size_t>(call)] = false;
  }
  std::vector<int> result;
  for (size_t i = 0; i < is_last.size(); ++i) {
    if (is_last[i])
      result.push_back(static_cast<int>(i));
  }
  return result;
}

void Prepared::launch(CUfunction kernel, const gpu::KernelCall& call, const Shift& shift,
                      CUstream stream) const {
  std::vector<uint64_t> params(num_words(call));
  std::transform(
      call.params.begin(), call.params.end(), params.begin(),
      [&](const gpu::LaunchArg& arg) { return arg.is_address ? shift(arg.value) : arg.value; });
  makers_.core.launch(kernel, call.grid, call.shared_bytes, params.data(), stream);
}

void Prepared::enqueue(size_t i, const Shift& shift, CUstream stream) const {
  const gpu::Call& call = calls_[i];
  const PathScope scope(makers_.core, call.path);
  if (const auto* kernel = std::get_if<gpu::KernelCall>(&call.what)) {
    launch(std::get<CUfunction>(ready_[i]), *kernel, shift, stream);
  } else if (const auto* matmul = std::get_if<gpu::Matmul>(&call.what)) {
    gpu::Matmul here = *matmul;
    here.spec.a = shift(here.spec.a);
    here.spec.b = shift(here.spec.b);
    here.spec.c = shift(here.spec.c);
    if (here.epilogue) {
      here.epilogue->bias = shift(here.epilogue->bias);
      here.epilogue->to = shift(here.epilogue->to);
    }
    makers_.matmuls.enqueue(*std::get<const MatmulPlan*>(ready_[i]), here, workspaces_[i], stream);
  } else if (const auto* conv = std::get_if<gpu::Conv>(&call.what)) {
    makers_.convs.enqueue(*std::get<const ConvPlan*>(ready_[i]), shift(conv->x),
                          shift(conv->kernel), shift(conv->y), workspaces_[i], stream);
  } else if (const auto* attention = std::get_if<gpu::Attention>(&call.what)) {
    gpu::Attention here = *attention;
    for (const std::byte** array : {&here.q, &here.k, &here.v, &here.o, &here.lse,
                                    &here.o_cotangent, &here.dq, &here.dk, &here.dv, &here.sums})
      *array = shift(*array);
    makers_.attentions.enqueue(*std::get<const AttentionPlan*>(ready_[i]), here, workspaces_[i],
                               stream);
  } else if (const auto* all_reduce = std::get_if<AllReduceSpec>(&call.what)) {
    AllReduceSpec here = *all_reduce;
    here.data = shift(here.data);
    communicators().enqueue(here, std::get<ncclComm_t>(ready_[i]), stream);
  } else if (const auto* all_gather = std::get_if<AllGatherSpec>(&call.what)) {
    AllGatherSpec here = *all_gather;
    here.from = shift(here.from);
    here.to = shift(here.to);
    communicators().enqueue(here, std::get<ncclComm_t>(ready_[i]), stream);
  } else if (const auto* reduce_scatter = std::get_if<ReduceScatterSpec>(&call.what)) {
    ReduceScatterSpec here = *reduce_scatter;
    here.from = shift(here.from);
    here.to = shift(here.to);
    communicators().enqueue(here, std::get<ncclComm_t>(ready_[i]), stream);
  } else {
    ExchangeSpec here = std::get<ExchangeSpec>(call.what);
    for (std::vector<Message>* messages : {&here.sends, &here.receives}) {
      for (Message& message : *messages)
        message.data = shift(message.data);
    }
    communicators().enqueue(here, stream);
  }
}

namespace {

void add(std::string& text, const gpu::Launch& launch) {
  text += fmt::format("{} {}", launch.body->name, launch.blocks);
  for (const gpu::LaunchArg& arg : launch.args)
    text += fmt::format("{}{}", arg.is_address ? " @" : " ", arg.value);
}
void add(std::string& text, const gpu::Matmul& matmul) {
  const MatmulSpec& s = matmul.spec;
  text +=
      fmt::format("matmul {}{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", dtype_name(s.dtype),
                  s.accumulate ? " accumulate" : "", fmt::ptr(s.a), fmt::ptr(s.b), fmt::ptr(s.c),
                  s.m, s.n, s.k, s.a_row, s.a_column, s.b_row, s.b_column, s.c_row, matmul.batch,
                  matmul.a_step, matmul.b_step, matmul.c_step);
  if (matmul.epilogue) {
    const gpu::Epilogue& epilogue = *matmul.epilogue;
    text += fmt::format(" epilogue {} {} {} ", fmt::ptr(epilogue.bias),
                        static_cast<int>(epilogue.activation), fmt::ptr(epilogue.to));
    add(text, std::get<gpu::Launch>(epilogue.apart->what));
  }
}
void add(std::string& text, const gpu::Conv& conv) {
  const ConvShape& s = conv.shape;
  text += fmt::format("conv {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}",
                      static_cast<int>(conv.op), dtype_name(s.dtype), s.input, s.output, s.cells,
                      s.strides, s.dilations, s.pads, s.channels, s.filters, s.groups, conv.images,
                      fmt::ptr(conv.x), fmt::ptr(conv.kernel), fmt::ptr(conv.y));
}
void add(std::string& text, const gpu::Attention& attention) {
  text += "attention";
  for (const gpu::Command& command : *attention.apart) {
    text += ' ';
    add(text, std::get<gpu::Launch>(command.what));
  }
}
void add(std::string& text, const ExchangeSpec& exchange) {
  text += "exchange";
  for (const Message& message : exchange.sends)
    text += fmt::format(" to {} {} {}", message.peer, fmt::ptr(message.data), message.bytes);
  for (const Message& message : exchange.receives)
    text += fmt::format(" from {} {} {}", message.peer, fmt::ptr(message.data), message.bytes);
}
void add(std::string& text, const AllReduceSpec& all_reduce) {
  text += fmt::format("all_reduce {} {} {} {} over {}", static_cast<int>(all_reduce.reduction),
                      dtype_name(all_reduce.dtype), fmt::ptr(all_reduce.data), all_reduce.elements,
                      fmt::join(all_reduce.ranks, ","));
}
void add(std::string& text, const AllGatherSpec& all_gather) {
  text += fmt::format("all_gather {} {} {} over {}", fmt::ptr(all_gather.from),
                      fmt::ptr(all_gather.to), all_gather.bytes, fmt::join(all_gather.ranks, ","));
}
void add(std::string& text, const ReduceScatterSpec& s) {
  text += fmt::format("reduce_scatter {} {} {} {} {} over {}", static_cast<int>(s.reduction),
                      dtype_name(s.dtype), fmt::ptr(s.from), fmt::ptr(s.to), s.elements,
                      fmt::join(s.ranks, ","));
}

}  // namespace

std::string fingerprint(const std::vector<gpu::Command>& commands) {
  std::string text;
  for (const gpu::Command& command : commands) {
    std::visit([&](const auto& what) { add(text, what); }, command.what);
    for (const Access& access : command.accesses) {
      text += fmt::format(" {}{}-{}", access.is_write ? 'w' : 'r', fmt::ptr(access.begin),
                          fmt::ptr(access.end));
    }
    text += '\n';
  }
  return text;
}

}  // namespace meshtrain::cuda
