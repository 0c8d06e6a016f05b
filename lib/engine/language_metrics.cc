#include "engine/language_metrics.h"

#include <algorithm>

#include "config/catalogue.h"

namespace meshtrain {
namespace {

bool has_metric(const CompileConfig& compile, const std::string& class_name) {
  const auto is_it = [&](const OutputObject& entry) {
    return entry.object.class_name == class_name;
  };
  return std::any_of(compile.metrics.begin(), compile.metrics.end(), is_it) ||
         std::any_of(compile.weighted_metrics.begin(), compile.weighted_metrics.end(), is_it);
}

// The metric beside `loss`, of the same targets.
ConfigObject metric_beside(const OutputObject& loss, const std::string& class_name) {
  ConfigObject metric = default_object(Category::kMetric, class_name);
  metric.loc = loss.object.loc;
  if (loss.object.has("from_logits")) {
    metric.args["from_logits"] = loss.object.arg("from_logits");
  }
  if (loss.object.has("ignore_class")) {
    metric.args["mask_token_id"] = loss.object.arg("ignore_class");
  }
  return metric;
}

}  // namespace

void add_language_metrics(const Dataset& dataset, Config& config) {
  CompileConfig& compile = config.compile;
  const bool is_language = dataset.bytes_per_token && dataset.targets.size() == 1 &&
                           is_integer(dataset.targets[0].rows->dtype());
  if (!is_language || compile.loss.size() != 1) {
    return;
  }
  const OutputObject& loss = compile.loss[0];
  const std::string& name = loss.object.class_name;
  if (name != "SparseCategoricalCrossentropy" && name != "crossentropy") {
    return;
  }
  if (!has_metric(compile, "Perplexity")) {
    compile.weighted_metrics.push_back({loss.output, metric_beside(loss, "Perplexity")});
  }
  if (*dataset.bytes_per_token > 0 && !has_metric(compile, "BitsPerByte")) {
    ConfigObject bits = metric_beside(loss, "BitsPerByte");
    bits.args["bytes_per_token"].data = *dataset.bytes_per_token;
    compile.weighted_metrics.push_back({loss.output, std::move(bits)});
  }
}

}  // namespace meshtrain
