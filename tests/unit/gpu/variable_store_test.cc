// Variables in the memory of a device, written and read by the host.
#include <cstring>

#include "exec/executor.h"
#include "gpu_device.h"
#include "support/memory_meter.h"

namespace meshtrain {
namespace {

Variable variable(const std::string& path, Shape shape, Sharding layout) {
  Variable out;
  out.path = path;
  out.shape = std::move(shape);
  out.layout.storage = std::move(layout);
  return out;
}

HostTensor counted(const Shape& shape) {
  HostTensor out(DType::kFloat32, shape);
  for (int64_t i = 0; i < out.size(); ++i)
    out.data<float>()[i] = static_cast<float>(i % 65536);
  return out;
}

TEST_CASE("a device's variables are read as they were written however they are split") {
  const std::shared_ptr<gpu::Device> device = test::open_test_device();
  if (device == nullptr)
    return;
  VariableStore store(DeviceMesh({2, 3}, {"data", "model"}),
                      {variable("replicated", {6, 4}, Sharding::replicated(2)),
                       variable("rows", {6, 4}, {{{0, 1}, {}}, 0, {}}),
                       variable("columns", {4, 6}, {{{}, {0}}, 0, {}}),
                       variable("both", {6, 4}, {{{1}, {0}}, 0, {}}),
                       variable("scalar", {}, Sharding::replicated(0)),
                       variable("empty", {0, 4}, Sharding::replicated(2))},
                      device);
  for (int v = 0; v < static_cast<int>(store.variables().size()); ++v) {
    CAPTURE(store.variables()[v].path);
    const HostTensor value = counted(store.variables()[v].shape);
    store.write(v, value);
    const HostTensor back = store.read(v);
    CHECK(back.shape() == value.shape());
    CHECK(std::memcmp(back.bytes(), value.bytes(), value.num_bytes()) == 0);
  }
}

TEST_CASE("a process writes the rows of a variable that it has to its device") {
  const std::shared_ptr<gpu::Device> device = test::open_test_device();
  if (device == nullptr)
    return;
  VariableStore store(MeshPart(DeviceMesh({2}, {"data"}), 2, 1),
                      {variable("rows", {6, 4}, {{{0}, {}}, 0, {}})}, device);
  const HostTensor value = counted({6, 4});
  store.write(0, value);
  HostTensor own(DType::kFloat32, {3, 4});
  store.copy_shards(0, own.bytes());
  CHECK(std::memcmp(own.bytes(), value.bytes() + own.num_bytes(), own.num_bytes()) == 0);
}

TEST_CASE("reading a device's variable takes memory for the result alone") {
  const std::shared_ptr<gpu::Device> device = test::open_test_device();
  if (device == nullptr)
    return;
  const Shape shape = {4096, 4096};
  const size_t bytes = size_t{4} * 4096 * 4096;
  VariableStore store(DeviceMesh({4}, {"data"}),
                      {variable("replicated", shape, Sharding::replicated(2)),
                       variable("rows", shape, {{{0}, {}}, 0, {}})},
                      device);
  for (const int v : {0, 1}) {
    CAPTURE(v);
    store.write(v, counted(shape));
    const test::MemoryMeter memory;
    const HostTensor back = store.read(v);
    CHECK(back.at(70000) == 70000 % 65536);
    // compute-sanitizer takes memory of its own.
    if (std::getenv("MESHTRAIN_SLOW") == nullptr)
      CHECK(memory.peak() < bytes + bytes / 2);
  }
}

}  // namespace
}  // namespace meshtrain
