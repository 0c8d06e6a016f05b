// Captures and graphs of the fake driver. The nodes of a graph run in any order that its edges
// allow.
#include <algorithm>

#include "support/fake_cuda/exports.h"

namespace meshtrain::fake_cuda {
namespace {

CUgraphNode handle_of(Node* node) {
  return reinterpret_cast<CUgraphNode>(node);
}

Node* node_of(const Graph& graph, CUgraphNode handle) {
  for (const auto& node : graph.nodes) {
    if (handle_of(node.get()) == handle)
      return node.get();
  }
  refuse(CUDA_ERROR_INVALID_VALUE, "a node that is not of this graph");
}

std::vector<Node*> nodes_of(const Graph& graph, const CUgraphNode* handles, size_t count) {
  std::vector<Node*> nodes;
  for (size_t i = 0; i < count; ++i)
    nodes.push_back(node_of(graph, handles[i]));
  return nodes;
}

bool comes_after(const Node* node, const Node* other) {
  return node == other ||
         std::any_of(node->after.begin(), node->after.end(),
                     [&](const Node* before) { return comes_after(before, other); });
}

// One run of a graph: a unit of one node at a time.
class Run {
 public:
  explicit Run(const GraphExec& exec)
      : steps_(exec.steps), missing_(steps_.size()), works_(steps_.size()) {
    for (size_t i = 0; i < steps_.size(); ++i) {
      missing_[i] = steps_[i].after.size();
      if (missing_[i] == 0)
        ready_.push_back(i);
    }
  }

  // Where a node waits for another device, others run meanwhile.
  Outcome step() {
    const size_t first = seed() == 0 || ready_.empty() ? 0 : draw() % ready_.size();
    for (size_t tried = 0; tried < ready_.size(); ++tried) {
      const size_t place = (first + tried) % ready_.size(), node = ready_[place];
      if (works_[node] == nullptr)
        works_[node] = steps_[node].start();
      const Outcome outcome = run(node);
      if (outcome == Outcome::kWaits)
        continue;
      if (outcome == Outcome::kDone)
        end(place);
      return ready_.empty() ? Outcome::kDone : Outcome::kGoesOn;
    }
    return ready_.empty() ? Outcome::kDone : Outcome::kWaits;
  }

 private:
  Outcome run(size_t node) {
    try {
      return works_[node]();
    } catch (const Refusal& refusal) {
      refuse(refusal.code, "{}: {}", steps_[node].what, refusal.text);
    }
  }

  void end(size_t place) {
    const size_t node = ready_[place];
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(place));
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (std::count(steps_[i].after.begin(), steps_[i].after.end(), node) > 0 &&
          --missing_[i] == 0)
        ready_.push_back(i);
    }
  }

  std::vector<GraphExec::Step> steps_;  // a copy: the graph may be destroyed
  std::vector<size_t> missing_, ready_;
  std::vector<Work> works_;
};

std::unique_ptr<GraphExec> instantiate(const Graph& graph) {
  auto exec = std::make_unique<GraphExec>();
  exec->device = &current_device();
  std::map<const Node*, size_t> places;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    places[graph.nodes[i].get()] = i;
  for (const auto& node : graph.nodes) {
    std::vector<size_t> after;
    for (const Node* before : node->after)
      after.push_back(places.at(before));
    exec->steps.push_back({node->what, node->start, after});
  }
  return exec;
}

// All captures into one graph have one id: NCCL fails on a real driver as if it were so.
void begin_capture(Stream& stream, Graph& graph, const std::vector<Node*>& after, bool is_own) {
  if (graph.capture_id == 0)
    graph.capture_id = ++state().captures;
  auto capture = std::make_shared<Capture>();
  capture->graph = &graph;
  capture->is_own_graph = is_own;
  capture->origin = &stream;
  capture->streams = {&stream};
  capture->id = graph.capture_id;
  stream.frontier = after;
  stream.capture = std::move(capture);
}

CUgraph handle_of(const Graph* graph) {
  for (auto& [name, known] : state().graphs) {
    if (known.get() == graph)
      return name;
  }
  return nullptr;
}

bool is_in_capture(const Graph& graph) {
  return std::any_of(state().streams.begin(), state().streams.end(), [&](const auto& stream) {
    return stream.second->capture != nullptr && stream.second->capture->graph == &graph;
  });
}

}  // namespace
}  // namespace meshtrain::fake_cuda

using namespace meshtrain::fake_cuda;

MESHTRAIN_FAKE cuGraphCreate(CUgraph* out, unsigned flags) {
  return call("cuGraphCreate", [&] {
    if (flags != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "flags {}", flags);
    *out = state().graphs.add(std::make_unique<Graph>());
  });
}
MESHTRAIN_FAKE cuGraphDestroy(CUgraph handle) {
  return call("cuGraphDestroy", [&] {
    if (is_in_capture(state().graphs.get(handle)))
      refuse(CUDA_ERROR_INVALID_VALUE, "a stream captures into it");
    state().graphs.take(handle);
  });
}
MESHTRAIN_FAKE cuGraphAddEmptyNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* after,
                                   size_t count) {
  return call("cuGraphAddEmptyNode", [&] {
    Graph& graph = state().graphs.get(handle);
    auto node = std::make_unique<Node>();
    node->what = "an empty node";
    node->start = at_once([] {});
    for (Node* before : nodes_of(graph, after, count))
      node->after.insert(before);
    *out = handle_of(node.get());
    graph.nodes.push_back(std::move(node));
  });
}
MESHTRAIN_FAKE cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode* from,
                                         const CUgraphNode* to, const CUgraphEdgeData*,
                                         size_t count) {
  return call("cuGraphAddDependencies", [&] {
    const Graph& graph = state().graphs.get(handle);
    const std::vector<Node*> first = nodes_of(graph, from, count),
                             second = nodes_of(graph, to, count);
    for (size_t i = 0; i < count; ++i) {
      if (comes_after(first[i], second[i]))
        refuse(CUDA_ERROR_INVALID_VALUE, "a cycle");
      if (!second[i]->after.insert(first[i]).second)
        refuse(CUDA_ERROR_INVALID_VALUE, "the edge is there already");
    }
  });
}
MESHTRAIN_FAKE cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle,
                                           unsigned long long flags) {
  return call("cuGraphInstantiate", [&] {
    const Graph& graph = state().graphs.get(handle);
    if (is_in_capture(graph) || flags != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, "a stream captures into it, or flags {}", flags);
    *out = state().execs.add(instantiate(graph));
  });
}
MESHTRAIN_FAKE cuGraphUpload(CUgraphExec handle, CUstream stream_handle) {
  return call("cuGraphUpload", [&] {
    Stream& stream = stream_of(stream_handle);
    refuse_in_capture(stream);
    state().execs.get(handle).is_uploaded = true;
    enqueue(stream, "cuGraphUpload", at_once([] {}));
  });
}
MESHTRAIN_FAKE cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  return call("cuGraphLaunch", [&] {
    Stream& stream = stream_of(stream_handle);
    refuse_in_capture(stream);
    GraphExec& exec = state().execs.get(handle);
    if (exec.device != stream.device)
      refuse(CUDA_ERROR_INVALID_VALUE, "a graph of another device");
    const std::shared_ptr<Op> before = exec.last_run;
    enqueue(
        stream, "cuGraphLaunch",
        [&]() -> Work { return [run = std::make_shared<Run>(exec)] { return run->step(); }; },
        before == nullptr || before->is_done ? nullptr : before);
    exec.last_run = stream.last;
  });
}
MESHTRAIN_FAKE cuGraphExecDestroy(CUgraphExec handle) {
  return call("cuGraphExecDestroy", [&] {
    const std::shared_ptr<Op> run = state().execs.get(handle).last_run;
    // What waits for another process is given up when that one fails: CUDA frees the graph later.
    if (run != nullptr && !run->is_done)
      add_problem_unless_aborted("cuGraphExecDestroy: nobody waited for its run");
    state().execs.take(handle);
  });
}

MESHTRAIN_FAKE cuStreamBeginCapture_v2(CUstream stream_handle, CUstreamCaptureMode) {
  return call("cuStreamBeginCapture", [&] {
    Stream& stream = stream_of(stream_handle);
    refuse_in_capture(stream);
    begin_capture(stream, state().graphs.get(state().graphs.add(std::make_unique<Graph>())), {},
                  true);
  });
}
MESHTRAIN_FAKE cuStreamBeginCaptureToGraph(CUstream stream_handle, CUgraph handle,
                                           const CUgraphNode* after, const CUgraphEdgeData* edges,
                                           size_t count, CUstreamCaptureMode) {
  return call("cuStreamBeginCaptureToGraph", [&] {
    Stream& stream = stream_of(stream_handle);
    refuse_in_capture(stream);
    Graph& graph = state().graphs.get(handle);
    if (edges != nullptr || is_in_capture(graph))
      refuse(CUDA_ERROR_INVALID_VALUE, "edges with data, or a graph that is captured into");
    begin_capture(stream, graph, nodes_of(graph, after, count), false);
  });
}
MESHTRAIN_FAKE cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                                    const CUgraphEdgeData* edges, size_t count,
                                                    unsigned flags) {
  return call("cuStreamUpdateCaptureDependencies", [&] {
    Stream& stream = stream_of(handle);
    if (stream.capture == nullptr)
      refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
    if (edges != nullptr || flags != CU_STREAM_SET_CAPTURE_DEPENDENCIES)
      refuse(CUDA_ERROR_INVALID_VALUE, "edges with data, or flags {}", flags);
    stream.frontier = nodes_of(*stream.capture->graph, nodes, count);
  });
}
MESHTRAIN_FAKE cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                         cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                         const CUgraphEdgeData** edges, size_t* count) {
  return call("cuStreamGetCaptureInfo", [&] {
    Stream& stream = state().streams.get(handle);
    *status = stream.capture == nullptr         ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream.capture->problem.empty() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    if (stream.capture == nullptr)
      return;
    if (id != nullptr)
      *id = stream.capture->id;
    if (graph != nullptr)
      *graph = handle_of(stream.capture->graph);
    stream.reported.clear();
    for (Node* node : stream.frontier)
      stream.reported.push_back(handle_of(node));
    if (nodes != nullptr)
      *nodes = stream.reported.data();
    if (edges != nullptr)
      *edges = nullptr;
    if (count != nullptr)
      *count = stream.reported.size();
  });
}
MESHTRAIN_FAKE cuStreamEndCapture(CUstream handle, CUgraph* out) {
  return call("cuStreamEndCapture", [&] {
    Stream& stream = stream_of(handle);
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture == nullptr)
      refuse(CUDA_ERROR_ILLEGAL_STATE, "the stream is not capturing");
    if (capture->origin != &stream)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began on another stream");
    // All that other streams did must have come back to this one.
    bool is_joined = true;
    for (Stream* other : capture->streams) {
      for (const Node* node : other->frontier) {
        is_joined =
            is_joined && std::any_of(stream.frontier.begin(), stream.frontier.end(),
                                     [&](const Node* last) { return comes_after(last, node); });
      }
      if (other != &stream) {
        other->capture = nullptr;
        other->frontier.clear();
      }
    }
    stream.capture = nullptr;
    stream.frontier.clear();
    *out = nullptr;
    const CUgraph graph = handle_of(capture->graph);
    const bool is_lost = !is_joined || !capture->problem.empty();
    if (is_lost && capture->is_own_graph)
      state().graphs.take(graph);
    if (!is_joined)
      refuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream of the capture was not joined");
    if (is_lost)
      throw Failure{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
    *out = graph;
  });
}
