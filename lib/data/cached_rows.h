// data.cache: where rows are kept that were read once.
#pragma once

#include <string>

#include "config/config.h"
#include "data/rows.h"

namespace meshtrain {

// `rows` kept as data.cache says. Arrays that fit into data.memory (by default a quarter of the
// memory that is free) are "small":
//
//                        in memory   a plain file       compressed, in order   computed (images)
//   by size (default)    -           small: memory      small: memory, or file  small: memory as
//   read memory               -           memory             memory                  memory as read
//   file, or a folder    -           file as read       file                    file as read
//   none                 -           -                  small: memory, or file  -
//
// "-": read from where it is. "As read": each row when it is first asked for; else at once. The
// file has no name and goes with the process; it lies in the folder given, or in MESHTRAIN_CACHE,
// TMPDIR or /var/tmp. Throws FileError (exit 74) when it cannot be written.
RowsPtr cache_rows(RowsPtr rows, const DataConfig& data);

}  // namespace meshtrain
