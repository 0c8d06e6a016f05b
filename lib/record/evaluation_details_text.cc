#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/text.h"
#include "record/evaluation_details.h"

namespace meshtrain {
namespace {

constexpr size_t kShownClasses = 12;  // of a confusion matrix on a terminal
constexpr size_t kShownPairs = 10;

nlohmann::ordered_json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string shown(double value) {
  return std::isfinite(value) ? fmt::format("{:.4f}", value) : "-";
}

std::string class_name(const OutputDetails& output, double id) {
  return output.classes[static_cast<size_t>(id)].name;
}

// Whether classes have areas under curves, else intersections over unions.
bool has_areas(const OutputDetails& output) {
  return output.unit.empty() || output.unit == "labels";
}

std::string class_table(const OutputDetails& output) {
  std::vector<std::vector<std::string>> rows = {{output.unit == "labels" ? "label" : "class",
                                                 "support", "precision", "recall", "f1",
                                                 has_areas(output) ? "auc" : "iou"}};
  for (const ClassDetails& one : output.classes) {
    rows.push_back({one.name, format_thousands(one.support), shown(one.precision),
                    shown(one.recall), shown(one.f1),
                    shown(has_areas(output) ? one.auc : one.iou)});
  }
  return aligned_columns(rows, {1, 2, 3, 4, 5});
}

std::string confusion_table(const OutputDetails& output) {
  std::vector<std::vector<std::string>> rows = {{"target \\ predicted"}};
  std::vector<size_t> right;
  for (size_t i = 0; i < output.classes.size(); ++i) {
    rows[0].push_back(output.classes[i].name);
    right.push_back(i + 1);
    rows.push_back({output.classes[i].name});
    for (const int64_t count : output.confusion[i])
      rows.back().push_back(format_thousands(count));
  }
  return aligned_columns(rows, right);
}

// Where there are too many classes for a matrix: which are taken for which.
std::string mistaken_table(const OutputDetails& output) {
  std::vector<std::pair<int64_t, std::pair<size_t, size_t>>> pairs;
  for (size_t i = 0; i < output.confusion.size(); ++i) {
    for (size_t j = 0; j < output.confusion.size(); ++j) {
      if (i != j && output.confusion[i][j] > 0)
        pairs.push_back({output.confusion[i][j], {i, j}});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  pairs.resize(std::min(pairs.size(), kShownPairs));
  std::vector<std::vector<std::string>> rows = {
      {"target", "predicted", output.unit.empty() ? "samples" : output.unit}};
  for (const auto& [count, pair] : pairs) {
    rows.push_back({output.classes[pair.first].name, output.classes[pair.second].name,
                    format_thousands(count)});
  }
  return aligned_columns(rows, {2});
}

// Samples of several predictions.
std::string wrong_table(const OutputDetails& output) {
  std::vector<std::vector<std::string>> rows = {{"sample", "wrong " + output.unit, ""}};
  for (const WorstSample& one : output.worst)
    rows.push_back(
        {fmt::format("{}", one.sample), fmt::format("{:.1f}%", one.measure * 100), one.file});
  return aligned_columns(rows, {0, 1});
}

std::string worst_table(const OutputDetails& output) {
  if (!output.unit.empty())
    return wrong_table(output);
  const bool has_classes = !output.classes.empty();
  std::vector<std::vector<std::string>> rows = {
      {"sample", "target", "predicted", has_classes ? "probability" : "residual", ""}};
  for (const WorstSample& one : output.worst) {
    const auto value = [&](double number) {
      return has_classes ? class_name(output, number) : fmt::format("{:.6g}", number);
    };
    rows.push_back(
        {fmt::format("{}", one.sample), value(one.target), value(one.prediction),
         has_classes ? shown(one.measure) : fmt::format("{:.4g}", one.target - one.prediction),
         one.file});
  }
  return aligned_columns(rows, {0, 3});
}

// ", accuracy 0.9712, mean IoU 0.8513; 12 targets are no class"
std::string summary_of_classes(const OutputDetails& output) {
  std::string text = fmt::format(", accuracy {}", shown(output.accuracy));
  if (output.unit == "labels")
    text += fmt::format(" of labels; all labels are right in {} of samples", shown(output.exact));
  else if (!output.unit.empty())
    text += fmt::format(" of {}, mean IoU {}", output.unit, shown(output.mean_iou));
  if (output.without_class > 0)
    text += fmt::format("; {} targets are no class", format_thousands(output.without_class));
  return text;
}

std::string quantile_text(const OutputDetails& output) {
  std::vector<std::vector<std::string>> rows = {{"residuals"}, {""}};
  std::vector<size_t> right;
  for (const auto& [share, value] : output.quantiles) {
    rows[0].push_back(share == 0   ? "least"
                      : share == 1 ? "largest"
                                   : fmt::format("{:.0f}%", share * 100));
    rows[1].push_back(fmt::format("{:.4g}", value));
    right.push_back(right.size() + 1);
  }
  return aligned_columns(rows, right);
}

}  // namespace

nlohmann::ordered_json details_json(const std::vector<OutputDetails>& outputs) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const OutputDetails& output : outputs) {
    Json one = {{"name", output.name}, {"samples", output.samples}};
    if (!output.unit.empty())
      one["unit"] = output.unit;
    if (!output.none_because.empty())
      one["none_because"] = output.none_because;
    if (!output.classes.empty()) {
      one["accuracy"] = number_or_null(output.accuracy);
      if (output.unit == "labels") {
        one["exact"] = number_or_null(output.exact);
      } else {
        one["mean_iou"] = number_or_null(output.mean_iou);
        one["without_class"] = output.without_class;
        one["confusion"] = output.confusion;
      }
      one["classes"] = Json::array();
      for (const ClassDetails& each : output.classes) {
        one["classes"].push_back({{"name", each.name},
                                  {"support", each.support},
                                  {"precision", number_or_null(each.precision)},
                                  {"recall", number_or_null(each.recall)},
                                  {"f1", number_or_null(each.f1)},
                                  {"iou", number_or_null(each.iou)},
                                  {"auc", number_or_null(each.auc)},
                                  {"roc", each.roc}});
      }
    }
    if (!output.quantiles.empty()) {
      one["mean_residual"] = number_or_null(output.mean_residual);
      one["mean_absolute"] = number_or_null(output.mean_absolute);
      one["quantiles"] = Json::array();
      for (const auto& [share, value] : output.quantiles)
        one["quantiles"].push_back({share, number_or_null(value)});
    }
    one["worst"] = Json::array();
    for (const WorstSample& sample : output.worst) {
      Json entry = {{"sample", sample.sample}};
      if (!sample.file.empty())
        entry["file"] = sample.file;
      if (!output.unit.empty()) {
        entry["wrong"] = number_or_null(sample.measure);
      } else if (output.classes.empty()) {
        entry["target"] = number_or_null(sample.target);
        entry["prediction"] = number_or_null(sample.prediction);
      } else {
        entry["target"] = class_name(output, sample.target);
        entry["prediction"] = class_name(output, sample.prediction);
        entry["probability"] = number_or_null(sample.measure);
      }
      one["worst"].push_back(std::move(entry));
    }
    list.push_back(std::move(one));
  }
  Json out = Json::object();
  out["outputs"] = std::move(list);
  return out;
}

std::string details_text(const std::vector<OutputDetails>& outputs) {
  std::string text;
  for (const OutputDetails& output : outputs) {
    text += fmt::format("\n{}: {} samples", output.name, format_thousands(output.samples));
    if (!output.none_because.empty()) {
      text += "; no details: " + output.none_because + "\n";
      continue;
    }
    if (output.classes.empty()) {
      text += fmt::format(", mean residual {:.4g}, mean |residual| {:.4g}\n\n",
                          output.mean_residual, output.mean_absolute) +
              quantile_text(output);
    } else {
      text += summary_of_classes(output) + "\n\n" + class_table(output);
      if (!output.confusion.empty()) {
        text += "\n" + (output.classes.size() <= kShownClasses ? confusion_table(output)
                                                               : mistaken_table(output));
      }
    }
    if (!output.worst.empty())
      text += "\nthe worst samples\n" + worst_table(output);
  }
  return text;
}

}  // namespace meshtrain
