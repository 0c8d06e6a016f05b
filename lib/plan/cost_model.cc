#include "plan/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"

namespace meshtrain {
namespace {

CallTime faster(CallTime a, CallTime b) {
  return b.seconds < a.seconds ? std::move(b) : std::move(a);
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
    const double time = seconds(p);
    if (best.algorithm.empty() || time < best.seconds) {
      best = {time, fmt::format("{} {}", algorithm, protocol_name(static_cast<Protocol>(p)))};
    }
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
    const double hops = (n - h) * hardware.link_hop[p] + (h - 1) * hardware.network_hop[p];
    const double move = part(group) * bytes / protocol_rate(hardware, rate, p, group.hosts);
    return hardware.ring_start[p] + times * (hops + move);
  });
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

CallTime two_level_gather(const Hardware& hardware, double bytes, GroupShape group) {
  const auto g = static_cast<double>(group.per_host());
  const CallTime across = ring_gather(hardware, bytes / g, {group.hosts, group.hosts});
  const CallTime inside = ring_gather(hardware, bytes, {group.per_host(), 1});
  return {across.seconds + inside.seconds, group.devices == 1 ? "" : "two levels"};
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

CallTime two_level_all_reduce(const Hardware& hardware, double bytes, GroupShape group) {
  const auto g = static_cast<double>(group.per_host());
  const GroupShape rail{group.hosts, group.hosts};
  const CallTime across = faster(ring_all_reduce(hardware, bytes / g, rail),
                                 tree_all_reduce(hardware, bytes / g, rail));
  const CallTime inside = ring_gather(hardware, bytes, {group.per_host(), 1});  // there and back
  return {across.seconds + 2 * inside.seconds, group.devices == 1 ? "" : "two levels"};
}

CallTime all_to_all(const Hardware& hardware, double bytes, GroupShape group) {
  if (group.devices == 1) {
    return {};
  }
  const auto n = static_cast<double>(group.devices), g = static_cast<double>(group.per_host());
  constexpr auto kSimple = static_cast<size_t>(Protocol::kSimple);
  const bool crosses = group.hosts > 1;
  const double inside = (g - 1) / n * bytes / hardware.link_rate;
  const double across = crosses ? (n - g) / n * bytes / hardware.network_rate : 0;
  const double hop = crosses ? hardware.network_hop[kSimple] : hardware.link_hop[kSimple];
  return {hardware.ring_start[kSimple] + hop + std::max(inside, across), "direct"};
}

CallTime permute(const Hardware& hardware, double bytes, GroupShape group) {
  if (group.devices == 1) {
    return {};
  }
  constexpr auto kSimple = static_cast<size_t>(Protocol::kSimple);
  const bool crosses = group.hosts > 1;
  const double rate = crosses ? hardware.network_rate : hardware.link_rate;
  const double hop = crosses ? hardware.network_hop[kSimple] : hardware.link_hop[kSimple];
  return {hardware.ring_start[kSimple] + hop + bytes / rate, "direct"};
}

CallTime collective_time(const Hardware& hardware, std::string_view kind, double operand_bytes,
                         GroupShape group) {
  if (kind == "all_to_all") {
    return all_to_all(hardware, operand_bytes, group);
  }
  if (kind == "permute") {
    return permute(hardware, operand_bytes, group);
  }
  const bool two_levels = group.hosts > 1 && group.per_host() > 1;
  if (kind == "all_reduce") {
    CallTime best = faster(ring_all_reduce(hardware, operand_bytes, group),
                           tree_all_reduce(hardware, operand_bytes, group));
    if (group.hosts == 1 && hardware.switch_rate > 0) {
      best = faster(best, switch_all_reduce(hardware, operand_bytes, group));
    }
    return two_levels ? faster(best, two_level_all_reduce(hardware, operand_bytes, group)) : best;
  }
  MESHTRAIN_CHECK(kind == "all_gather" || kind == "reduce_scatter", "`{}` is no collective", kind);
  const double whole =
      kind == "all_gather" ? operand_bytes * static_cast<double>(group.devices) : operand_bytes;
  const CallTime best = ring_gather(hardware, whole, group);
  return two_levels && hardware.two_level_gather
             ? faster(best, two_level_gather(hardware, whole, group))
             : best;
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
