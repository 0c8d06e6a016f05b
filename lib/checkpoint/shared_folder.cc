#include "checkpoint/shared_folder.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/text.h"
#include "comm/rendezvous.h"

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

std::vector<bool> who_sees(const Coordinator& coordinator, const std::string& folder,
                           double seconds) {
  if (coordinator.is_alone()) {
    return {true};
  }
  const auto path = [&](const std::string& token) { return folder + "/.meshtrain-" + token; };
  const std::string token = coordinator.broadcast("looking for the run's folder", [&] {
    std::string made = to_text(random_token());
    NewFile file(path(made));
    file.write(made);
    file.finish();
    return made;
  });
  const auto announced = coordinator.announce("looking for the run's folder", seconds + kSlack);
  const bool sees = comes_to_see(path(token), token, seconds);
  const std::vector<std::string> all =
      coordinator.all_gather("looking for the run's folder", sees ? "sees" : "");
  if (coordinator.is_first()) {
    ::unlink(path(token).c_str());
  }
  std::vector<bool> out;
  for (const std::string& word : all) {
    out.push_back(!word.empty());
  }
  return out;
}

void check_shared_folder(const Coordinator& coordinator, const std::string& folder,
                         double seconds) {
  const std::vector<bool> sees = who_sees(coordinator, folder, seconds);
  std::vector<std::string> blind;
  for (size_t r = 0; r < sees.size(); ++r) {
    if (!sees[r]) {
      blind.push_back(coordinator.describe(static_cast<int>(r)));
    }
  }
  if (!blind.empty()) {
    throw ConfigError("E452", {},
                      fmt::format("`{}`, made by {}, is not seen by {}", folder,
                                  coordinator.describe(0), join(blind, ", ")))
        .help("a folder that all hosts share: -o DIR")
        .help(
            "or `checkpoint: {gather: root}`: the others send their shards to the host of rank 0");
  }
}

}  // namespace meshtrain
