#include "support/gpu_emulator/plan.h"

#include <algorithm>
#include <cstdlib>

#include "backend/gpu/epilogue.h"
#include "base/error.h"
#include "base/hash.h"
#include "support/gpu_emulator/block.h"
#include "support/gpu_emulator/peers.h"
#include "support/gpu_emulator/products.h"

namespace meshtrain::gpu {
namespace {

// More memory than this is not watched: it would be copied for every call.
constexpr int64_t kWatchedBytes = int64_t{8} << 20;

int64_t number_of(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

bool conflicts(const Access& a, const Access& b) {
  return (a.is_write || b.is_write) && a.begin < b.end && b.begin < a.end;
}

bool conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& x) {
    return std::any_of(b.begin(), b.end(), [&](const Access& y) { return conflicts(x, y); });
  });
}

std::vector<int> call_of_each(const std::vector<Command>& commands,
                              const std::vector<Call>& calls) {
  std::vector<int> call_of(commands.size(), -1);
  for (size_t i = 0; i < calls.size(); ++i) {
    for (int command : calls[i].commands) {
      int& call = call_of.at(static_cast<size_t>(command));
      MESHTRAIN_CHECK(call == -1, "{}: two calls compute command {}", calls[i].path, command);
      call = static_cast<int>(i);
    }
  }
  for (size_t c = 0; c < commands.size(); ++c)
    MESHTRAIN_CHECK(call_of[c] >= 0, "{}: no call computes command {}", commands[c].path, c);
  return call_of;
}

// Commands that touch the same memory, one of them writing, must be in one call or in two of which
// the later waits for the earlier.
void check_order(const std::vector<Command>& commands, const std::vector<Call>& calls) {
  const std::vector<int> call_of = call_of_each(commands, calls);
  const size_t n = calls.size();
  std::vector<std::vector<bool>> waits(n, std::vector<bool>(n));  // [later][earlier]
  for (size_t i = 0; i < n; ++i) {
    for (int before : calls[i].after) {
      const size_t b = static_cast<size_t>(before);
      MESHTRAIN_CHECK(b < i, "{}: a call waits for a later one", calls[i].path);
      waits[i][b] = true;
      for (size_t k = 0; k < b; ++k)
        waits[i][k] = waits[i][k] || waits[b][k];
    }
  }
  for (size_t later = 0; later < commands.size(); ++later) {
    for (size_t c = 0; c < later; ++c) {
      const int from = call_of[c], to = call_of[later];
      if (from == to || !conflict(commands[c].accesses, commands[later].accesses))
        continue;
      const bool in_order = from < to && waits[static_cast<size_t>(to)][static_cast<size_t>(from)];
      MESHTRAIN_CHECK(in_order, "command {} of {} does not wait for command {} of {}", later,
                      commands[later].path, c, commands[c].path);
    }
  }
}

// Places of the calls in an order that `after` allows: theirs for seed 0.
std::vector<size_t> order_of_calls(const std::vector<Call>& calls, uint64_t seed) {
  std::vector<size_t> missing, ready, order;
  std::vector<std::vector<size_t>> followers(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) {
    missing.push_back(calls[i].after.size());
    for (int before : calls[i].after)
      followers[static_cast<size_t>(before)].push_back(i);
    if (missing[i] == 0)
      ready.push_back(i);
  }
  while (!ready.empty()) {
    const auto next = seed == 0 ? std::min_element(ready.begin(), ready.end())
                                : ready.begin() + static_cast<std::ptrdiff_t>(
                                                      hash_mix(seed, order.size()) % ready.size());
    const size_t call = *next;
    ready.erase(next);
    order.push_back(call);
    for (size_t follower : followers[call]) {
      if (--missing[follower] == 0)
        ready.push_back(follower);
    }
  }
  MESHTRAIN_CHECK(order.size() == calls.size(), "calls wait for each other");
  return order;
}

}  // namespace

EmulatorOptions EmulatorOptions::from_environment() {
  EmulatorOptions options;
  options.seed = static_cast<uint64_t>(number_of("MESHTRAIN_EMULATOR_SEED", 0));
  options.watched_runs = static_cast<int>(number_of("MESHTRAIN_EMULATOR_WATCHED_RUNS", 1));
  return options;
}

Steps::Steps(const DeviceMemory& memory, const std::vector<Command>& given,
             const std::vector<Window>& windows, bool use_tf32)
    : memory_(memory), windows_(windows), use_tf32_(use_tf32), traffic_(traffic_of(given)) {
  const std::vector<Command> commands = with_parts(given, [](const Command& command) {
    return std::holds_alternative<Matmul>(command.what) && number_of("MESHTRAIN_EPILOGUES", 1) != 0;
  });
  for (const Command& command : commands) {
    for (const Access& access : command.accesses) {
      MESHTRAIN_CHECK(memory.contains(access.begin, access.end),
                      "{}: {} bytes at {} lie in no allocation", command.path,
                      access.end - access.begin, static_cast<const void*>(access.begin));
    }
    accesses_.push_back(command.accesses);
  }
  MergedLaunches joined = merge_launches(commands);
  check_order(commands, joined.calls);
  module_ = find_module(joined);
  calls_ = std::move(joined.calls);
  for (const Call& call : calls_) {
    const auto* kernel = std::get_if<KernelCall>(&call.what);
    if (kernel == nullptr)
      continue;
    const uint64_t bytes = module_->kernel(kernel->kernel).params_bytes;
    MESHTRAIN_CHECK(bytes == kernel->params.size() * sizeof(uint64_t),
                    "{}: kernel {} takes {} bytes of parameters, not {} of 8", call.path,
                    kernel->kernel, bytes, kernel->params.size());
  }
}

uint64_t Steps::moved(uint64_t address, int64_t step) const {
  for (const Window& window : windows_) {
    const uint64_t begin = reinterpret_cast<uint64_t>(window.begin);
    if (address >= begin && address < begin + static_cast<uint64_t>(window.bytes))
      return address + static_cast<uint64_t>(step * window.stride);
  }
  return address;
}

void Steps::communicate(const Call& call, int64_t step, Peers& peers) const {
  if (const auto* all_reduce = std::get_if<AllReduceSpec>(&call.what)) {
    AllReduceSpec here = *all_reduce;
    here.data = moved(here.data, step);
    return peers.run(here, call.path);
  }
  if (const auto* all_gather = std::get_if<AllGatherSpec>(&call.what)) {
    AllGatherSpec here = *all_gather;
    here.from = moved(here.from, step);
    here.to = moved(here.to, step);
    return peers.run(here, call.path);
  }
  if (const auto* reduce_scatter = std::get_if<ReduceScatterSpec>(&call.what)) {
    ReduceScatterSpec here = *reduce_scatter;
    here.from = moved(here.from, step);
    here.to = moved(here.to, step);
    return peers.run(here, call.path);
  }
  ExchangeSpec here = std::get<ExchangeSpec>(call.what);
  for (std::vector<Message>* messages : {&here.sends, &here.receives}) {
    for (Message& message : *messages)
      message.data = moved(message.data, step);
  }
  peers.run(here, call.path);
}

void Steps::run_call(const Call& call, int64_t step, uint64_t seed) const {
  if (const auto* matmul = std::get_if<Matmul>(&call.what)) {
    Matmul here = *matmul;
    here.spec.a = moved(here.spec.a, step);
    here.spec.b = moved(here.spec.b, step);
    here.spec.c = moved(here.spec.c, step);
    if (here.epilogue) {
      here.epilogue->bias = moved(here.epilogue->bias, step);
      here.epilogue->to = moved(here.epilogue->to, step);
    }
    return run_matmul(here, use_tf32_);
  }
  if (const auto* conv = std::get_if<Conv>(&call.what)) {
    Conv here = *conv;
    here.x = moved(here.x, step);
    here.kernel = moved(here.kernel, step);
    here.y = moved(here.y, step);
    return run_conv(here, use_tf32_);
  }
  const KernelCall& kernel = std::get<KernelCall>(call.what);
  std::vector<uint64_t> params;
  for (const LaunchArg& arg : kernel.params) {
    const auto* const place = reinterpret_cast<const std::byte*>(arg.value);
    MESHTRAIN_CHECK(arg.is_address || !memory_.contains(place, place + 1),
                    "{}: an address that is not marked as one", call.path);
    params.push_back(arg.is_address ? moved(arg.value, step) : arg.value);
  }
  const std::string problem =
      run_grid({&module_->abi(), &module_->kernel(kernel.kernel), params.data(), kernel.grid,
                kernel.shared_bytes, kernel.has_barriers, seed});
  MESHTRAIN_CHECK(problem.empty(), "{}: kernel {}, {}", call.path, kernel.kernel, problem);
}

void Steps::watch_call(const Call& call, int64_t step, uint64_t seed) const {
  std::vector<Access> accesses;
  for (int command : call.commands) {
    for (Access access : accesses_[static_cast<size_t>(command)]) {
      const std::ptrdiff_t distance = moved(access.begin, step) - access.begin;
      accesses.push_back({access.begin + distance, access.end + distance, access.is_write});
    }
  }
  Watch watch(memory_, accesses);
  run_call(call, step, seed);
  const std::string problem = watch.end();
  const auto* kernel = std::get_if<KernelCall>(&call.what);
  MESHTRAIN_CHECK(problem.empty(), "{}: {} {}", call.path,
                  kernel == nullptr ? "a product" : kernel->kernel, problem);
}

void Steps::run(int step, bool is_watched, uint64_t seed, Peers* peers) const {
  for (size_t c : order_of_calls(calls_, seed)) {
    const uint64_t own = seed == 0 ? 0 : hash_mix(seed, c);
    if (communicates(calls_[c].what)) {
      MESHTRAIN_CHECK(peers != nullptr, "{}: the device has joined no others", calls_[c].path);
      communicate(calls_[c], step, *peers);
      continue;
    }
    const std::lock_guard lock(memory_.mutex());
    if (is_watched && memory_.used_bytes() <= kWatchedBytes) {
      watch_call(calls_[c], step, own);
    } else {
      run_call(calls_[c], step, own);
    }
  }
}

}  // namespace meshtrain::gpu
