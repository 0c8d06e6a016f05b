#include "train/resume_target.h"

#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/json.h"
#include "base/links.h"
#include "base/text.h"
#include "checkpoint/writer.h"
#include "config/callback_classes.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

// The same place without the links to runs and checkpoints, which may lead elsewhere soon
// (runs/NAME/latest). Other links stay: what they lead to may have another name on another host.
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

// The run that a checkpoint lies in, or "".
std::string run_of(const std::string& checkpoint) {
  const fs::path folder = fs::path(checkpoint).parent_path();
  const std::string run = folder.parent_path().empty() ? "." : folder.parent_path().string();
  return folder.filename() == "checkpoints" && is_run_dir(run) ? run : "";
}

[[noreturn]] void nothing_in(const std::string& where, bool damaged,
                             const std::vector<std::string>& warnings) {
  ConfigError error(
      "E400", {},
      fmt::format("{} in `{}`", damaged ? "every checkpoint is damaged" : "there is no checkpoint",
                  where));
  for (const std::string& warning : warnings) {
    error.note(warning);
  }
  for (const std::string& name : names_in(where)) {
    const std::vector<std::string> parts = split(name, '.');
    if (parts.size() == 3 && parts[0] == "tmp" && step_of_name(parts[1]) >= 0) {
      error.note(
          fmt::format("[E401] an unfinished save of step {} was ignored", step_of_name(parts[1])));
    }
  }
  error.help(damaged ? "another folder for a new run: -o DIR" : "--resume=auto starts afresh");
  throw error;
}

}  // namespace

void no_run_in(const std::string& given) {
  std::error_code error;
  if (fs::exists(given, error)) {
    ConfigError problem("E400", {}, fmt::format("`{}` is no run and no checkpoint", given));
    const std::string newest = without_slash(given) + "/latest";
    if (is_run_dir(newest)) {
      problem.help(fmt::format("write `{}`, the newest run in it", newest));
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

std::unique_ptr<CheckpointReader> open_checked(const std::string& path,
                                               const CheckpointCheck& check) {
  auto reader = std::make_unique<CheckpointReader>(path);
  check(*reader);
  return reader;
}

// The newest checkpoint of a run, or the best one.
void take_from_run(const std::string& run, bool best, bool may_be_none, ResumeTarget& out,
                   const CheckpointCheck& check = &CheckpointReader::verify) {
  const std::string folder = run + "/checkpoints";
  NewestCheckpoint newest = newest_checkpoint(folder, check);
  if (newest.reader == nullptr) {
    if (!newest.damaged.empty() || !may_be_none) {
      nothing_in(folder, !newest.damaged.empty(), newest.warnings);
    }
    return;
  }
  out.own = true;
  out.warnings = std::move(newest.warnings);
  out.reader = std::move(newest.reader);
  const int64_t best_step = out.reader->state().best_step;
  if (best && best_step < 0) {
    throw ConfigError("E400", {}, fmt::format("no checkpoint in `{}` is known as the best", folder))
        .help("checkpoint.monitor names what is watched; without validation data that is nothing");
  }
  if (best && best_step != out.reader->manifest().step) {
    out.reader = open_checked(folder + "/" + checkpoint_name(best_step), check);
  }
}

}  // namespace

ResumeTarget open_resume_path(const std::string& given, const CheckpointCheck& check) {
  ResumeTarget out;
  std::error_code error;
  const std::string path = without_links(without_slash(given));
  if (is_checkpoint(path)) {
    out.reader = open_checked(path, check);
    out.run.dir = run_of(path);
    out.own = !out.run.dir.empty();
  } else if (is_run_dir(path)) {
    take_from_run(path, false, false, out, check);
    out.run.dir = path;
  } else if (fs::path(path).filename() == "checkpoints" && fs::is_directory(path, error)) {
    return open_resume_path(fs::path(path).parent_path().string(), check);
  } else {
    no_run_in(given);
  }
  out.run.resume = out.own;
  return out;
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
    dir = latest_run(run);
  }
  return is_run_dir(dir) && !is_finished_run(dir) ? dir : "";
}

std::string resume_mode(const std::string& given, const Config& config) {
  return given.empty() ? std::string(word_of(config.run.resume.value)) : given;
}

const ConfigObject* deciding_backup(const std::string& given, const Config& config) {
  const bool said = !given.empty() || config.run.resume != ResumeMode::kNever;
  return said ? nullptr : find_callback<BackupOptions>(config);
}

ResumeTarget find_interrupted_run(const ConfigObject& backup, RunDirOptions run) {
  ResumeTarget out;
  out.run = std::move(run);
  if (const std::string dir = interrupted_run(backup, out.run); !dir.empty()) {
    take_from_run(dir, false, true, out);
    out.run.dir = dir;
    out.run.resume = true;
  }
  return out;
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
  const std::string folder = run_dir + "/checkpoints";
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

ResumeTarget agree_on_target(const Coordinator& coordinator,
                             const std::function<ResumeTarget()>& find) {
  constexpr const char* kLooking = "looking for a checkpoint";
  ResumeTarget out;
  const nlohmann::json told = parse_json(coordinator.broadcast(kLooking, [&] {
    const auto announced = coordinator.announce(kLooking);  // at every byte of some of them
    out = find();
    return json_text(nlohmann::json{{"dir", out.run.dir},
                                    {"name", out.run.name},
                                    {"resume", out.run.resume},
                                    {"own", out.own},
                                    {"path", out.reader ? out.reader->path() : ""},
                                    {"gathers", out.gathers}});
  }));
  out.path = told.at("path");
  if (!coordinator.is_first()) {
    out.run.dir = told.at("dir");
    out.run.name = told.at("name");
    out.run.resume = told.at("resume");
    out.own = told.at("own");
    out.gathers = told.at("gathers");
  }
  if (!out.path.empty()) {
    out.copy = std::make_unique<Mirror>(coordinator, out.path, out.gathers);
  }
  coordinator.on_all_ranks("opening the checkpoint", [&] {
    try {
      if (!coordinator.is_first() && out.copy != nullptr) {
        out.reader = std::make_unique<CheckpointReader>(out.copy->path());
      }
    } catch (const ConfigError& error) {
      const Diagnostic& first = error.diagnostics().list().front();
      throw ConfigError(
          "E457", {},
          fmt::format("cannot read what rank 0 has verified: [{}] {}", first.code, first.message));
    }
  });
  return out;
}

ResumeTarget find_resume_target(const std::string& mode, RunDirOptions run) {
  ResumeTarget out;
  out.run = std::move(run);
  if (mode.empty() || mode == "never") {
    return out;
  }
  const bool by_name = mode == "auto" || mode == "latest" || mode == "best";
  if (!by_name) {
    ResumeTarget found = open_resume_path(mode);
    std::error_code error;
    const bool same_place =
        out.run.dir.empty() || (found.own && fs::equivalent(found.run.dir, out.run.dir, error));
    if (found.own && same_place) {
      found.run.name = out.run.name;
      return found;
    }
    out.reader = std::move(found.reader);  // a new run that begins from it
    return out;
  }
  const std::string dir =
      out.run.dir.empty() ? latest_run(out.run) : without_links(without_slash(out.run.dir));
  if (!is_run_dir(dir)) {
    if (mode != "auto") {
      nothing_in(dir.empty() ? out.run.root : dir, false, {});
    }
    return out;
  }
  take_from_run(dir, mode == "best", mode == "auto", out);
  out.run.dir = dir;
  out.run.resume = true;
  return out;
}

}  // namespace meshtrain
