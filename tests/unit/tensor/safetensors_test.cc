#include "tensor/safetensors.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "support/malformed.h"
#include "tensor/npz.h"
#include "tensor/weights.h"

namespace meshtrain {
namespace {

using test::caught;
using test::TempFolder;

std::string file_of(std::string header, std::string_view data) {
  uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, sizeof(length));
  return out + header + std::string(data);
}
// One float32 tensor "a" of four bytes with this entry.
std::string with_entry(std::string_view entry) {
  return file_of(fmt::format("{{\"a\":{{{}}}}}", entry), "abcd");
}

std::vector<NamedTensor> tensors_to_write() {
  std::vector<NamedTensor> tensors;
  tensors.push_back({"labels", tensor_of<int>(DType::kUInt8, {3}, {7, 8, 9})});
  tensors.push_back({"d1/kernel", tensor_of<double>(DType::kFloat32, {2, 2}, {1, 2, 3, 4})});
  tensors.push_back({"scalar", tensor_of<double>(DType::kFloat64, {}, {0.1})});
  tensors.push_back({"empty", HostTensor(DType::kInt64, {0, 5})});
  return tensors;
}

TEST_CASE("write_safetensors: every type reads back as it was") {
  const TempFolder folder;
  for (int i = 0; i <= static_cast<int>(DType::kFloat64); ++i) {
    const auto dtype = static_cast<DType>(i);
    std::vector<NamedTensor> tensors;
    tensors.push_back({"t", tensor_of<int>(dtype, {2, 3}, {0, 1, 1, 0, 1, 0})});
    write_safetensors(folder.file("a.safetensors"), tensors);
    const SafetensorsFile back = read_safetensors(folder.file("a.safetensors"));
    REQUIRE(back.tensors.size() == 1);
    CHECK(back.tensors[0].tensor.dtype() == dtype);
    CHECK(back.tensors[0].tensor.shape() == Shape{2, 3});
    CHECK(back.tensors[0].tensor.at(4) == 1);
  }
  CHECK(folder.num_files() == 1);
}

TEST_CASE("write_safetensors: data are aligned and metadata come back") {
  const TempFolder folder;
  const StringMap metadata = {{"format", "pt"}, {"step", "500"}, {"text", "a \"quote\"\n\xc3\xa4"}};
  write_safetensors(folder.file("a.safetensors"), tensors_to_write(), metadata);
  const SafetensorsReader reader(folder.file("a.safetensors"));
  CHECK(reader.metadata() == metadata);
  REQUIRE(reader.entries().size() == 4);
  for (const SafetensorsReader::Entry& entry : reader.entries()) {
    CHECK((entry.begin % dtype_size(entry.dtype) == 0));
  }
  CHECK(reader.entries()[0].begin % 64 == 0);
  REQUIRE(reader.find("d1/kernel") != nullptr);
  CHECK(reader.read(*reader.find("d1/kernel")).at(3) == 4);
  CHECK(reader.read(*reader.find("scalar")).at(0) == 0.1);
  float second = 0;
  reader.read(*reader.find("d1/kernel"), 4, reinterpret_cast<std::byte*>(&second), 4);
  CHECK(second == 2);
  CHECK(reader.find("d2/kernel") == nullptr);
}

TEST_CASE("write_safetensors: equal arguments give equal files") {
  const TempFolder folder;
  write_safetensors(folder.file("a"), tensors_to_write(), {{"k", "v"}});
  write_safetensors(folder.file("b"), tensors_to_write(), {{"k", "v"}});
  CHECK(folder.read("a") == folder.read("b"));
}

TEST_CASE("write_safetensors: a name given twice is a mistake of ours") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors = tensors_to_write();
  tensors.push_back({"scalar", HostTensor(DType::kFloat32, {1})});
  CHECK_THROWS_AS(write_safetensors(folder.file("a"), tensors), InternalError);
}

TEST_CASE("read_safetensors: a file without tensors or with a padded header is fine") {
  const TempFolder folder;
  CHECK(read_safetensors(folder.write("a", file_of("{}", ""))).tensors.empty());
  CHECK(
      read_safetensors(folder.write("b", file_of("{\"__metadata__\":{}}   ", ""))).tensors.empty());
}

TEST_CASE("read_safetensors: malformed files are refused") {
  const std::string f4 = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":)";
  std::string huge_length = with_entry(f4);
  huge_length.replace(0, 8, std::string("\0\0\0\0\0\0\0\x80", 8));
  const std::string many = "{\"a\":" + std::string(200000, '[') + "}";
  const std::vector<test::MalformedFile> table = {
      {"empty", "", "E405", "0 bytes"},
      {"seven bytes", "1234567", "E405", "7 bytes"},
      {"header of 2^63 bytes", huge_length, "E405", "9223372036854775808"},
      {"header one too long", file_of("{}", "").replace(0, 1, "\3"), "E405", "truncated"},
      {"no header", file_of("", ""), "E405", "begin with `{`"},
      {"blank before it", file_of(" {}", ""), "E405", "begin with `{`"},
      {"list", file_of("[]", ""), "E405", "begin with `{`"},
      {"text behind it", file_of("{}{}", ""), "E405", "no JSON at its byte"},
      {"cut", file_of("{\"a\":", ""), "E405", "no JSON"},
      {"invalid UTF-8", file_of("{\"\xff\":1}", ""), "E405", "no JSON"},
      {"deep", file_of(many, ""), "E405", "list"},
      {"tensor a number", file_of("{\"a\":1}", ""), "E405", "must be an object"},
      {"tensor null", file_of("{\"a\":null}", ""), "E405", "must be an object"},
      {"metadata a text", file_of("{\"__metadata__\":\"x\"}", ""), "E405", "must be an object"},
      {"metadata with number", file_of("{\"__metadata__\":{\"x\":1}}", ""), "E405", "only texts"},
      {"metadata with object", file_of("{\"__metadata__\":{\"x\":{}}}", ""), "E405", "only texts"},
      {"metadata twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", ""), "E405", "twice"},
      {"metadata key twice", file_of("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", ""), "E405",
       "`x` twice"},
      {"unknown key", with_entry(f4 + ",\"strides\":[1]"), "E405", "unknown key `strides`"},
      {"key twice", with_entry(f4 + ",\"dtype\":\"F32\""), "E405", "`dtype` twice"},
      {"key missing", with_entry(R"("dtype":"F32","shape":[1])"), "E405", "no `data_offsets`"},
      {"dtype unknown", with_entry(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), "E405",
       "`F33`"},
      {"dtype a number", with_entry(R"("dtype":4,"shape":[1],"data_offsets":[0,4])"), "E405",
       "a number in `dtype`"},
      {"shape a number", with_entry(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), "E405",
       "a number in `shape`"},
      {"shape negative", with_entry(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "E405",
       "negative"},
      {"shape 1e0", with_entry(R"("dtype":"F32","shape":[1e0],"data_offsets":[0,4])"), "E405",
       "no plain integer"},
      {"shape 1.0", with_entry(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "E405",
       "no plain integer"},
      {"shape NaN", with_entry(R"("dtype":"F32","shape":[NaN],"data_offsets":[0,4])"), "E405",
       "no JSON"},
      {"shape nested", with_entry(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), "E405",
       "a list in `shape`"},
      {"size 2^53", with_entry(R"("dtype":"F32","shape":[9007199254740992],"data_offsets":[0,4])"),
       "E405", "below 2^53"},
      {"overflow",
       with_entry(
           R"("dtype":"F32","shape":[4503599627370496,4503599627370496],"data_offsets":[0,4])"),
       "E405", "more than any file"},
      {"nine dimensions",
       with_entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), "E405",
       "more than 8"},
      {"one offset", with_entry(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "E405",
       "two numbers"},
      {"three offsets", with_entry(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "E405",
       "two numbers"},
      {"offsets reversed", with_entry(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "E405",
       "before its begin"},
      {"bytes differ", with_entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "E405",
       "needs 8 bytes, its offsets give 4"},
      {"overlap", file_of(two + "[1,3]}}", "abc"), "E405", "begins at byte 1"},
      {"hole", file_of(two + "[3,5]}}", "abcde"), "E405", "begins at byte 3"},
      {"begins late", file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "ab"),
       "E405", "begins at byte 1"},
      {"name twice",
       file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
               "ab"),
       "E405", "`a` twice"},
      {"short data", with_entry(f4).substr(0, with_entry(f4).size() - 1), "E405", "truncated"},
      {"trailing byte", with_entry(f4) + "x", "E405", "something follows"},
      {"claims a terabyte",
       with_entry(R"("dtype":"F32","shape":[274877906944],"data_offsets":[0,1099511627776])"),
       "E405", "1,099,511,627,776"},
      {"leads out", file_of(R"({"../../x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"),
       "E406", "leads out"},
      {"absolute", file_of(R"({"/x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"),
       "E406", "absolute"},
      {"NUL", file_of("{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", ""),
       "E406", "control"},
      {"no name", file_of(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a"), "E406",
       "is empty"},
      {"long name", file_of("{\"" + std::string(513, 'n') + "\":1}", ""), "E406", "512"},
  };
  test::check_malformed(table, "bad.safetensors", 6,
                        [](const std::string& path) { read_safetensors(path); });
}

TEST_CASE("read_safetensors: many tensors are read in time linear in their number") {
  const TempFolder folder;
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 20000; ++i) {
    tensors.push_back({fmt::format("layer_{}/kernel", i), HostTensor(DType::kFloat32, {1})});
  }
  write_safetensors(folder.file("a.safetensors"), tensors);
  CHECK(read_safetensors(folder.file("a.safetensors")).tensors.size() == 20000);
}

TEST_CASE("read_safetensors: links and pipes are refused and missing files named") {
  const TempFolder folder;
  const std::string real = folder.write("real.safetensors", file_of("{}", ""));
  REQUIRE(::symlink(real.c_str(), folder.file("link.safetensors").c_str()) == 0);
  REQUIRE(::mkfifo(folder.file("pipe.safetensors").c_str(), 0600) == 0);
  CHECK(caught([&] { read_safetensors(folder.file("link.safetensors")); }).code == "E406");
  CHECK(caught([&] { read_safetensors(folder.file("pipe.safetensors")); }).code == "E406");
  const test::Caught missing = caught([&] { read_safetensors(folder.file("rael.safetensors")); });
  CHECK(missing.code == "E404");
  CHECK(missing.exit_code == 6);
  CHECK(missing.says("real.safetensors"));
}

TEST_CASE("read_safetensors: every truncation is found") {
  const TempFolder folder;
  write_safetensors(folder.file("a"), tensors_to_write(), {{"k", "v"}});
  test::check_every_truncation(folder.read("a"), "cut.safetensors", 6,
                               [](const std::string& path) { read_safetensors(path); });
}

TEST_CASE("read_safetensors: flipped bits never crash") {
  const TempFolder folder;
  write_safetensors(folder.file("a"), tensors_to_write(), {{"k", "v"}});
  test::check_bit_flips(folder.read("a"), "a.safetensors", 6, 2000,
                        [](const std::string& path) { read_safetensors(path); });
}

TEST_CASE("read_safetensors: a checksum in the metadata is compared") {
  const TempFolder folder;
  const std::vector<NamedTensor> tensors = tensors_to_write();
  write_safetensors(folder.file("a"), tensors, with_checksum(tensors, {{"k", "v"}}));
  const SafetensorsFile file = read_safetensors(folder.file("a"));
  CHECK(has_checksum(file.metadata));
  CHECK(file.metadata.at("k") == "v");
  std::string bytes = folder.read("a");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder.write("a", bytes);
  const test::Caught error = caught([&] { read_safetensors(folder.file("a")); });
  CHECK(error.code == "E404");
  CHECK(error.says("its checksum does not match: the file was changed"));
  write_safetensors(folder.file("b"), tensors);
  CHECK(!has_checksum(read_safetensors(folder.file("b")).metadata));
}

TEST_CASE("read_weights: the extension decides the kind") {
  const TempFolder folder;
  write_safetensors(folder.file("w.safetensors"), tensors_to_write());
  write_npz(folder.file("w.npz"), tensors_to_write());
  CHECK(read_weights(folder.file("w.safetensors")).size() == 4);
  CHECK(read_weights(folder.file("w.npz"))[1].name == "d1/kernel");
  struct Refused {
    const char* name;
    const char* code;
    const char* says;
  };
  for (const Refused& refused :
       {Refused{"w.weights.h5", "E405", "without the model"},
        Refused{"model.keras", "E405", "without the model"},
        Refused{"model.pt", "E415", "never read"},
        Refused{"weights.txt", "E405", "use .safetensors, .npz, .weights.h5"},
        Refused{"missing.npz", "E404", "w.npz"}}) {
    const test::Caught error = caught([&] { read_weights(folder.file(refused.name)); });
    CHECK(error.code == refused.code);
    CHECK(error.exit_code == 6);
    CHECK(error.says(refused.says));
  }
  const std::string damaged = folder.read("w.npz").substr(0, 100);
  const test::Caught error = caught([&] { read_weights(folder.write("d.npz", damaged)); });
  CHECK(error.code == "E405");
  CHECK(error.exit_code == 6);
}

}  // namespace
}  // namespace meshtrain
