// Parts of the program in separate shared libraries: the one for GPUs, the one for MPI. Only runs
// that need a part load it and its dependencies.
#pragma once

#include <string>

namespace meshtrain {

struct LibraryPart {
  const char* file;      // "libmeshtrain_cuda.so"
  const char* variable;  // environment variable that names another place
  const char* kind;      // "GPU", in messages
  // The one symbol that it exports: T* symbol(int abi), null where the library was built from other
  // sources than the program, which expects `abi`.
  const char* symbol;
  int abi;
  const char* target;   // of the build, that makes it
  std::string missing;  // why the build can make none: "no MPI was found"; empty where it can
  std::string cure;     // what to do about that: "install libopenmpi-dev"
};

// Returns why there is no file, and the command that creates it. `folder` is the program's: a build
// tree and an installed program need different commands.
std::string absent_part(const LibraryPart& part, const std::string& folder);

// Returns the file to open: that of $variable, else the one beside the program, in ../lib or in
// ../lib/meshtrain. Returns "" with the reason when there is none.
std::string find_part(const LibraryPart& part, std::string& reason);

// Returns the address of the library's symbol; null with the reason, a sentence with the cause and
// the remedy. The library is opened once and never closed, because its objects outlive callers.
void* part_symbol(const LibraryPart& part, const std::string& path, std::string& reason);
std::string other_build(const LibraryPart& part, const std::string& path);

// Returns the result of the symbol; null with the reason.
template <class T>
T* load_part(const LibraryPart& part, std::string& reason) {
  const std::string path = find_part(part, reason);
  void* const symbol = path.empty() ? nullptr : part_symbol(part, path, reason);
  if (symbol == nullptr) {
    return nullptr;
  }
  T* const loaded = reinterpret_cast<T* (*)(int abi)>(symbol)(part.abi);
  if (loaded == nullptr) {
    reason = other_build(part, path);
  }
  return loaded;
}

}  // namespace meshtrain
