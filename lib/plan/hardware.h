// Hardware: the cost model's figures for a kind of device, for the links between devices of a host
// and of the network between hosts. The table is data (hardware.cc, with sources); a YAML file can
// change any value of it and add devices (plan/hardware_file.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

// How the operands of a product are multiplied.
enum class MatmulType : uint8_t { kFloat64, kFloat32, kTf32, kBFloat16, kFloat16 };
constexpr size_t kNumMatmulTypes = 5;
std::string_view matmul_type_name(MatmulType type);  // "tf32"

// NCCL's three protocols; what depends on them is an array of three.
enum class Protocol : uint8_t { kLL, kLL128, kSimple };
constexpr size_t kNumProtocols = 3;
std::string_view protocol_name(Protocol protocol);  // "LL128"
using ByProtocol = std::array<double, kNumProtocols>;

// A kind of call as it was measured: seconds = start + bytes that a device sends / rate.
struct CallLine {
  double start = 0;
  double rate = 0;  // 0: no time grew with the bytes
};
using CallLines = std::map<std::string, CallLine, std::less<>>;  // by call_name()

// Seconds, bytes, bytes a second, FLOP a second; rates are those of one device and direction.
struct Hardware {
  std::string name;
  int64_t memory = 0;
  double memory_rate = 0;  // reached, read and written bytes together
  // Sets of at most cache_bytes move at cache_rate; 0: no difference.
  int64_t cache_bytes = 0;
  double cache_rate = 0;
  std::array<double, kNumMatmulTypes> peak{};    // of the data sheet: what MFU refers to
  std::array<double, kNumMatmulTypes> matmul{};  // what large products reach
  double kernel = 0;                             // begin and end of one kernel in a graph

  int64_t per_host = 1;     // devices of a host
  bool is_virtual = false;  // devices share one processor: rates are those of all together
  double link_rate = 0;     // to devices of the same host
  double switch_rate = 0;   // all_reduce in the switch between them, as bus rate; 0: none
  double switch_start = 0;  // what such a call costs beside its bytes
  double network_rate = 0;  // to other hosts: of the card of one device
  ByProtocol ring_start{}, tree_start{};           // of a call
  ByProtocol link_hop{}, network_hop{};            // each step of a ring
  ByProtocol link_tree_hop{}, network_tree_hop{};  // each step of a tree
  ByProtocol share{};                              // of the rate that is data
  std::array<double, 3> ll_rate{};  // most that protocol LL reaches on 1, 2 and more hosts
  double tree_share = 1;            // of a ring's rate that a tree reaches
  double network_post = 0;          // to hand one message to the network's card
  // Measurements, which replace all formulas: inside a host, and between hosts.
  CallLines link_calls, network_calls;
  double jitter = 0;  // of the step, for each doubling of the devices beyond eight
};

// The table: A100, H100, H200, B200, V100, T4, A10G, L4, L40S, RTX4090, cpu.
const std::vector<Hardware>& known_hardware();
// Upper and lower case are one, and "RTX 4090" is "RTX4090"; null when there is none.
const Hardware* find_hardware(const std::vector<Hardware>& table, std::string_view name);
// The hardware of a device by the name that its driver gives: H100 for "NVIDIA H100 80GB HBM3".
const Hardware* hardware_of_device(std::string_view device_name);

}  // namespace meshtrain
