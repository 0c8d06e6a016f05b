// A file of events as TensorBoard reads it: records of protocol buffers (event.proto), each framed
// as in TensorFlow's record_writer.cc:
//
//   uint64 length   uint32 masked CRC-32C of length   length bytes   uint32 masked CRC-32C of those
//
// Each record is written at once, so a reader sees whole ones and a crash loses nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "record/line_log.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// A layer as a node of the graph tab; "/" in names makes groups.
struct EventGraphNode {
  std::string name;
  std::string op;                                               // class of the layer
  std::vector<std::string> inputs;                              // names of nodes before it
  Shape output_shape;                                           // with kUnknownDim for the batch
  std::vector<std::pair<std::string, std::string>> attributes;  // shown beside the node
};

class EventFile {
 public:
  using WallClock = std::function<double()>;  // seconds since 1970

  // Creates `path` with the record that begins each file. Throws FileError (exit 74). Later errors
  // are reported once and do not stop a run (see LineLog).
  EventFile(std::string path, WallClock now, LineLog::OnTrouble on_trouble);

  void scalar(const std::string& tag, double value, int64_t step);
  // Counts of the finite values in 30 intervals of equal width, as tf.summary.histogram has them.
  void histogram(const std::string& tag, const HostTensor& values, int64_t step);
  void graph(const std::vector<EventGraphNode>& nodes);
  // `text` for a plugin: "text" shows Markdown, "graph_keras_model" draws Keras' JSON.
  void text(const std::string& tag, const std::string& plugin, const std::string& text);

  int64_t size() const { return log_.size(); }  // bytes written
  void sync() const { log_.sync(); }            // another thread may call it

 private:
  void write(const std::string& event);

  WallClock now_;
  LineLog log_;
};

}  // namespace meshtrain
