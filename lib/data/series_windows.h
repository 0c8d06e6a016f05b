// Windows over rows in the order of time: samples that overlap. A window is copied only when it is
// read.
#pragma once

#include "config/source_classes.h"
#include "data/dataset.h"

namespace meshtrain {

// Makes windows of the rows of a dataset, as `series` says. A window takes every sampling_rate-th
// row, and the next one begins sequence_stride rows later: inputs become (windows, sequence_length,
// ...). Targets and sample_weight are those of the row `horizon` behind the window's last one.
// With target_length targets are (windows, target_length, ...), and sample_weight is that of the
// first of these rows. With `target: sequence` both have a row for each step of the window,
// `horizon` behind it: (windows, sequence_length, ...). There are as many windows as have all their
// rows, all of one of the dataset's groups; the windows are in the order of their first rows. Of a
// `beginning` too short for one, the last row counts again. Throws ConfigError E316 when there is
// none.
void add_series_windows(const SeriesOptions& series, bool is_beginning, Dataset& dataset);

// True for samples (steps, steps, ...) where (steps, ...) are wanted: windows of an array that
// holds windows already.
bool are_windows_of_windows(const Shape& have, const Shape& wanted);
constexpr const char* kWindowsHelp =
    "where the array holds windows already, write `sequence_length: null` in its source";

}  // namespace meshtrain
