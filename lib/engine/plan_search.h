// PlanSearch: scores configs by their lowered plans, on the hardware that one config names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/devices.h"
#include "engine/make_plan.h"
#include "engine/rank_plans.h"

namespace meshtrain {

class PlanSearch {
 public:
  // Throws as rank_meshes().
  PlanSearch(const Config& config, int64_t hosts);

  int64_t num_devices() const { return num_devices_; }
  std::string devices_text() const;  // "8xH100", "cpu:8": as a config has them
  std::string describe() const;      // "8 x H100 (on paper)"
  // The score of `config` on the hardware. `splits_batch`, where given, receives whether a batch
  // axis has more than one device.
  PlanScore score(Config config, bool* splits_batch = nullptr) const;
  // Whether the devices are virtual ones, which share the cores of a processor.
  bool has_shared_cores() const { return request_.hardware.empty(); }
  // Whether so many bytes fit into the memory of a device.
  bool fits(int64_t bytes) const { return hardware_.memory == 0 || bytes <= hardware_.memory; }

 private:
  DeviceRequest request_;
  Hardware hardware_;
  int64_t num_devices_ = 1, hosts_ = 0;
  mutable LaunchShares shares_;
};

// The first error of an exception, which warnings may precede.
std::string first_error_text(const ConfigError& error);

// All ways to write `number` as a product of `count` numbers, in order: the first one largest
// first.
std::vector<std::vector<int64_t>> factorizations(int64_t number, size_t count);

}  // namespace meshtrain
