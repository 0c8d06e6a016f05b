#include "record/evaluation_details.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "record/predictions.h"

namespace meshtrain {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t row_length(const HostTensor& tensor) {
  return tensor.shape()[0] == 0 ? 0 : tensor.size() / tensor.shape()[0];
}

double share_of(double part, double whole) {
  return whole == 0 ? kNan : part / whole;
}

// NaN has no place in an order: it gets one here.
double placed(double value, double place_of_nan) {
  return std::isnan(value) ? place_of_nan : value;
}

// The class of each of `rows` targets; -1 for none.
std::vector<int64_t> target_classes(const HostTensor& target, int64_t rows, int64_t num_classes) {
  const int64_t width = rows == 0 ? 0 : target.size() / rows;
  std::vector<int64_t> out;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t found = 0;
    if (width == 1) {
      const double value = target.at(row);
      found = value >= 0 && value < static_cast<double>(num_classes) && value == std::floor(value)
                  ? static_cast<int64_t>(value)
                  : -1;
    }
    for (int64_t i = 1; i < width; ++i)
      found = target.at(row * width + i) > target.at(row * width + found) ? i : found;
    out.push_back(found);
  }
  return out;
}

// How much a row speaks for a class: any increasing function of its probability.
double score_of(const HostTensor& prediction, const ClassOutput& classes, int64_t row, int64_t id) {
  if (classes.kind == ClassOutput::Kind::kYesNo)
    return id == 1 ? prediction.at(row) : -prediction.at(row);
  const int64_t width = prediction.shape().back();
  if (!classes.is_logits)
    return prediction.at(row * width + id);
  double most = prediction.at(row * width), sum = 0;  // logits of different rows are not alike
  for (int64_t i = 1; i < width; ++i)
    most = std::max(most, prediction.at(row * width + i));
  for (int64_t i = 0; i < width; ++i)
    sum += std::exp(prediction.at(row * width + i) - most);
  return prediction.at(row * width + id) - most - std::log(sum);
}

std::vector<std::pair<double, double>> thinned_curve(
    const std::vector<std::pair<double, double>>& all) {
  if (all.size() <= kRocPoints)
    return all;
  std::vector<std::pair<double, double>> out;
  for (size_t i = 0; i < kRocPoints; ++i)
    out.push_back(all[i * (all.size() - 1) / (kRocPoints - 1)]);
  return out;
}

// Thresholds from the largest score down; equal scores are one step, whose area is a trapezium.
void add_roc(ClassDetails& details, std::vector<std::pair<double, bool>> scores) {
  std::sort(scores.begin(), scores.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  double wanted = 0;
  for (const auto& [score, is_target] : scores)
    wanted += is_target ? 1 : 0;
  const double others = static_cast<double>(scores.size()) - wanted;
  details.auc = kNan;
  if (wanted == 0 || others == 0)
    return;
  std::vector<std::pair<double, double>> curve = {{0, 0}};
  double hits = 0, misses = 0, area = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    (scores[i].second ? hits : misses) += 1;
    if (i + 1 < scores.size() && scores[i + 1].first == scores[i].first)
      continue;
    const auto [x, y] = curve.back();
    curve.emplace_back(misses / others, hits / wanted);
    area += (curve.back().first - x) * (curve.back().second + y) / 2;
  }
  details.auc = area;
  details.roc = thinned_curve(curve);
}

void keep_worst(std::vector<WorstSample>& worst) {
  std::stable_sort(worst.begin(), worst.end(), [](const WorstSample& a, const WorstSample& b) {
    return placed(a.measure, HUGE_VAL) > placed(b.measure, HUGE_VAL);
  });
  worst.resize(std::min(worst.size(), kWorstSamples));
}

std::string file_of(const std::vector<std::string>& files, int64_t sample) {
  return files.empty() ? "" : files[static_cast<size_t>(sample)];
}

// What the confusion matrix says of class `id`.
ClassDetails details_of_class(const std::vector<std::vector<int64_t>>& confusion, size_t id) {
  ClassDetails details;
  double predicted = 0;
  for (const std::vector<int64_t>& row : confusion)
    predicted += static_cast<double>(row[id]);
  details.support = std::accumulate(confusion[id].begin(), confusion[id].end(), int64_t{0});
  const auto found = static_cast<double>(confusion[id][id]);
  const auto support = static_cast<double>(details.support);
  details.precision = share_of(found, predicted);
  details.recall = share_of(found, support);
  details.f1 = share_of(2 * found, predicted + support);
  details.iou = share_of(found, predicted + support - found);
  details.auc = kNan;
  return details;
}

std::string name_of_class(const ClassOutput& classes, int64_t id) {
  return classes.names.empty() ? fmt::format("{}", id) : classes.names[static_cast<size_t>(id)];
}

// The samples with the most wrong predictions, of `wrong`, out of `each` a sample.
void add_wrong_shares(OutputDetails& out, const std::vector<int64_t>& wrong, int64_t each,
                      const std::vector<std::string>& files) {
  for (int64_t sample = 0; sample < out.samples; ++sample) {
    const auto count = static_cast<double>(wrong[static_cast<size_t>(sample)]);
    if (count > 0) {
      out.worst.push_back({.sample = sample,
                           .file = file_of(files, sample),
                           .measure = count / static_cast<double>(each)});
    }
  }
  keep_worst(out.worst);
}

// The areas and curves of single predictions of a sample, and the samples that are most wrong.
void add_single_predictions(OutputDetails& out, const HostTensor& prediction,
                            const ClassOutput& classes, const std::vector<int64_t>& wanted,
                            const std::vector<std::string>& files) {
  for (int64_t row = 0; row < out.samples; ++row) {
    const int64_t id = wanted[static_cast<size_t>(row)];
    const PredictedClass given = predicted_class(classes, prediction, row);
    if (id >= 0 && given.id != id) {
      out.worst.push_back({row, file_of(files, row), static_cast<double>(id),
                           static_cast<double>(given.id), given.probability});
    }
  }
  keep_worst(out.worst);
  for (int64_t id = 0; id < std::ssize(out.classes); ++id) {
    std::vector<std::pair<double, bool>> scores;
    for (int64_t row = 0; row < out.samples; ++row) {
      const int64_t own = wanted[static_cast<size_t>(row)];
      if (own >= 0)
        scores.emplace_back(placed(score_of(prediction, classes, row, id), -HUGE_VAL), own == id);
    }
    add_roc(out.classes[static_cast<size_t>(id)], std::move(scores));
  }
}

void add_classes(OutputDetails& out, const HostTensor& prediction, const HostTensor& target,
                 const ClassOutput& classes, const std::vector<std::string>& files) {
  const int64_t rows = out.samples * classes.per_sample;
  const int64_t count = classes.kind == ClassOutput::Kind::kYesNo ? 2 : prediction.shape().back();
  const std::vector<int64_t> wanted = target_classes(target, rows, count);
  out.confusion.assign(static_cast<size_t>(count),
                       std::vector<int64_t>(static_cast<size_t>(count)));
  std::vector<int64_t> wrong(static_cast<size_t>(out.samples));
  int64_t hits = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t id = wanted[static_cast<size_t>(row)];
    if (id < 0) {
      ++out.without_class;
      continue;
    }
    const int64_t given = predicted_class(classes, prediction, row).id;
    ++out.confusion[static_cast<size_t>(id)][static_cast<size_t>(given)];
    hits += given == id ? 1 : 0;
    wrong[static_cast<size_t>(row / classes.per_sample)] += given == id ? 0 : 1;
  }
  out.accuracy = share_of(static_cast<double>(hits), static_cast<double>(rows - out.without_class));
  double unions = 0;
  out.mean_iou = 0;
  for (int64_t id = 0; id < count; ++id) {
    ClassDetails details = details_of_class(out.confusion, static_cast<size_t>(id));
    details.name = name_of_class(classes, id);
    if (!std::isnan(details.iou)) {
      out.mean_iou += details.iou;
      unions += 1;
    }
    out.classes.push_back(std::move(details));
  }
  out.mean_iou = share_of(out.mean_iou, unions);
  if (classes.per_sample == 1) {
    add_single_predictions(out, prediction, classes, wanted, files);
  } else {
    out.unit = prediction.shape().size() == 3 ? "steps" : "pixels";
    add_wrong_shares(out, wrong, classes.per_sample, files);
  }
}

// Each label by itself, as a yes or no.
void add_labels(OutputDetails& out, const HostTensor& prediction, const HostTensor& target,
                const ClassOutput& classes, const std::vector<std::string>& files) {
  const int64_t width = prediction.shape().back();
  out.unit = "labels";
  ClassOutput one = classes;
  one.kind = ClassOutput::Kind::kYesNo;
  std::vector<int64_t> wrong(static_cast<size_t>(out.samples));
  for (int64_t label = 0; label < width; ++label) {
    std::vector<std::vector<int64_t>> confusion(2, std::vector<int64_t>(2));
    std::vector<std::pair<double, bool>> scores;
    for (int64_t sample = 0; sample < out.samples; ++sample) {
      const int64_t at = sample * width + label;
      const bool is_wanted = target.at(at) > 0.5;
      const int64_t given = predicted_class(one, prediction, at).id;
      ++confusion[is_wanted ? 1 : 0][static_cast<size_t>(given)];
      wrong[static_cast<size_t>(sample)] += given == (is_wanted ? 1 : 0) ? 0 : 1;
      scores.emplace_back(placed(prediction.at(at), -HUGE_VAL), is_wanted);
    }
    ClassDetails details = details_of_class(confusion, 1);
    details.name = name_of_class(classes, label);
    add_roc(details, std::move(scores));
    out.classes.push_back(std::move(details));
  }
  const auto samples = static_cast<double>(out.samples);
  const auto all = static_cast<double>(std::accumulate(wrong.begin(), wrong.end(), int64_t{0}));
  out.accuracy = 1 - share_of(all, samples * static_cast<double>(width));
  out.exact = share_of(static_cast<double>(std::count(wrong.begin(), wrong.end(), 0)), samples);
  out.mean_iou = kNan;
  add_wrong_shares(out, wrong, width, files);
}

void add_numbers(OutputDetails& out, const HostTensor& prediction, const HostTensor& target,
                 const std::vector<std::string>& files) {
  const int64_t width = row_length(prediction);
  std::vector<double> residuals;
  for (int64_t row = 0; row < out.samples; ++row) {
    WorstSample most{.sample = row, .file = file_of(files, row), .measure = -1};
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const double residual = target.at(i) - prediction.at(i);
      residuals.push_back(residual);
      if (placed(std::abs(residual), HUGE_VAL) > placed(most.measure, HUGE_VAL))
        most = {row, most.file, target.at(i), prediction.at(i), std::abs(residual)};
    }
    out.worst.push_back(std::move(most));
    if (out.worst.size() > 100 * kWorstSamples)
      keep_worst(out.worst);
  }
  keep_worst(out.worst);
  std::sort(residuals.begin(), residuals.end(),
            [](double a, double b) { return placed(a, HUGE_VAL) < placed(b, HUGE_VAL); });
  const auto count = static_cast<double>(residuals.size());
  for (const double residual : residuals) {
    out.mean_residual += residual / count;
    out.mean_absolute += std::abs(residual) / count;
  }
  for (const double share : {0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0}) {  // linear between two
    const double place = share * (count - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, residuals.size() - 1);
    const double part = place - static_cast<double>(low);
    out.quantiles.emplace_back(share, residuals[low] * (1 - part) + residuals[high] * part);
  }
}

}  // namespace

OutputDetails output_details(const std::string& name, const HostTensor& prediction,
                             const HostTensor& target, const ClassOutput& classes,
                             const std::vector<std::string>& files) {
  OutputDetails out;
  out.name = name;
  out.samples = prediction.shape().empty() ? 0 : prediction.shape()[0];
  if (out.samples == 0) {
    out.none_because = "there are no samples";
  } else if (classes.kind != ClassOutput::Kind::kNone && prediction.shape().back() > kMostClasses) {
    out.none_because =
        fmt::format("it has {} classes; at most {} are compared",
                    format_thousands(prediction.shape().back()), format_thousands(kMostClasses));
  } else if (classes.kind == ClassOutput::Kind::kEach) {
    add_labels(out, prediction, target, classes, files);
  } else if (classes.kind != ClassOutput::Kind::kNone) {
    add_classes(out, prediction, target, classes, files);
  } else if (prediction.size() == target.size()) {
    add_numbers(out, prediction, target, files);
  } else {
    out.none_because = fmt::format(
        "outputs {} and targets {} are neither classes nor numbers of "
        "one shape",
        shape_string(prediction.shape()), shape_string(target.shape()));
  }
  return out;
}

}  // namespace meshtrain
