#include "train/profile_hook.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/memory.h"
#include "config/run_files.h"
#include "train/profile_table.h"

namespace meshtrain {

void ProfileHook::on_train_step(const TrainPosition&, const StepRunner&) {
  if (!is_written_ && engine_.has_whole_profile()) {
    write();
  }
}

void ProfileHook::on_train_end() {
  if (!is_written_) {
    write();
  }
}

void ProfileHook::write() {
  is_written_ = true;
  if (!writes_) {
    return;
  }
  const StepProfile& profile = *engine_.profile();
  if (profile.steps.empty()) {
    print_(
        fmt::format("profile   nothing measured: the first {} steps are not, and the run has no "
                    "more\n",
                    kProfileWarmUp));
    return;
  }
  const std::vector<const Program*> programs = engine_.profiled_programs();
  const ProfileTable table = profile_table(profile, programs);
  const Processes& processes = engine_.processes();
  const ProfileMemory memory = {.host = peak_memory(),
                                .device = engine_.device_memory_used(),
                                .plan_device = plan_.memory.total(),
                                .devices = engine_.mesh().num_devices() / processes.size()};
  std::error_code ignored;  // the write says what is wrong
  std::filesystem::create_directory(run_.file(run_files::kProfile), ignored);
  run_.write("profile/profile.json", profile_json(table, plan_, memory));
  run_.write("profile/trace.json", chrome_trace(profile, programs, processes.rank()));
  print_(profile_text(table, plan_, memory));
}

}  // namespace meshtrain
