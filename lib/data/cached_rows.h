// data.cache: where rows are cached after the first read.
#pragma once

#include <string>

#include "config/config.h"
#include "data/rows.h"

namespace meshtrain {

// Returns `rows` with the cache that data.cache selects. Arrays that fit into data.memory (by
// default a quarter of the memory that is free) are "small":
//
//                        in memory   a plain file       compressed, in order   computed (images)
//   by size (default)    -           small: memory      small: memory, or file  small: memory as
//   read memory               -           memory             memory                  memory as read
//   file, or a folder    -           file as read       file                    file as read
//   none                 -           -                  small: memory, or file  -
//
// "-": not cached. "As read": each row on its first read; otherwise all rows at once. The file has
// no name and disappears with the process. It is in the given folder, or in MESHTRAIN_CACHE, TMPDIR
// or /var/tmp. Throws FileError (exit 74) when it cannot be written.
RowsPtr cache_rows(RowsPtr rows, const DataConfig& data);

}  // namespace meshtrain
