// How long a collective takes: a start, so many hops, so many bytes at a rate. The formulas are
// those of NCCL's own tuning model, with whose constants the table of hardware is filled.
//
// n devices on h hosts, g = n / h on each, S bytes:
//
//   ring gather, scatter  start + (n - h) link hop + (h - 1) network hop + (n-1)/n S / B
//   ring all_reduce       start + twice the hops and bytes of a gather
//   tree all_reduce       start + 2 ((g - 1) link hop + log2(h) network hop)
//                         + 2(n-1)/n S / (0.92 B)
//   all_reduce in switch  start + 2(n-1)/n S / bus rate; one host
//   two levels            inside each host, and with S / g over each device's own network card
//   all_to_all            start + a hop + the longer of what goes over links and over the network
//   permute               start + a hop + S / rate
//
// B is the link's rate, or that of the g cards of a host where they are slower. A ring or a tree
// runs with the protocol that is fastest for S; a call with the fastest algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mesh/sharding.h"
#include "plan/hardware.h"

namespace meshtrain {

// The devices of one call.
struct GroupShape {
  int64_t devices = 1;
  int64_t hosts = 1;
  int64_t per_host() const { return (devices + hosts - 1) / hosts; }
  bool operator==(const GroupShape&) const = default;
};

// The groups along `axes` when devices fill hosts of `per_host` in order: the widest of them.
GroupShape group_along(const DeviceMesh& mesh, AxisMask axes, int64_t per_host);

struct CallTime {
  double seconds = 0;
  std::string algorithm;  // "ring LL128", "in switch"; empty: nothing to do
};

// `bytes`: the whole tensor of a gather or scatter, the tensor of an all_reduce, what one device
// holds of the operand of an all_to_all or permute. 0 seconds for one device.
CallTime ring_gather(const Hardware& hardware, double bytes, GroupShape group);
CallTime two_level_gather(const Hardware& hardware, double bytes, GroupShape group);
CallTime ring_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime tree_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime switch_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime two_level_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime all_to_all(const Hardware& hardware, double bytes, GroupShape group);
CallTime permute(const Hardware& hardware, double bytes, GroupShape group);

// The fastest way. `kind` is the op's name; `operand_bytes` are those of one device's operands, as
// in PlannedCollective. Throws InternalError for what is no collective.
CallTime collective_time(const Hardware& hardware, std::string_view kind, double operand_bytes,
                         GroupShape group);
// Bytes a second of a kernel that reads and writes so many.
double memory_rate(const Hardware& hardware, double bytes);
// The same on virtual devices: `moved` bytes are read and written by the processor.
CallTime virtual_collective_time(const Hardware& hardware, double moved);

// How much longer a step takes because devices wait for the slowest: 1 up to eight devices.
double jitter_factor(const Hardware& hardware, int64_t devices);

std::string seconds_text(double seconds);  // "31.2 us", "812 ms", "1.83 s"

}  // namespace meshtrain
