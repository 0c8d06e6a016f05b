#include "train/checkpoint/shared_folder.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "comm/meeting.h"
#include "train/checkpoint/files.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxToken = 64;
constexpr double kSlack = 30;  // seconds, for a file system that answers late

std::string token_in(const std::string& path) {
  try {
    return read_file(path, kMaxToken);
  } catch (const FileError&) {
    return "";
  }
}

bool comes_to_see(const std::string& path, const std::string& token, double seconds) {
  using Time = std::chrono::steady_clock;
  const auto end = Time::now() + std::chrono::duration<double>(seconds);
  while (token_in(path) != token) {
    if (Time::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

void check_shared_folder(const Agreement& agreement, const std::string& folder, double seconds) {
  if (agreement.is_alone()) {
    return;
  }
  const auto path = [&](const std::string& token) { return folder + "/.meshtrain-" + token; };
  const std::string token = agreement.from_first("looking for the run's folder", [&] {
    std::string made = to_text(random_token());
    NewFile file(path(made));
    file.write(made);
    file.finish();
    return made;
  });
  const auto announced = agreement.announce("looking for the run's folder", seconds + kSlack);
  const bool sees = comes_to_see(path(token), token, seconds);
  const std::vector<std::string> all =
      agreement.all_gather("looking for the run's folder", sees ? "sees" : "");
  if (agreement.is_first()) {
    ::unlink(path(token).c_str());
  }
  Diagnostics diagnostics;
  std::string blind;
  for (size_t r = 0; r < all.size(); ++r) {
    blind +=
        all[r].empty() ? (blind.empty() ? "" : ", ") + agreement.describe(static_cast<int>(r)) : "";
  }
  if (!blind.empty()) {
    diagnostics
        .error("E452", {},
               fmt::format("`{}`, made by {}, is not seen by {}", folder, agreement.describe(0),
                           blind))
        .help("checkpoints of several processes need a folder that all hosts share: -o DIR");
  }
  diagnostics.throw_if_errors();
}

}  // namespace meshtrain
