// Every case of the catalogue: what the GPU's kernels compute on the device against the CPU's.
//
// $MESHTRAIN_GPU_SPECS: only specs whose name contains it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/lowering.h"
#include "backend/gpu/lowering.h"
#include "exec/cpu_collective.h"
#include "exec/memory.h"
#include "gpu_device.h"
#include "specs.h"
#include "support/sampled.h"

namespace meshtrain::test {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int kGapByte = 0x5C;

std::vector<KernelCase> chosen_specs(const SpecFamily& family) {
  std::vector<KernelCase> specs = family.specs();
  if (const char* part = std::getenv("MESHTRAIN_GPU_SPECS")) {
    std::erase_if(specs, [part](const KernelCase& spec) {
      return spec.name.find(part) == std::string::npos;
    });
  }
  std::vector<KernelCase> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (is_sampled(i, 1))
      out.push_back(specs[i]);
  }
  return out;
}

// The arrays of all specs in one block of memory, with gaps between them.
class Image {
 public:
  explicit Image(const std::vector<KernelCase>& specs) {
    int64_t at = kAlignment;
    for (const KernelCase& spec : specs) {
      places_.emplace_back();
      for (const SpecArray& array : spec.arrays) {
        const int64_t item = static_cast<int64_t>(dtype_size(array.dtype));
        places_.back().push_back(at + array.shift * item);
        at += ((array.size + array.shift) * item / kAlignment + 2) * kAlignment;
      }
    }
    bytes_.assign(static_cast<size_t>(at), std::byte{kGapByte});
    for (size_t s = 0; s < specs.size(); ++s) {
      for (size_t a = 0; a < specs[s].arrays.size(); ++a)
        fill_array(specs[s].arrays[a], 1000 * s + a, bytes_.data() + places_[s][a]);
    }
  }

  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  int64_t place(size_t spec, size_t array) const { return places_[spec][array]; }
  SpecPointers pointers(size_t spec, std::byte* memory) const {
    SpecPointers out;
    for (int64_t place : places_[spec])
      out.push_back(memory + place);
    return out;
  }

 private:
  std::vector<std::vector<int64_t>> places_;
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> aligned_copy(const Image& image, std::byte*& memory) {
  std::vector<std::byte> out(static_cast<size_t>(image.size() + kAlignment));
  const auto address = reinterpret_cast<uintptr_t>(out.data());
  memory = out.data() + (kAlignment - address % kAlignment) % kAlignment;
  std::memcpy(memory, image.bytes().data(), image.bytes().size());
  return out;
}

std::vector<std::byte> run_cpu(const std::vector<KernelCase>& specs, const Image& image) {
  std::byte* memory = nullptr;
  const std::vector<std::byte> owner = aligned_copy(image, memory);
  StepScratch scratch;
  for (size_t s = 0; s < specs.size(); ++s) {
    cpu::CpuLowering lowering(scratch, collectives_of({}));
    try {
      lowering.lower(specs[s].lowered(image.pointers(s, memory)));
    } catch (const Error& error) {
      FAIL_CHECK(specs[s].name << " on the CPU: " << error.what());
    }
    for (const cpu::KernelPtr& kernel : lowering.take()) {
      HostTensor own(DType::kUInt8, {static_cast<int64_t>(kernel->scratch_bytes()) + 64});
      kernel->run(0, kernel->units(), own.bytes());
    }
  }
  return {memory, memory + image.size()};
}

std::vector<gpu::Command> gpu_commands(const std::vector<KernelCase>& specs, const Image& image,
                                       gpu::Device& device, std::byte* memory) {
  gpu::GpuLowering lowering([&](int64_t bytes) { return device.allocate(bytes); });
  for (size_t s = 0; s < specs.size(); ++s) {
    try {
      lowering.lower(specs[s].lowered(image.pointers(s, memory)));
    } catch (const Error& error) {
      FAIL_CHECK(specs[s].name << ": " << error.what());
    }
  }
  return lowering.take();
}

HostTensor tensor_at(const SpecArray& array, const std::byte* memory) {
  HostTensor out(array.dtype, {array.size});
  if (array.size > 0)
    std::memcpy(out.bytes(), memory, out.num_bytes());
  return out;
}

// The first difference that the spec does not allow, in words.
std::string difference(const KernelCase& spec, const SpecArray& array, const std::byte* got_bytes,
                       const std::byte* want_bytes) {
  const HostTensor got = tensor_at(array, got_bytes), want = tensor_at(array, want_bytes);
  const double part = spec.is_exact || !array.is_compared() ? 0 : tolerance_of(array.dtype);
  for (int64_t i = 0; i < array.size; ++i) {
    const double g = got.at(i), w = want.at(i);
    if (g == w || (std::isnan(g) && std::isnan(w)))
      continue;
    if (!(std::abs(g - w) <= part * (std::abs(w) + spec.scale)) || std::isinf(w))
      return fmt::format("element {} of {} is {:.9g}, not {:.9g}", i, array.size, g, w);
  }
  return "";
}

void compare(const std::vector<KernelCase>& specs, const Image& image,
             const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  std::vector<std::byte> rest = got;  // what must be as it was
  for (size_t s = 0; s < specs.size(); ++s) {
    for (size_t a = 0; a < specs[s].arrays.size(); ++a) {
      const SpecArray& array = specs[s].arrays[a];
      const int64_t place = image.place(s, a);
      const std::string problem =
          difference(specs[s], array, got.data() + place, want.data() + place);
      if (!problem.empty())
        FAIL_CHECK(specs[s].name << ": array " << a << ": " << problem);
      std::copy_n(image.bytes().begin() + place,
                  array.size * static_cast<int64_t>(dtype_size(array.dtype)), rest.begin() + place);
    }
  }
  const bool gaps_are_untouched = rest == image.bytes();
  CHECK(gaps_are_untouched);
}

// Fails where arrays of two runs have different bits.
void compare_bits(const std::vector<KernelCase>& specs, const Image& image,
                  const std::vector<std::byte>& got, const std::vector<std::byte>& want,
                  std::string_view where) {
  for (size_t s = 0; s < specs.size(); ++s) {
    for (size_t a = 0; a < specs[s].arrays.size(); ++a) {
      const size_t place = static_cast<size_t>(image.place(s, a));
      const size_t bytes =
          static_cast<size_t>(specs[s].arrays[a].size) * dtype_size(specs[s].arrays[a].dtype);
      if (std::memcmp(got.data() + place, want.data() + place, bytes) != 0)
        FAIL_CHECK(specs[s].name << ": array " << a << " differs " << where);
    }
  }
}

// Runs the specs, again whenever it is asked.
class SpecRun {
 public:
  SpecRun(const std::vector<KernelCase>& specs, const Image& image, gpu::Device& device)
      : image_(image), device_(device), memory_(device.allocate(image.size())) {
    set_emulator_seed(0);
    plan_ = device.make_plan(gpu_commands(specs, image, device, memory_), {}, 0, 1);
  }
  std::vector<std::byte> operator()(uint64_t seed) {
    set_emulator_seed(seed);
    device_.upload(memory_, image_.bytes().data(), image_.size());
    plan_->run();
    std::vector<std::byte> out(image_.bytes().size());
    device_.download(out.data(), memory_, image_.size());
    return out;
  }

 private:
  const Image& image_;
  gpu::Device& device_;
  std::byte* memory_;
  std::unique_ptr<gpu::Plan> plan_;
};

void check_family(std::string_view name) {
  const auto& families = spec_families();
  const auto family = std::find_if(families.begin(), families.end(),
                                   [name](const SpecFamily& f) { return f.name == name; });
  REQUIRE(family != families.end());
  const std::unique_ptr<gpu::Device> device = open_test_device();
  if (device == nullptr)
    return;
  const std::vector<KernelCase> specs = chosen_specs(*family);
  const Image image(specs);
  SpecRun run(specs, image, *device);
  const std::vector<std::byte> first = run(0);
  compare(specs, image, first, run_cpu(specs, image));
  // Reversed orders find most of what depends on them.
  const uint64_t most_seed = runs_everything() ? 4 : 1;
  for (uint64_t seed = 1; seed <= most_seed; ++seed)
    compare_bits(specs, image, run(seed), first, "in another run");
  std::vector<KernelCase> apart = specs;
  std::erase_if(apart, [](const KernelCase& spec) {
    return spec.make_apart == nullptr || spec.differs_apart_on_gpus;
  });
  if (apart.empty())
    return;
  const Image image_apart(apart);
  const std::vector<std::byte> together = SpecRun(apart, image_apart, *device)(0);
  for (KernelCase& spec : apart)
    spec.make = spec.make_apart;
  compare_bits(apart, image_apart, SpecRun(apart, image_apart, *device)(0), together, "apart");
}

TEST_SUITE_BEGIN("parts");
TEST_CASE("tapes equal the CPU's") {
  check_family("tape");
}
TEST_CASE("casts equal the CPU's") {
  check_family("cast");
}
TEST_CASE("copies and fills and iotas equal the CPU's") {
  check_family("copy");
}
TEST_CASE("reductions equal the CPU's") {
  check_family("reduce");
}
TEST_CASE("matrix products equal the CPU's") {
  check_family("matmul");
}
TEST_CASE("scans along a dimension equal the CPU's") {
  check_family("scan");
}
TEST_CASE("convolutions and sums of channels equal the CPU's") {
  check_family("conv");
}
TEST_CASE("pools equal the CPU's") {
  check_family("pool");
}
TEST_CASE("lookups equal the CPU's") {
  check_family("lookup");
}
TEST_CASE("attention equals the CPU's") {
  check_family("attention");
}
TEST_CASE("heads with their losses equal the CPU's") {
  check_family("head");
}
TEST_CASE("recurrent cells equal the CPU's") {
  check_family("rnn");
}
TEST_CASE("random bits and dropout have the CPU's bits") {
  check_family("random");
}
TEST_CASE("warps equal the CPU's") {
  check_family("warp");
}
TEST_CASE("optimizers equal the CPU's") {
  check_family("optimizer");
}
TEST_CASE("collectives equal the CPU's") {
  check_family("combine");
}
TEST_CASE("rows equal the CPU's") {
  check_family("rows");
}
TEST_CASE("rows on the CPU have the bits of their steps" * doctest::test_suite("host")) {
  std::vector<KernelCase> specs;
  for (const SpecFamily& family : spec_families()) {
    if (family.name == "rows")
      specs = family.specs();
  }
  const Image image(specs);
  const std::vector<std::byte> together = run_cpu(specs, image);
  int fused = 0;
  for (size_t s = 0; s < specs.size(); ++s) {
    StepScratch scratch;
    cpu::CpuLowering lowering(scratch);
    lowering.lower(specs[s].lowered(image.pointers(s, nullptr)));
    fused += lowering.take().size() == 1 ? 1 : 0;
  }
  CHECK(fused > 50);
  for (KernelCase& spec : specs)
    spec.make = spec.make_apart;
  compare_bits(specs, image, run_cpu(specs, image), together, "apart");
}
TEST_CASE("random views are read and written as on the CPU") {
  check_family("view");
}
TEST_SUITE_END();

}  // namespace
}  // namespace meshtrain::test
