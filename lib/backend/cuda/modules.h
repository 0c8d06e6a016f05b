// Modules of generated kernels on a device: compiled, or taken from the cache, and loaded.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backend/cuda/cache.h"
#include "backend/cuda/compile_queue.h"
#include "backend/cuda/core.h"

namespace meshtrain::cuda {

// Machine code for the device of a text, from the cache or from the compiler.
std::string machine_code(const Core& core, const Cache& cache, const std::string& text);

// Loaded code; unloaded when it goes, so after the plans that use it.
class Module {
 public:
  Module(const Core& core, const std::string& code);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Ready to be launched with that much dynamic shared memory and one parameter of that size:
  // loaded here, since a capture is no place for it.
  CUfunction kernel(const std::string& name, unsigned shared_bytes, size_t parameter_bytes) const;

 private:
  const Core& core_;
  CUmodule module_ = nullptr;
};

// One Module for every text.
class Modules {
 public:
  Modules(const Core& core, const Cache& cache);
  // Begins to compile a text that load() will be given, on another thread, and returns.
  void begin(const std::string& text);
  // Waits for this text alone. Throws RuntimeFailure (exit 4) with the compiler's message.
  const Module& load(const std::string& text);

 private:
  const Core& core_;
  const Cache& cache_;
  std::map<std::string, std::unique_ptr<Module>> modules_;  // by checksum of the text
  CompileQueue queue_;                                      // by the same
};

}  // namespace meshtrain::cuda
