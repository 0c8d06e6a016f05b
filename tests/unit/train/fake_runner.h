// A StepRunner with numbers that a reader can follow: the loss of a sample is its label.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "engine/step_runner.h"

namespace meshtrain {

class FakeRunner : public StepRunner {
 public:
  void train_step(const Batch& batch) override {
    train_steps(1, [&] { return batch; });
  }
  int64_t steps_at_once(int64_t) override { return most_steps; }
  void train_steps(int64_t count, const std::function<Batch()>& next) override {
    std::vector<double> losses;
    for (int64_t i = 0; i < count; ++i) {
      const Batch batch = next();
      trained.emplace_back(batch.rows.begin(), batch.rows.end());
      add(batch);
      losses.push_back(last_loss_);
    }
    losses_.insert(losses_.end(), losses.begin(), losses.end());
    runs.push_back(count);
    calls.push_back(fmt::format("run {}", count));
  }
  bool is_async() const override { return is_async_runner; }
  void select_step(int64_t steps_ago) override {
    const int64_t before = is_async_runner && runs.size() > 1 ? runs[runs.size() - 2] : 0;
    REQUIRE(steps_ago < runs.back() + before);  // the results of older runs are overwritten
    const size_t step = losses_.size() - static_cast<size_t>(steps_ago);
    calls.push_back(fmt::format("see {}", step));
    last_loss_ = losses_[step - 1];
  }
  void test_step(const Batch& batch) override {
    tested.emplace_back(batch.rows.begin(), batch.rows.end());
    add(batch);
  }
  std::vector<HostTensor> predict_step(const Batch& batch) override {
    HostTensor out(DType::kFloat32, {static_cast<int64_t>(batch.rows.size()), 2});
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      out.set(static_cast<int64_t>(2 * i), static_cast<double>(batch.rows[i]));
      out.set(static_cast<int64_t>(2 * i + 1), -static_cast<double>(batch.rows[i]));
    }
    std::vector<HostTensor> outputs;
    outputs.push_back(std::move(out));
    return outputs;
  }

  double last_loss() const override { return last_loss_; }
  void reset_metrics() override { total_ = count_ = 0; }
  Logs logs() const override {
    return {{"accuracy", 0.5}, {"loss", count_ > 0 ? total_ / count_ : 0.0}};
  }

  std::vector<std::string> weight_paths() const override {
    std::vector<std::string> paths;
    for (const auto& [path, tensor] : weights) {
      paths.push_back(path);
    }
    return paths;
  }
  HostTensor read_variable(std::string_view path) const override {
    return weights.at(std::string(path)).clone();
  }
  void write_variable(std::string_view path, const HostTensor& value) override {
    weights.at(std::string(path)) = value.clone();
  }
  void finalize_weights() override { ++finalized; }

  void snapshot_weights(const std::string& owner) override {
    kept[owner].clear();
    for (const auto& [path, tensor] : weights) {
      kept[owner][path] = tensor.clone();
    }
  }
  void restore_snapshot(const std::string& owner) override {
    for (const auto& [path, tensor] : kept.at(owner)) {
      weights.at(path) = tensor.clone();
    }
  }
  void swap_averages() override { averaged = !averaged; }

  double learning_rate() const override { return static_cast<double>(rate); }
  void set_learning_rate(double value) override { rate = static_cast<float>(value); }
  int64_t iterations() const override { return static_cast<int64_t>(trained.size()); }

  int64_t most_steps = 1;
  bool is_async_runner = false;
  std::vector<std::string> calls;  // "run 4": that many steps; "see 7": that step, from 1
  std::vector<int64_t> runs;       // steps of each run of training
  std::vector<std::vector<int64_t>> trained, tested;  // the rows of each step
  std::map<std::string, HostTensor> weights;
  int finalized = 0;
  float rate = 0.01f;
  std::map<std::string, std::map<std::string, HostTensor>> kept;
  bool averaged = false;

 private:
  void add(const Batch& batch) {
    double sum = 0;
    for (const int64_t row : batch.rows) {
      sum += batch.dataset->targets[0].rows->read_range(row, row + 1).at(0);
    }
    last_loss_ = sum / static_cast<double>(batch.rows.size());
    total_ += sum;
    count_ += static_cast<double>(batch.rows.size());
  }

  double total_ = 0, count_ = 0, last_loss_ = 0;
  std::vector<double> losses_;  // of all steps
};

// One input and one label column: `labels[i]` is the loss of sample i.
inline Dataset dataset_of(const std::vector<double>& labels) {
  const int64_t n = static_cast<int64_t>(labels.size());
  Dataset dataset;
  dataset.description = "test data";
  dataset.num_samples = n;
  dataset.inputs.push_back({"x", make_rows(HostTensor(DType::kFloat32, {n, 1}))});
  dataset.targets.push_back({"y", make_rows(tensor_of(DType::kFloat64, {n}, labels))});
  return dataset;
}

}  // namespace meshtrain
