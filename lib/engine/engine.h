// Engine: the model of a Config, compiled for its mesh, with its variables. Compiles and runs one
// program for each batch size; the last, smaller batch has its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "config/config.h"
#include "data/dataset.h"
#include "engine/run_steps.h"
#include "engine/setup.h"
#include "engine/step_runner.h"
#include "ir/program.h"
#include "nn/model.h"

namespace meshtrain {

struct EngineOptions {
  int num_workers = 0;         // threads; 0 = one per core
  std::string dump_ir;         // folder for the graph after each pass; empty = none
  bool use_cuda_graph = true;  // on a GPU; false: kernel by kernel
  int64_t profile_steps = 0;   // training steps to measure, behind kProfileWarmUp others
  Processes processes = {};    // that the mesh is split over
  DecodeOptions decode = {};   // for decode_step()
};

// Steps before those of a profile, in which kernels are compiled and workers are chosen.
inline constexpr int64_t kProfileWarmUp = 5;

class VariableStore;
struct StepProfile;

class Engine : public StepRunner {
 public:
  // Builds the model, resolves layouts, initialises the variables. Throws ConfigError with every
  // problem of the model, the layouts, the mesh or the data's shapes, or E620 when there is no such
  // GPU.
  Engine(const Config& config, const DataSpec& spec, EngineOptions options = {});
  ~Engine() override;

  const Setup& setup() const;
  const Model& model() const;
  const DeviceMesh& mesh() const;
  const Diagnostics& warnings() const;  // layout rules that act on nothing, ...
  // The processes of the run. All call the functions below in the same order and get the same
  // results.
  const Processes& processes() const;

  void train_step(const Batch& batch) override;  // updates weights, optimizer state and metrics
  int64_t steps_at_once(int64_t batch_size) override;
  void train_steps(int64_t count, const std::function<Batch()>& next) override;
  bool is_async() const override;
  void select_step(int64_t steps_ago) override;
  LocalRows local_rows(bool training, int64_t batch_size) const override;
  bool cache_on_device(const Dataset& dataset) override;
  void begin_compile(const Dataset& dataset, bool training) override;
  void test_step(const Batch& batch) override;  // updates metrics only
  // One tensor per model output, (rows, ...).
  std::vector<HostTensor> predict_step(const Batch& batch) override;

  // The next steps of DecodeOptions::rows sequences, behind those of earlier calls: `ids` are
  // (rows, steps), row-major, the first of them at `position`. The results are output 0, (rows,
  // steps, ...), and the hidden states where the options ask for them. Position 0 begins anew.
  // `rows`: the row that each row continues, where the options reorder them. There must be no
  // Setup::decode_obstacle().
  std::vector<HostTensor> decode_step(std::span<const int32_t> ids, int64_t position,
                                      std::span<const int32_t> rows = {});

  double last_loss() const override;
  void reset_metrics() override;
  Logs logs()
      const override;  // of the metrics since the last reset, sorted by name: accuracy, loss
  LogLists log_lists() const override;
  // The logs in the order of `evaluate`: loss, then metrics as declared.
  Logs evaluate_logs() const;

  // Whole tensors by Keras path ("d1/kernel"); optimizer slots and metrics included.
  std::vector<std::string> weight_paths() const override;  // layer weights in Keras order
  HostTensor read_variable(std::string_view path) const override;
  // Throws ConfigError E410 when the path or the shape does not fit; other dtypes are converted.
  void write_variable(std::string_view path, const HostTensor& value) override;
  // End of fit: w <- EMA average where the optimizer keeps one.
  void finalize_weights() override;
  void snapshot_weights(const std::string& owner) override;
  void restore_snapshot(const std::string& owner) override;
  void swap_averages() override;

  double learning_rate() const override;
  void set_learning_rate(double rate) override;
  std::optional<double> scheduled_rate() const override;
  int64_t iterations() const override;

  // The whole state, as checkpoints store it. After writing to the store, restore the counters too;
  // `fixed_rate` is negative when no rate was set.
  VariableStore& store();
  double fixed_learning_rate() const;
  void restore_counters(int64_t iterations, double fixed_rate);

  // On a GPU, compiles all programs of a run with these numbers of samples. Throws ConfigError E630
  // when they do not fit together, before anything is allocated.
  void prepare_run(const RunSamples& samples);

  // What EngineOptions::profile_steps asked for, so far; null when it asked for nothing.
  const StepProfile* profile() const;
  bool has_whole_profile() const;
  // Bytes in use on the GPU, by all processes; 0 on the CPU.
  int64_t device_memory_used() const;
  // The programs of the measured steps.
  std::vector<const Program*> profiled_programs() const;

  // The compiled program for `batch_size`.
  const Program& train_program(int64_t batch_size);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshtrain
