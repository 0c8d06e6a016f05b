#include "comm/mpi/calls.h"

#include "base/error.h"

namespace meshtrain::mpi {

void check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) {
    return;
  }
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw RuntimeFailure(
      ExitCode::kRankLost,
      fmt::format("{} failed: {}", call, std::string_view(text, static_cast<size_t>(length))));
}

void wait(MPI_Request& request, std::string_view call) {
  int done = 0;
  for (Waiting waiting;; waiting.pause()) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call);
    if (done != 0) {
      return;
    }
  }
}

}  // namespace meshtrain::mpi
