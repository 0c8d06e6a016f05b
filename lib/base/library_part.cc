#include "base/library_part.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/host.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// "scripts/build.sh release meshtrain_cuda" for a program in .../build/release/app/; "" where it is
// in no build tree.
std::string build_command(const LibraryPart& part, const std::string& folder) {
  std::error_code error;
  const fs::path build = fs::weakly_canonical(fs::path(folder) / "..", error);
  if (error || !fs::exists(build / "CMakeCache.txt", error)) {
    return {};
  }
  const std::string kind = build.filename();
  const bool has_script = fs::exists(build / "../../scripts/build.sh", error);
  if (has_script && (kind == "release" || kind == "dev" || kind == "sanitize")) {
    return fmt::format("scripts/build.sh {} {}", kind, part.target);
  }
  return fmt::format("cmake --build {} --target {}", build.string(), part.target);
}

}  // namespace

std::string absent_part(const LibraryPart& part, const std::string& folder) {
  const std::string command = build_command(part, folder);
  if (command.empty() && part.missing.empty()) {
    return fmt::format(
        "{} is missing: it belongs beside the program, in {}, or in ../lib from there; unpack or "
        "install meshtrain again, or name the file in ${}",
        part.file, folder, part.variable);
  }
  if (command.empty()) {
    return fmt::format(
        "this package of meshtrain has no {} part, since the build was without it ({}); use a "
        "package that has {}, or build meshtrain from source: {}, then `scripts/build.sh release "
        "{}`",
        part.kind, part.missing, part.file, part.cure, part.target);
  }
  if (part.missing.empty()) {
    return fmt::format("{} is missing: it is a part of its own, which `{}` builds", part.file,
                       command);
  }
  return fmt::format("this meshtrain was built without its {} part ({}); {}, then run `{}`",
                     part.kind, part.missing, part.cure, command);
}

std::string find_part(const LibraryPart& part, std::string& reason) {
  const char* named = std::getenv(part.variable);
  if (named != nullptr && *named != '\0') {
    return named;
  }
  const std::string program = program_path();
  const std::string folder = program.substr(0, program.rfind('/') + 1);
  // The build's folder; that of a tarball; that of a wheel or a Debian package.
  for (const char* place : {"", "../lib/", "../lib/meshtrain/"}) {
    const std::string path = folder + place + part.file;
    if (::access(path.c_str(), F_OK) == 0) {
      return path;
    }
  }
  reason = absent_part(part, folder);
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
