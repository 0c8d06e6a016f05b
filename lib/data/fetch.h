// Downloads that either give the right file or none: into PATH.part, continued where an earlier try
// was cut, checked by size and SHA-256, then renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace meshtrain {

struct Download {
  std::string url;   // https or http; proxies as in the environment (https_proxy, no_proxy, ...)
  std::string path;  // where the file goes; folders are made
  uint64_t num_bytes = 0;
  std::string sha256;
};

struct FetchOptions {
  double timeout_seconds = 30;  // to connect, and without a byte
  // Called several times a second with the bytes that are there; true stops the download.
  std::function<bool(uint64_t)> on_progress = [](uint64_t) { return false; };
};

enum class Fetched { kDownloaded, kWasThere, kStopped };

// A file that is there already is checked, not downloaded; one with other content is left alone
// (E326). A cut connection is taken up again, up to 20 times; otherwise what came stays in
// PATH.part for the next call. kStopped when on_progress asked to. Throws ConfigError (exit 3):
// E325 the server or the network, E326 what came is not the file; FileError (exit 74) when it
// cannot be written.
Fetched fetch(const Download& download, const FetchOptions& options);

}  // namespace meshtrain
