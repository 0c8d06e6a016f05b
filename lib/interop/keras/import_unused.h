// Layers of nested models that nothing reads: a VAE's decoder takes one output of its encoder.
#pragma once

#include "interop/keras/import_graph.h"

namespace meshtrain {

// Removes the calls from which no output of the model is computed, and the layers that then have
// none. Notes them in `model.dropped`, and their weights' groups in `model.left_out`.
void leave_out_unused(KerasModel& model);
// Scores that nothing reads are not asked for, so that attention is one op.
void forget_unread_scores(KerasModel& model);

}  // namespace meshtrain
