#include "comm/monitor_frames.h"

#include <errno.h>
#include <sys/socket.h>

#include <array>

namespace meshtrain {
namespace {

constexpr size_t kMostWords = 400;  // of one text of a report
// Then what came is taken apart before more is read, however fast the other end sends.
constexpr size_t kMostUnread = size_t{1} << 20;

}  // namespace

RankReport RankReport::of(const Activity::Values& values) {
  RankReport report;
  report.step = values.step;
  report.epoch = values.epoch;
  report.phase = values.phase;
  report.sequence = values.sequence;
  report.signature = values.signature;
  report.collective = values.collective;
  report.inside = values.inside;
  report.awaited = values.awaited;
  report.awaited_steps = values.awaited_steps;
  report.loss_step = values.loss_step;
  report.loss_hash = values.loss_hash;
  return report;
}

std::string RankReport::frame() const {
  const auto some = [](const std::string& text) {
    return std::string_view(text).substr(0, kMostWords);
  };
  return FrameWriter(FrameKind::kReport)
      .put(step)
      .put(epoch)
      .put(some(phase))
      .put(sequence)
      .put(signature)
      .put(some(collective))
      .put(inside)
      .put(inside_seconds)
      .put(some(awaited))
      .put(awaited_steps)
      .put(quiet_seconds)
      .put(some(announced))
      .put(announced_seconds)
      .put(announced_limit)
      .put(loss_step)
      .put(loss_hash)
      .done();
}

bool RankReport::read(FrameReader& from) {
  step = from.get<int64_t>();
  epoch = from.get<int64_t>();
  phase = from.text();
  sequence = from.get<uint64_t>();
  signature = from.get<uint64_t>();
  collective = from.text();
  inside = from.get<uint8_t>() != 0;
  inside_seconds = from.get<double>();
  awaited = from.text();
  awaited_steps = from.get<int64_t>();
  quiet_seconds = from.get<double>();
  announced = from.text();
  announced_seconds = from.get<double>();
  announced_limit = from.get<double>();
  loss_step = from.get<int64_t>();
  loss_hash = from.get<uint64_t>();
  return from.ok();
}

void Link::send(std::string_view frame) {
  if (open()) {
    out_ += frame;
  }
}

void Link::flush() {
  while (open() && sent_ < out_.size()) {
    const ssize_t count =
        ::send(socket_.fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {  // for later; an error comes out when receiving
      break;
    }
    sent_ += static_cast<size_t>(count);
  }
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  }
}

bool Link::receive() {
  std::array<char, 65536> buffer;
  while (in_.size() - read_ < kMostUnread) {
    const ssize_t count = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (count > 0) {
      in_.append(buffer.data(), static_cast<size_t>(count));
      if (static_cast<size_t>(count) < buffer.size()) {
        return true;
      }
    } else if (count == 0) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      lost_host_ = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH;
      return false;
    }
  }
  return true;
}

bool Link::next(FrameKind* kind, std::string* payload) {
  const std::string_view rest = std::string_view(in_).substr(read_);
  uint32_t length = 0;
  if (rest.size() >= sizeof length) {
    std::memcpy(&length, rest.data(), sizeof length);
    malformed_ = length == 0 || length > kMostFrameBytes;
  }
  if (malformed_ || rest.size() < sizeof length + 1 || rest.size() - sizeof length < length) {
    in_.erase(0, read_);
    read_ = 0;
    return false;
  }
  *kind = static_cast<FrameKind>(rest[sizeof length]);
  payload->assign(rest.substr(sizeof length + 1, length - 1));
  read_ += sizeof length + length;
  return true;
}

}  // namespace meshtrain
