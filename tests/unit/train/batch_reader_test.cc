// Batches read ahead by a thread: the same bytes as without, and when a thread is worth it.
#include "engine/batch_reader.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::caught;
using test::Caught;

constexpr int64_t kSamples = 1003;

// Rows that cost `seconds` on a clock of the test's own for every read.
class SlowRows final : public Rows {
 public:
  explicit SlowRows(std::function<void()> on_read) : on_read_(std::move(on_read)) {}
  DType dtype() const override { return DType::kInt64; }
  const Shape& shape() const override { return shape_; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    on_read_();
    for (size_t i = 0; i < order.size(); ++i) {
      check_row(order[i]);
      const int64_t row[2] = {order[i], order[i] * order[i]};
      std::memcpy(to + i * sizeof(row), row, sizeof(row));
    }
  }

 private:
  std::function<void()> on_read_;
  Shape shape_ = {kSamples, 2};
};

Dataset slow_dataset(std::function<void()> on_read) {
  Dataset dataset;
  dataset.description = "slow data";
  dataset.num_samples = kSamples;
  dataset.inputs.push_back({"x", std::make_shared<SlowRows>(std::move(on_read))});
  HostTensor labels(DType::kInt32, {kSamples});
  for (int64_t i = 0; i < kSamples; ++i) {
    labels.set(i, static_cast<double>(i));
  }
  dataset.targets.push_back({"y", make_rows(labels.clone())});
  dataset.sample_weight = make_rows(labels.cast(DType::kFloat32));
  return dataset;
}

// What the step would read of a batch.
std::vector<std::byte> fed(const Batch& batch) {
  std::vector<std::byte> out;
  for (const Rows* rows :
       {batch.dataset->inputs.at(0).rows.get(), batch.dataset->targets.at(0).rows.get(),
        batch.dataset->sample_weight.get()}) {
    const size_t begin = out.size();
    out.resize(begin + batch.rows.size() * rows->row_bytes());
    rows->read(batch.rows, out.data() + begin);
  }
  return out;
}

// A clock that stands still but for what the test adds. It is the main thread's alone.
struct FakeTime {
  double now = 0;
  std::thread::id main = std::this_thread::get_id();
  void add_in_main(double seconds) {
    if (std::this_thread::get_id() == main) {
      now += seconds;
    }
  }
};

// All batches of a pass; `step` is what each step does before the next batch is asked for.
std::vector<std::vector<std::byte>> pass(BatchReader& reader, int64_t batch_size,
                                         const std::function<void()>& step, int64_t first = 0) {
  const int64_t end = (kSamples + batch_size - 1) / batch_size;
  reader.start(EpochOrder(kSamples, 3, 1), batch_size, first, end);
  std::vector<std::vector<std::byte>> batches;
  for (int64_t b = first; b < end; ++b) {
    batches.push_back(fed(reader.next()));
    step();
  }
  return batches;
}

TEST_CASE("prefetch: batches read ahead are those read by the step") {
  FakeTime time;
  const Dataset slow = slow_dataset([&] { time.add_in_main(1); });
  BatchReader plain(slow, 0, [&] { return time.now; });
  for (const int64_t batch_size : {10, 64, 100}) {
    const auto expected = pass(plain, batch_size, [] {});
    CHECK(!plain.has_thread());
    for (const int64_t ahead : {1, 2, 5, 64}) {
      CAPTURE(batch_size);
      CAPTURE(ahead);
      BatchReader reader(slow, ahead, [&] { return time.now; });
      for (int epoch = 0; epoch < 3; ++epoch) {
        const auto batches = pass(reader, batch_size, [&] { time.now += 2; });
        CHECK(reader.has_thread());
        CHECK((batches == expected));
      }
      const auto rest = pass(
          reader, batch_size, [] {}, 5);
      CHECK((rest == decltype(rest)(expected.begin() + 5, expected.end())));
    }
  }
}

TEST_CASE("prefetch: no thread where reading is quick beside the step") {
  for (const auto& [read_seconds, wants] : {std::pair(0.5 * BatchReader::kWorthAThread, false),
                                            std::pair(2 * BatchReader::kWorthAThread, true)}) {
    FakeTime time;
    const Dataset data = slow_dataset([&, seconds = read_seconds] { time.add_in_main(seconds); });
    BatchReader reader(data, 2, [&] { return time.now; });
    int64_t step = 0;
    pass(reader, 10, [&] { time.now += step++ == 0 ? 1000 : 1; });  // the first is compiled
    CHECK(reader.has_thread() == wants);
  }
}

TEST_CASE("prefetch: data that become slow are noticed") {
  FakeTime time;
  std::atomic<double> seconds = 0;
  const Dataset data = slow_dataset([&] { time.add_in_main(seconds); });
  BatchReader reader(data, 2, [&] { return time.now; });
  int64_t steps = 0, without_thread = 0;
  pass(reader, 1, [&] {
    time.now += 1;
    seconds = ++steps > 100 ? 1 : 0;
    without_thread += reader.has_thread() ? 0 : 1;
  });
  CHECK(without_thread == 515);  // the last of four timed batches begins the thread
  CHECK(reader.has_thread());
}

TEST_CASE("prefetch: data in memory and prefetch: 0 have no thread and are not timed") {
  Dataset data = slow_dataset([] {});
  int asked = 0;
  const auto now = [&] { return static_cast<double>(++asked); };
  BatchReader none(data, 0, now);
  pass(none, 10, [] {});
  data.inputs[0].rows = make_rows(data.inputs[0].rows->read_range(0, kSamples));
  BatchReader reader(data, 4, now);
  reader.start(EpochOrder(kSamples), 10, 0, 101);
  for (int64_t b = 0; b < 101; ++b) {
    const Batch batch = reader.next();
    CHECK(batch.dataset == &data);  // read by the step itself, to where it needs them
    CHECK(batch.rows.front() == 10 * b);
    CHECK(batch.rows.size() == (b == 100 ? 3 : 10));
  }
  CHECK(!reader.has_thread());
  CHECK(asked == 0);
}

TEST_CASE("prefetch: what goes wrong in the thread comes out where its batch is asked for") {
  FakeTime time;
  std::atomic<int> reads = 0;
  const Dataset data = slow_dataset([&] {
    if (++reads <= 4) {
      time.now += 1;
    }
    if (reads == 8) {
      Diagnostics findings;
      findings.error("E322", {}, "an image cannot be read");
      throw ConfigError(std::move(findings));
    }
  });
  BatchReader reader(data, 3, [&] { return time.now; });
  reader.start(EpochOrder(kSamples, 1, 1), 10, 0, 101);
  for (int b = 0; b < 7; ++b) {
    reader.next();
    time.now += b < 4 ? 1 : 0;
  }
  const Caught error = caught([&] { reader.next(); });
  CHECK(error.code == "E322");
  CHECK(error.exit_code == 3);
  CHECK(reads == 8);                                     // nothing was read after it
  reader.start(EpochOrder(kSamples, 1, 2), 10, 0, 101);  // a new pass begins anew
  CHECK(fed(reader.next()).size() == 10 * (16 + 4 + 4));
}

TEST_CASE("prefetch: the thread ends with the reader, wherever it is, and has no signals") {
  FakeTime time;
  std::atomic<int> reads = 0;
  std::atomic<bool> blocks_signals = true;
  const Dataset data = slow_dataset([&] {
    if (++reads > 4) {
      sigset_t mask;
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      blocks_signals = blocks_signals && sigismember(&mask, SIGTERM) == 1;
    } else {
      time.now += 1;
    }
  });
  for (const int taken : {4, 5, 9}) {
    reads = 0;
    BatchReader reader(data, 2, [&] { return time.now; });
    reader.start(EpochOrder(kSamples), 10, 0, 101);
    for (int b = 0; b < taken; ++b) {
      reader.next();
      time.now += b < 3 ? 1 : 0;
    }
    CHECK(reader.has_thread());
  }
  CHECK(reads <= 12);  // at most two ahead of nine, and one begun
  CHECK(blocks_signals);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGTERM) == 0);
}

TEST_CASE("prefetch: of several processes each reads only the rows of its part") {
  FakeTime time;
  const Dataset slow = slow_dataset([&] { time.add_in_main(1); });
  // The second quarter of a batch; of the last, smaller one all.
  const auto part = [](int64_t size) {
    return size == 100 ? LocalRows{25, 25} : LocalRows{0, size};
  };
  BatchReader plain(slow, 0, [&] { return time.now; });
  BatchReader reader(
      slow, 2, [&] { return time.now; }, part);
  const int64_t batches = (kSamples + 99) / 100;
  plain.start(EpochOrder(kSamples, 3, 1), 100, 0, batches);
  reader.start(EpochOrder(kSamples, 3, 1), 100, 0, batches);
  for (int64_t b = 0; b < batches; ++b) {
    const Batch expected = plain.next(), got = reader.next();
    const bool is_last = b + 1 == batches;
    CHECK((fed(got) == fed(expected)));  // whoever wants other rows finds them
    CHECK((got.ready == nullptr) == is_last);
    if (got.ready != nullptr) {
      CHECK(got.ready_first == 25);
      CHECK(got.ready->num_samples == 25);
      const std::vector<int64_t> places = {0, 24};
      std::vector<int64_t> values(4);
      got.ready->inputs[0].rows->read(places, reinterpret_cast<std::byte*>(values.data()));
      CHECK(values[0] == got.rows[25]);
      CHECK(values[2] == got.rows[49]);
    }
    time.now += 2;
  }
  CHECK(reader.has_thread());
}

}  // namespace
}  // namespace meshtrain
