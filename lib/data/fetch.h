// Downloads a file atomically: into PATH.part, resumed after an interruption, checked by size and
// SHA-256, then renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace meshtrain {

struct Download {
  std::string url;   // https or http; proxies as in the environment (https_proxy, no_proxy, ...)
  std::string path;  // of the file; folders are created
  uint64_t num_bytes = 0;
  std::string sha256;
};

struct FetchOptions {
  double timeout_seconds = 30;  // to connect, and without a byte
  // Called several times a second with the bytes received; true stops the download.
  std::function<bool(uint64_t)> on_progress = [](uint64_t) { return false; };
};

enum class Fetched { kDownloaded, kWasThere, kStopped };

// An existing file is checked, not downloaded, and never overwritten (E326 when its content
// differs). An interrupted download is resumed up to 20 times; after that, PATH.part is kept for
// the next call. Returns kStopped when on_progress returned true. Throws ConfigError (exit 3): E325
// the server or the network, E326 wrong content; FileError (exit 74) when the file cannot be
// written.
Fetched fetch(const Download& download, const FetchOptions& options);

}  // namespace meshtrain
