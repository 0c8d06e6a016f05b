#include "interop/save_model.h"

#include <time.h>

#include <filesystem>

#include "base/durable_file.h"
#include "base/text.h"
#include "data/checks.h"
#include "interop/keras/archive.h"
#include "interop/keras/export_json.h"
#include "interop/keras/export_model.h"
#include "interop/keras/weights.h"
#include "nn/lora.h"
#include "tensor/npz.h"
#include "tensor/safetensors.h"

namespace meshtrain {

ModelFormat model_format(const std::string& path) {
  const std::pair<const char*, ModelFormat> ends[] = {{".weights.h5", ModelFormat::kH5},
                                                      {".keras", ModelFormat::kKeras},
                                                      {".npz", ModelFormat::kNpz},
                                                      {".safetensors", ModelFormat::kSafetensors}};
  for (const auto& [end, format] : ends) {
    if (ends_with(to_lower(path), end)) {
      return format;
    }
  }
  return ModelFormat::kNone;
}

void write_model(const std::string& path, const Config& config, const Model& model,
                 const std::vector<NamedTensor>& weights, int64_t saved) {
  const bool is_sequential = is_keras_sequential(config.model, model);
  switch (model_format(path)) {
    case ModelFormat::kH5:
      return write_h5(path, keras_vars(model, weights, is_sequential));
    case ModelFormat::kKeras:
      return write_keras_archive(path, keras_json(config, model), keras_metadata(saved),
                                 h5_image(keras_vars(model, weights, is_sequential)));
    case ModelFormat::kNpz:
      return write_npz(path, weights);
    case ModelFormat::kSafetensors:
      return write_safetensors(path, weights, with_checksum(weights));
    case ModelFormat::kNone:
      break;
  }
  throw InternalError(fmt::format("`{}` has no format of models", path));
}

namespace {

// Keras' files have no low-rank factors: the weights take them in.
void write_merged(const std::string& path, const Engine& engine, std::vector<NamedTensor> weights,
                  int64_t saved) {
  const Config config = without_lora(engine.setup().config());
  Diagnostics reported;  // when the run began
  const Model model(config.model, dtype_policy(config.dtype_policy.value), reported);
  write_model(path, config, model, merge_lora(engine.model(), std::move(weights)), saved);
}

}  // namespace

void save_model(const Engine& engine, const std::string& path, const Coordinator& coordinator) {
  const Config& config = engine.setup().config();
  std::vector<NamedTensor> weights;
  for (const std::string& name : engine.weight_paths()) {
    weights.push_back({name, engine.read_variable(name)});
    if (first_nonfinite(weights.back().tensor) >= 0) {
      throw ConfigError("E501", config.compile.optimizer.loc,
                        fmt::format("`{}` is not finite; the model is not saved", name))
          .help("a smaller learning rate, or clipping (clipnorm, global_clipnorm)");
    }
  }
  const auto announced = coordinator.announce("saving the model");
  coordinator.on_rank_zero("saving the model", [&] {
    make_folders(std::filesystem::path(path).parent_path().string());
    const auto saved = static_cast<int64_t>(time(nullptr));
    const ModelFormat format = model_format(path);
    const bool is_of_keras = format == ModelFormat::kH5 || format == ModelFormat::kKeras;
    if (is_of_keras && has_lora(engine.model())) {
      return write_merged(path, engine, std::move(weights), saved);
    }
    write_model(path, config, engine.model(), weights, saved);
  });
}

}  // namespace meshtrain
