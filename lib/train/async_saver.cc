#include "train/async_saver.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "base/durable_file.h"
#include "base/memory.h"
#include "base/system_calls.h"
#include "checkpoint/reader.h"

namespace meshtrain {
namespace {

// Bytes of files that one process sends to rank 0 at once, and all processes together.
constexpr size_t kPartBytes = size_t{8} << 20, kRoundBytes = size_t{256} << 20;

}  // namespace

void check_finite(const SaveResult& result, const std::string& folder, int64_t step,
                  int64_t last_saved, const SourceLoc& optimizer) {
  if (result.non_finite.empty()) {
    return;
  }
  throw ConfigError("E501", optimizer,
                    fmt::format("the model of step {} is not finite: {}", step, result.non_finite))
      .note(fmt::format("{}; the last good checkpoint is {}",
                        result.error.empty()
                            ? fmt::format("it is in {}/rejected/{}", folder, checkpoint_name(step))
                            : result.error,
                        checkpoint_name_or_none(last_saved)))
      .help("a smaller learning rate, or clipping (clipnorm, global_clipnorm) on the optimizer");
}

AsyncSaver::AsyncSaver(VariableStore& store, Coordinator& coordinator, AsyncSaverOptions options)
    : coordinator_(coordinator), options_(std::move(options)), snapshot_(store) {
  if (const auto& monitor = coordinator_.processes().monitor; monitor != nullptr) {
    on_abort_.emplace(monitor->on_abort([this] {  // a save that only lacks its name gets it
      while (is_committing_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }));
  }
}

AsyncSaver::~AsyncSaver() {
  if (is_busy()) {
    const auto announced = coordinator_.announce("writing a checkpoint");
    saving_.wait();
  }
}

bool AsyncSaver::is_written() const {
  return !is_busy() || saving_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::optional<FinishedSave> AsyncSaver::start(CheckpointNotes notes, double begin) {
  notes_ = std::move(notes);
  const TrainPosition& at = notes_.state.position;
  const bool replaces = last_failed_ == at.step && coordinator_.is_first() && is_named(at.step);
  if (start_beside(replaces)) {
    blocked_seconds_ = options_.now() - begin;
    return std::nullopt;
  }
  snapshot_.borrow();
  coordinator_.progress(at, "save");
  SaveResult result = write(save_options(), replaces);
  blocked_seconds_ = options_.now() - begin;
  return take(std::move(result));
}

std::optional<FinishedSave> AsyncSaver::finish() {
  if (!is_busy()) {
    return std::nullopt;
  }
  const double begin = options_.now();
  saving_.wait();
  blocked_seconds_ += options_.now() - begin;
  return take(saving_.get());
}

FinishedSave AsyncSaver::take(SaveResult result) {
  if (!result.saved) {
    last_failed_ = notes_.state.position.step;
  }
  return {std::move(notes_), std::move(result), blocked_seconds_};
}

SaveResult AsyncSaver::save_as(const std::string& path, const CheckpointNotes& notes) {
  snapshot_.borrow();
  coordinator_.progress(notes.state.position, "save");
  return replace_checkpoint(path, snapshot_, notes, save_options(true));
}

// Rank 0 decides what becomes of a name; the others only write their shards.
SaveResult AsyncSaver::write(const SaveOptions& options, bool replaces) const {
  const std::string path = options_.folder + "/" + checkpoint_name(notes_.state.position.step);
  return replaces ? replace_checkpoint(path, snapshot_, notes_, options)
                  : write_checkpoint(options_.folder, snapshot_, notes_, options);
}

// Starts to write a copy of the state on a thread. Returns false where that is not possible.
bool AsyncSaver::start_beside(bool replaces) {
  const bool can_talk = coordinator_.is_alone() || coordinator_.processes().monitor != nullptr;
  if (!options_.async || !can_talk || !copy_state()) {
    return false;
  }
  const auto save = [this, replaces, options = save_options()] { return write(options, replaces); };
  try {
    const SignalsBlocked blocked;
    saving_ = std::async(std::launch::async, save);
  } catch (const std::system_error& error) {  // no thread: there is no room for its stack
    warn_of_waiting(error.what());
    const auto announced = coordinator_.announce("writing a checkpoint");
    saving_ = std::async(std::launch::deferred, save);
    saving_.wait();  // written, but it ends with those of other processes, which may have threads
    snapshot_.drop_copies();
  }
  return true;
}

// On every process, or on none: all must end a save at the same step.
bool AsyncSaver::copy_state() {
  const Processes& processes = coordinator_.processes();
  const int sharing = processes.group == nullptr ? 1 : processes.group->local_size();
  const int64_t limit = options_.memory > 0 ? options_.memory : available_memory() / 4 / sharing;
  bool is_copied = false;
  try {
    if (snapshot_.copied_bytes() <= limit) {
      snapshot_.copy();
      is_copied = true;
    }
  } catch (const RuntimeFailure& failure) {
    if (failure.exit_code() != ExitCode::kMesh) {
      throw;
    }
    warn_of_waiting(failure.what());
  }
  const std::vector<std::string> all =
      coordinator_.all_gather("memory for a save", is_copied ? "yes" : "no");
  if (std::count(all.begin(), all.end(), "no") > 0) {
    snapshot_.drop_copies();
    return false;
  }
  return true;
}

void AsyncSaver::warn_of_waiting(const std::string& why) {
  if (!std::exchange(is_warned_, true)) {
    options_.warn(fmt::format("training waits while checkpoints are written: {}", why));
  }
}

// Returns whether a failed save of this step gave its checkpoint the name, which may not be on the
// disk. It may be the only checkpoint, so it stays until the next one takes its place.
bool AsyncSaver::is_named(int64_t step) const {
  const std::string path = options_.folder + "/" + checkpoint_name(step);
  const auto announced = coordinator_.announce("looking at a save that failed");
  try {
    return is_real_folder(path) && CheckpointReader(path).manifest().run_id == notes_.run_id;
  } catch (const Error&) {  // the save reports what it finds there
    return false;
  }
}

// How the processes that save together exchange texts: a thread uses the heartbeat monitor alone,
// since the group is the main thread's. `anywhere`: the checkpoint is in another folder, which a
// process need not see that sees the run's.
SaveOptions AsyncSaver::save_options(bool anywhere) {
  SaveOptions out;
  out.before_commit = options_.before_commit;
  out.rank = coordinator_.rank();
  if (coordinator_.is_alone()) {
    return out;
  }
  out.name = coordinator_.describe(out.rank);
  out.is_committing = &is_committing_;
  const std::shared_ptr<HeartbeatMonitor> monitor = coordinator_.processes().monitor;
  out.all_gather = [this, monitor](std::string mine) {
    return monitor == nullptr
               ? coordinator_.all_gather("a save", mine)
               : monitor->all_gather("a save", std::move(mine), Coordinator::kLongestFiles);
  };
  std::vector<bool> sees = options_.sees_folder;
  if (anywhere) {
    sees.assign(sees.size(), false);
  }
  if (const auto blind = std::count(sees.begin(), sees.end(), false); blind > 0) {
    out.sees_folder = coordinator_.is_first() || sees[static_cast<size_t>(out.rank)];
    out.part_bytes = std::min(kPartBytes, kRoundBytes / static_cast<size_t>(blind));
    out.gather = [this, monitor](std::string mine) {
      return monitor == nullptr
                 ? coordinator_.all_gather("a save's files", mine)
                 : monitor->gather("a save's files", std::move(mine), Coordinator::kLongestFiles);
    };
  }
  return out;
}

}  // namespace meshtrain
