#pragma once

#include <fmt/format.h>

#include <string>

namespace meshtrain::test {

// GPUs as cuDNN describes them, so that it can plan for one that is not here.
inline std::string gpu_description(int compute) {
  struct Known {
    const char* name;
    int multiprocessors, shared, threads, blocks, l2;
  };
  const Known gpu = compute == 80 ? Known{"NVIDIA A100-SXM4-80GB", 108, 166912, 2048, 32, 41943040}
                    : compute == 90
                        ? Known{"NVIDIA H200", 132, 232448, 2048, 32, 62914560}
                        : Known{"NVIDIA GeForce RTX 5090", 170, 101376, 1536, 24, 100663296};
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":{},"smClockRateKHz":1980000,)"
      R"("memClockRateKHz":3201000,"l2CacheSize":{},"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,)"
      R"("maxCtasPerSM":{},"maxThreadsPerBlock":1024,"maxThreadsPerSM":{},"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"deviceVer":{},"driverVer":13000,"totalGlobalMem":80000000000,)"
      R"("cudaDeviceId":0,"deviceName":"{}"}})",
      gpu.multiprocessors, gpu.l2, gpu.shared, gpu.blocks, gpu.threads, compute * 10, gpu.name);
}

}  // namespace meshtrain::test
