// Data larger than the memory there is, and that the way to them changes no number of a run.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "address_space.h"
#include "command.h"
#include "tensor/npy.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

constexpr const char* kModel = R"(
model:
  layers:
    - Input: {shape: [16, 8]}
    - Flatten
    - Dense: {units: 8, activation: relu}
    - Dense: 4
compile: {optimizer: {SGD: {learning_rate: 0.05}}, loss: {SparseCategoricalCrossentropy: {from_logits: true}}, metrics: [accuracy]}
run: {log_steps: true}
)";

HostTensor pixels(const Shape& shape) {
  HostTensor tensor(DType::kUInt8, shape);
  uint32_t state = 1;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    state = state * 1664525 + 1013904223;
    tensor.data<uint8_t>()[i] = static_cast<uint8_t>(state >> 24);
  }
  return tensor;
}

HostTensor classes(int64_t samples) {
  HostTensor tensor(DType::kUInt8, {samples});
  for (int64_t i = 0; i < samples; ++i) {
    tensor.data<uint8_t>()[i] = static_cast<uint8_t>(i * i % 7 % 4);
  }
  return tensor;
}

// The lines of the events that hold numbers of training, without times.
std::string numbers_of(const Result& result) {
  std::string out;
  for (const std::string& line : lines_of(result.out)) {
    if (line.find("\"event\":\"step\"") != std::string::npos) {
      out += line + "\n";
    }
    if (const size_t logs = line.find("\"logs\""); logs != std::string::npos) {
      out += line.substr(logs) + "\n";
    }
  }
  return out;
}

TEST_CASE("the losses of a run are the same however its data are read") {
  const TemporaryFolder folder;
  constexpr int64_t kSamples = 300;
  std::vector<NamedTensor> stored;
  stored.push_back({"x", pixels({kSamples, 16, 8})});
  stored.push_back({"y", classes(kSamples)});
  write_npz(folder.file("data.npz"), stored);
  write_npy(folder.file("x.npy"), stored[0].tensor);
  write_npy(folder.file("y.npy"), stored[1].tensor);
  std::string idx("\0\0\x08\3\0\0\1\x2c\0\0\0\x10\0\0\0\x08", 16);
  idx.append(reinterpret_cast<const char*>(stored[0].tensor.bytes()), stored[0].tensor.num_bytes());
  std::string labels("\0\0\x08\1\0\0\1\x2c", 8);
  labels.append(reinterpret_cast<const char*>(stored[1].tensor.bytes()), kSamples);
  folder.write("x.idx", idx);
  folder.write("y.idx", labels);
  for (const char* name : {"x", "y"}) {
    const std::string content = folder.read(std::string(name) + ".idx");
    gzFile file = gzopen(folder.file(std::string(name) + ".idx.gz").c_str(), "wb");
    REQUIRE(gzwrite(file, content.data(), static_cast<unsigned>(content.size())) ==
            static_cast<int>(content.size()));
    gzclose(file);
  }
  // The archive in three parts.
  for (int part = 0; part < 3; ++part) {
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& whole : stored) {
      Shape shape = whole.tensor.shape();
      const size_t bytes = whole.tensor.num_bytes() / 3;
      shape[0] = kSamples / 3;
      HostTensor rows(DType::kUInt8, shape);
      std::copy_n(whole.tensor.bytes() + static_cast<size_t>(part) * bytes, bytes, rows.bytes());
      tensors.push_back({whole.name, std::move(rows)});
    }
    write_npz(folder.file("part_" + std::to_string(part) + ".npz"), tensors);
  }
  folder.write("run.yaml", std::string(kModel) + R"(
data: {train: {source: npz, path: data.npz}, transform: [Rescaling: {scale: =1/255, offset: -0.5}]}
fit: {epochs: 2, batch_size: 7, validation_split: 0.2}
)");
  const auto train = [&](std::vector<std::string> changes) {
    changes.insert(changes.begin(), {"train", "run.yaml", "--log-format", "json"});
    const Result result = meshtrain(changes, folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    return numbers_of(result);
  };
  const std::string expected = train({"data.cache=memory", "data.prefetch=0"});
  CHECK(lines_of(expected).size() == 2 * 35 + 2 + 1);
  const std::string idx_source = "data.train={source: idx, images: x.idx, labels: y.idx}";
  const std::string reshape =
      "data.transform=[{Reshape: {target_shape: [16, 8]}}, {Rescaling: {scale: =1/255, offset: "
      "-0.5}}]";
  const std::vector<std::vector<std::string>> ways = {
      {},
      {"data.cache=none"},
      {"data.cache=file"},
      {"data.cache=./"},
      {"data.memory=100"},
      {"data.memory=100", "data.prefetch=8"},
      {"data.memory=100", "data.prefetch=0"},
      {"data.train.path=part_*.npz"},
      {"data.train.path=part_*.npz", "data.cache=none", "data.prefetch=1"},
      {"data.train={source: npy, x: x.npy, y: y.npy}", "data.cache=none"},
      {idx_source, reshape, "data.cache=none"},
      {"data.train={source: idx, images: x.idx.gz, labels: y.idx.gz}", reshape, "data.memory=100"},
  };
  for (const std::vector<std::string>& way : ways) {
    CAPTURE(way.empty() ? "defaults" : way[0]);
    CHECK(train(way) == expected);
  }
}

TEST_CASE("a file that changes while a run reads it ends the run with its name") {
  const TemporaryFolder folder;
  write_npy(folder.file("x.npy"), pixels({100000, 16, 8}));
  write_npy(folder.file("y.npy"), classes(100000));
  folder.write("run.yaml", std::string(kModel) + R"(
data: {train: {source: npy, x: x.npy, y: y.npy}, cache: none}
fit: {epochs: 1000, batch_size: 100}
)");
  for (const bool shrinks : {true, false}) {
    write_npy(folder.file("x.npy"), pixels({100000, 16, 8}));
    Command command;
    command.args = {"train", "run.yaml", "--log-format", "json"};
    command.folder = folder.path();
    bool changed = false;
    command.watch = [&](const std::string& out, const std::string&, int) {
      if (!changed && out.find("\"step\"") != std::string::npos) {
        if (shrinks) {
          std::filesystem::resize_file(folder.file("x.npy"), 1000);
        } else {
          std::ofstream(folder.file("x.npy"), std::ios::app) << "x";
        }
        changed = true;
      }
      return changed;
    };
    const Result result = run(command);
    CHECK(result.exit_code == 3);
    CHECK(result.err.find("E321") != std::string::npos);
    CHECK(result.err.find("x.npy` changed while it was in use") != std::string::npos);
    CHECK(result.err.find("run.yaml:") != std::string::npos);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    out += static_cast<char>(value >> 8 * i & 0xff);
  }
  return out;
}

// An archive of two stored members as numpy.savez writes it. The samples beyond the first thousand
// are zeros that take no room on the disk; their checksum is left out.
void write_sparse_archive(const std::string& path, int64_t samples) {
  const HostTensor first = pixels({1000, 16, 8}), labels = classes(samples);
  std::ofstream file(path, std::ios::binary);
  std::string directory;
  const auto add = [&](const std::string& name, const HostTensor& data, const Shape& shape) {
    const std::string header = npy_header(DType::kUInt8, shape);
    const auto offset = static_cast<uint64_t>(file.tellp());
    const uint64_t size = header.size() + static_cast<uint64_t>(num_elements(shape));
    uLong crc =
        crc32(0, reinterpret_cast<const Bytef*>(header.data()), static_cast<uInt>(header.size()));
    crc = crc32(crc, reinterpret_cast<const Bytef*>(data.bytes()),
                static_cast<uInt>(data.num_bytes()));
    const std::string common = little_endian(20, 2) + std::string(8, '\0') + little_endian(crc, 4) +
                               little_endian(size, 4) + little_endian(size, 4) +
                               little_endian(name.size(), 2) + std::string(2, '\0');
    file << "PK\3\4" << common << name << header;
    const auto begin = static_cast<uint64_t>(file.tellp());
    file.write(reinterpret_cast<const char*>(data.bytes()),
               static_cast<std::streamsize>(data.num_bytes()));
    file.seekp(static_cast<std::streamoff>(begin + size - header.size()));
    directory += "PK\1\2" + little_endian(20, 2) + common + std::string(10, '\0') +
                 little_endian(offset, 4) + name;
  };
  add("x.npy", first, {samples, 16, 8});
  add("y.npy", labels, {samples});
  const auto begin = static_cast<uint64_t>(file.tellp());
  file << directory << "PK\5\6" << std::string(4, '\0') << little_endian(2, 2)
       << little_endian(2, 2) << little_endian(directory.size(), 4) << little_endian(begin, 4)
       << std::string(2, '\0');
}

TEST_CASE("training on an archive that is larger than the address space") {
  const TemporaryFolder folder;
  constexpr int64_t kSamples = 16'000'000;  // of 128 bytes: 2 GB
  constexpr rlim_t kSpace = rlim_t{1536} << 20;
  write_sparse_archive(folder.file("data.npz"), kSamples);
  folder.write("run.yaml", std::string(kModel) + R"(
data: {train: {source: npz, path: data.npz}}
fit: {batch_size: 100, limit_steps: 30}
)");
  const AddressSpace limit(kSpace);
  const Result result = meshtrain({"train", "run.yaml", "--log-format", "json"}, folder.path());
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(lines_of(numbers_of(result)).size() == 31);
  const Result in_memory = meshtrain({"train", "run.yaml", "data.cache=memory"}, folder.path());
  CHECK(in_memory.exit_code == 4);
  CHECK(in_memory.err.find("cannot allocate 2048000000 bytes") != std::string::npos);
}

#endif

}  // namespace
}  // namespace meshtrain
