// Setup: a Config resolved down to its programs, without any model memory. `plan`, `summary` and
// `validate` need no more; Engine runs it.
#pragma once

#include <memory>
#include <string>

#include "data/dataset.h"
#include "engine/distribution.h"
#include "engine/expert_pins.h"
#include "engine/step_graph.h"
#include "mesh/mesh_part.h"
#include "passes/incremental.h"
#include "passes/pipeline.h"

namespace meshtrain {

// kDecode: the next steps of sequences, with the earlier ones in caches; its programs are by the
// number of these steps, as the others are by the batch.
enum class StepKind { kTrain, kAccumulate, kTest, kPredict, kDecode };
std::string_view step_kind_name(StepKind kind);  // "train"

// What kDecode computes (passes/incremental.h). With `rows`, kPredict generates text, too
// (CallContext::generating).
struct DecodeOptions {
  int64_t rows = 0;                                           // sequences at once; 0: none
  std::vector<SequenceInput> inputs = {SequenceInput::kIds};  // of the model
  bool reorders_rows = false;
  bool gives_hidden = false;  // what the last product reads as one more output, of kPredict, too
};

// The type of a graph's input that data of type `stored` feed: narrow integers widen to int32, half
// floats to float32.
DType compute_dtype_of(DType stored);
// Returns the spec of a dataset: shapes without the batch, and dtypes as graphs use them.
DataSpec data_spec(const Dataset& dataset);

class Setup {
 public:
  // Without `data`, the model and the loss imply shapes and dtypes of inputs and targets. Programs
  // are those of process `rank`. Throws ConfigError with every problem of the model, the layouts,
  // the mesh and the data's shapes.
  Setup(const Config& config, const DataSpec* data, std::string dump_ir = {}, int processes = 1,
        int rank = 0, DecodeOptions decode = {});
  ~Setup();

  const Config& config() const { return config_; }
  const DataSpec& data() const { return data_; }
  const Model& model() const { return *model_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Distribution& distribution() const { return distribution_; }
  const DeviceMesh& mesh() const { return distribution_.mesh; }
  const MeshPart& part() const { return part_; }  // of the process
  // Returns whether sums over devices have a fixed order, independent of the number of processes.
  bool fixed_reductions() const;
  const ResolvedLayouts& layouts() const { return layouts_; }
  const StepGraphs& graphs() const { return *graphs_; }
  const Diagnostics& warnings() const { return warnings_; }
  DType dtype() const { return dtype_; }

  // Why there is no kDecode; "" where there is one. Whether its sequences have a greatest length.
  const std::string& decode_obstacle() const { return decode_obstacle_; }
  bool is_decode_bounded() const { return is_decode_bounded_; }

  // Variables with their four layouts, in the order of every program.
  const std::vector<Variable>& variables() const { return graphs_->variables(); }
  const std::vector<PlacedPin>& expert_pins() const { return expert_pins_; }
  // A batch that the batch axes do not divide runs unsharded on them.
  Compiled compile(StepKind kind, int64_t batch, bool bucket = true) const;
  // The global graph before any pass.
  Graph global_graph(StepKind kind, int64_t batch) const;

 private:
  void check_data(const DataSpec& data, Diagnostics& diagnostics) const;
  void check_padding(Diagnostics& diagnostics) const;
  void check_step_order() const;
  DataSpec implied_data() const;
  void resolve(Diagnostics& diagnostics);
  std::vector<Shape> shards_of_weights() const;
  void add_caches();
  Graph predict_graph(int64_t batch, bool in_order) const;
  IncrementalGraph decode_graph(int64_t steps) const;

  const Config& config_;
  std::string dump_ir_;
  DecodeOptions decode_;
  std::string decode_obstacle_;
  bool is_decode_bounded_ = false;
  size_t num_own_variables_ = 0;  // before the caches of kDecode
  DType dtype_ = DType::kFloat32;
  Distribution distribution_;
  MeshPart part_;
  DataSpec data_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepGraphs> graphs_;
  LayoutMap layout_map_;  // layouts_ points into its rules
  ResolvedLayouts layouts_;
  std::vector<PlacedPin> expert_pins_;
  Diagnostics warnings_;
};

}  // namespace meshtrain
