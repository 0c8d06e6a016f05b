// What `meshtrain verify` can be asked.
#pragma once

#include <string>

#include "cli.h"

namespace meshtrain {

// Every byte of a checkpoint, or of all of a run, against its checksums. Exit code 6 when one is
// damaged.
int verify_checkpoints(const std::string& folder, const Arguments& arguments);

// Some steps of a config in float64, and one of the smaller last batch of an epoch, on one device
// and on its mesh and the other meshes of as many devices: losses, metrics, weights and optimizer
// state must agree. Exit code 7 when they do not.
int verify_meshes(const Arguments& arguments);

}  // namespace meshtrain
