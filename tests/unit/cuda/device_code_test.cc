// nvcc compiles each file of backend/gpu/device by itself, with an instantiation of every kernel in
// it: what a run compiles through NVRTC as one text is also code that tools read file by file.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "../gpu/specs.h"
#include "backend/gpu/device_text.h"
#include "backend/gpu/lowering.h"
#include "base/file.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

// Of a file of device/: a body for each kernel, by the kernel's name; "" where a chain of
// elementwise ops calls several functions.
using Bodies = std::map<std::string, gpu::KernelBodyPtr>;

std::map<std::string, Bodies, std::less<>> bodies_by_file() {
  uint64_t place = uint64_t{1} << 44;
  const auto allocate = [&](int64_t bytes) {
    const uint64_t at = place;
    place += (static_cast<uint64_t>(bytes) / 256 + 2) * 256;
    return reinterpret_cast<std::byte*>(at);
  };
  gpu::GpuLowering lowering(allocate);
  for (const SpecFamily& family : spec_families()) {
    for (const KernelCase& spec : family.specs()) {
      SpecPointers memory;
      for (const SpecArray& array : spec.arrays) {
        const int64_t item = static_cast<int64_t>(dtype_size(array.dtype));
        memory.push_back(allocate((array.size + array.shift) * item) + array.shift * item);
      }
      lowering.lower(spec.lowered(memory));
    }
  }
  std::map<std::string, Bodies, std::less<>> out;
  for (const gpu::Command& command : lowering.take()) {
    const auto* launch = std::get_if<gpu::Launch>(&command.what);
    if (launch == nullptr)
      continue;
    const std::string& text = launch->body->text;
    std::smatch name;
    const bool is_call = std::regex_search(text, name, std::regex("^(\\w+)<"));
    out[std::string(launch->body->device)].emplace(is_call ? name[1].str() : "", launch->body);
  }
  return out;
}

// Names of the kernels that a file defines.
std::set<std::string> kernels_of(const std::string& text) {
  const std::regex kernel("MT_FN void (?!each_)(\\w+)\\(const unsigned long long\\* arg,");
  std::set<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it)
    out.insert((*it)[1]);
  return out;
}

std::string source_of(const std::string& stem, const Bodies& bodies) {
  std::string text = fmt::format("#include \"backend/gpu/device/{}.cuh\"\n", stem);
  for (const auto& [name, body] : bodies) {
    text += fmt::format(
        "namespace mt {{\n"
        "static __device__ void {0}(const unsigned long long* arg, unsigned block, unsigned char* "
        "shared) {{\n{1}}}\n"
        "}}\n"
        "extern \"C\" __global__ void {0}_kernel(const unsigned long long* arg) {{\n"
        "  extern __shared__ __align__(16) unsigned char shared[];\n"
        "  mt::{0}(arg, blockIdx.x, shared);\n"
        "}}\n",
        body->name, body->text);
  }
  return text;
}

TEST_CASE("nvcc compiles every file of device code, with every kernel in it") {
  const TempFolder folder;
  const auto bodies = bodies_by_file();
  std::vector<std::string> stems;
  for (const gpu::DeviceFile& file : gpu::device_files()) {
    const std::filesystem::path path(file.name);
    if (path.extension() != ".cuh")
      continue;
    const std::string stem = path.stem().string();
    const auto found = bodies.find(stem);
    const Bodies own = found == bodies.end() ? Bodies{} : found->second;
    for (const std::string& kernel : kernels_of(std::string(file.text)))
      CHECK_MESSAGE(own.contains(kernel), file.name << ": no spec makes " << kernel);
    std::ofstream(folder.path() + "/" + stem + ".cu") << source_of(stem, own);
    stems.push_back(stem);
  }
  REQUIRE(stems.size() > 10);
  std::atomic<size_t> next{0};
  std::vector<int> status(stems.size());
  const auto compile = [&] {
    for (size_t i = next++; i < stems.size(); i = next++) {
      const std::string file = folder.path() + "/" + stems[i];
      const std::string command = fmt::format(
          "{} -x cu -std=c++20 -arch=compute_90 --fmad=false -I{}/lib -diag-suppress 177 "
          "-Werror all-warnings -ptx -o {}.ptx {}.cu > {}.log 2>&1",
          MESHTRAIN_NVCC, MESHTRAIN_SOURCE_DIR, file, file, file);
      status[i] = std::system(command.c_str());
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i)
    workers.emplace_back(compile);
  for (std::thread& worker : workers)
    worker.join();
  for (size_t i = 0; i < stems.size(); ++i) {
    INFO(read_file(folder.path() + "/" + stems[i] + ".log", 1 << 20).substr(0, 3000));
    CHECK_MESSAGE(status[i] == 0, stems[i]);
  }
}

}  // namespace
}  // namespace meshtrain::test
