// The text of a module: the device code that its bodies need, every body once, and the kernels that
// call them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "backend/gpu/device_text.h"
#include "backend/gpu/merge_launches.h"

namespace meshtrain::gpu {

class ModuleText {
 public:
  ModuleText();
  // Launches of one body as one grid, block after block. Parameters: the first
  // block of each where there are several, then the arguments of each.
  KernelCall instances(const std::vector<const Launch*>& launches);
  // One block that computes stage after stage, each launch of a stage from its first block to its
  // last. The launches of a stage do not depend on each other. Parameters: the arguments of each.
  KernelCall chain(const std::vector<std::vector<const Launch*>>& stages);
  std::string take();

 private:
  void add_body(const KernelBody& body);
  void add_kernel(const KernelCall& call, const std::string& text, bool needs_registers);

  DeviceText device_;
  std::string text_;
  std::set<std::string> names_;  // of bodies and kernels in the text
};

}  // namespace meshtrain::gpu
