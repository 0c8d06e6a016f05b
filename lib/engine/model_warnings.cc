#include "engine/model_warnings.h"

#include <algorithm>

#include "base/text.h"
#include "config/cells.h"
#include "nn/arguments.h"
#include "nn/later_steps.h"
#include "nn/stored_scores.h"

namespace meshtrain {
namespace {

// Data whose targets are the ids behind those of the sample, and a model that sees them.
void warn_of_later_steps(const Config& config, const Model& model, Diagnostics& diagnostics) {
  const std::optional<ConfigObject>& source = config.data.train;
  if (!source || string_or(*source, "target", "") != "sequence") {
    return;
  }
  for (const int output : model.outputs()) {
    const Model::Call* const call = call_of_later_steps(model, output);
    if (call == nullptr || model.calls()[output].output_shape.size() != 3) {
      continue;
    }
    const Layer& layer = *model.layers()[call->layer];
    Diagnostic& d = diagnostics.warning(
        "W125", layer.loc,
        fmt::format("`{}` ({}) sees later steps, and the targets of `{}` are the ids that follow: "
                    "the model can copy what it is to predict",
                    call->name, layer.class_name, source->class_name));
    d.help(layer.class_name == "TransformerEncoder"
               ? "TransformerDecoder without a second input is causal"
           : is_recurrent_class(layer.class_name)
               ? "a layer that goes forward sees earlier steps alone"
           : layer.acting_class().find("Conv1D") != std::string::npos
               ? "`padding: causal` sees earlier steps alone"
               : "write `call: {use_causal_mask: true}`");
    return;
  }
}

// Attention whose memory grows with the square of the steps, where that is worth a word.
void warn_of_stored_scores(int64_t batch, const Model& model, Diagnostics& diagnostics) {
  constexpr int64_t kLeastBytes = int64_t{1} << 20;  // of a batch
  for (size_t i = 0; i < model.calls().size(); ++i) {
    const std::optional<StoredScores> stored = stored_scores(model, i);
    if (!stored) {
      continue;
    }
    const Model::Call& call = model.calls()[i];
    const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
    Shape shape = stored->shape;
    shape[0] = batch;
    const int64_t bytes = num_elements(shape) * static_cast<int64_t>(dtype_size(layer.dtype));
    if (bytes < kLeastBytes) {
      continue;
    }
    diagnostics
        .warning("W126", layer.loc,
                 fmt::format("`{}` ({}) stores its scores, {} {}, {} of a batch: {}", call.name,
                             layer.class_name, shape_string(shape), dtype_name(layer.dtype),
                             format_bytes(bytes), stored->reason))
        .help(stored->help);
  }
}

// A ReversibleEmbedding whose `reverse` ends the mask of `mask_zero`, where no weights of the data
// stand in for it.
void warn_of_unmasked_logits(const Config& config, const Model& model, const DataSpec& data,
                             Diagnostics& diagnostics) {
  const std::optional<ConfigObject>& source = config.data.train;
  if (data.has_sample_weight || (source && source->class_name == "lines")) {
    return;
  }
  for (const Model::Call& call : model.calls()) {
    const bool is_reverse = !call.is_input && call.use.call_flag("reverse");
    if (!is_reverse || !model.calls()[static_cast<size_t>(call.inputs[0])].has_mask) {
      continue;
    }
    diagnostics
        .warning(
            "W630", place_of_layer(config.model, call.name),
            fmt::format("`{}` (ReversibleEmbedding, reversed) drops the mask of its input: loss "
                        "and metrics count the steps of padding, as in Keras",
                        call.name))
        .help("weigh padding with 0: `sample_weight` of the data; the source `lines` does so")
        .help("or end with a Dense, which passes the mask on");
  }
}

}  // namespace

SourceLoc place_of_layer(const ModelConfig& model, std::string_view name) {
  for (const LayerConfig& layer : model.layers) {
    if (layer.name.value == name) {
      return layer.object.loc;
    }
  }
  return {};
}

void warn_of_model(const Config& config, const Model& model, const DataSpec& data,
                   Diagnostics& diagnostics) {
  warn_of_later_steps(config, model, diagnostics);
  warn_of_stored_scores(config.fit.batch_size, model, diagnostics);
  warn_of_unmasked_logits(config, model, data, diagnostics);
}

}  // namespace meshtrain
