// A prepared transfer as persistent requests of MPI.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "comm/process_group.h"

namespace meshtrain::mpi {

// As ProcessGroup::make_exchange; `comm` must outlive it.
std::unique_ptr<Transfer> make_exchange(MPI_Comm comm, const std::vector<Message>& sends,
                                        const std::vector<Message>& receives);

}  // namespace meshtrain::mpi
