#include "engine/class_outputs.h"

#include <algorithm>

#include "base/utf8.h"
#include "engine/step_frame.h"

namespace meshtrain {
namespace {

// The texts that the labels of an output had, in the order of their numbers.
std::vector<std::string> label_names(const LearnedData& learned, const std::string& output,
                                     bool is_only) {
  if (is_only && !learned.class_names.empty()) {
    return learned.class_names;
  }
  if (is_only && !learned.characters.empty()) {  // of a text: the character that follows
    std::vector<std::string> names;
    for (const char32_t character : learned.characters) {
      append_utf8(character, names.emplace_back());
    }
    return names;
  }
  for (const auto& [written, columns] : learned.csv.columns) {
    if (written[0] != output && !(is_only && written[0] == "y")) {
      continue;
    }
    if (written.size() > 2) {
      return columns;  // of several labels each is a column
    }
    if (written.size() == 2) {
      const auto found = learned.csv.categories.find(columns[0]);
      return found == learned.csv.categories.end() ? std::vector<std::string>() : found->second;
    }
  }
  return {};
}

ClassOutput::Kind kind_of(const ConfigObject& loss, const std::optional<int64_t>& classes,
                          const Shape& prediction) {
  const int64_t width = prediction.back();
  if (!is_classification(loss)) {
    return ClassOutput::Kind::kNone;
  }
  if (width > 1 && prediction.size() == 2 && !tells_one_of(loss)) {
    return ClassOutput::Kind::kEach;
  }
  return width == 1 && classes == 2               ? ClassOutput::Kind::kYesNo
         : width == classes && tells_one_of(loss) ? ClassOutput::Kind::kOneOf
                                                  : ClassOutput::Kind::kNone;
}

// The shape of the targets of an output, with the batch; that of the output where there are none.
Shape target_shape(const Setup& setup, size_t output) {
  const std::vector<ValueType>& targets = setup.data().targets;
  const Model& model = setup.model();
  return output < targets.size() ? with_batch(kUnknownDim, targets[output].shape)
                                 : model.calls()[model.outputs()[output]].output_shape;
}

// The entry of `compile.loss` for an output, or null.
const ConfigObject* given_loss(const Setup& setup, size_t output) {
  const ConfigObject* common = nullptr;
  for (const OutputObject& entry : setup.config().compile.loss) {
    if (entry.output == setup.model().output_names()[output]) {
      return &entry.object;
    }
    if (entry.output.empty()) {
      common = &entry.object;
    }
  }
  return common;
}

}  // namespace

std::optional<ConfigObject> loss_of_output(const Setup& setup, size_t output) {
  const ConfigObject* const given = given_loss(setup, output);
  const Model& model = setup.model();
  return given == nullptr
             ? std::nullopt
             : std::optional(fitting_loss(*given, target_shape(setup, output),
                                          model.calls()[model.outputs()[output]].output_shape));
}

void warn_of_class_names(const Setup& setup, Diagnostics& diagnostics) {
  const std::vector<std::string>& names = setup.config().model.class_names;
  if (names.empty()) {
    return;
  }
  const std::vector<ClassOutput> outputs = class_outputs(setup, nullptr);
  if (outputs.size() != 1 || outputs[0].kind == ClassOutput::Kind::kNone) {
    return;
  }
  const Model& model = setup.model();
  const int64_t count = outputs[0].kind == ClassOutput::Kind::kYesNo
                            ? 2
                            : model.calls()[model.outputs()[0]].output_shape.back();
  if (std::ssize(names) != count) {
    diagnostics
        .warning("W127", setup.config().model.loc,
                 fmt::format("`model.class_names` has {} names, the model has {} classes: the "
                             "names are not used",
                             names.size(), count))
        .with_label("this model")
        .help("a name for each class, in the order of their numbers");
  }
}

std::vector<ClassOutput> class_outputs(const Setup& setup, const LearnedPtr& learned) {
  const Model& model = setup.model();
  const std::vector<OutputOrigin> origins = output_origins(model);
  std::vector<ClassOutput> out(model.outputs().size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int call = model.outputs()[i];
    const Shape& prediction = model.calls()[call].output_shape;
    const std::optional<ConfigObject> loss = loss_of_output(setup, i);
    const bool has_size =
        std::find(prediction.begin() + 1, prediction.end(), kUnknownDim) == prediction.end();
    if (!loss || prediction.size() < 2 || !has_size || i >= setup.data().targets.size()) {
      continue;
    }
    const std::optional<int64_t> classes = known_classes(*loss, target_shape(setup, i), prediction);
    const int64_t width = prediction.back();
    ClassOutput& entry = out[i];
    entry.kind = kind_of(*loss, classes, prediction);
    entry.per_sample = num_elements({prediction.begin() + 1, prediction.end() - 1});
    const OutputScale scale = origins[static_cast<size_t>(call)].scale;
    entry.is_logits = scale == OutputScale::kUnknown ? takes_logits(*loss).value_or(false)
                                                     : scale == OutputScale::kLogits;
    if (entry.kind == ClassOutput::Kind::kNone)
      continue;
    const int64_t count = entry.kind == ClassOutput::Kind::kEach ? width : *classes;
    const std::vector<std::string>& given_names = setup.config().model.class_names;
    if (out.size() == 1 && std::ssize(given_names) == count) {
      entry.names = given_names;
    } else if (learned) {
      entry.names = label_names(*learned, model.output_names()[i], out.size() == 1);
      const auto known = std::ssize(entry.names);
      entry.names.resize(known <= count ? entry.names.size() : 0);
      for (int64_t i = known; known > 0 && i < count; ++i) {
        entry.names.push_back(std::to_string(i));  // a class that no sample had
      }
    }
  }
  return out;
}

}  // namespace meshtrain
