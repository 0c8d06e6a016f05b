// The server in the child process of H5Datasets, which runs the library.
//
// The parent sends a letter with its arguments; each answer begins with a letter too.
//   O name            -> D dtype, chunked, rank, sizes       or E message
//   R id, count, rows -> the rows in runs (h5_run): each K and its bytes, or E message and no more
// At the beginning come N and the names, or E message. The parent believes no size unchecked.
#pragma once

#include <span>
#include <string>

#include "base/isolate.h"

namespace meshtrain {

constexpr uint32_t kMaxH5Text = 4096;
constexpr uint32_t kMaxH5Rank = 32;
constexpr uint64_t kMaxH5Objects = 200000;
constexpr uint64_t kH5RunBytes = uint64_t{4} << 20;  // of rows that are read at once

// Returns how many rows from the beginning of `order` are consecutive: they are read and sent
// together.
size_t h5_run(std::span<const int64_t> order, uint64_t row_bytes);

// Serves requests until the parent closes the connection.
void serve_h5(const std::string& path, const IsolatedProcess::Send& send,
              const IsolatedProcess::Receive& receive);

}  // namespace meshtrain
