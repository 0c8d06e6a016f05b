#include "checkpoint/file_gather.h"

#include <algorithm>

namespace meshtrain {
namespace {

// The message of rank 0 when it has stopped receiving.
constexpr const char* kEnd = "end";

// A name, a zero byte, and what comes next in that file.
std::pair<std::string, std::string_view> taken_apart(std::string_view part) {
  const size_t end = part.find('\0');
  MESHTRAIN_CHECK(end != std::string_view::npos, "a part of {} bytes without a name", part.size());
  return {std::string(part.substr(0, end)), part.substr(end + 1)};
}

}  // namespace

class SentFile : public OutputFile {
 public:
  SentFile(FileGather& gather, std::string name) : gather_(gather), name_(std::move(name)) {}
  void finish() override {}

 private:
  void put(std::span<const std::byte> bytes) override { gather_.send(name_, bytes); }

  FileGather& gather_;
  std::string name_;
};

std::unique_ptr<OutputFile> FileGather::create(std::string name) {
  return std::make_unique<SentFile>(*this, std::move(name));
}

void FileGather::send(const std::string& name, std::span<const std::byte> bytes) {
  if (name != name_) {
    flush();
    name_ = name;
  }
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), part_bytes_ - unsent_.size());
    unsent_.append(reinterpret_cast<const char*>(bytes.data()), count);
    bytes = bytes.subspan(count);
    if (unsent_.size() == part_bytes_) {
      flush();
    }
  }
}

void FileGather::flush() {
  if (unsent_.empty()) {
    return;
  }
  ended_ = exchange_(name_ + '\0' + unsent_)[0] == kEnd;
  unsent_.clear();
  if (ended_) {
    throw RuntimeFailure(ExitCode::kWriteFailed, "rank 0 did not take its files");
  }
}

std::map<std::string, CheckpointFile> FileGather::receive(const std::string& folder) {
  std::map<std::string, CheckpointFile> out;
  std::map<size_t, std::pair<std::string, std::unique_ptr<NewFile>>> open;  // by rank
  const auto finish = [&](size_t rank) {
    if (const auto found = open.find(rank); found != open.end()) {
      auto& [name, file] = found->second;
      file->finish();
      out[name] = {file->size(), file->checksum()};
      open.erase(found);
    }
  };
  for (bool more = true; more;) {
    more = false;
    const std::vector<std::string> parts = exchange_("");
    for (size_t r = 1; r < parts.size(); ++r) {
      if (parts[r].empty()) {
        finish(r);
        continue;
      }
      more = true;
      const auto [name, bytes] = taken_apart(parts[r]);
      if (open.count(r) == 0 || open[r].first != name) {
        finish(r);
        open[r] = {name, std::make_unique<NewFile>(folder + "/" + name)};
      }
      open[r].second->write(bytes);
    }
  }
  return out;
}

void FileGather::end(bool is_first) {
  if (is_first) {
    exchange_(kEnd);
  }
  while (!is_first && !ended_) {
    ended_ = exchange_("")[0] == kEnd;
  }
}

}  // namespace meshtrain
