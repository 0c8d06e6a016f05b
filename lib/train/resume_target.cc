#include "train/resume_target.h"

#include <algorithm>
#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/json.h"
#include "base/links.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/writer.h"
#include "config/callback_classes.h"
#include "config/run_files.h"
#include "record/run_list.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

// Resolves links to runs and checkpoints, which may lead elsewhere soon (runs/NAME/latest). Keeps
// other links: their targets may have other names on other hosts.
std::string without_links(const std::string& path) {
  std::error_code error;
  fs::path passed;
  for (const fs::path& part : fs::path(path)) {
    passed /= part;
    const bool is_link = fs::is_symlink(passed, error);
    if (is_link && (is_run_dir(passed.string()) || is_checkpoint(passed.string()))) {
      passed = follow_links(passed);
    }
  }
  return passed.string();
}

// Returns the run that a checkpoint belongs to, or "".
std::string run_of(const std::string& checkpoint) {
  const fs::path folder = fs::path(checkpoint).parent_path();
  const std::string run = folder.parent_path().empty() ? "." : folder.parent_path().string();
  return folder.filename() == run_files::kCheckpoints && is_run_dir(run) ? run : "";
}

[[noreturn]] void throw_no_checkpoint(const std::string& folder, bool damaged,
                                      const std::vector<std::string>& warnings) {
  ConfigError error(
      "E400", {},
      fmt::format("{} in `{}`", damaged ? "every checkpoint is damaged" : "there is no checkpoint",
                  folder));
  for (const std::string& warning : warnings) {
    error.note(warning);
  }
  for (const std::string& name : folder_names(folder)) {
    const std::vector<std::string> parts = split(name, '.');
    if (parts.size() == 3 && parts[0] == "tmp" && step_of_name(parts[1]) >= 0) {
      error.note(
          fmt::format("[E401] an unfinished save of step {} was ignored", step_of_name(parts[1])));
    }
  }
  error.help(damaged ? "another folder for a new run: -o DIR"
                     : "`meshtrain train CONFIG --resume=auto` starts afresh");
  throw error;
}

}  // namespace

std::string run_folder(const std::string& path) {
  const std::string folder = without_slash(path);
  if (is_run_dir(folder) || is_checkpoint(folder)) {
    return folder;
  }
  const std::string latest = folder + "/latest", newest = newest_run(folder);
  std::error_code error;
  const bool is_linked = fs::is_symlink(latest, error) && is_run_dir(latest);
  return newest.empty() ? folder : is_linked ? latest : newest;
}

std::string resolved_run(const std::string& path) {
  return without_links(run_folder(path));
}

void no_run_in(const std::string& given) {
  std::error_code error;
  if (fs::exists(given, error)) {
    ConfigError problem("E400", {}, fmt::format("`{}` is no run and no checkpoint", given));
    std::vector<std::string> runs = folder_names(given);
    std::erase_if(runs, [&](const std::string& name) {
      const std::string folder = given + "/" + name;
      return name == "latest" || (!is_run_dir(folder) && !is_run_dir(folder + "/latest"));
    });
    if (!runs.empty()) {
      constexpr size_t kMost = 5;
      const bool is_all = runs.size() <= kMost;
      runs.resize(std::min(runs.size(), kMost));
      problem.help(fmt::format("runs in it: {}{}", join(runs, ", "), is_all ? "" : ", ..."));
    }
    throw problem;
  }
  ConfigError problem("E400", {}, fmt::format("there is no folder `{}`", given));
  fs::path missing;  // the first part of it that is not there
  for (const fs::path& part : fs::path(given)) {
    missing /= part;
    if (!fs::exists(missing, error)) {
      break;
    }
  }
  const std::vector<std::string> names = similar_files(missing.string(), 3);
  if (!names.empty()) {
    const std::string folder = missing.parent_path().string();
    problem.help(fmt::format("in {}: {}", folder.empty() ? "this folder" : "`" + folder + "`",
                             join(names, ", ")));
  }
  throw problem;
}

namespace {

int64_t newest_step(const std::string& folder) {
  const std::vector<int64_t> steps = checkpoint_steps(folder);
  return steps.empty() ? -1 : steps.front();
}

std::unique_ptr<CheckpointReader> open_checked(const std::string& path,
                                               const CheckpointCheck& check) {
  auto reader = std::make_unique<CheckpointReader>(path);
  check(*reader);
  return reader;
}

// Before its checkpoints are looked at: a process that trains the run deletes the old ones.
void check_unused(const std::string& run) {
  check_unlocked(run + "/" + run_files::kCheckpoints);
}

// Fills `target` with the newest checkpoint of a run, or the best one.
void select_checkpoint(const std::string& run, bool best, bool may_be_none, ResumeTarget& target,
                       const CheckpointCheck& check = &CheckpointReader::verify) {
  const std::string folder = run + "/" + run_files::kCheckpoints;
  target.newest_step = newest_step(folder);
  NewestCheckpoint newest = newest_checkpoint(folder, check);
  if (newest.reader == nullptr) {
    if (!newest.damaged.empty() || !may_be_none) {
      throw_no_checkpoint(folder, !newest.damaged.empty(), newest.warnings);
    }
    make_folders(folder);  // it may have been deleted with all checkpoints
    return;
  }
  target.own = true;
  target.warnings = std::move(newest.warnings);
  target.reader = std::move(newest.reader);
  const int64_t best_step = target.reader->state().best_step;
  if (best && best_step < 0) {
    throw ConfigError("E400", {}, fmt::format("no checkpoint in `{}` is known as the best", folder))
        .help("checkpoint.monitor names what is watched; without validation data that is nothing");
  }
  if (best && best_step != target.reader->manifest().step) {
    target.reader = open_checked(folder + "/" + checkpoint_name(best_step), check);
  }
}

}  // namespace

ResumeTarget open_resume_path(const std::string& given, const CheckpointCheck& check,
                              RunAccess access) {
  ResumeTarget target;
  std::error_code error;
  std::string path = without_links(run_folder(given));
  if (!is_run_dir(path) && fs::path(path).parent_path().empty()) {  // `checkpoints`, `000012`, `.`
    path = without_slash(fs::absolute(path).lexically_normal().string());
  }
  const std::string run = is_checkpoint(path) ? run_of(path) : path;
  if (access == RunAccess::kContinue && is_run_dir(run)) {
    check_unused(run);
  }
  if (is_checkpoint(path)) {
    target.reader = open_checked(path, check);
    target.run.dir = run;
    target.own = !run.empty();
    target.newest_step = target.own ? newest_step(fs::path(path).parent_path().string()) : -1;
  } else if (is_run_dir(path)) {
    select_checkpoint(path, false, false, target, check);
    target.run.dir = path;
  } else if (fs::path(path).filename() == run_files::kCheckpoints &&
             fs::is_directory(path, error)) {
    return open_resume_path(fs::path(path).parent_path().string(), check, access);
  } else {
    no_run_in(given);
  }
  target.run.resume = target.own;
  return target;
}

namespace {

// The link in `backup_dir`, or "".
std::string backup_link(const ConfigObject& backup) {
  const std::string dir = read_options<BackupOptions>(backup).backup_dir;
  return dir.empty() ? "" : dir + "/run";
}

}  // namespace

std::string interrupted_run(const ConfigObject& backup, const RunDirOptions& run) {
  const std::string link = backup_link(backup);
  std::error_code error;
  std::string dir = without_links(without_slash(run.dir));
  if (dir.empty() && !link.empty()) {
    dir = without_links(fs::read_symlink(link, error).string());
  } else if (dir.empty()) {
    dir = newest_run(runs_folder(run));
  }
  return is_run_dir(dir) && !is_finished_run(dir) ? dir : "";
}

std::string resume_mode(const std::string& given, const Config& config) {
  return given.empty() ? std::string(word_of(config.run.resume.value)) : given;
}

const ConfigObject* deciding_backup(const std::string& given, const Config& config) {
  const bool is_stated = !given.empty() || config.run.resume != ResumeMode::kNever;
  return is_stated ? nullptr : find_callback<BackupOptions>(config);
}

ResumeTarget find_interrupted_run(const ConfigObject& backup, RunDirOptions run) {
  ResumeTarget target;
  target.run = std::move(run);
  if (const std::string dir = interrupted_run(backup, target.run); !dir.empty()) {
    check_unused(dir);
    select_checkpoint(dir, false, true, target);
    target.run.dir = dir;
    target.run.resume = true;
  }
  return target;
}

void begin_backup(const ConfigObject& backup, const std::string& run_dir) {
  if (const std::string link = backup_link(backup); !link.empty()) {
    make_folders(read_options<BackupOptions>(backup).backup_dir);
    replace_link(fs::absolute(run_dir).lexically_normal().string(), link);
  }
}

void end_backup(const ConfigObject& backup, const std::string& run_dir) {
  const auto options = read_options<BackupOptions>(backup);
  if (!options.delete_checkpoint) {
    return;
  }
  const std::string folder = run_dir + "/" + run_files::kCheckpoints;
  std::error_code error;
  if (fs::is_symlink(folder + "/best", error)) {
    fs::remove(folder + "/best", error);
  }
  for (const int64_t step : checkpoint_steps(folder)) {
    if (const auto problem = remove_folder(folder + "/" + checkpoint_name(step))) {
      throw RuntimeFailure(ExitCode::kWriteFailed, *problem);
    }
  }
  if (const std::string link = backup_link(backup); fs::is_symlink(link, error)) {
    fs::remove(link, error);
    fs::remove(options.backup_dir, error);  // unless there is something else in it
  }
}

void check_unchanged(const ResumeTarget& target, const std::string& run_dir) {
  const int64_t newest = newest_step(run_dir + "/" + run_files::kCheckpoints);
  if (newest != (target.run.resume ? target.newest_step : -1)) {
    throw ConfigError(
        "E455", {},
        fmt::format("another process has trained `{}` meanwhile: its newest checkpoint "
                    "is now {}",
                    run_dir, newest < 0 ? "gone" : checkpoint_name(newest)))
        .help("the same command again resumes from there");
  }
}

ResumeTarget agree_on_target(const Coordinator& coordinator,
                             const std::function<ResumeTarget()>& find) {
  constexpr const char* kLooking = "looking for a checkpoint";
  ResumeTarget target;
  const nlohmann::json choice = parse_json(coordinator.broadcast(kLooking, [&] {
    const auto announced =
        coordinator.announce(kLooking);  // `find` reads every byte of some checkpoints
    target = find();
    return json_text(nlohmann::json{{"dir", target.run.dir},
                                    {"name", target.run.name},
                                    {"resume", target.run.resume},
                                    {"own", target.own},
                                    {"path", target.reader ? target.reader->path() : ""},
                                    {"gathers", target.gathers}});
  }));
  target.path = choice.at("path");
  if (!coordinator.is_first()) {
    target.run.dir = choice.at("dir");
    target.run.name = choice.at("name");
    target.run.resume = choice.at("resume");
    target.own = choice.at("own");
    target.gathers = choice.at("gathers");
  }
  if (!target.path.empty()) {
    target.copy = std::make_unique<Mirror>(coordinator, target.path, target.gathers);
  }
  coordinator.on_all_ranks("opening the checkpoint", [&] {
    try {
      if (!coordinator.is_first() && target.copy != nullptr) {
        target.reader = std::make_unique<CheckpointReader>(target.copy->path());
      }
    } catch (const ConfigError& error) {
      const Diagnostic& first = error.diagnostics().list().front();
      throw ConfigError(
          "E457", {},
          fmt::format("cannot read what rank 0 has verified: [{}] {}", first.code, first.message));
    }
  });
  return target;
}

ResumeTarget find_resume_target(const std::string& mode, RunDirOptions run) {
  ResumeTarget target;
  target.run = std::move(run);
  if (mode.empty() || mode == "never") {
    return target;
  }
  const bool by_name = mode == "auto" || mode == "latest" || mode == "best";
  if (!by_name) {
    ResumeTarget named =
        open_resume_path(mode, &CheckpointReader::verify,
                         target.run.dir.empty() ? RunAccess::kContinue : RunAccess::kRead);
    std::error_code error;
    const bool same_place = target.run.dir.empty() ||
                            (named.own && fs::equivalent(named.run.dir, target.run.dir, error));
    if (named.own && same_place) {
      named.run.name = target.run.name;
      return named;
    }
    target.reader = std::move(named.reader);  // a new run that begins from it
    return target;
  }
  const std::string dir = target.run.dir.empty() ? newest_run(runs_folder(target.run))
                                                 : without_links(without_slash(target.run.dir));
  if (!is_run_dir(dir)) {
    if (mode != "auto") {
      throw_no_checkpoint(dir.empty() ? target.run.root : dir, false, {});
    }
    return target;
  }
  check_unused(dir);
  select_checkpoint(dir, mode == "best", mode == "auto", target);
  target.run.dir = dir;
  target.run.resume = true;
  return target;
}

}  // namespace meshtrain
