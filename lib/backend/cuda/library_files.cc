#include "backend/cuda/library_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace meshtrain::cuda {
namespace {

namespace fs = std::filesystem;

struct LibraryNames {
  const char* name;
  const char* file;     // up to the version
  const char* version;  // "" for that of the generation
  const char* package;  // of pip
  const char* package_13;
};

constexpr std::array<LibraryNames, kNumLibraries> kNames = {{
    {"NVRTC", "libnvrtc.so.", "", "nvidia-cuda-nvrtc-cu", "nvidia-cuda-nvrtc"},
    {"cuBLASLt", "libcublasLt.so.", "", "nvidia-cublas-cu", "nvidia-cublas"},
    {"cuDNN", "libcudnn.so.", "9", "nvidia-cudnn-cu", nullptr},
    {"NCCL", "libnccl.so.", "2", "nvidia-nccl-cu", nullptr},
}};

const LibraryNames& names_of(Library library) {
  return kNames[static_cast<size_t>(library)];
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Entries of a folder whose names begin so, the last name first: newer versions before older ones.
std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (starts_with(entry.path().filename().string(), prefix))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string left = a.filename(), right = b.filename();
    return left.size() != right.size() ? left.size() > right.size() : left > right;
  });
  return found;
}

using Folders = std::vector<std::string>;

void add_folder(Folders& folders, const fs::path& folder) {
  if (is_there(folder) && std::find(folders.begin(), folders.end(), folder) == folders.end())
    folders.push_back(folder);
}

// nvidia/cublas/lib, nvidia/cu13/lib and the like.
Folders folders_of_packages(const fs::path& nvidia) {
  Folders folders;
  for (const fs::path& package : entries(nvidia, ""))
    add_folder(folders, package / "lib");
  return folders;
}

// Where a Python installed in `prefix` keeps packages.
std::vector<fs::path> site_packages(const fs::path& prefix) {
  std::vector<fs::path> found;
  for (const char* base : {"lib", "local/lib"}) {
    for (const fs::path& version : entries(prefix / base, "python3")) {
      for (const char* name : {"site-packages", "dist-packages"}) {
        if (is_there(version / name / "nvidia"))
          found.push_back(version / name);
      }
    }
  }
  return found;
}

Folders folders_of_toolkit(const fs::path& toolkit) {
  Folders folders;
  for (const char* name : {"lib64", "lib"})
    add_folder(folders, toolkit / name);
  for (const fs::path& target : entries(toolkit / "targets", ""))
    add_folder(folders, target / "lib");
  return folders;
}

void append(Folders& to, const Folders& more) {
  for (const std::string& folder : more)
    add_folder(to, folder);
}

// All that a user may mean by a path.
Folders folders_of_anything(const fs::path& path) {
  Folders folders;
  add_folder(folders, path);
  append(folders, folders_of_toolkit(path));
  append(folders, folders_of_packages(path));
  append(folders, folders_of_packages(path / "nvidia"));
  for (const fs::path& site : site_packages(path))
    append(folders, folders_of_packages(site / "nvidia"));
  return folders;
}

std::vector<std::string> paths_in(const SearchOrigin& origin, const char* variable) {
  const char* const text = origin.variable(variable);
  std::vector<std::string> paths;
  for (const std::string& path : split(text == nullptr ? "" : text, ':')) {
    if (!path.empty())
      paths.push_back(path);
  }
  return paths;
}

// Where the python3 that a shell would start is installed. pyenv's is a script that starts another.
std::optional<fs::path> python_prefix(const SearchOrigin& origin) {
  for (const fs::path folder : paths_in(origin, "PATH")) {
    if (!is_there(folder / "python3"))
      continue;
    if (folder.filename() != "shims")
      return folder.parent_path();
    std::string version;
    if (const char* const named = origin.variable("PYENV_VERSION"))
      version = named;
    else
      std::getline(std::ifstream(folder.parent_path() / "version"), version);
    return folder.parent_path() / "versions" / version;
  }
  return std::nullopt;
}

class Sources {
 public:
  void add(const std::string& name, const Folders& folders, bool is_chosen = false) {
    if (!folders.empty() || is_chosen)
      list_.push_back({name, folders, is_chosen});
  }
  void add_site(const fs::path& site) { add(site, folders_of_packages(site / "nvidia")); }
  void add_prefix(const fs::path& prefix) {
    for (const fs::path& site : site_packages(prefix))
      add_site(site);
    add(prefix / "lib", folders_of_conda(prefix));
  }
  std::vector<LibrarySource> take() { return std::move(list_); }

 private:
  // Conda's packages put libraries beside those of Python.
  static Folders folders_of_conda(const fs::path& prefix) {
    Folders folders;
    if (is_there(prefix / "conda-meta"))
      add_folder(folders, prefix / "lib");
    return folders;
  }
  std::vector<LibrarySource> list_;
};

void add_toolkits(Sources& sources, const SearchOrigin& origin) {
  Folders system;
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/local/lib", "/usr/local/nvidia/lib64"})
    add_folder(system, origin.root + folder);
  std::vector<fs::path> toolkits;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    for (const std::string& path : paths_in(origin, variable))
      toolkits.push_back(path);
  }
  toolkits.push_back(origin.root + "/usr/local/cuda");
  for (const fs::path& toolkit : entries(origin.root + "/usr/local", "cuda-"))
    toolkits.push_back(toolkit);
  for (const fs::path& toolkit : toolkits) {
    Folders folders = folders_of_toolkit(toolkit);
    if (folders.empty())
      continue;
    append(folders, system);
    sources.add(toolkit, folders);
  }
  sources.add("the system's folders", system);
}

// Whether a package of pip in nvidia/cudnn/lib or nvidia/nccl/lib is for another generation, which
// names of files do not say.
bool is_for_another(Library library, const fs::path& folder, int generation) {
  const fs::path nvidia = folder.parent_path().parent_path();
  if (*names_of(library).version == '\0' || nvidia.filename() != "nvidia")
    return false;
  std::string prefix = names_of(library).package;  // nvidia-cudnn-cu
  std::replace(prefix.begin(), prefix.end(), '-', '_');
  const std::vector<fs::path> packages = entries(nvidia.parent_path(), prefix);
  const std::string own = fmt::format("{}{}-", prefix, generation);
  return !packages.empty() &&
         std::none_of(packages.begin(), packages.end(), [&](const fs::path& package) {
           return starts_with(package.filename().string(), own);
         });
}

// "" where the source does not have it.
std::string find_file(const LibrarySource& source, Library library, int generation) {
  for (const fs::path folder : source.folders) {
    const fs::path file = folder / library_file(library, generation);
    if (is_there(file) && !is_for_another(library, folder, generation))
      return file;
  }
  return {};
}

LibraryChoice choice_of(const LibrarySource& first, const std::vector<LibrarySource>& sources,
                        int generation) {
  LibraryChoice choice{generation, {}};
  for (size_t i = 0; i < kNumLibraries; ++i) {
    std::string& file = choice.files[i];
    file = find_file(first, static_cast<Library>(i), generation);
    for (auto source = sources.begin(); file.empty() && source != sources.end(); ++source)
      file = find_file(*source, static_cast<Library>(i), generation);
    if (file.empty())
      file = library_file(static_cast<Library>(i), generation);
  }
  return choice;
}

size_t num_found(const LibraryChoice& choice) {
  return static_cast<size_t>(
      std::count_if(choice.files.begin(), choice.files.end(),
                    [](const std::string& file) { return file.find('/') != std::string::npos; }));
}

// The generation that most of the libraries are found for, the preferred one of equals.
LibraryChoice best_choice(const LibrarySource& first, const std::vector<LibrarySource>& sources,
                          std::span<const int> generations) {
  LibraryChoice best = choice_of(first, sources, generations.front());
  for (const int generation : generations.subspan(1)) {
    LibraryChoice choice = choice_of(first, sources, generation);
    if (num_found(choice) > num_found(best))
      best = std::move(choice);
  }
  return best;
}

}  // namespace

const char* library_name(Library library) {
  return names_of(library).name;
}

std::string library_file(Library library, int generation) {
  const LibraryNames& names = names_of(library);
  return names.file + (*names.version == '\0' ? std::to_string(generation) : names.version);
}

std::string library_package(Library library, int generation) {
  const LibraryNames& names = names_of(library);
  return generation >= 13 && names.package_13 != nullptr
             ? names.package_13
             : fmt::format("{}{}", names.package, generation);
}

std::vector<LibrarySource> library_sources(const SearchOrigin& origin) {
  Sources sources;
  for (const std::string& path : paths_in(origin, "MESHTRAIN_CUDA_PATH"))
    sources.add(fmt::format("MESHTRAIN_CUDA_PATH ({})", path), folders_of_anything(path), true);
  Folders of_loader;
  append(of_loader, paths_in(origin, "LD_LIBRARY_PATH"));
  sources.add("LD_LIBRARY_PATH", of_loader);
  // A wheel puts the program into PREFIX/bin.
  if (fs::path(origin.program).parent_path().filename() == "bin")
    sources.add_prefix(fs::path(origin.program).parent_path().parent_path());
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    for (const std::string& prefix : paths_in(origin, variable))
      sources.add_prefix(prefix);
  }
  if (const std::optional<fs::path> prefix = python_prefix(origin))
    sources.add_prefix(*prefix);
  for (const fs::path home : paths_in(origin, "HOME"))
    sources.add_prefix(home / ".local");
  add_toolkits(sources, origin);
  return sources.take();
}

LibraryChoice choose_libraries(const std::vector<LibrarySource>& sources,
                               std::span<const int> generations) {
  // What the user has chosen, as one source.
  LibrarySource chosen;
  for (const LibrarySource& source : sources) {
    if (!source.is_chosen)
      continue;
    chosen.name += (chosen.name.empty() ? "" : " and ") + source.name;
    append(chosen.folders, source.folders);
  }
  const LibraryChoice own = best_choice(chosen, {}, generations);
  if (num_found(own) > 0)
    return choice_of(chosen, sources, own.generation);
  if (!chosen.name.empty()) {
    throw RuntimeFailure(
        ExitCode::kMesh,
        fmt::format("{} has none of the libraries of CUDA {}, which work with this driver: no {}; "
                    "name a toolkit or a folder of Python packages, or unset it",
                    chosen.name, fmt::join(generations, " or "),
                    library_file(Library::kCublasLt, generations.front())));
  }
  for (const LibrarySource& source : sources) {
    for (const int generation : generations) {
      LibraryChoice choice = choice_of(source, {}, generation);
      if (num_found(choice) == kNumLibraries)
        return choice;
    }
  }
  return best_choice({}, sources, generations);
}

std::vector<int> usable_generations(int driver_version) {
  return driver_version == 0 || driver_version >= 13000 ? std::vector<int>{13, 12}
                                                        : std::vector<int>{12};
}

}  // namespace meshtrain::cuda
