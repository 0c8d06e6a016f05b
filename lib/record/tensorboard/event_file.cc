#include "record/tensorboard/event_file.h"

#include <event.pb.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checksum.h"

namespace meshtrain {
namespace {

namespace tb = tensorboard;

constexpr int kBuckets = 30;
// The version of TensorFlow's graphs from which on a node has its default attributes.
constexpr int kGraphProducer = 22;

// TensorFlow masks checksums that are stored beside what they are of (core/lib/hash/crc32c.h).
uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
void append_little_endian(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out += static_cast<char>((value >> (8 * i)) & 0xff);
  }
}

tb::Event new_event(double time, int64_t step) {
  tb::Event event;
  event.set_wall_time(time);
  event.set_step(step);
  return event;
}

void fill_shape(const Shape& shape, tb::TensorShapeProto& out) {
  for (const int64_t size : shape) {
    out.add_dim()->set_size(size == kUnknownDim ? -1 : size);
  }
}

void fill_histogram(const HostTensor& values, tb::HistogramProto& out) {
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (int64_t i = 0; i < values.size(); ++i) {
    const double value = values.at(i);
    if (std::isfinite(value)) {
      least = std::min(least, value);
      most = std::max(most, value);
      out.set_num(out.num() + 1);
      out.set_sum(out.sum() + value);
      out.set_sum_squares(out.sum_squares() + value * value);
    }
  }
  if (out.num() == 0) {
    least = most = 0;
  }
  out.set_min(least);
  out.set_max(most);
  const int count = most > least ? kBuckets : 1;
  for (int b = 0; b < count; ++b) {
    out.add_bucket_limit(b + 1 == count ? most : least + (most - least) * (b + 1) / count);
    out.add_bucket(0);
  }
  for (int64_t i = 0; i < values.size(); ++i) {
    const double value = values.at(i);
    if (std::isfinite(value)) {
      const double place = most > least ? (value - least) / (most - least) * count : 0;
      const int bucket = std::min(static_cast<int>(place), count - 1);
      out.set_bucket(bucket, out.bucket(bucket) + 1);
    }
  }
}

void fill_node(const EventGraphNode& node, tb::NodeDef& out) {
  out.set_name(node.name);
  out.set_op(node.op);
  for (const std::string& input : node.inputs) {
    out.add_input(input);
  }
  const auto attribute = [&out](const std::string& key) {
    tb::NodeDef::Attr& entry = *out.add_attr();
    entry.set_key(key);
    return entry.mutable_value();
  };
  fill_shape(node.output_shape, *attribute("_output_shapes")->mutable_list()->add_shape());
  for (const auto& [key, value] : node.attributes) {
    attribute(key)->set_s(value);
  }
}

}  // namespace

EventFile::EventFile(std::string path, WallClock now, LineLog::OnTrouble on_trouble)
    : now_(std::move(now)), log_(std::move(path), std::move(on_trouble)) {
  tb::Event event = new_event(now_(), 0);
  event.set_file_version("brain.Event:2");
  write(event.SerializeAsString());
}

void EventFile::scalar(const std::string& tag, double value, int64_t step) {
  tb::Event event = new_event(now_(), step);
  tb::Summary::Value& out = *event.mutable_summary()->add_value();
  out.set_tag(tag);
  out.set_simple_value(static_cast<float>(value));
  write(event.SerializeAsString());
}

void EventFile::histogram(const std::string& tag, const HostTensor& values, int64_t step) {
  tb::Event event = new_event(now_(), step);
  tb::Summary::Value& out = *event.mutable_summary()->add_value();
  out.set_tag(tag);
  fill_histogram(values, *out.mutable_histo());
  write(event.SerializeAsString());
}

void EventFile::graph(const std::vector<EventGraphNode>& nodes) {
  tb::GraphDef graph;
  graph.mutable_versions()->set_producer(kGraphProducer);
  for (const EventGraphNode& node : nodes) {
    fill_node(node, *graph.add_node());
  }
  tb::Event event = new_event(now_(), 0);
  event.set_graph_def(graph.SerializeAsString());
  write(event.SerializeAsString());
}

void EventFile::text(const std::string& tag, const std::string& plugin, const std::string& text) {
  tb::Event event = new_event(now_(), 0);
  tb::Summary::Value& out = *event.mutable_summary()->add_value();
  out.set_tag(tag);
  tb::SummaryMetadata::PluginData& data = *out.mutable_metadata()->mutable_plugin_data();
  data.set_plugin_name(plugin);
  data.set_content(plugin == "graph_keras_model" ? "1" : "");  // the version of its content
  tb::TensorProto& tensor = *out.mutable_tensor();
  tensor.set_dtype(tb::DT_STRING);
  tensor.mutable_tensor_shape();  // a scalar
  tensor.add_string_val(text);
  write(event.SerializeAsString());
}

void EventFile::write(const std::string& event) {
  std::string record;
  append_little_endian(record, static_cast<uint64_t>(event.size()));
  append_little_endian(record, masked_crc32c(record));
  record += event;
  append_little_endian(record, masked_crc32c(event));
  log_.write(record);
}

}  // namespace meshtrain
