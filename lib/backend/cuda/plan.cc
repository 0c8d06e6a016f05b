#include "backend/cuda/plan.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

struct Meeting {
  explicit Meeting(const Core& core) {
    core.check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~Meeting() { cudaEventDestroy(event); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  cudaEvent_t event = nullptr;
};

// The same calls, one after the other (--no-cuda-graph), but for those that communicate: they are
// on a stream of their own, behind what was enqueued before them, and only what needs them waits.
class StreamPlan final : public gpu::Plan {
 public:
  StreamPlan(Core& core, std::shared_ptr<const Prepared> prepared, std::vector<gpu::Window> windows,
             int first, int steps)
      : core_(core),
        prepared_(std::move(prepared)),
        windows_(std::move(windows)),
        first_(first),
        steps_(steps),
        ready_(core),
        arrived_(core) {}

  void run() override {
    core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
    core_.follow_copies();
    core_.traffic.add(prepared_->traffic(), steps_);
    for (int step = first_; step < first_ + steps_; ++step) {
      const Shift shift(windows_, step);
      int last = -1, waited = -1;  // of what communicated
      for (size_t call = 0; call < prepared_->num_calls(); ++call) {
        if (prepared_->communicates(call)) {
          hand_over(ready_, core_.work, core_.messages);
          prepared_->enqueue(call, shift, core_.messages);
          last = static_cast<int>(call);
          continue;
        }
        const std::vector<int>& after = prepared_->after(call);
        if (std::any_of(after.begin(), after.end(), [&](int before) {
              return before > waited && prepared_->communicates(static_cast<size_t>(before));
            })) {
          hand_over(arrived_, core_.messages, core_.work);
          waited = last;
        }
        prepared_->enqueue(call, shift, core_.work);
      }
      if (last > waited)
        hand_over(arrived_, core_.messages, core_.work);
    }
  }

 private:
  // What is enqueued on `to` from now on comes behind all that is on `from`.
  void hand_over(const Meeting& meeting, cudaStream_t from, cudaStream_t to) {
    core_.check(cudaEventRecord(meeting.event, from), "cudaEventRecord");
    core_.check(cudaStreamWaitEvent(to, meeting.event, cudaEventWaitDefault),
                "cudaStreamWaitEvent");
  }

  Core& core_;
  std::shared_ptr<const Prepared> prepared_;
  std::vector<gpu::Window> windows_;
  int first_, steps_;
  Meeting ready_, arrived_;
};

using Nodes = std::vector<cudaGraphNode_t>;

// Calls become nodes by capturing each by itself, behind the nodes of those it comes after.
class GraphBuilder {
 public:
  explicit GraphBuilder(Core& core) : core_(core) {
    core_.check(cudaGraphCreate(&graph_, 0), "cudaGraphCreate");
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) {
      cudaGraphDestroy(graph_);
      core_.check(cudaGetLastError(), "cudaStreamCreateWithFlags");
    }
  }
  ~GraphBuilder() {
    cudaStreamDestroy(stream_);
    cudaGraphDestroy(graph_);
  }
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // All calls, the first of them behind `before`; returns what the next step comes after.
  Nodes add_step(const Prepared& prepared, const Shift& shift, const Nodes& before) {
    std::vector<Nodes> ends;
    for (size_t call = 0; call < prepared.num_calls(); ++call) {
      Nodes after;
      for (const int earlier : prepared.after(call))
        add_all(after, ends[static_cast<size_t>(earlier)]);
      if (prepared.after(call).empty())
        after = before;
      const auto enqueue = [&] { prepared.enqueue(call, shift, stream_); };
      ends.push_back(prepared.communicates(call) ? capture_in_order(after, enqueue)
                                                 : capture(after, enqueue));
    }
    Nodes last;
    for (const int call : prepared.last_calls())
      add_all(last, ends[static_cast<size_t>(call)]);
    if (last.size() < 2)
      return last;
    cudaGraphNode_t meeting = nullptr;
    core_.check(cudaGraphAddEmptyNode(&meeting, graph_, last.data(), last.size()),
                "cudaGraphAddEmptyNode");
    return {meeting};
  }

  cudaGraphExec_t instantiate() {
    cudaGraphExec_t result = nullptr;
    core_.check(cudaGraphInstantiate(&result, graph_, 0), "cudaGraphInstantiate");
    return result;
  }

 private:
  static void add_all(Nodes& to, const Nodes& nodes) {
    for (const cudaGraphNode_t node : nodes) {
      if (std::find(to.begin(), to.end(), node) == to.end())
        to.push_back(node);
    }
  }

  // Relaxed: libraries may load a kernel meanwhile. Nothing of this process uses another stream.
  template <class Enqueue>
  Nodes capture(const Nodes& after, const Enqueue& enqueue) {
    core_.check(cudaStreamBeginCaptureToGraph(stream_, graph_, after.data(), nullptr, after.size(),
                                              cudaStreamCaptureModeRelaxed),
                "cudaStreamBeginCaptureToGraph");
    cudaGraph_t same = nullptr;
    Nodes result;
    try {
      enqueue();
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      const cudaGraphNode_t* nodes = nullptr;
      // Libraries may let kernels begin before others end; whoever comes next waits for the end.
      const cudaGraphEdgeData* ignored = nullptr;
      size_t count = 0;
      core_.check(
          cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, &ignored, &count),
          "cudaStreamGetCaptureInfo");
      if (status == cudaStreamCaptureStatusActive)
        result.assign(nodes, nodes + count);
    } catch (...) {
      cudaStreamEndCapture(stream_, &same);
      cudaGetLastError();
      throw;
    }
    core_.check(cudaStreamEndCapture(stream_, &same),
                "cudaStreamEndCapture (--no-cuda-graph runs the same calls without a graph)");
    return result;
  }

  Nodes roots() const {
    size_t count = 0;
    core_.check(cudaGraphGetRootNodes(graph_, nullptr, &count), "cudaGraphGetRootNodes");
    Nodes result(count);
    core_.check(cudaGraphGetRootNodes(graph_, result.data(), &count), "cudaGraphGetRootNodes");
    return result;
  }

  // NCCL captures calls of the host that tell its network threads what to send. They come behind
  // nothing but such calls captured at the same time, and each capture here is one by itself; in
  // another order than on the other side messages would be mixed up.
  template <class Enqueue>
  Nodes capture_in_order(const Nodes& after, const Enqueue& enqueue) {
    const Nodes known = roots();
    Nodes result = capture(after, enqueue);
    for (const cudaGraphNode_t root : roots()) {
      if (std::find(known.begin(), known.end(), root) != known.end())
        continue;
      for (const cudaGraphNode_t before : after) {
        core_.check(cudaGraphAddDependencies(graph_, &before, &root, nullptr, 1),
                    "cudaGraphAddDependencies");
      }
    }
    return result;
  }

  Core& core_;
  cudaGraph_t graph_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

class GraphPlan final : public gpu::Plan {
 public:
  GraphPlan(Core& core, std::shared_ptr<const Prepared> prepared,
            std::span<const gpu::Window> windows, int first, int steps)
      : core_(core), prepared_(std::move(prepared)), steps_(steps) {
    GraphBuilder builder(core);
    Nodes before;
    for (int step = first; step < first + steps; ++step)
      before = builder.add_step(*prepared_, Shift(windows, step), before);
    graph_ = builder.instantiate();
    const cudaError_t status = cudaGraphUpload(graph_, core.work);
    if (status != cudaSuccess) {
      cudaGraphExecDestroy(graph_);
      core.check(status, "cudaGraphUpload");
    }
  }
  ~GraphPlan() override {
    try {
      core_.wait_for(core_.work);  // it may be running
    } catch (const Error&) {
      // Whoever waits for results was told, or will be.
    }
    cudaGraphExecDestroy(graph_);
  }

  void run() override {
    core_.check(cudaSetDevice(core_.index), "cudaSetDevice");
    core_.follow_copies();
    core_.traffic.add(prepared_->traffic(), steps_);
    core_.check(cudaGraphLaunch(graph_, core_.work), "cudaGraphLaunch");
  }

 private:
  Core& core_;
  std::shared_ptr<const Prepared> prepared_;
  int steps_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<gpu::Plan> Planner::make(const std::vector<gpu::Command>& commands,
                                         const std::vector<gpu::Window>& windows, int first,
                                         int steps) {
  for (const gpu::Window& window : windows) {
    if (window.bytes != 0 && reinterpret_cast<uint64_t>(window.begin) >> 40 == 0) {
      makers_.core.fail(
          "the driver gives addresses below 2^40 (WSL?), which this build cannot use; `devices: "
          "cpu` computes without the GPU");
    }
  }
  const std::string text = fingerprint(commands);
  std::weak_ptr<const Prepared>& known = prepared_[checksum128(std::as_bytes(std::span(text)))];
  std::shared_ptr<const Prepared> prepared = known.lock();
  if (prepared == nullptr)
    known = prepared = std::make_shared<const Prepared>(makers_, commands);
  Core& core = makers_.core;
  if (!core.options.use_graph)
    return std::make_unique<StreamPlan>(core, std::move(prepared), windows, first, steps);
  return std::make_unique<GraphPlan>(core, std::move(prepared), windows, first, steps);
}

}  // namespace meshtrain::cuda
