// Parts of the program that are shared libraries of their own, so that only the runs that need one
// load it and what it needs: the one that drives GPUs, the one that speaks MPI.
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

// Why there is no file, and how to get it: another command for the build tree that `folder`, the
// program's, is in than for an installed program.
std::string absent_part(const LibraryPart& part, const std::string& folder);

// The file to open: that of $variable, else the one beside the program, or in ../lib or
// ../lib/meshtrain from there;
// "" with the reason where there is none.
std::string find_part(const LibraryPart& part, std::string& reason);

// Its symbol's address; null with the reason, a sentence that says what is wrong and what to do.
// Opened once however often this is called, and never closed: what it made outlives many a caller.
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
