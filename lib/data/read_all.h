// Reads a whole data set once, only for its problems.
#pragma once

#include "data/dataset.h"

namespace meshtrain {

// Reads the rows that loading leaves unread: those that are computed on each read (decoded images),
// and arrays of more than kCheckedAhead bytes. Returns the problem of each file where samples have
// files of their own, else the first problem of each array.
Diagnostics read_all_rows(const Dataset& dataset);

}  // namespace meshtrain
