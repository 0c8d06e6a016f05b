// All-reduce by the library's own algorithms, and what they need of types and operations.
#pragma once

#include <mpi.h>

#include <map>
#include <memory>
#include <utility>

#include "comm/process_group.h"

namespace meshtrain::mpi {

// Operations that MPI lacks: on 16-bit floats, and the largest and smallest of floats, where NaN
// wins, as within a process.
class Operations {
 public:
  ~Operations();
  // Throws RuntimeFailure when MPI does not make it; InternalError for a dtype that has no such
  // operation.
  MPI_Op of(Reduction reduction, DType dtype);

 private:
  std::map<std::pair<Reduction, DType>, MPI_Op> own_;
};

// In place over all processes of `comm`, which must outlive it, as `op`.
std::unique_ptr<Transfer> make_all_reduce(MPI_Comm comm, MPI_Op op, DType dtype, std::byte* data,
                                          int64_t elements);

}  // namespace meshtrain::mpi
