#include "tensor/h5.h"

#include <doctest/doctest.h>

#include <cstring>

#include "support/malformed.h"
#include "tensor/h5_handle.h"

namespace meshtrain {
namespace {

using test::caught;
using test::TempFolder;

struct Weights {
  HostTensor kernel = tensor_of<double>(DType::kFloat32, {2, 3}, {1, -2, 3, 0.5, 0, 7});
  HostTensor bias = tensor_of<double>(DType::kFloat64, {3}, {0.1, 0.2, 0.3});
  HostTensor count = tensor_of<int>(DType::kInt32, {}, {41});
  HostTensor half = tensor_of<double>(DType::kFloat16, {2}, {1.5, -0.25});
  HostTensor brain = tensor_of<double>(DType::kBFloat16, {2}, {1.5, -3});
  HostTensor flags = tensor_of<int>(DType::kBool, {3}, {1, 0, 1});
  HostTensor none = HostTensor(DType::kFloat32, {0, 4});

  std::vector<H5Vars> groups() const {
    return {{"vars", "model", {}},
            {"layers/dense/vars", "d1", {&kernel, &bias}},
            {"layers/normalization/vars", "n", {&count, &half, &brain, &flags, &none}}};
  }
};

std::string image_text(const std::vector<H5Vars>& groups) {
  const std::vector<std::byte> image = h5_image(groups);
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

TEST_CASE("what write_h5 writes read_h5 reads") {
  const TempFolder folder;
  const Weights weights;
  write_h5(folder.file("w.weights.h5"), weights.groups());
  const H5File file = read_h5(folder.file("w.weights.h5"));
  REQUIRE(file.datasets.size() == 7);
  CHECK(file.names.at("layers/dense/vars") == "d1");
  CHECK(file.names.at("vars") == "model");
  const std::vector<std::pair<std::string, const HostTensor*>> expected = {
      {"layers/dense/vars/0", &weights.kernel},
      {"layers/dense/vars/1", &weights.bias},
      {"layers/normalization/vars/0", &weights.count},
      {"layers/normalization/vars/1", &weights.half},
      {"layers/normalization/vars/2", &weights.brain},
      {"layers/normalization/vars/3", &weights.flags},
      {"layers/normalization/vars/4", &weights.none}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const HostTensor& got = file.datasets[i].tensor;
    const HostTensor& wanted = *expected[i].second;
    CHECK(file.datasets[i].name == expected[i].first);
    CHECK(got.dtype() == wanted.dtype());
    REQUIRE(got.shape() == wanted.shape());
    CHECK(
        (wanted.size() == 0 || std::memcmp(got.bytes(), wanted.bytes(), wanted.num_bytes()) == 0));
  }
}

TEST_CASE("equal weights give equal HDF5 files and images can be read from memory") {
  const Weights weights;
  const std::vector<std::byte> image = h5_image(weights.groups());
  CHECK(image == h5_image(weights.groups()));
  CHECK(read_h5(image, "member").datasets.size() == 7);
}

TEST_CASE("a large tensor passes through the child process whole") {
  const TempFolder folder;
  HostTensor large(DType::kFloat32, {1000, 700});
  for (int64_t i = 0; i < large.size(); ++i) {
    large.data<float>()[i] = static_cast<float>(i);
  }
  write_h5(folder.file("large.h5"), std::vector<H5Vars>{{"vars", "m", {&large}}});
  const H5File file = read_h5(folder.file("large.h5"));
  REQUIRE(file.datasets.size() == 1);
  CHECK(std::memcmp(file.datasets[0].tensor.bytes(), large.bytes(), large.num_bytes()) == 0);
}

TEST_CASE("a file that cannot be written is exit code 74 and leaves nothing") {
  const TempFolder folder;
  const Weights weights;
  CHECK(caught([&] { write_h5(folder.file("none/w.h5"), weights.groups()); }).exit_code == 74);
  CHECK(folder.num_files() == 0);
}

// Files that the library can write and that are refused: made by `make` in an open file.
std::string made(const std::function<void(hid_t file)>& make) {
  prepare_h5();
  const TempFolder folder;
  const H5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);  // closes what `make` leaves open
  const hid_t file = H5Fcreate(folder.file("made.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  make(file);
  H5Fclose(file);
  return folder.read("made.h5");
}

TEST_CASE("a whole model's texts are read, of fixed and of any length") {
  const TempFolder folder;
  const std::string text(70000, 'm');  // h5py keeps long ones outside of the header
  const std::string image = made([&](hid_t file) {
    const hid_t one = H5Screate(H5S_SCALAR);
    const hid_t type = h5_text_type();
    const char* value = text.c_str();
    H5Awrite(H5Acreate2(file, "model_config", type, one, H5P_DEFAULT, H5P_DEFAULT), type, &value);
    const hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 6);
    const hid_t version = H5Acreate2(file, "keras_version", fixed, one, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(version, fixed, "2.15.0");
  });
  const H5File file = read_h5(folder.write("m.h5", image));
  CHECK(file.model_config == text);
  CHECK(file.keras_version == "2.15.0");
  CHECK(file.training_config.empty());
}

hid_t plain_dataset(hid_t file, hid_t type, std::vector<hsize_t> sizes, hid_t properties) {
  const hid_t space = H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr);
  return H5Dcreate2(file, "x", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
}

TEST_CASE("HDF5 files that are refused say why") {
  const auto read = [](const std::string& path) { read_h5(path); };
  const std::string good = image_text(Weights().groups());
  const std::string soft = made([](hid_t file) {
    H5Gcreate2(file, "vars", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/vars", file, "other", H5P_DEFAULT, H5P_DEFAULT);
  });
  const std::string external = made([](hid_t file) {
    H5Lcreate_external("/etc/passwd", "/", file, "other", H5P_DEFAULT, H5P_DEFAULT);
  });
  const std::string outside = made([](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(properties, "/etc/passwd", 0, 8);
    plain_dataset(file, H5T_IEEE_F32LE, {2}, properties);
  });
  const std::string bomb = made([](hid_t file) {  // 4 TiB declared, nothing stored
    plain_dataset(file, H5T_IEEE_F32LE, {1 << 20, 1 << 20}, H5P_DEFAULT);
  });
  const std::string packed = made([](hid_t file) {
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1 << 10};
    H5Pset_chunk(properties, 1, chunk);
    H5Pset_deflate(properties, 9);
    plain_dataset(file, H5T_IEEE_F32LE, {1 << 10}, properties);
  });
  const std::string words =
      made([](hid_t file) { plain_dataset(file, h5_text_type(), {2}, H5P_DEFAULT); });
  const std::string cycle =
      made([](hid_t file) { H5Lcreate_hard(file, "/", file, "again", H5P_DEFAULT, H5P_DEFAULT); });
  test::check_malformed(
      {{"empty", "", "E405", "not an HDF5 file"},
       {"another kind", "PK\3\4 and so on", "E405", "not an HDF5 file (first bytes 50 4b 03 04"},
       {"cut", good.substr(0, good.size() / 2), "E405", "damaged"},
       {"soft link", soft, "E406", "soft or external link"},
       {"external link", external, "E406", "soft or external link"},
       {"elements elsewhere", outside, "E406", "lies in other files"},
       {"bomb", bomb, "E405", "declares more elements than the file holds"},
       {"compressed", packed, "E405", "is compressed"},
       {"text", words, "E405", "holds no array of numbers"},
       {"cycle", cycle, "E405", "nested deeper"}},
      "w.weights.h5", 6, read);
}

TEST_CASE("damaged HDF5 files never crash the reader") {
  const TempFolder folder;
  const std::string whole = image_text(Weights().groups());
  for (size_t length = 0; length < whole.size(); length += 97) {
    CAPTURE(length);
    CHECK(caught([&] { read_h5(folder.write("cut.h5", whole.substr(0, length))); }).exit_code == 6);
  }
  test::check_bit_flips(whole, "flipped.h5", 6, 400,
                        [](const std::string& path) { read_h5(path); });
}

}  // namespace
}  // namespace meshtrain
