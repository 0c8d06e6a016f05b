#include "base/library_part.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

LibraryPart gpu_part(const std::string& missing, const std::string& cure) {
  return {.file = "libmeshtrain_cuda.so",
          .variable = "MESHTRAIN_GPU_LIBRARY",
          .kind = "GPU",
          .symbol = "none",
          .abi = 1,
          .target = "meshtrain_cuda",
          .missing = missing,
          .cure = cure};
}

TEST_CASE("why a part is missing depends on what was built and where the program is") {
  const TempFolder folder;
  std::filesystem::create_directories(folder.file("build/dev/app"));
  std::filesystem::create_directories(folder.file("scripts"));
  const std::string installed = folder.path() + "/", built = folder.file("build/dev/app/");
  folder.write("build/dev/CMakeCache.txt", "");
  folder.write("scripts/build.sh", "");
  const LibraryPart buildable = gpu_part("", "");
  const LibraryPart left_out =
      gpu_part("no CUDA toolkit 12.4 or newer was found", "install cuda-toolkit-13-0");
  CHECK(absent_part(buildable, built) ==
        "libmeshtrain_cuda.so is missing: it is a part of its own, which `scripts/build.sh dev "
        "meshtrain_cuda` builds");
  CHECK(absent_part(left_out, built) ==
        "this meshtrain was built without its GPU part (no CUDA toolkit 12.4 or newer was found); "
        "install cuda-toolkit-13-0, then run `scripts/build.sh dev meshtrain_cuda`");
  CHECK(absent_part(buildable, installed) ==
        "libmeshtrain_cuda.so is missing: it belongs beside the program, in " + installed +
            ", or in ../lib from there; unpack or install meshtrain again, or name the file in "
            "$MESHTRAIN_GPU_LIBRARY");
  CHECK(absent_part(left_out, installed) ==
        "this package of meshtrain has no GPU part, since the build was without it (no CUDA "
        "toolkit 12.4 or newer was found); use a package that has libmeshtrain_cuda.so, or build "
        "meshtrain from source: install cuda-toolkit-13-0, then `scripts/build.sh release "
        "meshtrain_cuda`");
}

}  // namespace
}  // namespace meshtrain::test
