#include "backend/gpu/device_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace meshtrain::gpu {

void DeviceText::add(std::string_view name) {
  add_file(fmt::format("backend/gpu/device/{}.cuh", name));
}

void DeviceText::add_file(std::string_view name) {
  constexpr std::string_view kInclude = "#include \"", kOnce = "#pragma once\n";
  if (!added_.emplace(name).second)
    return;
  const std::span<const DeviceFile> files = device_files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [name](const DeviceFile& f) { return f.name == name; });
  MESHTRAIN_CHECK(file != files.end(), "no device code {}", name);
  std::string own;
  for (std::string_view rest = file->text; !rest.empty();) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size() - 1) + 1);
    rest.remove_prefix(line.size());
    if (line.starts_with(kInclude))
      add_file(line.substr(kInclude.size(), line.rfind('"') - kInclude.size()));
    else if (line != kOnce)
      own += line;
  }
  text_ += own;
}

}  // namespace meshtrain::gpu
