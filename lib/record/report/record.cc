#include "record/report/record.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "config/run_files.h"
#include "record/run_dir.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 32;

std::string text_of(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? read_file(path, kMaxBytes) : "";
}

std::string json_of(const std::string& path) {
  std::string text = text_of(path);
  return parse_json(text).is_discarded() ? "" : text;
}

// Of one type or another: what a damaged line has in their place counts as nothing.
int64_t integer(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}
double number(const Json& value) {
  return value.is_number() ? value.get<double>() : NAN;
}
double number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? NAN : number(*found);
}
std::string string(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// An object or a list within an object; `otherwise` where there is none of its type.
Json part(const Json& object, const char* key, const Json& otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->type() == otherwise.type() ? *found : otherwise;
}

// A metric of several values counts with their mean, as everywhere.
Logs logs_of(const Json& event) {
  Logs out;
  const auto logs = event.find("logs");
  if (logs == event.end() || !logs->is_object()) {
    return out;
  }
  for (const auto& [name, value] : logs->items()) {
    double sum = 0;
    for (const Json& one : value) {  // a scalar counts as a list of one
      sum += number(one);
    }
    out.emplace_back(name, sum / static_cast<double>(value.size()));
  }
  return out;
}

RunSession session_of(const Json& event) {
  RunSession out{.config = string(event, "config"),
                 .version = string(event, "version"),
                 .devices = string(event, "devices"),
                 .seed = integer(event, "seed"),
                 .parameters = integer(event, "parameters"),
                 .batch_size = integer(event, "batch_size"),
                 .epochs = integer(event, "epochs"),
                 .resumed_from = string(event, "resumed_from"),
                 .bytes_per_device = integer(event, "bytes_per_device")};
  for (const Json& word : part(event, "overrides", Json::array())) {
    out.overrides.push_back(word.is_string() ? word.get<std::string>() : "");
  }
  const Json monitor = part(event, "monitor", Json::object());
  out.monitor = string(monitor, "log");
  out.larger_is_better = string(monitor, "mode") == "max";
  const Json mesh = part(event, "mesh", Json::object());
  const Json names = part(mesh, "axis_names", Json::array());
  const Json shape = part(mesh, "shape", Json::array());
  for (size_t i = 0; i < std::min(names.size(), shape.size()); ++i) {
    if (names[i].is_string() && shape[i].is_number_integer()) {
      out.mesh.emplace_back(names[i].get<std::string>(), shape[i].get<int64_t>());
    }
  }
  const Json changes = part(event, "changes", Json::object());
  for (const auto& [key, values] : changes.items()) {
    std::vector<std::string> change = {key};
    for (const Json& value : values) {
      change.push_back(value.is_string() ? value.get<std::string>() : json_text(value));
    }
    change.resize(3);
    out.changes.push_back(std::move(change));
  }
  return out;
}

void take(const Json& event, RunRecord& out) {
  const std::string kind = string(event, "event");
  if (kind == "start") {
    out.sessions.push_back(session_of(event));
    out.name = string(event, "name");
  } else if (kind == "epoch") {
    out.epochs.push_back({.epoch = integer(event, "epoch"),
                          .steps = integer(event, "steps"),
                          .session = out.sessions.empty() ? 0 : out.sessions.size() - 1,
                          .seconds = number(event, "seconds"),
                          .ms_per_step = number(event, "ms_per_step"),
                          .tokens_per_second = number(event, "tokens_per_second"),
                          .mfu = number(event, "mfu"),
                          .logs = logs_of(event)});
    if (const double rate = number(event, "learning_rate"); std::isfinite(rate))
      out.epochs.back().logs.emplace_back("learning_rate", rate);
  } else if (kind == "validation") {
    out.validations.push_back({integer(event, "epoch"), integer(event, "step"), logs_of(event)});
  } else if (kind == "step") {
    out.steps.push_back({integer(event, "epoch"), integer(event, "step"), number(event, "loss")});
  } else if (kind == "evaluate") {
    out.evaluations.push_back(logs_of(event));
  } else if (kind == "warning") {
    out.warnings.push_back(string(event, "text"));
  } else if (kind == "stop" && !out.sessions.empty()) {
    out.sessions.back().stopped = string(event, "text");
  } else if (kind == "end" && !out.sessions.empty()) {
    out.sessions.back().exit_code = static_cast<int>(integer(event, "exit_code"));
    out.sessions.back().message = string(event, "message");
  }
}

// "2026-01-05T14:03:22.123Z"; negative when it is none.
double time_of(const std::string& text) {
  tm parts = {};
  double seconds = 0;
  if (sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ", &parts.tm_year, &parts.tm_mon,
             &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &seconds) != 6) {
    return -1;
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return static_cast<double>(timegm(&parts)) + seconds;
}

std::vector<RunMoment> moments_of(const std::string& text) {
  std::vector<RunMoment> out;
  for (const std::string& line : split(text, '\n')) {
    const size_t first = line.find(' ');
    if (first == std::string::npos) {
      continue;
    }
    const size_t second = std::min(line.find(' ', first + 1), line.size());
    RunMoment moment{.time = time_of(line.substr(0, first)),
                     .what = line.substr(first + 1, second - first - 1),
                     .detail = std::string(trim(line.substr(second)))};
    if (moment.time >= 0) {
      out.push_back(std::move(moment));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> RunRecord::log_names() const {
  std::vector<std::string> names;
  for (const RunEpoch& epoch : epochs) {
    for (const auto& [log, value] : epoch.logs) {
      const std::string name = starts_with(log, "val_") ? log.substr(4) : log;
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
  }
  std::stable_partition(names.begin(), names.end(),
                        [](const std::string& name) { return name == "loss"; });
  return names;
}

RunRecord read_run_record(const std::string& folder) {
  if (!is_run_dir(folder)) {
    throw ConfigError("E400", {}, fmt::format("`{}` is no run", folder));
  }
  RunRecord out{.folder = folder};
  const std::string metrics = text_of(folder + "/" + run_files::kMetrics);
  for (const std::string& line : split(metrics, '\n')) {
    const Json event = parse_json(line);
    if (event.is_object()) {
      take(event, out);
    }
  }
  if (out.sessions.empty()) {
    out.sessions.emplace_back();
  }
  out.moments = moments_of(text_of(folder + "/" + run_files::kLog));
  out.config = text_of(folder + "/" + run_files::kConfig);
  out.resolved_config = text_of(folder + "/" + run_files::kResolved);
  out.plan = json_of(folder + "/" + run_files::kPlanJson);
  out.profile = json_of(folder + "/profile/profile.json");
  out.evaluation = json_of(folder + "/" + run_files::kEvaluation);
  out.meta = json_of(folder + "/" + run_files::kMeta);
  return out;
}

}  // namespace meshtrain
