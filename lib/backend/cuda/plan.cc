#include "backend/cuda/plan.h"

#include <algorithm>
#include <span>

#include "backend/cuda/timed_run.h"
#include "base/checksum.h"
#include "base/error.h"

namespace meshtrain::cuda {
namespace {

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
        ready_(core, CU_EVENT_DISABLE_TIMING),
        arrived_(core, CU_EVENT_DISABLE_TIMING) {}

  void run() override {
    core_.make_current();
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

  std::vector<gpu::CallTime> run_timed() override {
    return cuda::run_timed(core_, *prepared_, windows_, first_, steps_);
  }

 private:
  // What is enqueued on `to` from now on comes behind all that is on `from`.
  void hand_over(const EventHandle& joint, CUstream from, CUstream to) {
    core_.check(driver().cuEventRecord(joint.get(), from), "cuEventRecord");
    core_.check(driver().cuStreamWaitEvent(to, joint.get(), CU_EVENT_WAIT_DEFAULT),
                "cuStreamWaitEvent");
  }

  Core& core_;
  std::shared_ptr<const Prepared> prepared_;
  std::vector<gpu::Window> windows_;
  int first_, steps_;
  EventHandle ready_, arrived_;
};

using Nodes = std::vector<CUgraphNode>;

// Calls become nodes behind the nodes of those they come after. All are of ONE capture, whose
// dependencies are set before each call. NCCL keeps the order of a communicator's calls by
// streams of its own, which join a capture once and are known by its id. Where each call was a
// capture into the same graph, they were outside of the second one (driver 580, NCCL 2.28).
class GraphBuilder {
 public:
  // Relaxed: libraries may load a kernel meanwhile. Nothing of this process uses another stream.
  explicit GraphBuilder(Core& core) : core_(core) {
    core_.check(driver().cuStreamBeginCapture_v2(core_.captures, CU_STREAM_CAPTURE_MODE_RELAXED),
                "cuStreamBeginCapture");
    is_capturing_ = true;
  }
  ~GraphBuilder() {
    if (is_capturing_)
      driver().cuStreamEndCapture(core_.captures, &graph_);
    if (graph_ != nullptr)
      driver().cuGraphDestroy(graph_);
  }
  GraphBuilder(const GraphBuilder&) = delete;
  GraphBuilder& operator=(const GraphBuilder&) = delete;

  // All calls, behind those of the step before.
  void add_step(const Prepared& prepared, const Shift& shift) {
    std::vector<Nodes> ends;
    for (size_t call = 0; call < prepared.num_calls(); ++call) {
      Nodes after;
      for (const int earlier : prepared.after(call))
        add_all(after, ends[static_cast<size_t>(earlier)]);
      if (prepared.after(call).empty())
        after = last_;
      continue_behind(std::move(after));
      prepared.enqueue(call, shift, core_.captures);
      ends.push_back(captured());
    }
    Nodes last;
    for (const int call : prepared.last_calls())
      add_all(last, ends[static_cast<size_t>(call)]);
    last_ = last.size() < 2 ? std::move(last) : Nodes{joint(last)};
  }

  CUgraphExec instantiate() {
    continue_behind(last_);  // whatever was captured has come back to the stream
    end_capture();
    CUgraphExec result = nullptr;
    core_.check(driver().cuGraphInstantiateWithFlags(&result, graph_, 0), "cuGraphInstantiate");
    return result;
  }

 private:
  static void add_all(Nodes& to, const Nodes& nodes) {
    for (const CUgraphNode node : nodes) {
      if (std::find(to.begin(), to.end(), node) == to.end())
        to.push_back(node);
    }
  }

  // What is captured next comes behind these nodes and no others.
  void continue_behind(Nodes nodes) {
    core_.check(driver().cuStreamUpdateCaptureDependencies_v2(core_.captures, nodes.data(), nullptr,
                                                              nodes.size(),
                                                              CU_STREAM_SET_CAPTURE_DEPENDENCIES),
                "cuStreamUpdateCaptureDependencies");
  }

  // The nodes that what was captured last ends with.
  Nodes captured() {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUgraphNode* nodes = nullptr;
    // Libraries may let kernels begin before others end; whoever comes next waits for the end.
    const CUgraphEdgeData* ignored = nullptr;
    size_t count = 0;
    core_.check(driver().cuStreamGetCaptureInfo_v3(core_.captures, &status, nullptr, nullptr,
                                                   &nodes, &ignored, &count),
                "cuStreamGetCaptureInfo");
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
      return {nodes, nodes + count};
    end_capture();  // says why
    return {};
  }

  CUgraphNode joint(const Nodes& nodes) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    core_.check(driver().cuStreamGetCaptureInfo_v3(core_.captures, &status, nullptr, &graph,
                                                   nullptr, nullptr, nullptr),
                "cuStreamGetCaptureInfo");
    CUgraphNode result = nullptr;
    core_.check(driver().cuGraphAddEmptyNode(&result, graph, nodes.data(), nodes.size()),
                "cuGraphAddEmptyNode");
    return result;
  }

  void end_capture() {
    is_capturing_ = false;
    core_.check(driver().cuStreamEndCapture(core_.captures, &graph_),
                "cuStreamEndCapture (--no-cuda-graph runs the same calls without a graph)");
  }

  Core& core_;
  CUgraph graph_ = nullptr;  // when the capture has ended
  bool is_capturing_ = false;
  Nodes last_;  // what the next step comes after
};

class GraphPlan final : public gpu::Plan {
 public:
  GraphPlan(Core& core, std::shared_ptr<const Prepared> prepared, std::vector<gpu::Window> windows,
            int first, int steps)
      : core_(core),
        prepared_(std::move(prepared)),
        windows_(std::move(windows)),
        first_(first),
        steps_(steps) {
    GraphBuilder builder(core);
    for (int step = first; step < first + steps; ++step)
      builder.add_step(*prepared_, Shift(windows_, step));
    graph_ = builder.instantiate();
    const CUresult status = driver().cuGraphUpload(graph_, core.work);
    if (status != CUDA_SUCCESS) {
      driver().cuGraphExecDestroy(graph_);
      core.check(status, "cuGraphUpload");
    }
  }
  ~GraphPlan() override {
    try {
      core_.wait_for(core_.work);  // it may be running
    } catch (const Error&) {
      // The error was or will be reported to whoever waits for results.
    }
    driver().cuGraphExecDestroy(graph_);
  }

  void run() override {
    core_.make_current();
    core_.follow_copies();
    core_.traffic.add(prepared_->traffic(), steps_);
    core_.check(driver().cuGraphLaunch(graph_, core_.work), "cuGraphLaunch");
  }

  std::vector<gpu::CallTime> run_timed() override {
    return cuda::run_timed(core_, *prepared_, windows_, first_, steps_);
  }

 private:
  Core& core_;
  std::shared_ptr<const Prepared> prepared_;
  std::vector<gpu::Window> windows_;
  int first_, steps_;
  CUgraphExec graph_ = nullptr;
};

}  // namespace

namespace {

std::string key_of(const std::vector<gpu::Command>& commands) {
  const std::string text = fingerprint(commands);
  return checksum128(std::as_bytes(std::span(text)));
}

}  // namespace

void Planner::begin_compile(const std::vector<gpu::Command>& commands) {
  const std::string key = key_of(commands);
  if (commands.empty() || begun_.contains(key) || !prepared_[key].expired())
    return;
  auto prepared = std::make_unique<Prepared>(makers_, commands);
  prepared->begin_compile();
  begun_.emplace(key, std::move(prepared));
}

std::unique_ptr<gpu::Plan> Planner::make(const std::vector<gpu::Command>& commands,
                                         const std::vector<gpu::Window>& windows, int first,
                                         int steps) {
  const std::string key = key_of(commands);
  std::weak_ptr<const Prepared>& known = prepared_[key];
  std::shared_ptr<const Prepared> prepared = known.lock();
  if (prepared == nullptr) {
    const auto begun = begun_.extract(key);
    auto made = begun ? std::move(begun.mapped()) : std::make_unique<Prepared>(makers_, commands);
    made->finish();
    known = prepared = std::move(made);
  }
  Core& core = makers_.core;
  if (!core.options.use_graph)
    return std::make_unique<StreamPlan>(core, std::move(prepared), windows, first, steps);
  return std::make_unique<GraphPlan>(core, std::move(prepared), windows, first, steps);
}

}  // namespace meshtrain::cuda
