// How long a collective takes as the program does it (exec/library_collective.h): which calls of
// NCCL, and what it moves and adds up in a device's memory before and after them.
//
//   all_gather       NCCL's
//   all_reduce       fast: NCCL's. fixed: an exchange of shares, an own sum, NCCL's all_gather of
//                    the tensors whose elements divide by the devices; of the others an exchange
//   reduce_scatter   fast: NCCL's. fixed: an exchange and an own sum
//   all_to_all       an exchange
//   permute          a message
//
// A bucket of several tensors, or of non-contiguous shards, is packed before the call and unpacked
// after it. Each copy kernel takes a launch and its bytes at the memory's rate.
//
// An NCCL call takes a start, a number of hops, and its bytes at a rate: the formulas of NCCL's own
// tuning model, whose constants fill the table of hardware. n devices on h hosts, g = n / h on
// each, S bytes:
//
//   ring gather, scatter  start + (n - h) link hop + (h - 1) network hop + (n-1)/n S / B
//   ring all_reduce       start + twice the hops and bytes of a gather
//   tree all_reduce       start + 2 ((g - 1) link hop + log2(h) network hop)
//                         + 2(n-1)/n S / (0.92 B)
//   all_reduce in switch  start + 2(n-1)/n S / bus rate; one host
//   exchange              start + a hop + the longest of what goes over links, what goes over the
//                         network, and the posting of n - g messages there
//   permute               start + a hop + S / rate
//
// B is the link's rate, or the rate of a host's g cards when they are slower. Between hosts, a hop
// in a ring takes at least the time of posting a message. NCCL takes what is fastest for S among
// algorithms and protocols; messages of their own have no LL128.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/reshard.h"
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

// `bytes`: the whole tensor of a gather, scatter or all_reduce; for an exchange (own part included)
// or a permute, the bytes of one device. Returns 0 seconds for one device.
CallTime ring_gather(const Hardware& hardware, double bytes, GroupShape group);
CallTime ring_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime tree_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime switch_all_reduce(const Hardware& hardware, double bytes, GroupShape group);
CallTime exchange(const Hardware& hardware, double bytes, GroupShape group);
CallTime permute(const Hardware& hardware, double bytes, GroupShape group);

// One collective of a program.
struct CollectiveCall {
  MoveKind kind = MoveKind::kAllReduce;
  double bytes = 0;   // of one device's operands, as in PlannedCollective
  double uneven = 0;  // of an all_reduce's: tensors whose elements do not divide by the devices
  bool is_packed = false;  // copied together before or apart afterwards
  bool fixed = true;       // reductions
};

// By the line that was measured of such calls, else by the formulas. Throws InternalError for a
// slice, which is local.
CallTime collective_time(const Hardware& hardware, const CollectiveCall& call, GroupShape group);

// The names of measured calls: all_gather, all_to_all (also for exchanges and permutes), and
// all_reduce_fixed, all_reduce_fast, reduce_scatter_fixed, reduce_scatter_fast.
const std::vector<std::string>& call_names();
std::string call_name(MoveKind kind, bool fixed);
// Bytes that each of n devices sends for each byte of the tensor, of a gather: of the whole one.
// The bus rate is the tensor's bytes a second times this factor, as nccl-tests count.
double bus_factor(MoveKind kind, int64_t n);

// Bytes a second of a kernel that reads and writes so many.
double memory_rate(const Hardware& hardware, double bytes);
// The same on virtual devices: `moved` bytes are read and written by the processor.
CallTime virtual_collective_time(const Hardware& hardware, double moved);

// How much longer a step takes because devices wait for the slowest: 1 up to eight devices.
double jitter_factor(const Hardware& hardware, int64_t devices);

std::string seconds_text(double seconds);  // "31.2 us", "812 ms", "1.83 s"

}  // namespace meshtrain
