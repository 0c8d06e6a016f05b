#include "train/callbacks/tensorboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/text.h"
#include "interop/keras/export_json.h"
#include "nn/model.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<EventGraphNode> graph_nodes(const Model& model) {
  std::vector<EventGraphNode> nodes;
  for (const Model::Call& call : model.calls()) {
    if (call.result_of != kNone) {
      continue;  // a further output of the node before it
    }
    EventGraphNode node{.name = call.name, .op = "Input", .output_shape = call.output_shape};
    for (const int input : call.inputs) {
      node.inputs.push_back(model.calls()[static_cast<size_t>(model.computing(input))].name);
    }
    node.attributes.emplace_back("dtype", dtype_name(call.dtype));
    if (!call.is_input) {
      const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
      node.op = layer.class_name;
      for (const Weight& weight : layer.weights) {
        node.attributes.emplace_back(weight.path, fmt::format("{} {}", dtype_name(weight.dtype),
                                                              shape_string(weight.shape)));
      }
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// A fence longer than any in the text.
std::string code_block(const std::string& text) {
  std::string fence = "```";
  while (text.find(fence) != std::string::npos) {
    fence += '`';
  }
  return fmt::format("{}\n{}\n{}\n", fence, text, fence);
}

}  // namespace

TensorBoard::TensorBoard(const TensorBoardOptions& options, CallbackContext& context,
                         std::string name)
    : Callback(context, std::move(name)),
      histogram_freq_(options.histogram_freq),
      update_freq_(options.update_freq),
      write_graph_(options.write_graph),
      write_steps_per_second_(options.write_steps_per_second),
      shared_folder_(!is_within_run(options.log_dir)) {
  std::error_code error;
  owner_ = hex64(hash_text(fs::absolute(context.run_dir, error).lexically_normal().string()))
               .substr(0, 8);
  const std::string folder = context.resolve(options.log_dir);
  train_.folder = folder + "/train";
  validation_.folder = folder + "/validation";
}

void TensorBoard::on_train_begin(const TrainPosition& at) {
  cut_back(train_);
  cut_back(validation_);
  step_ = epoch_begin_ = at.step;
  epoch_started_ = batch_started_ = context().now();
  if (write_graph_ && train_.files.empty()) {
    write_model();
  }
}

void TensorBoard::write_model() {
  const Config& config = context().config;
  Diagnostics diagnostics;  // nothing: the run has such a model already
  const Model model(config.model, dtype_policy(config.dtype_policy.value), diagnostics);
  EventFile& file = open(train_);
  file.graph(graph_nodes(model));
  try {
    file.text("keras", "graph_keras_model", keras_json(config, model));
  } catch (const ConfigError&) {
    // A model that Keras' JSON cannot say is drawn by its layers alone.
  }
  file.text("config", "text", code_block(config.source_text));
}

void TensorBoard::on_epoch_begin(const EpochStart& start) {
  if (start.is_resumed) {
    return;
  }
  epoch_begin_ = step_;
  epoch_started_ = batch_started_ = context().now();
}

int64_t TensorBoard::steps_until_sync(const TrainPosition& at) const {
  return update_freq_ == 0 ? Callback::steps_until_sync(at) : update_freq_ - step_ % update_freq_;
}

void TensorBoard::on_train_step(const TrainPosition& /*at*/, const StepRunner& runner) {
  if (!std::isfinite(runner.last_loss())) {
    return;
  }
  ++step_;
  if (update_freq_ == 0) {
    return;
  }
  const double now = context().now();
  if (step_ % update_freq_ == 0) {
    EventFile& file = open(train_);
    if (write_steps_per_second_ && now > batch_started_) {
      const int64_t steps = std::min(update_freq_, step_ - epoch_begin_);
      file.scalar("batch_steps_per_second", static_cast<double>(steps) / (now - batch_started_),
                  step_);
    }
    for (const auto& [name, value] : runner.logs()) {
      file.scalar("batch_" + name, value, step_);
    }
    batch_started_ = now;
  }
}

void TensorBoard::on_pass_end(const PassPosition& position, const EvaluateReport& report) {
  if (position.pass == Pass::kValidation) {
    for (const auto& [name, value] : report.logs) {
      open(validation_)
          .scalar(fmt::format("evaluation_{}_vs_iterations", name), value,
                  context().runner.iterations());
    }
  }
}

void TensorBoard::on_epoch_end(EpochReport& report) {
  const int64_t epoch = report.epoch - 1;
  const double seconds = context().now() - epoch_started_;
  for (const auto& [name, value] : report.logs) {
    const bool is_validation = starts_with(name, "val_");
    if (name != "learning_rate") {
      open(is_validation ? validation_ : train_)
          .scalar("epoch_" + (is_validation ? name.substr(4) : name), value, epoch);
    }
  }
  EventFile& file = open(train_);
  file.scalar("epoch_learning_rate", context().runner.learning_rate(), epoch);
  if (write_steps_per_second_ && seconds > 0) {
    file.scalar("epoch_steps_per_second", static_cast<double>(step_ - epoch_begin_) / seconds,
                epoch);
  }
  if (histogram_freq_ > 0 && epoch % histogram_freq_ == 0) {
    for (const std::string& path : context().runner.weight_paths()) {
      std::string tag = path + "/histogram";
      std::replace(tag.begin(), tag.end(), ':', '_');
      file.histogram(tag, context().runner.read_variable(path), epoch);
    }
  }
}

void TensorBoard::on_train_end() {
  sync();
}

void TensorBoard::sync() {
  const std::lock_guard lock(mutex_);
  for (const Board* board : {&train_, &validation_}) {
    if (board->file != nullptr) {
      board->file->sync();
    }
  }
}

std::string TensorBoard::save_state() const {
  nlohmann::json state = nlohmann::json::object();
  for (const Board* board : {&train_, &validation_}) {
    nlohmann::json& files = state[board == &train_ ? "train" : "validation"];
    files = board->files;
    if (board->file != nullptr) {
      files[board->name] = board->file->size();
    }
  }
  return state.dump();
}

void TensorBoard::load_state(const std::string& json) {
  const nlohmann::json state = nlohmann::json::parse(json);
  state.at("train").get_to(train_.files);
  state.at("validation").get_to(validation_.files);
}

EventFile& TensorBoard::open(Board& board) {
  if (board.file == nullptr && !context().writes) {
    board.file = std::make_unique<EventFile>(context().output(""), wall_seconds, context().warn);
  } else if (board.file == nullptr) {
    std::error_code error;
    fs::create_directories(board.folder, error);
    if (error) {
      throw FileError(ExitCode::kWriteFailed, "cannot create", board.folder, error.value());
    }
    const std::lock_guard lock(mutex_);
    board.name = new_name(board);
    board.file =
        std::make_unique<EventFile>(board.folder + "/" + board.name, wall_seconds, context().warn);
  }
  return *board.file;
}

// TensorBoard reads what has "tfevents" in its name, in the order of the names.
std::string TensorBoard::new_name(const Board& board) const {
  return fmt::format("events.out.tfevents.{:010.0f}.{}.{}.{}.v2", wall_seconds(), host_name(),
                     owner_, board.files.size());
}

// Takes away what was written after the checkpoint, or by a start that never came to one: it is
// going to happen again. In a folder that is not the run's own the files of other runs stay.
void TensorBoard::cut_back(Board& board) const {
  std::map<std::string, int64_t> kept;
  if (!context().writes) {
    return;
  }
  for (const std::string& name : folder_names(board.folder)) {
    const bool ours = !shared_folder_ || name.find("." + owner_ + ".") != std::string::npos;
    if (!ours || name.find("tfevents") == std::string::npos) {
      continue;
    }
    const std::string path = board.folder + "/" + name;
    const auto known = board.files.find(name);
    std::error_code error;
    if (known == board.files.end()) {
      fs::remove(path, error);
    } else {
      kept.insert(*known);
      const auto size = static_cast<uintmax_t>(known->second);
      if (fs::file_size(path, error) > size && !error) {
        fs::resize_file(path, size, error);
      }
    }
    if (error) {
      throw FileError(ExitCode::kWriteFailed, "cannot cut back", path, error.value());
    }
  }
  board.files = std::move(kept);
}

}  // namespace meshtrain
