#include "mesh/device_mesh.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

using namespace meshtrain;

namespace {
std::string message_of(const std::vector<int64_t>& shape, const std::vector<std::string>& names,
                       const std::vector<std::string>& devices = {}) {
  try {
    if (devices.empty()) {
      DeviceMesh mesh(shape, names);
    } else {
      DeviceMesh mesh(shape, names, devices);
    }
  } catch (const Error& error) {
    CHECK(error.exit_code() == ExitCode::kMesh);
    return error.what();
  }
  return "no error";
}
bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("DeviceMesh: attributes are those of the guide's 2 x 4 mesh") {
  const DeviceMesh mesh({2, 4}, {"batch", "model"});
  CHECK(mesh.num_axes() == 2);
  CHECK(mesh.num_devices() == 8);
  CHECK(mesh.shape() == std::vector<int64_t>{2, 4});
  CHECK(mesh.axis_names() == std::vector<std::string>{"batch", "model"});
  CHECK(mesh.devices().front() == "cpu:0");
  CHECK(mesh.devices().back() == "cpu:7");
  CHECK(mesh.to_string() == "<DeviceMesh shape=(2, 4), axis_names=['batch', 'model']>");
  CHECK(DeviceMesh({8}, {"batch"}).to_string() == "<DeviceMesh shape=(8,), axis_names=['batch']>");
  CHECK(mesh.coordinate(5, mesh.axis_index("batch")) == 1);
  CHECK(mesh.coordinate(5, mesh.axis_index("model")) == 1);
}

TEST_CASE("DeviceMesh: without arguments it is one device and no axes") {
  const DeviceMesh mesh;
  CHECK(mesh.num_axes() == 0);
  CHECK(mesh.num_devices() == 1);
  CHECK(mesh.index_along(0, {}) == 0);
  CHECK(mesh.group(0, {}) == std::vector<int64_t>{0});
}

TEST_CASE("DeviceMesh: a subset of devices can be given") {
  const DeviceMesh mesh({2}, {"model"}, {"cpu:3", "cpu:1"});
  CHECK(mesh.devices() == std::vector<std::string>{"cpu:3", "cpu:1"});
  CHECK_FALSE(mesh == DeviceMesh({2}, {"model"}));
  CHECK(mesh == DeviceMesh({2}, {"model"}, {"cpu:3", "cpu:1"}));
}

TEST_CASE("DeviceMesh: what cannot be a mesh is refused with both numbers") {
  struct Case {
    std::vector<int64_t> shape;
    std::vector<std::string> names;
    std::vector<std::string> devices;
    std::vector<std::string_view> parts;  // of the message
  };
  const Case cases[] = {
      {{}, {}, {}, {"shape=()", "axis_names=[]"}},
      {{}, {"a"}, {}, {"shape=()", "['a']"}},
      {{2}, {}, {}, {"shape=(2,)", "axis_names=[]"}},
      {{2, 4}, {"a"}, {}, {"one axis name per dimension", "(2, 4)", "['a']"}},
      {{2, 4}, {"a", "a"}, {}, {"'a' occurs twice"}},
      {{2, 0}, {"a", "b"}, {}, {"'b' has size 0"}},
      {{-3}, {"a"}, {}, {"size -3"}},
      {{2}, {""}, {}, {"named ''"}},
      {{2}, {"null"}, {}, {"named 'null'"}},
      {{2}, {"a b"}, {}, {"named 'a b'"}},
      {{int64_t{1} << 40, int64_t{1} << 40}, {"a", "b"}, {}, {"more than 1048576 devices"}},
      {{2, 2}, {"a", "b"}, {"cpu:0", "cpu:1", "cpu:2"}, {"4 devices", "3 were given"}},
      {{2}, {"a"}, {"cpu:0", "cpu:0"}, {"'cpu:0' occurs twice"}},
      {std::vector<int64_t>(17, 1), std::vector<std::string>(17, "a"), {}, {"at most 16"}},
  };
  for (const Case& c : cases) {
    const std::string message = message_of(c.shape, c.names, c.devices);
    for (const std::string_view part : c.parts) {
      CHECK_MESSAGE(contains(message, part), message);
    }
  }
}

TEST_CASE("DeviceMesh.axis_index: an unknown axis names the axes there are") {
  const DeviceMesh mesh({2, 4}, {"batch", "model"});
  CHECK(mesh.find_axis("model") == 1);
  CHECK_FALSE(mesh.find_axis("modle").has_value());
  try {
    mesh.axis_index("modle");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(contains(error.what(), "'modle'"));
    CHECK(contains(error.what(), "['batch', 'model']"));
  }
}

TEST_CASE("DeviceMesh: devices are laid out row-major") {
  const DeviceMesh mesh({2, 3, 4}, {"a", "b", "c"});
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const AxisMask all = 0b111;
    CHECK(mesh.size_of(all) == 24);
    CHECK(mesh.index_along(device, std::vector<int>{0, 1, 2}) == device);
    CHECK(mesh.coordinate(device, 0) * 12 + mesh.coordinate(device, 1) * 4 +
              mesh.coordinate(device, 2) ==
          device);
  }
  CHECK(mesh.size_of(std::vector<int>{2, 0}) == 8);
  CHECK(mesh.size_of(AxisMask{0b101}) == 8);
  // The first axis of a list is the most significant, whatever its place in the mesh.
  CHECK(mesh.index_along(13, std::vector<int>{2, 0}) == 1 * 2 + 1);  // device 13: a=1 b=0 c=1
}

TEST_CASE("DeviceMesh.group: lists devices by index_along and splits the mesh evenly") {
  const DeviceMesh mesh({2, 3, 2, 2}, {"a", "b", "c", "d"});
  const std::vector<std::vector<int>> lists = {{},     {0},       {3},       {1, 2},      {2, 1},
                                               {3, 0}, {0, 1, 2}, {2, 3, 0}, {3, 2, 1, 0}};
  for (const std::vector<int>& axes : lists) {
    std::set<std::vector<int64_t>> groups;
    for (int64_t device = 0; device < mesh.num_devices(); ++device) {
      const std::vector<int64_t> group = mesh.group(device, axes);
      REQUIRE(static_cast<int64_t>(group.size()) == mesh.size_of(axes));
      CHECK(group[mesh.index_along(device, axes)] == device);
      for (size_t i = 0; i < group.size(); ++i) {
        CHECK(mesh.index_along(group[i], axes) == static_cast<int64_t>(i));
        CHECK(mesh.group(group[i], axes) == group);
        for (int other = 0; other < mesh.num_axes(); ++other) {
          const bool is_outside = std::find(axes.begin(), axes.end(), other) == axes.end();
          CHECK(
              (!is_outside || mesh.coordinate(group[i], other) == mesh.coordinate(device, other)));
        }
      }
      groups.insert(group);
    }
    CHECK(static_cast<int64_t>(groups.size()) * mesh.size_of(axes) == mesh.num_devices());
  }
}

TEST_CASE("DeviceMesh: 4096 devices are no trouble") {
  const DeviceMesh mesh({16, 16, 16}, {"data", "pipe", "model"});
  const std::vector<int> axes = {2, 0};
  int64_t sum = 0;
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const std::vector<int64_t> group = mesh.group(device, axes);
    sum += std::accumulate(group.begin(), group.end(), int64_t{0});
  }
  CHECK(sum == 256 * (4096LL * 4095 / 2));
}
