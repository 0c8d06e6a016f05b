// Shards of checkpoints read by programs of others: PyTorch's distributed checkpoint reader and the
// safetensors package. Needs a python3 that has them, or the interpreter that MESHTRAIN_PYTHON
// names; ctest takes that of build/peers, which scripts/python_peers.sh makes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "checkpoint_case.h"
#include "support/temp_folder.h"
#include "tensor/npy.h"

namespace meshtrain {
namespace {

using test::TempFolder;
namespace fs = std::filesystem;

// Exit status of dcp_read.py; 3 when a package is missing.
int read_shards(const TempFolder& folder, const std::string& arguments) {
  const char* chosen = std::getenv("MESHTRAIN_PYTHON");
  const int status = std::system(fmt::format("'{}' '{}/tests/reference/dcp_read.py' {} > '{}' 2>&1",
                                             chosen != nullptr ? chosen : "python3",
                                             MESHTRAIN_SOURCE_DIR, arguments, folder.file("log"))
                                     .c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The tensors of one folder of shards, put together by the other program.
void check_folder(const std::string& shards, bool weights, const VariableStore& store) {
  int compared = 0;
  for (const Variable& variable : store.variables()) {
    if ((variable.role == VariableRole::kWeight) != weights) {
      continue;
    }
    std::string name = checkpoint_path(variable);
    std::replace(name.begin(), name.end(), '/', '%');
    const HostTensor got = read_npy(shards + "/read/" + name + ".npy");
    const HostTensor expected = test::content_of(variable, 1);
    REQUIRE(got.shape() == expected.shape());
    REQUIRE(got.dtype() == expected.dtype());
    CHECK(std::memcmp(got.bytes(), expected.bytes(), got.num_bytes()) == 0);
    ++compared;
  }
  CHECK(compared >= 2);
}

void check_all_meshes(const std::string& option) {
  const TempFolder folder;
  std::string arguments = option;
  std::vector<std::unique_ptr<test::Stored>> stored;
  for (const test::MeshCase& mesh : test::mesh_cases()) {
    stored.push_back(std::make_unique<test::Stored>(mesh));
    const std::string place = folder.file(std::to_string(stored.size()));
    fs::create_directory(place);
    REQUIRE(test::save_step(place, *stored.back(), 5).saved);
    arguments += fmt::format(" '{0}/000005/model' '{0}/000005/optimizer'", place);
  }
  const int status = read_shards(folder, arguments);
  if (status == 3) {
    MESSAGE("skipped: " << folder.read("log"));
    return;
  }
  REQUIRE_MESSAGE(status == 0, folder.read("log"));
  for (size_t i = 0; i < stored.size(); ++i) {
    const std::string place = folder.file(std::to_string(i + 1)) + "/000005/";
    check_folder(place + "model", true, stored[i]->store);
    check_folder(place + "optimizer", false, stored[i]->store);
  }
}

TEST_CASE("PyTorch's distributed checkpoint reader reads the shards of every mesh") {
  check_all_meshes("");
}

TEST_CASE("the safetensors package reads the shards of every mesh") {
  check_all_meshes("--shards");
}

}  // namespace
}  // namespace meshtrain
