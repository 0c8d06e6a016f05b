#include "engine/data_warnings.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "config/source_classes.h"
#include "config/source_like.h"
#include "engine/class_outputs.h"
#include "engine/epoch_plan.h"
#include "engine/sample_weights.h"

namespace meshtrain {
namespace {

constexpr size_t kMostShown = 5;
constexpr int64_t kMostLabels = 5000000;  // that are looked at before the first step

std::string some_of(const std::vector<std::string>& all) {
  const std::vector<std::string> some(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(kMostShown, all.size())));
  return join(some, ", ") + (some.size() < all.size() ? ", ..." : "");
}

void warn_of_skipped_parts(const RunData& data, Diagnostics& warnings) {
  for (const DataPart part : {DataPart::kTrain, DataPart::kValidation, DataPart::kTest}) {
    const Dataset* const dataset = data.part(part);
    if (dataset == nullptr || dataset->skipped.empty()) {
      continue;
    }
    const bool is_whole = part == DataPart::kTrain || !data.train ||
                          dataset->loc.to_string() != data.train->loc.to_string();
    if (!is_whole) {
      continue;  // the other part of the same folder: said already
    }
    warn_of_skipped(*dataset, fmt::format("the {} data", data_part_name(part)), warnings);
  }
}

// The class of each sample of an output; empty where the targets are no class numbers.
std::vector<int64_t> classes_of(const Setup& setup, const Dataset& dataset, size_t target) {
  const std::optional<ConfigObject> loss = loss_of_output(setup, target);
  const Rows& rows = *dataset.targets[target].rows;
  std::vector<int64_t> out;
  const bool is_one_each =
      rows.row_bytes() == dtype_size(rows.dtype()) && rows.size() <= kMostLabels;
  if (!loss || !is_classification(*loss) || !is_one_each || rows.cost() == Rows::Cost::kComputed) {
    return out;
  }
  const std::optional<int64_t> ignored = ignored_class(*loss);
  const HostTensor labels = rows.read_range(0, rows.size());
  for (int64_t i = 0; i < labels.size(); ++i) {
    const double label = labels.at(i);
    if (label != std::floor(label)) {
      return {};
    }
    const auto id = static_cast<int64_t>(label);
    if (id != ignored) {
      out.push_back(id);
    }
  }
  return out;
}

std::map<int64_t, int64_t> counts_of(const std::vector<int64_t>& classes) {
  std::map<int64_t, int64_t> counts;
  for (const int64_t id : classes) {
    ++counts[id];
  }
  return counts;
}

std::vector<std::string> named(const std::vector<int64_t>& ids, const Dataset& dataset) {
  std::vector<std::string> names;
  for (const int64_t id : ids) {
    const bool is_known = id >= 0 && id < std::ssize(dataset.class_names);
    names.push_back(is_known ? dataset.class_names[static_cast<size_t>(id)] : std::to_string(id));
  }
  return names;
}

// A class of the training data counts as missing in others where 10 or more of its samples would be
// expected by chance.
void warn_of_absent_classes(const Setup& setup, const RunData& data, DataPart part, size_t target,
                            const std::map<int64_t, int64_t>& trained, Diagnostics& warnings) {
  constexpr double kExpected = 10;
  const Dataset* const other = data.part(part);
  if (other == nullptr || target >= other->targets.size()) {
    return;
  }
  const std::map<int64_t, int64_t> found = counts_of(classes_of(setup, *other, target));
  if (found.empty()) {
    return;
  }
  std::vector<int64_t> missing, untrained;
  for (const auto& [id, count] : trained) {
    const double share = static_cast<double>(count) / static_cast<double>(data.train->num_samples);
    if (!found.contains(id) && share * static_cast<double>(other->num_samples) >= kExpected) {
      missing.push_back(id);
    }
  }
  for (const auto& [id, count] : found) {
    if (!trained.contains(id)) {
      untrained.push_back(id);
    }
  }
  const auto warn = [&](const std::vector<int64_t>& ids, const std::string& text) {
    if (ids.empty()) {
      return;
    }
    Diagnostic& d = warnings.warning("W312", other->loc,
                                     fmt::format("{}: {}", text, some_of(named(ids, *data.train))));
    if (setup.config().fit.validation_split > 0 && part == DataPart::kValidation) {
      d.help(
          "`validation_split` takes the last samples as they stand; shuffle the file, or give "
          "`data.validation`");
    }
  };
  warn(missing, fmt::format("the {} data have no sample of {} of {} classes", data_part_name(part),
                            missing.size(), trained.size()));
  warn(untrained,
       fmt::format("the {} data have {} class{} that the training data lack", data_part_name(part),
                   untrained.size(), untrained.size() == 1 ? "" : "es"));
}

void warn_of_classes(const Setup& setup, const RunData& data, Diagnostics& warnings) {
  const Config& config = setup.config();
  const std::optional<size_t> target = data.train ? only_target(config, *data.train) : std::nullopt;
  if (!target) {
    return;
  }
  const std::vector<int64_t> classes = classes_of(setup, *data.train, *target);
  const std::map<int64_t, int64_t> counts = counts_of(classes);
  if (counts.empty()) {
    return;
  }
  warn_of_absent_classes(setup, data, DataPart::kValidation, *target, counts, warnings);
  warn_of_absent_classes(setup, data, DataPart::kTest, *target, counts, warnings);
  for (const auto& [id, weight] : class_weights(config.fit, data.train->class_names)) {
    if (!counts.contains(id)) {
      warnings.warning("W312", weight.loc,
                       fmt::format("`class_weight` names class {}, of which the training data have "
                                   "no sample",
                                   named({id}, *data.train)[0]));
    }
  }
  const bool is_sorted = std::is_sorted(classes.begin(), classes.end());
  if (!config.data.shuffle && is_sorted && counts.size() > 1 &&
      std::ssize(classes) > 2 * config.fit.batch_size) {
    warnings
        .warning("W319", config.data.shuffle.loc,
                 "the training data are in the order of their classes, and `shuffle` is false: "
                 "most batches have a single class")
        .help("leave `data.shuffle` out, or shuffle the file");
  }
}

// A label that is a column of the inputs, too. Of windows its earlier values are what is known.
void warn_of_label_among_features(const RunData& data, const Config& config,
                                  Diagnostics& warnings) {
  if (!data.train || !config.data.train || series_options(*config.data.train).sequence_length) {
    return;
  }
  for (const Dataset::Array& target : data.train->targets) {
    for (const Dataset::Array& input : data.train->inputs) {
      const auto is_input = [&](const std::string& column) {
        return std::find(input.columns.begin(), input.columns.end(), column) != input.columns.end();
      };
      const auto found = std::find_if(target.columns.begin(), target.columns.end(), is_input);
      if (found != target.columns.end()) {
        warnings
            .warning(
                "W330", config.data.train->loc,
                fmt::format("the label `{}` is also a feature of `{}`: the model is shown what "
                            "it is to predict",
                            *found, input.name))
            .help("leave it out of `features`");
      }
    }
  }
}

bool has_part(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The first layer with a kernel that takes the values of an input as they are; null when there is
// none, or when something scales them.
const Layer* takes_unscaled(const Model& model, int input) {
  std::set<int> same = {input};
  for (int i = 0; i < std::ssize(model.calls()); ++i) {
    const Model::Call& call = model.calls()[static_cast<size_t>(i)];
    const bool is_after = std::any_of(call.inputs.begin(), call.inputs.end(),
                                      [&](int from) { return same.contains(from); });
    if (!is_after || call.layer == kNone) {
      continue;
    }
    const Layer& layer = *model.layers()[static_cast<size_t>(call.layer)];
    const std::string_view name = layer.acting_class();
    if (has_part(name, "Dense") || has_part(name, "Conv")) {
      return &layer;
    }
    const bool may_scale = has_part(name, "Rescaling") || has_part(name, "Normalization") ||
                           name == "Lambda";  // whatever its expression does
    if (layer.weights.empty() && !may_scale) {
      same.insert(i);
    }
  }
  return nullptr;
}

// The largest absolute value of the first rows.
double largest_of(const Rows& rows) {
  const int64_t count = rows.cost() == Rows::Cost::kComputed ? 4 : 256;  // images are decoded
  const HostTensor first = rows.read_range(0, std::min(count, rows.size()));
  double largest = 0;
  for (int64_t i = 0; i < std::min<int64_t>(first.size(), int64_t{1} << 20); ++i) {
    largest = std::max(largest, std::abs(first.at(i)));
  }
  return largest;
}

void warn_of_scale(const Setup& setup, const Dataset& train, Diagnostics& warnings) {
  constexpr double kLarge = 100;
  const Model& model = setup.model();
  for (size_t i = 0; i < std::min(model.inputs().size(), train.inputs.size()); ++i) {
    const Layer* const layer = takes_unscaled(model, model.inputs()[i]);
    const double largest = layer == nullptr ? 0 : largest_of(*train.inputs[i].rows);
    if (largest <= kLarge || !std::isfinite(largest)) {
      continue;
    }
    const bool is_image = train.inputs[i].rows->shape().size() >= 3 && largest <= 255;
    warnings
        .warning("W329", train.loc,
                 fmt::format("`{}` has values up to {}, and `{}` takes them as they are",
                             train.inputs[i].name, format_shortest(largest), layer->name))
        .note(fmt::format("`{}` is at {}", layer->name, layer->loc.to_string()))
        .help(is_image ? "add `- Rescaling: {scale: =1/255}` after the Input"
                       : "add `- Normalization` after the Input: it learns means and variances "
                         "from the training data");
  }
}

// Warns of a run that changes no weight.
void warn_of_no_updates(const Setup& setup, const RunData& data, Diagnostics& warnings) {
  const Config& config = setup.config();
  const auto& weights = setup.model().weights();
  if (!weights.empty() && std::none_of(weights.begin(), weights.end(),
                                       [](const Weight* weight) { return weight->trainable; })) {
    warnings.warning("W212", config.model.loc, "no weight of the model trains")
        .help("`trainable: false` and `model.frozen` hold for all of them");
  }
  if (!data.train) {
    return;
  }
  const int64_t batches = count_batches(data.train->num_samples, config.fit.batch_size,
                                        config.data.remainder == Remainder::kDrop);
  const int64_t wanted = config.fit.steps_per_epoch;
  const int64_t steps = (wanted > 0 ? wanted : batches) * config.fit.epochs;
  const int64_t period = setup.optimizer().accumulation_steps();
  if (period > steps && steps > 0) {
    warnings
        .warning("W212", config.compile.optimizer.loc,
                 fmt::format("`gradient_accumulation_steps` is {}, and the run has {} steps: no "
                             "weight changes",
                             period, steps))
        .help("an update takes the gradients of that many batches");
  }
}

// Warns of a last batch of which each device computes more rows than of a whole one.
void warn_of_whole_batch(const Setup& setup, const Dataset& train, Diagnostics& warnings) {
  const Config& config = setup.config();
  const int64_t size = config.fit.batch_size, last = train.num_samples % size;
  const int64_t shards = setup.mesh().size_of(setup.distribution().batch_axes);
  if (config.data.remainder == Remainder::kDrop || last % shards == 0 || last <= size / shards)
    return;
  warnings
      .warning("W317", train.loc,
               fmt::format("the last batch of an epoch, of {} samples, does not split over `{}` = "
                           "{}: each device computes all of it",
                           last, setup.distribution().batch_axis_names, shards))
      .note(fmt::format("it takes the time and memory of a batch of {}", last * shards))
      .help(fmt::format("`data: {{remainder: drop}}` leaves it out, and so does a slice of {} "
                        "samples",
                        train.num_samples - last));
}

// "[0:800]", "train[0:800] + test[0:10]": as `slice` and `split` write it.
std::string ranges_text(const std::vector<SourceRange>& ranges) {
  std::vector<std::string> parts;
  for (const SourceRange& range : ranges) {
    parts.push_back(fmt::format("{}[{}:{}]", range.split, range.begin, range.end));
  }
  return join(parts, " + ");
}

int64_t num_shared(const std::vector<SourceRange>& a, const std::vector<SourceRange>& b) {
  int64_t count = 0;
  for (const SourceRange& x : a) {
    for (const SourceRange& y : b) {
      const int64_t shared = std::min(x.end, y.end) - std::max(x.begin, y.begin);
      count += x.split == y.split ? std::max<int64_t>(0, shared) : 0;
    }
  }
  return count;
}

// Warns of samples that train and that the validation or the test reads as well. `source` is the
// part's own one.
void warn_of_shared_samples(const RunData& data, DataPart part, const DataConfig& sources,
                            const std::optional<ConfigObject>& source, Diagnostics& warnings) {
  const Dataset* const other = data.part(part);
  if (!source || other == nullptr ||
      !have_same_samples(*sources.train, *source, sources.base_dir)) {
    return;
  }
  const int64_t shared = num_shared(data.train->ranges, other->ranges);
  if (shared == 0) {
    return;
  }
  int64_t all = 0;
  for (const SourceRange& range : other->ranges) {
    all += range.end - range.begin;
  }
  const char* const unit = other->is_sliced                          ? "ids"
                           : series_options(*source).sequence_length ? "rows"
                                                                     : "samples";
  const std::string_view name = data_part_name(part);
  warnings
      .warning("W331", other->loc,
               fmt::format("{} of the {} {} of the {} data are in `data.train`, too",
                           format_thousands(shared), format_thousands(all), unit, name))
      .note(fmt::format("`train` reads {}, `{}` reads {}", ranges_text(data.train->ranges), name,
                        ranges_text(other->ranges)))
      .help(
          "give both a `slice` (or `split`) without common samples, or leave this source out and "
          "write `data.split` or `fit.validation_split`");
}

// Warns of an array of weights that nobody takes.
void warn_of_unused_weights(const Dataset& train, Diagnostics& warnings) {
  if (train.unused_weights.empty()) {
    return;
  }
  warnings
      .warning(
          "W332", train.loc,
          fmt::format("`{}` has an array `sample_weight`, which is not used", train.unused_weights))
      .help(
          "`sample_weight: sample_weight` in the source weighs the samples with it; "
          "`sample_weight: null` leaves it out without this warning");
}

}  // namespace

void warn_of_skipped(const Dataset& dataset, std::string_view what, Diagnostics& warnings) {
  const size_t count = dataset.skipped.size();
  if (count == 0) {
    return;
  }
  Diagnostic& d =
      warnings.warning("W322", dataset.loc,
                       fmt::format("{} bad record{} of {} {} left out", count,
                                   count == 1 ? "" : "s", what, count == 1 ? "is" : "are"));
  for (size_t i = 0; i < std::min<size_t>(3, count); ++i) {
    d.note(dataset.skipped[i]);
  }
}

void warn_of_data(const Setup& setup, const RunData& data, Diagnostics& warnings) {
  warn_of_skipped_parts(data, warnings);
  warn_of_no_updates(setup, data, warnings);
  warn_of_classes(setup, data, warnings);
  warn_of_label_among_features(data, setup.config(), warnings);
  if (data.train) {
    warn_of_scale(setup, *data.train, warnings);
    warn_of_whole_batch(setup, *data.train, warnings);
    warn_of_unused_weights(*data.train, warnings);
    const DataConfig& sources = setup.config().data;
    for (const auto& [part, source] : {std::pair(DataPart::kValidation, &sources.validation),
                                       std::pair(DataPart::kTest, &sources.test)}) {
      warn_of_shared_samples(data, part, sources, *source, warnings);
    }
  }
}

}  // namespace meshtrain
