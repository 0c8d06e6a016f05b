#include "train/sweep_journal.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace meshtrain {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

std::string path_in(const std::string& dir) {
  return dir + "/" + kJournalName;
}

std::vector<std::string> texts(const OrderedJson& event, const char* key) {
  std::vector<std::string> out;
  for (const OrderedJson& text : event.value(key, OrderedJson::array())) {
    out.push_back(text.get<std::string>());
  }
  return out;
}

void take(const OrderedJson& event, SweepState& state) {
  const std::string kind = event.value("event", "");
  if (kind == "sweep") {
    if (state.base.files.empty()) {
      state.base.files = texts(event, "config");
      state.base.overrides = texts(event, "overrides");
      state.base.profile = event.value("profile", "");
      state.folder = event.value("folder", "");
    }
    state.method = event.value("method", "list");
    state.parallel = event.value("parallel", int64_t{1});
    state.num_members = event.value("members", int64_t{0});
    if (const OrderedJson rule = event.value("early_stop", OrderedJson()); rule.is_object()) {
      state.early_stop = MedianRule{rule.at("monitor"), rule.at("mode") == "max",
                                    rule.at("min_epochs"), rule.at("min_runs")};
    }
    return;
  }
  const auto number = event.value("member", int64_t{0});
  if (kind == "member") {
    SweepMember& member = state.members.emplace_back();
    member.number = number;
    member.run = event.at("run");
    for (const auto& [key, value] : event.at("values").items()) {
      member.values.emplace_back(key, value.get<std::string>());
    }
    return;
  }
  if (number < 1 || number > static_cast<int64_t>(state.members.size())) {
    return;
  }
  SweepMember& member = state.members[static_cast<size_t>(number - 1)];
  if (kind == "start") {
    ++member.starts;
    member.exit_code.reset();
    member.message.clear();
    member.is_hopeless = false;
  } else if (kind == "hopeless") {
    member.is_hopeless = true;
    member.message = event.value("text", "");
  } else if (kind == "end") {
    member.exit_code = event.value("exit_code", 1);
    member.message = member.is_hopeless ? member.message : event.value("message", "");
  }
}

}  // namespace

bool SweepMember::is_failed() const {
  const auto is = [&](ExitCode code) { return exit_code == static_cast<int>(code); };
  return exit_code && !is_finished() && !is(ExitCode::kStopped) && !is(ExitCode::kInterrupted) &&
         !is(ExitCode::kTerminated);
}

bool is_sweep_dir(const std::string& dir) {
  std::error_code error;
  return !dir.empty() && std::filesystem::is_regular_file(path_in(dir), error);
}

SweepState read_journal(const std::string& dir) {
  if (!is_sweep_dir(dir)) {
    throw ConfigError("E400", {}, fmt::format("`{}` is no sweep: it has no {}", dir, kJournalName));
  }
  SweepState state;
  for (const std::string& line : split(read_file(path_in(dir), kMostBytes), '\n')) {
    const OrderedJson event = parse_json<OrderedJson>(line);
    if (event.is_object()) {
      try {
        take(event, state);
      } catch (const nlohmann::json::exception& error) {
        throw ConfigError("E400", {},
                          fmt::format("{}: a line that no sweep wrote: {}", path_in(dir), line));
      }
    }
  }
  return state;
}

std::string member_state(const SweepMember& member) {
  if (member.is_hopeless) {
    return "hopeless";
  }
  if (member.starts == 0) {
    return "not started";
  }
  if (!member.exit_code) {
    return "interrupted";
  }
  return member.is_finished() ? "finished"
         : member.is_failed() ? fmt::format("failed with exit code {}", *member.exit_code)
                              : "stopped";
}

SweepJournal::SweepJournal(const std::string& dir) {
  const std::string path = path_in(dir);
  if (is_sweep_dir(dir)) {
    const std::string text = read_file(path, kMostBytes);
    const size_t whole = text.rfind('\n') + 1;
    if (whole != text.size()) {
      write_file_atomic(path, text.substr(0, whole));
    }
  }
  log_ = std::make_unique<LineLog>(
      path, [](const std::string& text) { throw RuntimeFailure(ExitCode::kWriteFailed, text); },
      true);
}

void SweepJournal::write(std::string_view event, std::string_view json) {
  const std::string line =
      fmt::format(R"({{"event":"{}"{}{})", event, json.size() > 2 ? "," : "", json.substr(1));
  log_->append(line);
  log_->sync();
  if (echo_) {
    echo_(line);
  }
}

}  // namespace meshtrain
