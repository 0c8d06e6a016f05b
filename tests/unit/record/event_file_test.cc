// Event files, byte by byte and as protocol buffers read them back.
#include "record/tensorboard/event_file.h"

#include <doctest/doctest.h>
#include <event.pb.h>

#include <cstring>

#include "base/checksum.h"
#include "support/golden.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

uint32_t crc_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)));
}

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof(T));
  return out;
}

// The events of a file; every length and checksum must be right.
std::vector<tensorboard::Event> read_events(const std::string& bytes) {
  const auto masked = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; };
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; at < bytes.size();) {
    REQUIRE(bytes.size() - at > 16);
    const auto length = number_at<uint64_t>(bytes, at);
    REQUIRE(bytes.size() - at >= length + 16);
    const std::string payload = bytes.substr(at + 12, length);
    CHECK(number_at<uint32_t>(bytes, at + 8) == masked(crc_of(bytes.substr(at, 8))));
    CHECK(number_at<uint32_t>(bytes, at + 12 + length) == masked(crc_of(payload)));
    REQUIRE(events.emplace_back().ParseFromString(payload));
    at += length + 16;
  }
  return events;
}

// One of everything.
std::string sample_file(const test::TempFolder& folder) {
  double time = 1e9;
  EventFile file(
      folder.file("events"), [&time] { return time += 0.5; },
      [](const std::string& message) { FAIL_CHECK(message); });
  file.graph({{.name = "x", .op = "Input", .inputs = {}, .output_shape = {kUnknownDim, 3}},
              {.name = "block/d1",
               .op = "Dense",
               .inputs = {"x"},
               .output_shape = {kUnknownDim, 4},
               .attributes = {{"parameters", "16"}}}});
  file.text("keras", "graph_keras_model", R"({"class_name": "Sequential"})");
  file.text("config", "text", "a *b*");
  file.scalar("epoch_loss", 0.1, 0);
  file.scalar("epoch_loss", -1.5, 300);
  file.histogram("d1/kernel/histogram", tensor_of<float>(DType::kFloat32, {6}, {0, 1, 2, 2, 3, 30}),
                 7);
  file.histogram("d1/bias/histogram", tensor_of<double>(DType::kFloat64, {2}, {0.25, 0.25}), 7);
  const std::string bytes = folder.read("events");
  CHECK(file.size() == static_cast<int64_t>(bytes.size()));
  return bytes;
}

TEST_CASE("the checksum is that of RFC 3720") {
  CHECK(crc_of("") == 0);
  CHECK(crc_of("123456789") == 0xe3069283u);
  CHECK(crc_of(std::string(32, '\0')) == 0x8a9136aau);
  CHECK(crc_of(std::string(32, '\xff')) == 0x62a8ab43u);
}

TEST_CASE("event files keep their bytes") {
  const test::TempFolder folder;
  test::check_golden("tensorboard/events", sample_file(folder));
}

TEST_CASE("what was written to an event file is read back") {
  const test::TempFolder folder;
  const std::vector<tensorboard::Event> events = read_events(sample_file(folder));
  REQUIRE(events.size() == 8);
  CHECK(events[0].file_version() == "brain.Event:2");
  CHECK(events[0].wall_time() == 1e9 + 0.5);
  tensorboard::GraphDef graph;
  REQUIRE(graph.ParseFromString(events[1].graph_def()));
  REQUIRE(graph.node_size() == 2);
  const tensorboard::NodeDef& node = graph.node(1);
  CHECK(node.name() == "block/d1");
  CHECK(node.op() == "Dense");
  CHECK(node.input(0) == "x");
  REQUIRE(node.attr_size() == 2);
  CHECK(node.attr(0).key() == "_output_shapes");
  CHECK(node.attr(0).value().list().shape(0).dim(0).size() == -1);
  CHECK(node.attr(0).value().list().shape(0).dim(1).size() == 4);
  CHECK(node.attr(1).value().s() == "16");
  const tensorboard::Summary::Value& model = events[2].summary().value(0);
  CHECK(model.tag() == "keras");
  CHECK(model.metadata().plugin_data().plugin_name() == "graph_keras_model");
  CHECK(model.tensor().string_val(0) == R"({"class_name": "Sequential"})");
  CHECK(events[3].summary().value(0).metadata().plugin_data().plugin_name() == "text");
  CHECK(events[4].summary().value(0).simple_value() == 0.1f);
  CHECK(events[5].step() == 300);
  CHECK(events[5].summary().value(0).tag() == "epoch_loss");
}

TEST_CASE("histograms have thirty intervals and count every finite value once") {
  const test::TempFolder folder;
  const std::vector<tensorboard::Event> events = read_events(sample_file(folder));
  const tensorboard::HistogramProto& histogram = events[6].summary().value(0).histo();
  CHECK(events[6].step() == 7);
  CHECK(histogram.min() == 0);
  CHECK(histogram.max() == 30);
  CHECK(histogram.num() == 6);
  CHECK(histogram.sum() == 38);
  CHECK(histogram.sum_squares() == 918);
  REQUIRE(histogram.bucket_size() == 30);
  REQUIRE(histogram.bucket_limit_size() == 30);
  CHECK(histogram.bucket_limit(0) == 1);
  CHECK(histogram.bucket_limit(29) == 30);
  CHECK(histogram.bucket(0) == 1);
  CHECK(histogram.bucket(1) == 1);
  CHECK(histogram.bucket(2) == 2);
  CHECK(histogram.bucket(3) == 1);
  CHECK(histogram.bucket(29) == 1);
  const tensorboard::HistogramProto& equal = events[7].summary().value(0).histo();
  REQUIRE(equal.bucket_size() == 1);
  CHECK(equal.bucket_limit(0) == 0.25);
  CHECK(equal.bucket(0) == 2);
}

TEST_CASE("values that are not finite are left out of histograms") {
  const test::TempFolder folder;
  {
    EventFile file(
        folder.file("events"), [] { return 0.0; }, [](const std::string&) {});
    file.histogram("w", tensor_of<double>(DType::kFloat32, {3}, {1, NAN, INFINITY}), 0);
    file.histogram("none", tensor_of<double>(DType::kFloat32, {1}, {NAN}), 0);
  }
  const std::vector<tensorboard::Event> events = read_events(folder.read("events"));
  REQUIRE(events.size() == 3);
  CHECK(events[1].summary().value(0).histo().num() == 1);
  CHECK(events[1].summary().value(0).histo().max() == 1);
  CHECK(events[2].summary().value(0).histo().num() == 0);
}

}  // namespace
}  // namespace meshtrain
