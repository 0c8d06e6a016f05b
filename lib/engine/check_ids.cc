#include "engine/check_ids.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "data/csv_columns.h"
#include "data/learned.h"
#include "engine/class_outputs.h"

namespace meshtrain {
namespace {

bool takes_yes_no(const ConfigObject& loss) {
  return loss.class_name == "BinaryCrossentropy" || loss.class_name == "BinaryFocalCrossentropy";
}

// Larger targets may be samples of their own, as an autoencoder has them.
bool has_one_number(const Rows& targets) {
  return targets.row_bytes() == dtype_size(targets.dtype());
}

// One yes or no a sample, or one of each step or pixel.
bool is_yes_no(const Rows& targets) {
  return has_one_number(targets) || targets.shape().back() == 1;
}

// The labels that are ids of texts: what they are called, and the texts.
std::map<std::string, std::vector<std::string>> texts_of_labels(const Dataset& dataset,
                                                                size_t target) {
  std::map<std::string, std::vector<std::string>> found;
  const Dataset::Array& array = dataset.targets[target];
  if (!dataset.class_names.empty() && has_one_number(*array.rows)) {
    found[array.name] = dataset.class_names;
  } else if (dataset.learned) {
    const auto& categories = dataset.learned->csv.categories;
    for (const std::string& column : array.columns) {
      if (const auto texts = categories.find(column); texts != categories.end()) {
        found[column] = texts->second;
      }
    }
  }
  return found;
}

// Texts of a column of labels become ids in the order of the texts: no numbers to come close to.
void check_are_numbers(const ConfigObject& loss, const Dataset& dataset, size_t target) {
  static const std::set<std::string_view> kOfNumbers = {"MeanSquaredError",
                                                        "MeanAbsoluteError",
                                                        "MeanAbsolutePercentageError",
                                                        "MeanSquaredLogarithmicError",
                                                        "Huber",
                                                        "LogCosh",
                                                        "Poisson"};
  if (!kOfNumbers.contains(loss.class_name)) {
    return;
  }
  for (const auto& [name, texts] : texts_of_labels(dataset, target)) {
    if (texts.size() > 2) {
      throw ConfigError(
          "E312", dataset.loc,
          fmt::format("`{}`: `{}` takes numbers, and the labels are {} texts: `{}`, `{}`, "
                      "...",
                      name, loss.class_name, texts.size(), shown_text(texts[0]),
                      shown_text(texts[1])))
          .help(
              "numbers have a point and no sign of a currency; for classes `loss: "
              "sparse_categorical_crossentropy`");
    }
  }
}

// Of the texts of yes and no the first in their order is no: one alone would be that.
void check_are_yes_no(const ConfigObject& loss, const Dataset& dataset, size_t target) {
  for (const auto& [name, texts] : texts_of_labels(dataset, target)) {
    if (texts.size() == 1 || (texts.size() > 2 && !is_yes_no(*dataset.targets[target].rows))) {
      throw ConfigError(
          "E312", dataset.loc,
          fmt::format("`{}`: `{}` takes yes and no, and the labels are {}: `{}`{}", name,
                      loss.class_name, texts.size() == 1 ? "one text" : "several texts",
                      shown_text(texts[0]), texts.size() == 1 ? "" : ", ..."))
          .help("`vocabulary` of the source names both texts, no first");
    }
  }
}

void check_part_labels(const Setup& setup, Dataset& dataset) {
  const std::vector<int>& outputs = setup.model().outputs();
  for (size_t i = 0; i < std::min(outputs.size(), dataset.targets.size()); ++i) {
    const std::optional<ConfigObject> loss = loss_of_output(setup, i);
    const Shape& prediction = setup.model().calls()[outputs[i]].output_shape;
    if (!loss || prediction.empty()) {
      continue;
    }
    if (loss_takes_class_ids(*loss)) {
      check_labels(dataset, i, num_classes(*loss, prediction), ignored_class(*loss));
    } else if (takes_yes_no(*loss)) {
      check_are_yes_no(*loss, dataset, i);
      if (is_yes_no(*dataset.targets[i].rows)) {
        check_yes_no(dataset, i, loss->class_name);
      }
    } else {
      check_are_numbers(*loss, dataset, i);
    }
  }
}

// The rows of a layer's table by id; 0 for other layers.
int64_t embedding_rows(const Layer& layer) {
  const std::string_view name = layer.acting_class();
  return name == "Embedding" || name == "ReversibleEmbedding" ? layer.acting()->integer("input_dim")
         : name == "TokenAndPositionEmbedding" ? layer.acting()->integer("vocabulary_size")
                                               : 0;
}

// The embedding of the fewest rows that an input feeds directly, or null.
const Layer* embedding_of(const Model& model, int input) {
  const Layer* smallest = nullptr;
  for (const Model::Call& call : model.calls()) {
    if (call.layer == kNone || call.inputs != std::vector<int>{input}) {
      continue;
    }
    const Layer* layer = model.layers()[call.layer].get();
    if (embedding_rows(*layer) > 0 && !call.use.call_flag("reverse") &&
        (smallest == nullptr || embedding_rows(*layer) < embedding_rows(*smallest))) {
      smallest = layer;
    }
  }
  return smallest;
}

}  // namespace

void check_input_ids(const Setup& setup, Dataset& dataset) {
  const std::vector<int>& inputs = setup.model().inputs();
  for (size_t i = 0; i < std::min(inputs.size(), dataset.inputs.size()); ++i) {
    if (const Layer* layer = embedding_of(setup.model(), inputs[i])) {
      check_ids(dataset, i, embedding_rows(*layer), layer->name);
    }
  }
}

void check_run_ids(const Setup& setup, RunData& data) {
  Diagnostics diagnostics;
  for (std::optional<Dataset>* part :
       {&data.train, &data.validation, &data.test, &data.unweighted}) {
    if (part->has_value()) {
      collect(diagnostics, [&] { check_part_labels(setup, **part); });
      collect(diagnostics, [&] { check_input_ids(setup, **part); });
    }
  }
  diagnostics.throw_if_errors();
}

}  // namespace meshtrain
