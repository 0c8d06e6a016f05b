#include "plan/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace meshtrain {
namespace {

// Returns the faster call; a call without an algorithm does not count.
CallTime faster(CallTime a, CallTime b) {
  return a.algorithm.empty() || b.seconds < a.seconds ? std::move(b) : std::move(a);
}

// Part of S that a device sends in a gather.
double part(GroupShape group) {
  return static_cast<double>(group.devices - 1) / static_cast<double>(group.devices);
}

double ring_rate(const Hardware& hardware, GroupShape group) {
  const double cards = hardware.network_rate * static_cast<double>(group.per_host());
  return group.hosts == 1        ? hardware.link_rate
         : group.per_host() == 1 ? cards
                                 : std::min(hardware.link_rate, cards);
}

double protocol_rate(const Hardware& hardware, double rate, size_t protocol, int64_t hosts) {
  const double data = rate * hardware.share[protocol];
  const double most = hardware.ll_rate[static_cast<size_t>(std::min<int64_t>(hosts, 3) - 1)];
  const bool is_ll = protocol == static_cast<size_t>(Protocol::kLL);
  return is_ll && most > 0 ? std::min(data, most) : data;
}

// The fastest protocol for `seconds(protocol)`.
template <class Seconds>
CallTime best_protocol(const char* algorithm, Seconds seconds) {
  CallTime best;
  for (size_t p = 0; p < kNumProtocols; ++p) {
    best = faster(best, {seconds(p),
                         fmt::format("{} {}", algorithm, protocol_name(static_cast<Protocol>(p)))});
  }
  return best;
}

// `times` 1: a gather; 2: an all_reduce, which is a scatter and a gather with one start.
CallTime ring(const Hardware& hardware, double bytes, GroupShape group, double times) {
  if (group.devices == 1) {
    return {};
  }
  const auto n = static_cast<double>(group.devices), h = static_cast<double>(group.hosts);
  const double rate = ring_rate(hardware, group);
  return best_protocol("ring", [&](size_t p) {
    const double link_hop =
        std::max(hardware.link_hop[p], group.hosts == 1 ? 0 : hardware.network_post);
    const double hops = (n - h) * link_hop + (h - 1) * hardware.network_hop[p];
    const double move = part(group) * bytes / protocol_rate(hardware, rate, p, group.hosts);
    return hardware.ring_start[p] + times * (hops + move);
  });
}

// One behind another from each device, so many of them to other hosts: bytes that it sends inside
// the host and beyond. Of NCCL's protocols only these two do.
CallTime messages(const Hardware& hardware, GroupShape group, double inside, double across,
                  double posts) {
  CallTime best;
  for (const Protocol protocol : {Protocol::kLL, Protocol::kSimple}) {
    const auto p = static_cast<size_t>(protocol);
    double moving = inside / protocol_rate(hardware, hardware.link_rate, p, 1);
    if (group.hosts > 1) {
      const double rate = protocol_rate(hardware, hardware.network_rate, p, group.hosts);
      moving = std::max({moving, across / rate, posts * hardware.network_post});
    }
    const double hop = group.hosts > 1 ? hardware.network_hop[p] : hardware.link_hop[p];
    best = faster(best, {hardware.ring_start[p] + hop + moving, "direct"});
  }
  return group.devices == 1 ? CallTime() : best;
}

}  // namespace

GroupShape group_along(const DeviceMesh& mesh, AxisMask axes, int64_t per_host) {
  GroupShape out{mesh.size_of(axes), 1};
  std::vector<int> others;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if ((axes >> axis & 1) == 0) {
      others.push_back(axis);
    }
  }
  struct Group {
    int64_t last_host = -1, hosts = 0;
  };
  std::vector<Group> groups(static_cast<size_t>(mesh.size_of(others)));
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {  // hosts come in order
    Group& group = groups[static_cast<size_t>(mesh.index_along(device, others))];
    if (group.last_host != device / per_host) {
      group.last_host = device / per_host;
      out.hosts = std::max(out.hosts, ++group.hosts);
    }
  }
  return out;
}

CallTime ring_gather(const Hardware& hardware, double bytes, GroupShape group) {
  return ring(hardware, bytes, group, 1);
}

CallTime ring_all_reduce(const Hardware& hardware, double bytes, GroupShape group) {
  return ring(hardware, bytes, group, 2);
}

CallTime tree_all_reduce(const Hardware& hardware, double bytes, GroupShape group) {
  if (group.devices == 1) {
    return {};
  }
  const auto g = static_cast<double>(group.per_host()), h = static_cast<double>(group.hosts);
  const double rate = ring_rate(hardware, group) * hardware.tree_share;
  return best_protocol("tree", [&](size_t p) {
    const double hops =
        (g - 1) * hardware.link_tree_hop[p] + std::log2(h) * hardware.network_tree_hop[p];
    const double move = part(group) * bytes / protocol_rate(hardware, rate, p, group.hosts);
    return hardware.tree_start[p] + 2 * (hops + move);
  });
}

CallTime switch_all_reduce(const Hardware& hardware, double bytes, GroupShape group) {
  if (group.devices == 1) {
    return {};
  }
  MESHTRAIN_CHECK(group.hosts == 1 && hardware.switch_rate > 0, "no switch between {} hosts",
                  group.hosts);
  return {hardware.switch_start + 2 * part(group) * bytes / hardware.switch_rate, "in switch"};
}

CallTime exchange(const Hardware& hardware, double bytes, GroupShape group) {
  const auto n = static_cast<double>(group.devices), g = static_cast<double>(group.per_host());
  return messages(hardware, group, (g - 1) / n * bytes, (n - g) / n * bytes, n - g);
}

CallTime permute(const Hardware& hardware, double bytes, GroupShape group) {
  const bool crosses = group.hosts > 1;
  return messages(hardware, group, crosses ? 0 : bytes, crosses ? bytes : 0, crosses ? 1 : 0);
}

namespace {

// The tensor's: what devices give to a gather is a part of it.
double tensor_bytes(const CollectiveCall& call, GroupShape group) {
  return call.kind == MoveKind::kAllGather ? call.bytes * static_cast<double>(group.devices)
                                           : call.bytes;
}

// Returns the time of kernels that read and write `bytes` in a device's own memory.
double local_time(const Hardware& hardware, int kernels, double bytes) {
  return kernels * hardware.kernel + bytes / memory_rate(hardware, bytes);
}

CallTime gather_call(const Hardware& hardware, const CollectiveCall& call, GroupShape group) {
  const double whole = tensor_bytes(call, group);
  CallTime time = ring_gather(hardware, whole, group);
  if (call.is_packed) {  // what it gives, and what has arrived
    time.seconds += local_time(hardware, 2, 2 * call.bytes + 2 * whole);
  }
  return time;
}

CallTime fixed_all_reduce(const Hardware& hardware, const CollectiveCall& call, GroupShape group) {
  const double n = static_cast<double>(group.devices), even = call.bytes - call.uneven;
  CallTime time = exchange(hardware, call.bytes, group);
  time.seconds += local_time(hardware, 1, call.bytes * (1 + 1 / n));  // the sum
  if (call.is_packed) {
    time.seconds += local_time(hardware, 1, 2 * part(group) * call.bytes);
  }
  if (even > 0) {
    const CallTime gather = ring_gather(hardware, even, group);
    time.seconds += gather.seconds;
    time.algorithm += ", " + gather.algorithm;
    if (call.is_packed) {
      time.seconds += local_time(hardware, 2, 2 * even);
    }
  }
  if (call.uneven > 0) {
    time.seconds += exchange(hardware, call.uneven, group).seconds;
    time.algorithm += ", direct";
    if (call.is_packed) {
      time.seconds += local_time(hardware, 2, 2 * call.uneven);
    }
  }
  return time;
}

// NCCL works in place: operands are copied to where results will be.
CallTime all_reduce_call(const Hardware& hardware, const CollectiveCall& call, GroupShape group) {
  if (call.fixed) {
    return fixed_all_reduce(hardware, call, group);
  }
  CallTime time = faster(ring_all_reduce(hardware, call.bytes, group),
                         tree_all_reduce(hardware, call.bytes, group));
  if (group.hosts == 1 && hardware.switch_rate > 0) {
    time = faster(time, switch_all_reduce(hardware, call.bytes, group));
  }
  time.seconds += call.is_packed ? local_time(hardware, 3, 6 * call.bytes)
                                 : local_time(hardware, 1, 2 * call.bytes);
  return time;
}

CallTime reduce_scatter_call(const Hardware& hardware, const CollectiveCall& call,
                             GroupShape group) {
  const double n = static_cast<double>(group.devices);
  CallTime time =
      call.fixed ? exchange(hardware, call.bytes, group) : ring_gather(hardware, call.bytes, group);
  if (call.is_packed) {
    time.seconds += local_time(hardware, 1, 2 * call.bytes);
  }
  if (call.fixed) {  // the sum
    time.seconds += local_time(hardware, 1, call.bytes * (1 + 1 / n));
  } else if (call.is_packed) {
    time.seconds += local_time(hardware, 1, 2 * call.bytes / n);
  }
  return time;
}

// Parts are contiguous on one side only: they are copied once, at sender or receiver.
CallTime all_to_all_call(const Hardware& hardware, const CollectiveCall& call, GroupShape group) {
  CallTime time = exchange(hardware, call.bytes, group);
  time.seconds += local_time(hardware, 2, 2 * call.bytes);
  return time;
}

}  // namespace

const std::vector<std::string>& call_names() {
  static const std::vector<std::string> kNames = {
      call_name(MoveKind::kAllGather, true),     call_name(MoveKind::kAllToAll, true),
      call_name(MoveKind::kAllReduce, true),     call_name(MoveKind::kAllReduce, false),
      call_name(MoveKind::kReduceScatter, true), call_name(MoveKind::kReduceScatter, false)};
  return kNames;
}

std::string call_name(MoveKind kind, bool fixed) {
  if (kind == MoveKind::kAllReduce || kind == MoveKind::kReduceScatter) {
    return fmt::format("{}_{}", move_name(kind), fixed ? "fixed" : "fast");
  }
  return std::string(move_name(kind == MoveKind::kPermute ? MoveKind::kAllToAll : kind));
}

double bus_factor(MoveKind kind, int64_t n) {
  const int64_t local = kind == MoveKind::kAllGather ? 1 : n;  // of a tensor of n bytes
  return static_cast<double>(bytes_sent(kind, local, n)) / static_cast<double>(n);
}

CallTime collective_time(const Hardware& hardware, const CollectiveCall& call, GroupShape group) {
  MESHTRAIN_CHECK(call.kind != MoveKind::kSlice, "a slice is no collective");
  if (group.devices == 1) {
    return {};
  }
  const CallLines& lines = group.hosts == 1 ? hardware.link_calls : hardware.network_calls;
  const auto line = lines.find(call_name(call.kind, call.fixed));
  if (line != lines.end()) {
    const double sent = bus_factor(call.kind, group.devices) * tensor_bytes(call, group);
    const double rate = line->second.rate;
    return {line->second.start + (rate > 0 ? sent / rate : 0), "as measured"};
  }
  switch (call.kind) {
    case MoveKind::kAllGather:
      return gather_call(hardware, call, group);
    case MoveKind::kAllReduce:
      return all_reduce_call(hardware, call, group);
    case MoveKind::kReduceScatter:
      return reduce_scatter_call(hardware, call, group);
    case MoveKind::kAllToAll:
      return all_to_all_call(hardware, call, group);
    default:
      return permute(hardware, call.bytes, group);
  }
}

double memory_rate(const Hardware& hardware, double bytes) {
  const bool fits = hardware.cache_rate > 0 && bytes <= static_cast<double>(hardware.cache_bytes);
  return fits ? hardware.cache_rate : hardware.memory_rate;
}

CallTime virtual_collective_time(const Hardware& hardware, double moved) {
  return {hardware.ring_start[0] + moved / memory_rate(hardware, moved), "in memory"};
}

double jitter_factor(const Hardware& hardware, int64_t devices) {
  return 1 + hardware.jitter * std::max(0.0, std::log2(static_cast<double>(devices) / 8));
}

std::string seconds_text(double seconds) {
  const auto [factor, unit] = seconds < 1e-3 ? std::pair(1e6, "us")
                              : seconds < 1  ? std::pair(1e3, "ms")
                                             : std::pair(1.0, "s");
  const double value = seconds * factor;
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
}

}  // namespace meshtrain
