// Shards of checkpoints read by programs of others: PyTorch's distributed checkpoint reader and the
// safetensors package. Needs a python3 that has them (or the interpreter that MESHTRAIN_PYTHON
// names).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "checkpoint_case.h"
#include "support/temp_folder.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using test::TempFolder;
namespace fs = std::filesystem;

// Exit status of dcp_read.py; 3 when a package is missing.
int read_shards(const std::string& folder, const std::string& out, const std::string& option) {
  const char* chosen = std::getenv("MESHTRAIN_PYTHON");
  const int status =
      std::system(fmt::format("'{}' '{}/tests/reference/dcp_read.py' '{}' '{}' {} > '{}/log' 2>&1",
                              chosen != nullptr ? chosen : "python3", MESHTRAIN_SOURCE_DIR, folder,
                              out, option, out)
                      .c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Every tensor of every mesh, put together by the other program.
void check_all_meshes(const std::string& option) {
  for (const test::MeshCase& mesh : test::mesh_cases()) {
    CAPTURE(mesh.kernel);
    const TempFolder folder;
    test::Stored stored(mesh);
    REQUIRE(test::save_step(folder.path(), stored, 5).saved);
    for (const char* kind : {"model", "optimizer"}) {
      const std::string out = folder.file(std::string(kind) + "_read");
      fs::create_directory(out);
      const int status = read_shards(folder.file(std::string("000005/") + kind), out, option);
      if (status == 3) {
        MESSAGE("skipped: " << folder.read(std::string(kind) + "_read/log"));
        return;
      }
      REQUIRE_MESSAGE(status == 0, folder.read(std::string(kind) + "_read/log"));
      int compared = 0;
      for (const Variable& variable : stored.store.variables()) {
        const bool is_weight = variable.role == VariableRole::kWeight;
        if (is_weight != (std::string_view(kind) == "model")) {
          continue;
        }
        std::string name = checkpoint_path(variable);
        std::replace(name.begin(), name.end(), '/', '%');
        const HostTensor got = read_npy(out + "/" + name + ".npy");
        const HostTensor expected = test::content_of(variable, 1);
        REQUIRE(got.shape() == expected.shape());
        REQUIRE(got.dtype() == expected.dtype());
        CHECK(std::memcmp(got.bytes(), expected.bytes(), got.num_bytes()) == 0);
        ++compared;
      }
      CHECK(compared >= 2);
    }
  }
}

TEST_CASE("PyTorch's distributed checkpoint reader reads the shards of every mesh") {
  check_all_meshes("");
}

TEST_CASE("the safetensors package reads the shards of every mesh") {
  check_all_meshes("--pieces");
}

}  // namespace
}  // namespace meshtrain
