#include "support/thread_group.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Mail between ranks: every message is a copy, in the order it was sent.
struct ThreadGroup::Shared {
  explicit Shared(int n) : size(n) {}

  void post(int from, int to, std::string text) {
    const std::lock_guard<std::mutex> lock(mutex);
    mail[{from, to}].push_back(std::move(text));
    changed.notify_all();
  }
  std::string take(int from, int to) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return failed || !mail[{from, to}].empty(); });
    if (failed) {
      throw RuntimeFailure(ExitCode::kUnexpected, "another rank failed");
    }
    std::string text = std::move(mail[{from, to}].front());
    mail[{from, to}].pop_front();
    return text;
  }
  void fail(std::exception_ptr why) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!failed) {
      first = why;
    }
    failed = true;
    changed.notify_all();
  }

  const int size;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<std::string>> mail;
  bool failed = false;
  std::exception_ptr first;
};

namespace {

std::string text_of(const std::byte* data, int64_t bytes) {
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)};
}

}  // namespace

class ThreadExchange final : public Transfer {
 public:
  ThreadExchange(ThreadGroup& group, std::vector<Message> sends, std::vector<Message> receives)
      : group_(group), sends_(std::move(sends)), receives_(std::move(receives)) {}
  void run() override {
    ++group_.exchanges_;
    for (const Message& message : sends_) {
      MESHTRAIN_CHECK(message.peer != group_.rank() && message.bytes > 0);
      group_.shared_->post(group_.rank(), message.peer, text_of(message.data, message.bytes));
      group_.bytes_sent_ += message.bytes;
    }
    for (const Message& message : receives_) {
      const std::string text = group_.shared_->take(message.peer, group_.rank());
      MESHTRAIN_CHECK(static_cast<int64_t>(text.size()) == message.bytes,
                      "rank {} got {} bytes from {}, not {}", group_.rank(), text.size(),
                      message.peer, message.bytes);
      std::memcpy(message.data, text.data(), text.size());
    }
  }

 private:
  ThreadGroup& group_;
  std::vector<Message> sends_, receives_;
};

// Adds in another order than that of the devices: the last rank first.
class ThreadAllReduce final : public Transfer {
 public:
  ThreadAllReduce(ThreadGroup& group, Reduction reduction, DType dtype, std::byte* data,
                  int64_t elements, std::vector<int> ranks)
      : group_(group),
        reduction_(reduction),
        dtype_(dtype),
        data_(data),
        elements_(elements),
        ranks_(std::move(ranks)) {}
  void run() override {
    const int64_t bytes = elements_ * static_cast<int64_t>(dtype_size(dtype_));
    group_.bytes_reduced_ += bytes;
    if (bytes == 0) {
      return;
    }
    for (const int peer : ranks_) {
      group_.shared_->post(group_.rank(), peer, text_of(data_, bytes));
    }
    HostTensor sum(dtype_, {elements_});
    for (size_t i = ranks_.size(); i-- > 0;) {
      HostTensor term(dtype_, {elements_});
      const std::string text = group_.shared_->take(ranks_[i], group_.rank());
      std::memcpy(term.bytes(), text.data(), text.size());
      for (int64_t e = 0; e < elements_; ++e) {
        const double a = sum.at(e), b = term.at(e);
        sum.set(e, i + 1 == ranks_.size()          ? b
                   : reduction_ == Reduction::kSum ? a + b
                   : reduction_ == Reduction::kMax ? (a >= b || a != a ? a : b)  // NaN wins
                                                   : (a <= b || a != a ? a : b));
      }
    }
    std::memcpy(data_, sum.bytes(), static_cast<size_t>(bytes));
  }

 private:
  ThreadGroup& group_;
  Reduction reduction_;
  DType dtype_;
  std::byte* data_;
  int64_t elements_;
  std::vector<int> ranks_;
};

ThreadGroup::ThreadGroup(std::shared_ptr<Shared> shared, int rank)
    : shared_(std::move(shared)), rank_(rank) {}

int ThreadGroup::size() const {
  return shared_->size;
}

std::vector<std::string> ThreadGroup::all_gather(std::string_view mine) {
  for (int peer = 0; peer < size(); ++peer) {
    shared_->post(rank_, peer, std::string(mine));
  }
  std::vector<std::string> all;
  for (int peer = 0; peer < size(); ++peer) {
    all.push_back(shared_->take(peer, rank_));
  }
  return all;
}

std::unique_ptr<Transfer> ThreadGroup::make_exchange(std::vector<Message> sends,
                                                     std::vector<Message> receives) {
  return std::make_unique<ThreadExchange>(*this, std::move(sends), std::move(receives));
}

std::unique_ptr<Transfer> ThreadGroup::make_all_reduce(Reduction reduction, DType dtype,
                                                       std::byte* data, int64_t elements,
                                                       const std::vector<int>& ranks) {
  return std::make_unique<ThreadAllReduce>(*this, reduction, dtype, data, elements, ranks);
}

void run_as_processes(int size, const std::function<void(std::shared_ptr<ThreadGroup>)>& body) {
  const auto shared = std::make_shared<ThreadGroup::Shared>(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::make_shared<ThreadGroup>(shared, rank));
      } catch (...) {
        shared->fail(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (shared->first) {
    std::rethrow_exception(shared->first);
  }
}

}  // namespace meshtrain
