// The device code of device/, which is built into the program as text: NVRTC compiles it when a run
// needs it, and has no files to include.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace meshtrain::gpu {

struct DeviceFile {
  std::string_view name;  // as #include lines have it: "backend/gpu/device/types.cuh"
  std::string_view text;
};

std::span<const DeviceFile> device_files();  // sorted by name

// The text of files in the order of their #include lines, each once and without these lines.
class DeviceText {
 public:
  // Adds device/NAME.cuh and what it includes. Throws InternalError when there is no such file.
  void add(std::string_view name);
  std::string take() { return std::move(text_); }

 private:
  void add_file(std::string_view file);

  std::string text_;
  std::set<std::string, std::less<>> added_;
};

}  // namespace meshtrain::gpu
