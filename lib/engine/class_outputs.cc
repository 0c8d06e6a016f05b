#include "engine/class_outputs.h"

#include <algorithm>

#include "base/utf8.h"

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

}  // namespace

const ConfigObject* loss_of_output(const Setup& setup, size_t output) {
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

std::vector<ClassOutput> class_outputs(const Setup& setup, const LearnedPtr& learned) {
  const Model& model = setup.model();
  const std::vector<OutputOrigin> origins = output_origins(model);
  std::vector<ClassOutput> out(model.outputs().size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int call = model.outputs()[i];
    const Shape& prediction = model.calls()[call].output_shape;
    const ConfigObject* const given = loss_of_output(setup, i);
    const bool has_size =
        std::find(prediction.begin() + 1, prediction.end(), kUnknownDim) == prediction.end();
    if (given == nullptr || prediction.size() < 2 || !has_size ||
        i >= setup.data().targets.size()) {
      continue;
    }
    Shape target = setup.data().targets[i].shape;
    target.insert(target.begin(), kUnknownDim);
    const ConfigObject loss = fitting_loss(*given, target, prediction);
    const std::optional<int64_t> classes = known_classes(loss, target, prediction);
    const int64_t width = prediction.back();
    ClassOutput& entry = out[i];
    entry.kind = kind_of(loss, classes, prediction);
    entry.per_sample = num_elements({prediction.begin() + 1, prediction.end() - 1});
    const OutputScale scale = origins[static_cast<size_t>(call)].scale;
    entry.is_logits = scale == OutputScale::kUnknown ? takes_logits(loss).value_or(false)
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
