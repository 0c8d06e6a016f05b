#include "train/sweep_dir.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/text.h"
#include "train/sweep_journal.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// The folder of the newest sweep of that name.
std::string latest_sweep(const RunDirOptions& place) {
  const fs::path latest = fs::path(runs_folder(place)) / "latest";
  std::error_code error;
  const std::string dir = fs::is_symlink(latest, error)
                              ? (latest.parent_path() / fs::read_symlink(latest, error)).string()
                              : "";
  if (!is_sweep_dir(dir)) {
    throw ConfigError("E400", {}, fmt::format("there is no sweep in `{}`", runs_folder(place)))
        .help("without --resume a new one begins; -o DIR names another folder");
  }
  return dir;
}

void check_unused(const SweepRequest& request, const std::string& dir) {
  if (is_sweep_dir(dir) && !request.resume) {
    throw ConfigError("E141", {}, fmt::format("`{}` holds another sweep", dir))
        .help("--resume to continue it, or another folder");
  }
  if (!is_sweep_dir(dir) && !folder_names(dir).empty()) {
    throw ConfigError("E141", {}, fmt::format("`{}` is not empty", dir)).help("another folder");
  }
}

// A sweep that is named by its folder has its values and its config in its journal.
void refuse_changes(const SweepRequest& request) {
  const SweepFlags& flags = request.flags;
  std::vector<std::string> given = request.load.overrides;
  for (size_t i = 0; i < request.load.flag_names.size(); ++i) {
    if (starts_with(request.load.flag_names[i], "--")) {
      given.push_back(request.load.flag_names[i]);
    }
  }
  const std::pair<bool, const char*> more[] = {
      {!flags.grid.empty(), "--grid"},          {!flags.zip.empty(), "--zip"},
      {!flags.random.empty(), "--random"},      {flags.trials > 0, "--trials"},
      {flags.seed.has_value(), "--sweep-seed"}, {!request.load.profile.empty(), "--profile"},
      {!request.dir.empty(), "--run-dir"}};
  for (const auto& [is_given, name] : more) {
    if (is_given) {
      given.emplace_back(name);
    }
  }
  if (!given.empty()) {
    throw ConfigError("E140", {},
                      fmt::format("`{}` is a sweep to resume, which {} cannot change",
                                  request.load.files[0], join(given, ", ")))
        .help("its runs keep their values; a new sweep takes the config");
  }
}

}  // namespace

RunDirOptions sweep_place(const SweepPlan& plan) {
  const Config config = load_config(member_options(plan, plan.members.front()));
  RunDirOptions place;
  place.name = config.name.value.empty() ? config.model.name.value : config.name.value;
  place.root = "sweeps";
  return place;
}

std::string make_sweep_dir(const SweepRequest& request, const SweepPlan& plan) {
  const RunDirOptions place = sweep_place(plan);
  if (request.dir.empty() && request.resume) {
    return latest_sweep(place);
  }
  const bool is_new = request.dir.empty();
  const std::string dir = is_new ? runs_folder(place) + "/" + new_folder_name() : request.dir;
  check_unused(request, dir);
  try {
    make_folders(dir);
    if (is_new) {
      const fs::path path = dir;
      replace_link(path.filename().string(), (path.parent_path() / "latest").string());
    }
  } catch (const FileError& failure) {
    throw ConfigError("E142", {}, failure.what());
  }
  return dir;
}

SweepPlan requested_plan(SweepRequest& request) {
  if (request.load.files.size() == 1) {  // "sweeps/NAME" is its newest sweep
    const std::string latest = request.load.files[0] + "/latest";
    request.load.files[0] = is_sweep_dir(latest) ? latest : request.load.files[0];
  }
  if (request.load.files.size() != 1 || !is_sweep_dir(request.load.files[0])) {
    return make_sweep_plan(request.load, request.flags);
  }
  refuse_changes(request);
  request.dir = fs::canonical(request.load.files[0]).string();
  request.resume = true;
  SweepState state = read_journal(request.dir);
  if (std::ssize(state.members) < state.num_members) {
    throw ConfigError("E400", {},
                      fmt::format("`{}` lists {} of {} runs: the sweep was stopped before it had "
                                  "listed all",
                                  request.dir, state.members.size(), state.num_members))
        .help("its first command again, with --resume, lists the rest");
  }
  std::error_code error;
  fs::current_path(state.folder, error);
  if (error) {
    throw ConfigError("E400", {},
                      fmt::format("the sweep began in `{}`, which cannot be entered: {}",
                                  state.folder, error.message()))
        .help("paths of its config are from there");
  }
  SweepPlan plan{.base = state.base, .method = state.method};
  plan.parallel = request.flags.parallel > 0 ? request.flags.parallel : state.parallel;
  plan.early_stop = state.early_stop;
  if (request.flags.early_stop && !plan.early_stop) {
    plan.early_stop.emplace();
  }
  for (const SweepMember& member : state.members) {
    plan.members.push_back(member.values);
  }
  return plan;
}

}  // namespace meshtrain
