// For files that define functions of the driver: each under the name that it is exported by, which
// headers hide behind macros. Other files include cuda.h as it is.
#pragma once

#include "support/fake_cuda/state.h"

#undef cuEventElapsedTime
#undef cuGraphAddDependencies
#undef cuStreamGetCaptureInfo

#define MESHTRAIN_FAKE extern "C" MESHTRAIN_FAKE_API CUresult
