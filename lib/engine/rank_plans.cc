#include "engine/rank_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/columns.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/make_plan.h"
#include "engine/plan_search.h"
#include "engine/remat_choices.h"
#include "plan/cost_model.h"

namespace meshtrain {

bool PlanScore::is_better_than(const PlanScore& other) const {
  if (problem.empty() != other.problem.empty()) {
    return problem.empty();
  }
  if (fits != other.fits) {
    return fits;
  }
  return fits ? seconds < other.seconds : memory < other.memory;
}

namespace {

std::string sizes_of(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t size : shape) {
    parts.push_back(std::to_string(size));
  }
  return join(parts, "x");
}

// Adds the plans of one mesh, which `options` have: each ZeRO level, with each way to compute
// forward values again.
void rank_levels(const PlanSearch& search, const LoadOptions& options,
                 const std::vector<int64_t>& shape, std::vector<RankedPlan>& plans) {
  Config config;
  try {
    config = load_config(options);
  } catch (const ConfigError& error) {
    plans.push_back({shape, 0, "", {.problem = first_error_text(error)}});
    return;
  }
  const std::vector<RematChoice> choices = remat_choices(config.model);
  bool splits_batch = true;
  for (int64_t zero = 0; zero <= 3 && (zero == 0 || splits_batch); ++zero) {
    bool is_possible = true;
    for (const RematChoice& remat : choices) {
      Config changed = config;
      changed.distribution.zero.value = zero;
      changed.model.remat = remat.parts;
      plans.push_back({shape, zero, remat.name, search.score(changed, &splits_batch)});
      is_possible = plans.back().score.problem.empty();
      if (!is_possible) {
        break;  // the others are not, either
      }
    }
    splits_batch = splits_batch && is_possible;
  }
}

}  // namespace

PlanRanking rank_meshes(const LoadOptions& options, int64_t hosts, const BeforeMesh& before_mesh) {
  const Config config = load_config(options);
  const PlanSearch search(config, hosts);
  const MeshConfig& mesh = config.distribution.mesh;
  PlanRanking out;
  out.devices = search.describe();
  out.axes = mesh.axis_names.value;
  if (mesh.shape->empty()) {  // the config has no mesh: one for the batch and the model
    out.axes = {out.axes.empty() ? "batch" : out.axes[0], "model"};
  }
  const auto shapes = factorizations(search.num_devices(), out.axes.size());
  for (size_t s = 0; s < shapes.size(); ++s) {
    const std::vector<int64_t>& shape = shapes[s];
    if (before_mesh) {
      before_mesh(s, shapes.size());
    }
    rank_levels(search, on_mesh(options, shape, out.axes), shape, out.plans);
  }
  std::stable_sort(out.plans.begin(), out.plans.end(),
                   [](const auto& a, const auto& b) { return a.score.is_better_than(b.score); });
  return out;
}

std::string ranking_text(const PlanRanking& ranking) {
  std::vector<std::vector<std::string>> rows = {
      {"mesh", "zero", "remat", "step", "memory", "sent a step", "fits"}};
  std::string problems;
  for (const RankedPlan& plan : ranking.plans) {
    const PlanScore& score = plan.score;
    if (!score.problem.empty()) {
      problems += fmt::format("{}  not possible: {}\n", sizes_of(plan.shape), score.problem);
      continue;
    }
    rows.push_back({sizes_of(plan.shape), std::to_string(plan.zero), plan.remat,
                    seconds_text(score.seconds), format_bytes(score.memory),
                    format_bytes(score.bytes_sent), score.fits ? "yes" : "NO"});
  }
  return fmt::format("devices   {}, axes {}; predicted for the rules of the config\n\n{}{}{}",
                     ranking.devices, join(ranking.axes, ", "),
                     rows.size() > 1 ? aligned_columns(rows, {1, 3, 4, 5}) : "",
                     problems.empty() ? "" : "\n", problems);
}

namespace {

nlohmann::ordered_json score_json(const PlanScore& score) {
  if (!score.problem.empty()) {
    return {{"problem", score.problem}};
  }
  return {{"fits", score.fits},
          {"step_seconds", score.seconds},
          {"memory", score.memory},
          {"bytes_sent", score.bytes_sent}};
}

}  // namespace

std::string ranking_json(const PlanRanking& ranking) {
  nlohmann::ordered_json plans = nlohmann::ordered_json::array();
  for (const RankedPlan& plan : ranking.plans) {
    nlohmann::ordered_json row = {{"mesh", plan.shape}, {"zero", plan.zero}, {"remat", plan.remat}};
    row.update(score_json(plan.score));
    plans.push_back(std::move(row));
  }
  return json_text(
             nlohmann::ordered_json{
                 {"devices", ranking.devices}, {"axis_names", ranking.axes}, {"plans", plans}},
             2) +
         "\n";
}

std::string suggestion_yaml(const SuggestedLayout& layout, const std::string& devices) {
  std::vector<std::string> sizes;
  for (const int64_t size : layout.shape) {
    sizes.push_back(std::to_string(size));
  }
  std::string out = fmt::format(
      "distribution:\n  type: {}\n  batch_dim_name: {}\n"
      "  device_mesh: {{shape: [{}], axis_names: [{}], devices: \"{}\"}}\n",
      layout.rules.empty() ? "DataParallel" : "ModelParallel", layout.axes[0], join(sizes, ", "),
      join(layout.axes, ", "), devices);
  if (layout.zero > 0) {
    out += fmt::format("  zero: {}\n", layout.zero);
  }
  if (!layout.rules.empty()) {
    out += "  layout_map:\n";
  }
  for (const SuggestedRule& rule : layout.rules) {
    out += fmt::format("    '{}': {}\n", rule.key, rule.layout);
  }
  return out;
}

std::string suggestions_text(const std::vector<SuggestedLayout>& layouts,
                             const std::string& devices) {
  const SuggestedLayout& best = layouts.front();
  if (!best.score.problem.empty()) {
    return fmt::format("no layout is possible: {}\n", best.score.problem);
  }
  std::string out =
      fmt::format("# predicted: {} a step, {} on a device{}\n{}", seconds_text(best.score.seconds),
                  format_bytes(best.score.memory), best.score.fits ? "" : ", which does NOT fit",
                  suggestion_yaml(best, devices));
  if (!best.rules.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const SuggestedRule& rule : best.rules) {
      const auto gain = [](bool saves, const std::string& text) {
        return saves ? "saves " + text : "costs " + text;
      };
      rows.push_back(
          {"#   " + rule.key,
           gain(rule.seconds_saved >= 0, seconds_text(std::abs(rule.seconds_saved)) + " a step"),
           gain(rule.bytes_saved >= 0, format_bytes(std::abs(rule.bytes_saved)) + " on a device")});
    }
    out += "# compared with the same layout without the rule:\n" + aligned_columns(rows);
  }
  std::vector<std::vector<std::string>> rows;
  for (const SuggestedLayout& layout : layouts) {
    if (layout.score.problem.empty()) {
      rows.push_back({"#   " + sizes_of(layout.shape), fmt::format("zero {}", layout.zero),
                      fmt::format("{} rules", layout.rules.size()),
                      seconds_text(layout.score.seconds), format_bytes(layout.score.memory),
                      !layout.score.fits ? "does NOT fit"
                      : layout.copies() > 1
                          ? fmt::format("each {} devices compute the same", layout.copies())
                          : ""});
    }
  }
  return out + "# all meshes, with the best rules of each:\n" + aligned_columns(rows);
}

std::string suggestions_json(const std::vector<SuggestedLayout>& layouts,
                             const std::string& devices) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const SuggestedLayout& layout : layouts) {
    nlohmann::ordered_json rules = nlohmann::ordered_json::array();
    for (const SuggestedRule& rule : layout.rules) {
      rules.push_back({{"key", rule.key},
                       {"layout", rule.layout},
                       {"seconds_saved", rule.seconds_saved},
                       {"bytes_saved", rule.bytes_saved}});
    }
    nlohmann::ordered_json row = {{"mesh", layout.shape},
                                  {"axis_names", layout.axes},
                                  {"zero", layout.zero},
                                  {"rules", rules}};
    row.update(score_json(layout.score));
    if (layout.score.problem.empty()) {
      row["distribution"] = suggestion_yaml(layout, devices);
    }
    out.push_back(std::move(row));
  }
  return json_text(out, 2) + "\n";
}

}  // namespace meshtrain
