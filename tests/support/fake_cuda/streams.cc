// The order of enqueued work, and running it.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/hash.h"
#include "support/fake_cuda/state.h"

namespace meshtrain::fake_cuda {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);

// The device does nothing more, as after an illegal address: what waits for it ends with the error.
void lose(Device& device, const Op& op, const std::string& why) {
  add_problem(fmt::format("{}: {}", op.what, why));
  device.error = CUDA_ERROR_LAUNCH_FAILED;
  for (auto& [handle, stream] : state().streams) {
    if (stream->device != &device)
      continue;
    for (const auto& lost : stream->queue)
      lost->is_done = true;
    stream->queue.clear();
  }
}

Outcome run(Op& op) {
  try {
    return op.work();
  } catch (const Refusal& refusal) {
    lose(*op.stream->device, op, refusal.text);
  } catch (const std::exception& error) {
    lose(*op.stream->device, op, error.what());
  }
  return Outcome::kDone;
}

}  // namespace

uint64_t draw() {
  return hash_mix(seed(), ++state().draws);
}

std::function<Work()> at_once(std::function<void()> work) {
  return [work = std::move(work)]() -> Work {
    return [work] {
      work();
      return Outcome::kDone;
    };
  };
}

void enqueue(Stream& stream, const std::string& what, std::function<Work()> start,
             std::shared_ptr<Op> after) {
  if (stream.capture != nullptr) {
    std::vector<std::unique_ptr<Node>>& nodes = stream.capture->graph->nodes;
    auto node = std::make_unique<Node>();
    node->what = what;
    node->start = std::move(start);
    node->after.insert(stream.frontier.begin(), stream.frontier.end());
    nodes.push_back(std::move(node));
    stream.frontier = {nodes.back().get()};
    return;
  }
  auto op = std::make_shared<Op>();
  op->what = what;
  op->work = start();
  op->stream = &stream;
  op->after = std::move(after);
  stream.last = op;
  stream.queue.push_back(std::move(op));
  drift();
}

bool step_towards(Op& op) {
  Stream& stream = *op.stream;
  const std::shared_ptr<Op> front = stream.queue.front();
  if (front->after != nullptr && !front->after->is_done)
    return step_towards(*front->after);
  const Outcome outcome = run(*front);
  if (outcome == Outcome::kDone && !front->is_done) {  // else it was lost
    const double other = front->after == nullptr ? 0 : front->after->time;
    stream.time = std::max(stream.time, other);
    front->time = stream.time += 0.01;
    front->is_done = true;
    front->after = nullptr;
    front->work = nullptr;
    stream.queue.pop_front();
  }
  return outcome != Outcome::kWaits;
}

void drift() {
  if (seed() == 0 || draw() % 3 != 0)
    return;
  for (uint64_t units = 1 + draw() % 4; units > 0; --units) {
    std::vector<Stream*> busy;
    for (auto& [handle, stream] : state().streams) {
      if (!stream->queue.empty())
        busy.push_back(stream.get());
    }
    if (busy.empty())
      return;
    step_towards(*busy[draw() % busy.size()]->queue.front());
  }
}

void finish(const std::shared_ptr<Op>& op) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (op != nullptr && !op->is_done) {
    if (step_towards(*op))
      continue;
    if (std::chrono::steady_clock::now() > end)
      refuse(CUDA_ERROR_TIMEOUT, "{} waits for other devices, which do not come", op->what);
    state().mutex.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state().mutex.lock();
  }
}

void finish(Device& device) {
  std::vector<std::shared_ptr<Op>> own;
  for (auto& [handle, stream] : state().streams) {
    if (stream->device != &device)
      continue;
    if (stream->owner == std::this_thread::get_id()) {
      own.push_back(stream->last);
      continue;
    }
    while (!stream->queue.empty() && step_towards(*stream->queue.front())) {
    }
  }
  for (const auto& op : own)
    finish(op);
  if (device.error != CUDA_SUCCESS)
    throw Failure{device.error};
}

}  // namespace meshtrain::fake_cuda
