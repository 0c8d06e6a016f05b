// Modules of generated kernels as shared objects of the host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/merge_launches.h"
#include "support/gpu_emulator/module_abi.h"

namespace meshtrain::gpu {

// The compiler that modules are compiled with: $CXX, or g++. Empty where it cannot be started.
std::string host_compiler();

class Module {
 public:
  // Compiles the text with the shim in front, unless the cache of the tests has the result of an
  // earlier process. Throws InternalError with the compiler's words.
  Module(const std::string& text, const std::vector<std::string>& kernels);

  const EmulatorKernel& kernel(const std::string& name) const;
  const EmulatorModule& abi() const { return *abi_; }

 private:
  const EmulatorModule* abi_ = nullptr;  // in a shared object that is never closed
};

// One module for equal texts in this process.
std::shared_ptr<const Module> find_module(const MergedLaunches& joined);

}  // namespace meshtrain::gpu
