// Which files of NVRTC, cuBLASLt, cuDNN and NCCL a process opens: all of one generation of CUDA,
// from one installation where one has all four. Only looks at names of files; opens nothing.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace meshtrain::cuda {

enum class Library { kNvrtc, kCublasLt, kCudnn, kNccl };
constexpr size_t kNumLibraries = 4;

// "cuBLASLt"
const char* library_name(Library library);
// "libcublasLt.so.12"; the names of cuDNN and NCCL are the same in each generation (12, 13).
std::string library_file(Library library, int generation);
// "nvidia-cublas-cu12": what pip installs.
std::string library_package(Library library, int generation);

// Folders that one installation fills.
struct LibrarySource {
  std::string name;  // "MESHTRAIN_CUDA_PATH", "/venv/lib/python3.11/site-packages"
  std::vector<std::string> folders;
  bool is_chosen = false;  // by the user: comes first even where it is incomplete
};

// What the search depends on.
struct SearchOrigin {
  std::function<const char*(const char* name)> variable;  // as std::getenv
  std::string program;                                    // absolute path of the program
  std::string root;                                       // stands before /usr; "" but for tests
};

// In the order of preference:
//   MESHTRAIN_CUDA_PATH   toolkits, virtual environments, site-packages or folders of libraries,
//                         with colons between them
//   LD_LIBRARY_PATH
//   the Python environment in whose bin/ the program itself is, as pip installs it
//   VIRTUAL_ENV, CONDA_PREFIX, the python3 of PATH, which is not started, ~/.local
//   CUDA_HOME, CUDA_PATH, /usr/local/cuda, /usr/local/cuda-*, each with the system's folders
std::vector<LibrarySource> library_sources(const SearchOrigin& origin);

struct LibraryChoice {
  int generation = 0;
  // By Library. A name without a folder where no source has the file: then the loader's own search
  // decides.
  std::array<std::string, kNumLibraries> files;
};

// Of `generations` (the preferred one first, at least one): that of the source that is chosen by
// the user; else of the first source that has all four; else of what most can be found for. Files
// of the deciding source come first, what it lacks comes from the first of the others. Throws
// RuntimeFailure (exit 4) where what the user has chosen has nothing of these generations.
LibraryChoice choose_libraries(const std::vector<LibrarySource>& sources,
                               std::span<const int> generations);

// Generations whose libraries work with a driver of that CUDA version; 0: no driver.
std::vector<int> usable_generations(int driver_version);

}  // namespace meshtrain::cuda
