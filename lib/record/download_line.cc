#include "record/download_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace meshtrain {

DownloadLine::~DownloadLine() {
  if (is_drawn_) {
    write_("\r\x1b[K");
  }
}

void DownloadLine::update(uint64_t bytes) {
  const double now = now_();
  if (now < drawn_ + 0.1) {
    return;
  }
  if (!is_drawn_) {
    first_bytes_ = bytes;
    first_ = now;
  }
  const auto rate =
      static_cast<int64_t>(static_cast<double>(bytes - first_bytes_) / std::max(now - first_, 0.1));
  write_(fmt::format("\r\x1b[K{}   {} of {}, {}%, {}/s", name_,
                     format_bytes(static_cast<int64_t>(bytes)),
                     format_bytes(static_cast<int64_t>(num_bytes_)), bytes * 100 / num_bytes_,
                     format_bytes(rate)));
  drawn_ = now;
  is_drawn_ = true;
}

}  // namespace meshtrain
