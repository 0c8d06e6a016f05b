// Libraries that are missing, broken, too old or of another CUDA: what `devices` says of them, and
// how a run that needs them ends. Products with and without the library's epilogues.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13",
                                  "libcudnn.so.9", "libnccl.so.2"};

// A folder with links to the fakes, for the loader and for the choice of libraries.
struct Installation {
  Installation() {
    fs::create_directory(folder.file("cuda"));
    for (const char* name : kNames)
      fs::create_symlink(fs::path(MESHTRAIN_FAKE_CUDA) / name, file(name));
    folder.write("dense.yaml", R"(
data: {train: {source: random, samples: 64, shape: [16], classes: 8}}
seed: 2
model:
  layers:
    - Input: {shape: [16]}
    - Dense: {name: d1, units: 32, activation: gelu}
    - Dense: {name: d2, units: 8}
compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16, epochs: 2}
)");
  }
  std::string file(const std::string& name) const { return folder.file("cuda/" + name); }
  // In its place is now another library.
  void replace(const std::string& name, const std::string& other) const {
    fs::remove(file(name));
    fs::create_symlink(fs::path(MESHTRAIN_FAKE_CUDA) / other, file(name));
  }
  // The exit code; what the program says is then in `said`.
  int run(const std::string& words, const std::string& variables = "") {
    const std::string command = "cd '" + folder.path() +
                                "' && LD_LIBRARY_PATH=" + folder.file("cuda") +
                                " MESHTRAIN_CUDA_PATH=" + folder.file("cuda") +
                                " HOME=" + folder.path() + " MESHTRAIN_CACHE=cache " + variables +
                                " " MESHTRAIN_BINARY " " + words + " > said.txt 2>&1";
    const int status = std::system(command.c_str());
    said = read_file(folder.file("said.txt"), uint64_t{1} << 20);
    return WEXITSTATUS(status);
  }
  bool says(const std::string& text) const { return said.find(text) != std::string::npos; }

  TempFolder folder;
  std::string said;
};

TEST_CASE("devices names the file and the version of each library") {
  Installation here;
  CHECK(here.run("devices") == 0);
  for (const char* text : {"NVRTC", "99.0", "cuBLASLt", "cuDNN", "9.19", "NCCL", "2.28"})
    CHECK_MESSAGE(here.says(text), text, "\n", here.said);
}

TEST_CASE("a library without a function is too old, and a run that needs it ends with that") {
  Installation here;
  here.replace("libcublasLt.so.13", "libcudnn.so.9");
  CHECK(here.run("devices") == 0);
  CHECK_MESSAGE(here.says("has no cublasLtGetVersion: it is too old"), here.said);
  here.replace("libnvrtc.so.13", "libcudnn.so.9");
  CHECK(here.run("train dense.yaml --devices gpu:0 -o run") == 4);
  CHECK_MESSAGE(here.says("libnvrtc.so.13 has no nvrtcVersion: it is too old"), here.said);
}

TEST_CASE("a file that is no library cannot be loaded, and the message says what to install") {
  Installation here;
  fs::remove(here.file("libnvrtc.so.13"));
  here.folder.write("cuda/libnvrtc.so.13", "no library");
  CHECK(here.run("train dense.yaml --devices gpu:0 -o run") == 4);
  CHECK_MESSAGE(here.says("cannot load NVRTC: "), here.said);
  CHECK_MESSAGE(here.says("pip install nvidia-cuda-nvrtc"), here.said);
}

TEST_CASE("a cuDNN of another CUDA and an old NCCL are problems of theirs alone") {
  Installation here;
  CHECK(here.run("devices", "MESHTRAIN_EMULATOR_CUDART=12090 MESHTRAIN_EMULATOR_NCCL=21805") == 0);
  CHECK_MESSAGE(here.says("libcudnn.so.9 is for CUDA 12"), here.said);
  CHECK_MESSAGE(here.says("is NCCL 2.18; several GPUs need NCCL 2.19 or newer"), here.said);
  CHECK(here.run("train dense.yaml --devices gpu:0 -o run",
                 "MESHTRAIN_EMULATOR_CUDART=12090 MESHTRAIN_EMULATOR_NCCL=21805") == 0);
}

TEST_CASE("products with and without the library's epilogues train alike") {
  Installation here;
  const auto loss = [&](const std::string& variables, const std::string& name) {
    REQUIRE_MESSAGE(here.run("train dense.yaml --devices gpu:0 -o " + name, variables) == 0,
                    here.said);
    const std::string text =
        read_file(here.folder.file(name + "/metrics.jsonl"), uint64_t{1} << 20);
    const size_t epoch = text.rfind("{\"event\":\"epoch\"");
    REQUIRE(epoch != std::string::npos);
    return parse_json(text.substr(epoch, text.find('\n', epoch) - epoch))
        .at("logs")
        .at("loss")
        .get<double>();
  };
  const double expected = loss("MESHTRAIN_EPILOGUES=0", "apart");
  CHECK(loss("", "fused") == doctest::Approx(expected).epsilon(1e-5));
  CHECK(loss("", "again") == doctest::Approx(expected).epsilon(1e-5));  // choices from the cache
}

}  // namespace
}  // namespace meshtrain::test
