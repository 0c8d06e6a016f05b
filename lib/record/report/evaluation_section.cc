// The part of the report that shows evaluation.json: what `evaluate --details` found.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "record/report/chart.h"
#include "record/report/html.h"
#include "record/report/sections.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostClasses = 40;  // of a confusion matrix
constexpr size_t kMostCurves = 6;

std::string number_cell(const Json& value) {
  return value.is_number() ? html_number(value.get<double>()) : "\xe2\x80\x93";
}

std::string text_of_value(const Json& value) {
  return value.is_string() ? html_text(value.get<std::string>()) : number_cell(value);
}

// The word of several predictions a sample, "pixels"; "" of one.
std::string unit_of(const Json& output) {
  return output.value("unit", "");
}

std::string class_rows(const Json& output) {
  const std::string unit = unit_of(output);
  const bool has_areas = unit.empty() || unit == "labels";
  std::vector<std::vector<std::string>> rows = {{unit == "labels" ? "label" : "class", "support",
                                                 "precision", "recall", "f1",
                                                 has_areas ? "AUC" : "IoU"}};
  for (const Json& one : output.at("classes")) {
    rows.push_back({html_text(one.at("name").get<std::string>())});
    for (const char* key : {"support", "precision", "recall", "f1", has_areas ? "auc" : "iou"})
      rows.back().push_back(number_cell(one.at(key)));
  }
  return html_table(rows, 1);
}

// Shaded by the share of the target's samples.
std::string confusion_rows(const Json& output) {
  const Json &matrix = output.at("confusion"), &classes = output.at("classes");
  std::vector<std::vector<std::string>> rows = {{"target \xe2\x86\x93 predicted \xe2\x86\x92"}};
  for (const Json& one : classes)
    rows[0].push_back(html_text(one.at("name").get<std::string>()));
  for (size_t i = 0; i < matrix.size(); ++i) {
    rows.push_back({rows[0][i + 1]});
    int64_t sum = 0;
    for (const Json& count : matrix[i])
      sum += count.get<int64_t>();
    for (const Json& count : matrix[i]) {
      const double share = sum == 0 ? 0 : count.get<double>() / static_cast<double>(sum);
      rows.back().push_back(
          fmt::format("<span class=\"share\" style=\"--share: {:.0f}%\">{}</span>", share * 70,
                      short_number(count.get<double>())));
    }
  }
  return html_table(rows, 1);
}

std::string roc_chart(const Json& classes) {
  std::vector<const Json*> curves;
  for (const Json& one : classes) {
    if (one.at("auc").is_number())
      curves.push_back(&one);
  }
  const auto area = [](const Json* one) { return one->at("auc").get<double>(); };
  std::stable_sort(curves.begin(), curves.end(),
                   [&](const Json* a, const Json* b) { return area(a) < area(b); });
  const bool is_all = curves.size() <= kMostCurves;
  curves.resize(std::min(curves.size(), kMostCurves));
  Chart chart{is_all ? "ROC: true by false positive rate"
                     : "ROC of the classes with the least area: true by false positive rate",
              "false positive rate",
              {},
              {}};
  for (const Json* one : curves) {
    chart.series.push_back(
        {fmt::format("{} ({:.4f})", one->at("name").get<std::string>(), area(one)),
         one->at("roc").get<std::vector<std::pair<double, double>>>()});
  }
  return chart.series.empty() ? "" : "<div class=\"charts one\">" + chart_html(chart) + "</div>";
}

// Samples of several predictions.
std::string wrong_rows(const Json& worst, const std::string& unit) {
  std::vector<std::vector<std::string>> rows = {{"sample", "wrong " + unit, "file"}};
  for (const Json& one : worst) {
    rows.push_back({number_cell(one.at("sample")),
                    fmt::format("{:.1f}%", 100 * one.at("wrong").get<double>()),
                    html_text(one.value("file", ""))});
  }
  return rows.size() == 1 ? "" : "<p class=\"note\">The worst samples</p>" + html_table(rows, 9);
}

std::string worst_rows(const Json& worst) {
  const bool has_files =
      std::any_of(worst.begin(), worst.end(), [](const Json& one) { return one.contains("file"); });
  const bool has_classes = std::any_of(worst.begin(), worst.end(),
                                       [](const Json& one) { return one.contains("probability"); });
  std::vector<std::vector<std::string>> rows = {{"sample", "target", "predicted"}};
  if (has_classes)
    rows[0].push_back("probability");
  if (has_files)
    rows[0].push_back("file");
  for (const Json& one : worst) {
    rows.push_back({number_cell(one.at("sample")), text_of_value(one.at("target")),
                    text_of_value(one.at("prediction"))});
    if (has_classes)
      rows.back().push_back(number_cell(one.at("probability")));
    if (has_files)
      rows.back().push_back(one.contains("file") ? html_text(one.at("file").get<std::string>())
                                                 : "");
  }
  return rows.size() == 1 ? "" : "<p class=\"note\">The worst samples</p>" + html_table(rows, 9);
}

std::string output_content(const Json& output) {
  std::string out =
      fmt::format("<p>{}: {} samples", html_text(output.at("name").get<std::string>()),
                  number_cell(output.at("samples")));
  if (output.contains("none_because"))
    return out + "; no details: " + html_text(output.at("none_because").get<std::string>()) +
           "</p>";
  if (output.contains("classes")) {
    out += ", accuracy " + number_cell(output.at("accuracy"));
    if (const std::string unit = unit_of(output); !unit.empty())
      out += " of " + unit;
    if (output.contains("exact"))
      out += ", all labels right in " + number_cell(output.at("exact")) + " of samples";
    out += "</p>" + class_rows(output);
    if (output.contains("confusion") && output.at("classes").size() <= kMostClasses)
      out += "<p class=\"note\">Confusion matrix</p>" + confusion_rows(output);
    out += roc_chart(output.at("classes"));
  } else {
    out += ", mean residual " + number_cell(output.at("mean_residual")) + ", mean |residual| " +
           number_cell(output.at("mean_absolute")) + "</p>";
    std::vector<std::vector<std::string>> rows = {{"share of residuals"}, {"at most"}};
    for (const Json& entry : output.at("quantiles")) {
      rows[0].push_back(fmt::format("{:.0f}%", entry[0].get<double>() * 100));
      rows[1].push_back(number_cell(entry[1]));
    }
    out += html_table(rows, 1);
  }
  const std::string unit = unit_of(output);
  return out +
         (unit.empty() ? worst_rows(output.at("worst")) : wrong_rows(output.at("worst"), unit));
}

}  // namespace

// A file of another form gives nothing.
std::string evaluation_section(const RunRecord& record) {
  const Json details = parse_json<Json>(record.evaluation);
  if (!details.is_object())
    return "";
  try {
    std::string content;
    for (const Json& output : details.at("outputs"))
      content += output_content(output);
    return section("Evaluation in detail", content);
  } catch (const Json::exception&) {
    return "";
  }
}

}  // namespace meshtrain
