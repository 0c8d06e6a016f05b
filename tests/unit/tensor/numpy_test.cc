// Files that NumPy itself wrote and files that it must be able to read; needs python3 with numpy
// (or the interpreter that MESHTRAIN_PYTHON names).
#include <doctest/doctest.h>

#include <cstdlib>

#include "support/temp_folder.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

std::string python() {
  const char* chosen = std::getenv("MESHTRAIN_PYTHON");
  return chosen != nullptr ? chosen : "python3";
}

bool run(const test::TempFolder& folder, const std::string& script) {
  folder.write("script.py", script);
  return std::system(fmt::format("cd '{}' && {} script.py > output 2>&1", folder.path(), python())
                         .c_str()) == 0;
}

bool has_numpy() {
  const test::TempFolder folder;
  const bool found = run(folder, "import numpy");
  if (!found) {
    MESSAGE("skipped: " << python() << " has no numpy");
  }
  return found;
}

TEST_CASE("read_npy: files that NumPy wrote") {
  if (!has_numpy()) {
    return;
  }
  const test::TempFolder folder;
  REQUIRE(run(folder, R"(
import numpy as np
a = np.arange(24).reshape(2, 3, 4)
for t in "? u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8 >i2 >u4 >i8 >f2 >f4 >f8".split():
    for name, order in (("c", "C"), ("f", "F")):
        np.save(f"{t.replace('>', 'big_').replace('?', 'bool')}_{name}.npy",
                np.array(a, dtype=t, order=order))
for v in (1, 2, 3):
    with open(f"version{v}.npy", "wb") as f:
        np.lib.format.write_array(f, a.astype("f4"), version=(v, 0))
np.savez("a.npz", x=a.astype("u1"), **{"d1/kernel": a.astype("f4")})
np.savez_compressed("b.npz", x=a.astype("u1"), y=np.zeros((500, 700)))
np.save("object.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
np.save("fields.npy", np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]))
)"));
  for (const char* type : {"bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8",
                           "big_i2", "big_u4", "big_i8", "big_f2", "big_f4", "big_f8"}) {
    for (const char* order : {"c", "f"}) {
      CAPTURE(type);
      const HostTensor tensor = read_npy(folder.file(fmt::format("{}_{}.npy", type, order)));
      CHECK(tensor.shape() == Shape{2, 3, 4});
      for (int64_t i = 0; i < 24; ++i) {
        CHECK(tensor.at(i) == (tensor.dtype() == DType::kBool ? (i > 0) : static_cast<double>(i)));
      }
    }
  }
  for (const char* name : {"version1.npy", "version2.npy", "version3.npy"}) {
    CHECK(read_npy(folder.file(name)).at(23) == 23);
  }
  CHECK(read_npz(folder.file("a.npz"))[1].name == "d1/kernel");
  CHECK(read_npz(folder.file("a.npz"))[0].tensor.at(23) == 23);
  CHECK(read_npz(folder.file("b.npz"))[1].tensor.shape() == Shape{500, 700});
  CHECK(test::caught([&] { read_npy(folder.file("object.npy")); }).code == "E303");
  CHECK(test::caught([&] { read_npy(folder.file("fields.npy")); }).code == "E303");
}

TEST_CASE("write_npy and write_npz: NumPy reads the same values") {
  if (!has_numpy()) {
    return;
  }
  const test::TempFolder folder;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    HostTensor tensor = tensor_of<int>(dtype, {2, 2}, {0, 1, 1, 0});
    write_npy(folder.file(fmt::format("{}.npy", dtype_name(dtype))), tensor);
    tensors.push_back({fmt::format("t/{}", dtype_name(dtype)), std::move(tensor)});
  }
  write_npz(folder.file("all.npz"), tensors);
  const bool ok = run(folder, R"(
import numpy as np
z = np.load("all.npz")
names = "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64"
assert sorted(z.files) == sorted("t/" + t for t in names.split()), z.files
for t in names.split():
    for a in (np.load(t + ".npy"), z["t/" + t]):
        assert a.dtype == np.dtype("float32" if t == "bfloat16" else t), (t, a.dtype)
        assert a.tolist() == [[0, 1], [1, 0]], (t, a)
)");
  CAPTURE(folder.read("output"));
  CHECK(ok);
}

}  // namespace
}  // namespace meshtrain
