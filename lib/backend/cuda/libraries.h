// CUDA's large libraries, opened when a function of theirs is first needed: a run without
// convolutions loads no cuDNN, one without other processes no NCCL. NVRTC is asked for its version
// even where all kernels are in the cache, whose entries are for one. Each throws RuntimeFailure
// (exit 4) that names the file where it cannot be opened. library_files.h chooses the files, of
// CUDA 12 or 13 whichever headers compiled this: the functions and constants that are used are the
// same in both.
#pragma once

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <nccl.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "backend/gpu/device.h"

namespace meshtrain::cuda {

// clang-format off
#define MESHTRAIN_NVRTC(X) \
  X(nvrtcVersion) X(nvrtcGetNumSupportedArchs) X(nvrtcGetSupportedArchs) X(nvrtcGetErrorString) \
  X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram) X(nvrtcGetProgramLogSize) \
  X(nvrtcGetProgramLog) X(nvrtcGetCUBINSize) X(nvrtcGetCUBIN) X(nvrtcGetPTXSize) X(nvrtcGetPTX)
#define MESHTRAIN_CUBLASLT(X) \
  X(cublasLtGetVersion) X(cublasLtGetStatusName) X(cublasLtGetStatusString) X(cublasLtCreate) \
  X(cublasLtDestroy) X(cublasLtMatmul) X(cublasLtMatmulDescCreate) X(cublasLtMatmulDescDestroy) \
  X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate) X(cublasLtMatrixLayoutDestroy) \
  X(cublasLtMatrixLayoutSetAttribute) X(cublasLtMatmulPreferenceCreate) \
  X(cublasLtMatmulPreferenceDestroy) X(cublasLtMatmulPreferenceSetAttribute) \
  X(cublasLtMatmulAlgoGetHeuristic) X(cublasLtMatmulAlgoCheck)
#define MESHTRAIN_CUDNN(X) \
  X(cudnnGetVersion) X(cudnnGetCudartVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate) \
  X(cudnnDestroy) X(cudnnSetStream) X(cudnnBackendCreateDescriptor) \
  X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) \
  X(cudnnBackendFinalize) X(cudnnBackendExecute)
#define MESHTRAIN_NCCL(X) \
  X(ncclGetVersion) X(ncclGetErrorString) X(ncclGetLastError) X(ncclGetUniqueId) \
  X(ncclCommInitRankConfig) X(ncclCommSplit) X(ncclCommFinalize) X(ncclCommDestroy) \
  X(ncclCommAbort) X(ncclCommGetAsyncError) X(ncclGroupStart) X(ncclGroupEnd) X(ncclSend) \
  X(ncclRecv) X(ncclAllReduce) X(ncclAllGather) X(ncclReduceScatter)
// clang-format on

// Functions under their own names: nvrtc().nvrtcVersion(&major, &minor).
#define MESHTRAIN_FUNCTION(name) decltype(&::name) name = nullptr;
struct Nvrtc {
  MESHTRAIN_NVRTC(MESHTRAIN_FUNCTION)
};
struct CublasLt {
  MESHTRAIN_CUBLASLT(MESHTRAIN_FUNCTION)
};
struct Cudnn {
  MESHTRAIN_CUDNN(MESHTRAIN_FUNCTION)
};
struct Nccl {
  MESHTRAIN_NCCL(MESHTRAIN_FUNCTION)
};
#undef MESHTRAIN_FUNCTION

const Nvrtc& nvrtc();
const CublasLt& cublas_lt();
// For tests: from now on cublas_lt() is this one; null: the library again.
void play_cublas_lt(const CublasLt* library);
const Cudnn& cudnn();
// Opened with settings of ours in the environment, where it says nothing else: NCCL reads it once.
const Nccl& nccl();

// Opens all of them and says what each is. Of one that cannot be opened, why.
std::vector<gpu::LibraryInfo> library_infos();

}  // namespace meshtrain::cuda
