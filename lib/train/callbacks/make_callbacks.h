// From the config's `callbacks` to CallbackList.
#pragma once

#include "base/diagnostic.h"
#include "engine/setup.h"
#include "train/callbacks/callback_list.h"

namespace meshtrain {

// What can be said before anything is made: E113 for a log or a placeholder that there is not,
// with a list of those there are; E142 (exit 74) for a place that cannot be written to.
void check_callbacks(const Setup& setup, bool validates, Diagnostics& diagnostics);

// Adds those of the config, in its order, and one that writes metrics.csv unless one does already.
void add_callbacks(CallbackList& list);

}  // namespace meshtrain
