// What `meshtrain verify` can be asked.
#pragma once

#include <string>

#include "cli.h"

namespace meshtrain {

// Every byte of a checkpoint, or of all of a run, against its checksums. Exit code 6 when one is
// damaged.
int verify_checkpoints(const std::string& folder, const Arguments& arguments);

// A run's last interval again, from the checkpoint at its beginning: the checkpoint at its end must
// come out bit for bit. Exit code 7 when it does not. Throws ConfigError E400 (exit 6) when the run
// has no two checkpoints of one mesh, model, optimizer and data.
int verify_resume(const std::string& run, const Arguments& arguments);

// Some steps of a config in float64, and one of the smaller last batch of an epoch, on one device
// and on its mesh and the other meshes of as many devices: losses, metrics, weights and optimizer
// state must agree. Exit code 7 when they do not.
int verify_meshes(const Arguments& arguments);

}  // namespace meshtrain
