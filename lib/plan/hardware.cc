#include "plan/hardware.h"

#include <algorithm>

#include "base/text.h"

namespace meshtrain {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e-6;

// The share of the data sheet that large products and copies reach, measured on an H200: 790 of 989
// TFLOP/s in bfloat16, 4.3 of 4.8 TB/s. The same shares are assumed for other devices.
constexpr double kMatmulShare = 790.0 / 989.0;
constexpr double kMemoryShare = 4.3 / 4.8;

// NVLink: 370 of 450 GB/s a direction (NCCL's own model of Hopper, 18 links of 20.6 GB/s, in
// src/graph/topo.h; nccl-tests issues 212, 272). Network: 46 to 49 of the 50 GB/s of a 400 Gb/s
// card (nccl-tests issues 267, 290, 309).
constexpr double kLinkShare = 370.0 / 450.0;
constexpr double kNetworkShare = 47.0 / 50.0;

// Latencies of NCCL 2.30, src/graph/tuning.cc, microseconds: LL, LL128, Simple. A tree reaches 0.92
// of a ring's rate; LL128 carries 120 bytes of data in 128, LL four in eight and on Hopper at most
// so much. Posting a message to the network takes 1 us (2 on AMD's processors).
Hardware with_nccl(Hardware out) {
  const auto micro = [](double ll, double ll128, double simple) {
    return ByProtocol{ll * kMicro, ll128 * kMicro, simple * kMicro};
  };
  out.ring_start = micro(6.6, 14, 8.4);
  out.tree_start = micro(6.8, 14, 8.4);
  out.link_hop = micro(0.6, 1.9, 3.4);
  out.link_tree_hop = micro(0.6, 1.25, 4.0);
  out.network_hop = micro(2.7, 4.0, 14);
  out.network_tree_hop = micro(5, 8.5, 14);
  out.share = {0.5, 120.0 / 128.0, 1};
  out.ll_rate = {141 * kGiga, 45 * kGiga, 35 * kGiga};
  out.tree_share = 0.92;
  out.network_post = 1 * kMicro;
  // Fitted to MaxText 70B on 128 to 2048 and torchtitan 8B on 8 to 128 H100, which are therefore no
  // test of the model (tests/bench/scaling_model.py).
  out.jitter = 0.005;
  // Ramp and tail of a kernel in a CUDA graph: an estimate, to be measured.
  out.kernel = 3 * kMicro;
  return out;
}

// A host of eight GPUs with a switch between them and a card each. Peaks in TFLOP/s without
// sparsity, memory in GB, rates in GB/s of the data sheet.
struct DataSheet {
  const char* name;
  double memory, memory_rate;
  std::array<double, kNumMatmulTypes> peak;
  double link, network;  // a direction
  double switch_rate;    // all_reduce in the switch; 0: not in this generation
};

// A card on PCI Express without links of its own: 16 lanes of 1.97 GB/s (generation 4) or 0.985
// (3). No data sheet says how fast its network is: 100 Gb/s shared by the eight cards of a host are
// assumed, 400 Gb/s for those of V100 and L40S.
constexpr double kPcie4 = 31.5, kPcie3 = 15.75, kSharedNetwork = 12.5 / 8, kFastNetwork = 50.0 / 8;

Hardware gpu(const DataSheet& sheet) {
  Hardware out;
  out.name = sheet.name;
  out.memory = static_cast<int64_t>(sheet.memory * kGiga);
  out.memory_rate = sheet.memory_rate * kGiga * kMemoryShare;
  for (size_t t = 0; t < kNumMatmulTypes; ++t) {
    out.peak[t] = sheet.peak[t] * kTera;
    out.matmul[t] = out.peak[t] * kMatmulShare;
  }
  out.per_host = 8;
  out.link_rate = sheet.link * kGiga * kLinkShare;
  out.network_rate = sheet.network * kGiga * kNetworkShare;
  out.switch_rate = sheet.switch_rate * kGiga;
  out.switch_start = 25 * kMicro;
  return with_nccl(out);
}

// Virtual devices on the two Zen 5 cores that the project measured (4.1 GHz, 32 MiB of third-level
// cache): 530 GFLOP/s in float32, 1062 in bfloat16, 52 GB/s from memory and 230 from the cache; a
// call of a function on them costs under a microsecond. float64 is half of float32's width.
Hardware cpu() {
  Hardware out;
  out.name = "cpu";
  out.is_virtual = true;
  out.per_host = 1 << 20;
  out.memory_rate = 52 * kGiga;
  out.cache_bytes = int64_t{32} << 20;
  out.cache_rate = 230 * kGiga;
  out.peak = {265 * kGiga, 530 * kGiga, 530 * kGiga, 1062 * kGiga, 530 * kGiga};
  out.matmul = out.peak;
  out.kernel = 0.5 * kMicro;
  out.ring_start = out.tree_start = {0.08 * kMicro, 0.08 * kMicro, 0.08 * kMicro};
  out.share = {1, 1, 1};
  return out;
}

std::vector<Hardware> make_table() {
  // NVIDIA's data sheets: A100 80GB SXM with HDR InfiniBand (DGX A100), H100 SXM, H200 SXM, HGX
  // B200 (one eighth of the board). In-switch all_reduce: 480 GB/s measured on H100 and H200
  // (nccl-tests issues 212, 272, H200: 475); B200 in proportion to its links. V100 SXM2, T4, L4,
  // L40S and RTX 4090 (products in float16 summed in float32) are as NVIDIA's sheets are quoted by
  // sellers of the cards; half of a rate that a sheet gives for sparse factors. Of A10G memory and
  // its rate are published; its product rates are unconfirmed. float64 of cards is 1/32 (T4) or
  // 1/64 of float32.
  //                       memory  rate  fp64  fp32  tf32  bf16  fp16  link  card  switch
  constexpr DataSheet kSheets[] = {
      {"A100", 80, 2039, {19.5, 19.5, 156, 312, 312}, 300, 25, 0},
      {"H100", 80, 3350, {67, 67, 494.5, 989, 989}, 450, 50, 480},
      {"H200", 141, 4800, {67, 67, 494.5, 989, 989}, 450, 50, 480},
      {"B200", 180, 8000, {37, 75, 1125, 2250, 2250}, 900, 50, 960},
      // Without the types that a generation lacks: products in bfloat16 and TF32 run as float32.
      {"V100", 32, 900, {7.8, 15.7, 15.7, 15.7, 125}, 150, kFastNetwork, 0},
      {"T4", 16, 320, {0.254, 8.1, 8.1, 8.1, 65}, kPcie3, kSharedNetwork, 0},
      {"A10G", 24, 600, {0.55, 35, 35, 70, 70}, kPcie4, kSharedNetwork, 0},
      {"L4", 24, 300, {0.473, 30.3, 60, 121, 121}, kPcie4, kSharedNetwork, 0},
      {"L40S", 48, 864, {1.43, 91.6, 183, 362, 362}, kPcie4, kFastNetwork, 0},
      {"RTX4090", 24, 1008, {1.29, 82.6, 82.6, 165.2, 165.2}, kPcie4, kSharedNetwork, 0},
  };
  std::vector<Hardware> table;
  for (const DataSheet& sheet : kSheets) {
    table.push_back(gpu(sheet));
  }
  table.push_back(cpu());
  return table;
}

}  // namespace

std::string_view matmul_type_name(MatmulType type) {
  constexpr std::string_view kNames[] = {"float64", "float32", "tf32", "bfloat16", "float16"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view protocol_name(Protocol protocol) {
  constexpr std::string_view kNames[] = {"LL", "LL128", "Simple"};
  return kNames[static_cast<size_t>(protocol)];
}

const std::vector<Hardware>& known_hardware() {
  static const std::vector<Hardware> kTable = make_table();
  return kTable;
}

const Hardware* find_hardware(const std::vector<Hardware>& table, std::string_view name) {
  const auto plain = [](std::string_view text) {
    std::string out = to_lower(text);
    std::erase_if(out, [](char c) { return c == ' ' || c == '-' || c == '_'; });
    return out;
  };
  const std::string wanted = plain(name);
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Hardware& h) { return plain(h.name) == wanted; });
  return found == table.end() ? nullptr : &*found;
}

const Hardware* hardware_of_device(std::string_view device_name) {
  std::string words(device_name);
  std::replace_if(
      words.begin(), words.end(), [](char c) { return c == '-' || c == '/'; }, ' ');
  const std::vector<std::string> parts = split(words, ' ');
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::string& name :
         {parts[i], i + 1 < parts.size() ? parts[i] + parts[i + 1] : ""}) {
      const Hardware* found = find_hardware(known_hardware(), name);
      if (found != nullptr && !found->is_virtual) {
        return found;
      }
    }
  }
  return nullptr;
}

}  // namespace meshtrain
