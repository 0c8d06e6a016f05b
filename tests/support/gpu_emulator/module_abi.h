// What a compiled module and the emulator know of each other. Stands in front of every module's
// text and is included by the emulator: plain C++ without includes.
#pragma once

extern "C" {

struct EmulatorIndex {
  unsigned x, y, z;
};

struct EmulatorKernel {
  const char* name;
  void (*run)(const void* params);  // as the current thread
  unsigned long params_bytes;
};

struct EmulatorModule {
  EmulatorIndex *thread, *block, *grid;  // threadIdx, blockIdx, gridDim: set by the emulator
  // Set by the emulator: ends when all threads of the block have come to one.
  void (**barrier)();
  // Set by the emulator: gives `value` to the lanes of this warp, returns that of `lane`.
  unsigned long long (**exchange)(unsigned long long value, unsigned lane);
  unsigned char* shared;
  unsigned long shared_bytes;
  const EmulatorKernel* kernels;
  int num_kernels;
};
}
