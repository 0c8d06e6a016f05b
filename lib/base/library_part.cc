#include "base/library_part.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>

namespace meshtrain {
namespace {

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, length > 0 ? static_cast<size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1);
}

}  // namespace

std::string find_part(const LibraryPart& part, std::string& reason) {
  const char* named = std::getenv(part.variable);
  if (named != nullptr && *named != '\0') {
    return named;
  }
  const std::string folder = program_folder();
  // The build's folder; that of a tarball; that of a wheel or a Debian package.
  for (const char* place : {"", "../lib/", "../lib/meshtrain/"}) {
    const std::string path = folder + place + part.file;
    if (::access(path.c_str(), F_OK) == 0) {
      return path;
    }
  }
  reason = part.missing;
  if (reason.empty()) {
    reason = fmt::format(
        "{} is missing: it belongs beside the program, in {}, or in ../lib from there; ${} can "
        "name another place",
        part.file, folder, part.variable);
  }
  return {};
}

void* part_symbol(const LibraryPart& part, const std::string& path, std::string& reason) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    // The loader's text begins with the file that is missing, this one or one that it needs.
    reason = fmt::format("cannot load {}: {}", path, ::dlerror());
    return nullptr;
  }
  void* const symbol = ::dlsym(library, part.symbol);
  if (symbol == nullptr) {
    reason =
        fmt::format("{} is not meshtrain's {} library: it has no {}", path, part.kind, part.symbol);
  }
  return symbol;
}

std::string other_build(const LibraryPart& part, const std::string& path) {
  return fmt::format(
      "{} belongs to another build of meshtrain (this one needs version {} of its interface); "
      "build or install both together",
      path, part.abi);
}

}  // namespace meshtrain
