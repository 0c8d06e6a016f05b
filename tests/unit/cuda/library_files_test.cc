// Choosing CUDA's libraries among folders of empty files: nothing of CUDA is needed.
#include "backend/cuda/library_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <map>

#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

namespace fs = std::filesystem;
using cuda::Library;
using cuda::LibraryChoice;

// A machine: files in a folder that stands for "/", and an environment.
class Machine {
 public:
  std::string path(const std::string& name) const { return root_.file(name); }
  void add(const std::string& file) const {
    const fs::path place = path(file);
    fs::create_directories(place.parent_path());
    root_.write(file, "");
  }
  void add_all(const std::string& folder, const std::vector<std::string>& files) const {
    for (const std::string& file : files)
      add(folder + "/" + file);
  }
  // What `pip install` of these packages leaves, one generation in a folder of its own since 13.
  void add_packages(const std::string& site, int generation) const {
    const std::string number = std::to_string(generation), nvidia = site + "/nvidia/";
    add(nvidia + (generation < 13 ? "cublas/lib/libcublasLt.so." : "cu13/lib/libcublasLt.so.") +
        number);
    add(nvidia + (generation < 13 ? "cuda_nvrtc/lib/libnvrtc.so." : "cu13/lib/libnvrtc.so.") +
        number);
    add(nvidia + "cudnn/lib/libcudnn.so.9");
    add(nvidia + "nccl/lib/libnccl.so.2");
    add(site + "/nvidia_cudnn_cu" + number + "-9.10.0.dist-info/METADATA");
    add(site + "/nvidia_nccl_cu" + number + "-2.28.0.dist-info/METADATA");
  }
  void add_toolkit(const std::string& folder, int generation) const {
    const std::string number = std::to_string(generation);
    add_all(folder + "/lib64", {"libcublasLt.so." + number, "libnvrtc.so." + number});
  }

  LibraryChoice choose(int driver_version) const {
    const cuda::SearchOrigin origin = {
        [this](const char* name) {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        program.empty() ? path("opt/meshtrain/bin/meshtrain") : path(program), root_.path()};
    return choose_libraries(library_sources(origin), cuda::usable_generations(driver_version));
  }

  std::map<std::string, std::string> environment;
  std::string program;

 private:
  TempFolder root_;
};

std::string file_of(const LibraryChoice& choice, Library library) {
  return choice.files[static_cast<size_t>(library)];
}

bool all_lie_in(const LibraryChoice& choice, const std::string& folder) {
  for (const std::string& file : choice.files) {
    if (file.rfind(folder, 0) != 0)
      return false;
  }
  return true;
}

constexpr int kDriver12 = 12040, kDriver13 = 13000;

TEST_CASE("the generation is the newest that the driver runs") {
  CHECK(cuda::usable_generations(12040) == std::vector<int>{12});
  CHECK(cuda::usable_generations(12090) == std::vector<int>{12});
  CHECK(cuda::usable_generations(13010) == std::vector<int>{13, 12});
  CHECK(cuda::usable_generations(0) == std::vector<int>{13, 12});
  const Machine machine;
  machine.add_toolkit("usr/local/cuda-12.4", 12);
  machine.add_toolkit("usr/local/cuda-13.0", 13);
  machine.add_all("usr/lib/x86_64-linux-gnu", {"libcudnn.so.9", "libnccl.so.2"});
  const LibraryChoice newer = machine.choose(kDriver13);
  CHECK(newer.generation == 13);
  CHECK(file_of(newer, Library::kCublasLt) ==
        machine.path("usr/local/cuda-13.0/lib64/libcublasLt.so.13"));
  CHECK(file_of(newer, Library::kCudnn) == machine.path("usr/lib/x86_64-linux-gnu/libcudnn.so.9"));
  const LibraryChoice older = machine.choose(kDriver12);
  CHECK(older.generation == 12);
  CHECK(file_of(older, Library::kNvrtc) ==
        machine.path("usr/local/cuda-12.4/lib64/libnvrtc.so.12"));
}

TEST_CASE("Python packages are found without starting Python") {
  const std::string site = "lib/python3.11/site-packages";
  const auto move = [](const Machine& machine, const std::string& from, const std::string& to) {
    fs::create_directories(fs::path(machine.path(to)).parent_path());
    fs::rename(machine.path(from), machine.path(to));
  };
  using Arrange = std::function<void(Machine&)>;
  const std::vector<std::pair<const char*, Arrange>> arrangements = {
      {"of the active environment",
       [](Machine& m) { m.environment["VIRTUAL_ENV"] = m.path("venv"); }},
      {"of conda", [](Machine& m) { m.environment["CONDA_PREFIX"] = m.path("venv"); }},
      {"of the first python3 on PATH",
       [](Machine& m) { m.environment["PATH"] = m.path("empty") + ":" + m.path("venv/bin"); }},
      {"where pip installed the program, too",
       [](Machine& m) { m.program = "venv/bin/meshtrain"; }},
      {"that pyenv would start",
       [&](Machine& m) {
         move(m, "venv", "pyenv/versions/3.11.7");
         m.add("pyenv/shims/python3");
         m.environment["PYENV_VERSION"] = "3.11.7";
         m.environment["PATH"] = m.path("pyenv/shims");
       }},
      {"in the user's own folder",
       [&](Machine& m) {
         move(m, "venv", "home/.local");
         m.environment["HOME"] = m.path("home");
       }},
      {"that Debian's pip installs for all",
       [&](Machine& m) {
         move(m, "venv/" + site, "usr/local/lib/python3.11/dist-packages");
         m.add("usr/bin/python3");
         m.environment["PATH"] = m.path("usr/bin");
       }},
  };
  for (const int generation : {12, 13}) {
    for (const auto& [name, arrange] : arrangements) {
      CAPTURE(generation);
      CAPTURE(name);
      Machine machine;
      machine.add_packages("venv/" + site, generation);
      machine.add("venv/bin/python3");
      arrange(machine);
      const LibraryChoice choice = machine.choose(kDriver13);
      CHECK(choice.generation == generation);
      CHECK_MESSAGE(all_lie_in(choice, machine.path("")), choice.files[0]);
    }
  }
}

TEST_CASE("an installation that has all four comes before one that lacks some") {
  Machine machine;
  machine.add_toolkit("usr/local/cuda", 13);  // without cuDNN and NCCL
  machine.add_packages("venv/lib/python3.12/site-packages", 12);
  machine.environment["VIRTUAL_ENV"] = machine.path("venv");
  const LibraryChoice choice = machine.choose(kDriver13);
  CHECK(choice.generation == 12);
  CHECK(all_lie_in(choice, machine.path("venv")));
  // A complete toolkit is no reason to leave the environment that is active.
  machine.add_all("usr/local/cuda/lib64", {"libcudnn.so.9", "libnccl.so.2"});
  CHECK(all_lie_in(machine.choose(kDriver13), machine.path("venv")));
  machine.environment.clear();
  CHECK(all_lie_in(machine.choose(kDriver13), machine.path("usr/local/cuda/")));
}

TEST_CASE("libraries of two installations are of one generation") {
  Machine machine;
  machine.add_toolkit("usr/local/cuda", 13);
  machine.add_all("usr/lib/x86_64-linux-gnu", {"libcublasLt.so.12", "libcudnn.so.9"});
  machine.add_packages("venv/lib/python3.12/site-packages", 12);
  fs::remove(machine.path("venv/lib/python3.12/site-packages/nvidia/cublas/lib/libcublasLt.so.12"));
  machine.environment["VIRTUAL_ENV"] = machine.path("venv");
  const LibraryChoice choice = machine.choose(kDriver13);
  CHECK(choice.generation == 12);  // of 13 there is no NCCL
  CHECK(file_of(choice, Library::kCublasLt) ==
        machine.path("usr/lib/x86_64-linux-gnu/libcublasLt.so.12"));
  CHECK(all_lie_in(choice, machine.path("")));
}

TEST_CASE("cuDNN and NCCL of the other generation are not taken from Python packages") {
  Machine machine;
  const std::string site = "venv/lib/python3.12/site-packages";
  machine.add_packages(site, 12);
  machine.add_all(site + "/nvidia/cu13/lib", {"libcublasLt.so.13", "libnvrtc.so.13"});
  machine.environment["VIRTUAL_ENV"] = machine.path("venv");
  CHECK(machine.choose(kDriver13).generation == 12);
  machine.add(site + "/nvidia_cudnn_cu13-9.19.0.dist-info/METADATA");
  machine.add(site + "/nvidia_nccl_cu13-2.28.0.dist-info/METADATA");
  CHECK(machine.choose(kDriver13).generation == 13);
}

TEST_CASE("what MESHTRAIN_CUDA_PATH names comes first, in each form of a path") {
  Machine machine;
  machine.add_packages("venv/lib/python3.12/site-packages", 13);
  machine.environment["VIRTUAL_ENV"] = machine.path("venv");
  machine.add_toolkit("cluster/cuda-12.8", 12);
  machine.add_all("cluster/cudnn/lib", {"libcudnn.so.9"});
  machine.add_all("cluster/nccl", {"libnccl.so.2"});
  machine.add_packages("other/lib/python3.12/site-packages", 12);
  const auto choose = [&](const std::string& path) {
    machine.environment["MESHTRAIN_CUDA_PATH"] = path;
    return machine.choose(kDriver13);
  };
  const LibraryChoice parts =
      choose(machine.path("cluster/cuda-12.8") + ":" + machine.path("cluster/cudnn") +
             "::" + machine.path("cluster/nccl"));
  CHECK(parts.generation == 12);
  CHECK(all_lie_in(parts, machine.path("cluster")));
  for (const char* form : {"other", "other/lib/python3.12/site-packages",
                           "other/lib/python3.12/site-packages/nvidia"}) {
    const LibraryChoice choice = choose(machine.path(form));
    CHECK_MESSAGE(all_lie_in(choice, machine.path("other")), form);
    CHECK(choice.generation == 12);
  }
  // The rest from elsewhere, of its generation.
  const LibraryChoice some = choose(machine.path("cluster/cuda-12.8"));
  CHECK(some.generation == 12);
  CHECK(file_of(some, Library::kNccl) == "libnccl.so.2");  // those of the environment are for 13
}

TEST_CASE("a MESHTRAIN_CUDA_PATH without libraries for the driver is refused") {
  Machine machine;
  machine.add_toolkit("usr/local/cuda", 12);
  machine.add_toolkit("cuda-13", 13);
  machine.environment["MESHTRAIN_CUDA_PATH"] = machine.path("cuda-13");
  const Caught error = caught([&] { machine.choose(kDriver12); });
  CHECK(error.exit_code == 4);
  CHECK(error.says("MESHTRAIN_CUDA_PATH (" + machine.path("cuda-13") + ")"));
  CHECK(error.says("CUDA 12"));
  CHECK(error.says("libcublasLt.so.12"));
  machine.environment["MESHTRAIN_CUDA_PATH"] = machine.path("absent");
  CHECK(caught([&] { machine.choose(kDriver13); }).says("absent"));
}

TEST_CASE("what is in no known folder is left to the loader and named as pip has it") {
  const Machine machine;
  const LibraryChoice choice = machine.choose(kDriver12);
  CHECK(choice.generation == 12);
  CHECK(file_of(choice, Library::kNvrtc) == "libnvrtc.so.12");
  CHECK(file_of(choice, Library::kCudnn) == "libcudnn.so.9");
  CHECK(machine.choose(0).generation == 13);
  CHECK(cuda::library_package(Library::kCublasLt, 12) == "nvidia-cublas-cu12");
  CHECK(cuda::library_package(Library::kCublasLt, 13) == "nvidia-cublas");
  CHECK(cuda::library_package(Library::kNccl, 13) == "nvidia-nccl-cu13");
}

TEST_CASE("LD_LIBRARY_PATH comes before what is searched for") {
  Machine machine;
  machine.add_packages("venv/lib/python3.12/site-packages", 13);
  machine.environment["VIRTUAL_ENV"] = machine.path("venv");
  machine.add_all("module", {"libcublasLt.so.13", "libnvrtc.so.13", "libcudnn.so.9"});
  machine.add_all("module/nccl", {"libnccl.so.2"});
  machine.environment["LD_LIBRARY_PATH"] = machine.path("module") + ":" + machine.path("nowhere");
  CHECK(all_lie_in(machine.choose(kDriver13), machine.path("venv")));  // it lacks NCCL
  machine.environment["LD_LIBRARY_PATH"] += ":" + machine.path("module/nccl");
  CHECK(all_lie_in(machine.choose(kDriver13), machine.path("module")));
}

}  // namespace
}  // namespace meshtrain::test
