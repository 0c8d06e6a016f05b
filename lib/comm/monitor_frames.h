// Frames of the heartbeat monitor's links: at most 64 KiB each, with length, kind and fields in a
// fixed order. Parsing checks all limits, since links are not trusted.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "comm/activity.h"
#include "comm/socket.h"

namespace meshtrain {

enum class FrameKind : uint8_t {
  kReport,    // both ways: RankReport
  kGather,    // to rank 0: key, limit, to rank 0 only?, last part?, part of the text
  kGathered,  // from rank 0: key, rank, last part?, part of that rank's text
  kFail,      // to rank 0: exit code, text
  kAbort,     // from rank 0: exit code, whether to show where this rank is
  kDone,      // to rank 0: finish() was called
  kAllDone,   // from rank 0: by all
};

constexpr size_t kMostFrameBytes = size_t{64} << 10;
constexpr size_t kMostPartBytes = size_t{60} << 10;  // of a text, in one frame
constexpr size_t kMostTextBytes = size_t{64} << 20;  // of all_gather() and gather()
constexpr size_t kMostKeyBytes = 1024;

// Builds one frame; done() returns its bytes.
class FrameWriter {
 public:
  explicit FrameWriter(FrameKind kind) : bytes_(4, '\0') { put(kind); }

  template <class T>
  requires std::is_trivially_copyable_v<T> &&
      (!std::is_convertible_v<T, std::string_view>)FrameWriter& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  FrameWriter& put(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.append(text);
    return *this;
  }
  std::string done() {
    const auto length = static_cast<uint32_t>(bytes_.size() - 4);
    std::memcpy(bytes_.data(), &length, 4);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

// The fields of one frame, in order; ok() is false when there was less than asked for.
class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value = {};
    if (take(sizeof value)) {
      std::memcpy(&value, taken_.data(), sizeof value);
    }
    return value;
  }
  std::string text() {
    const auto length = get<uint32_t>();
    return take(length) ? std::string(taken_) : std::string();
  }
  bool ok() const { return ok_; }

 private:
  bool take(size_t count) {
    ok_ = ok_ && count <= bytes_.size();
    if (ok_) {
      taken_ = bytes_.substr(0, count);
      bytes_.remove_prefix(count);
    }
    return ok_;
  }

  std::string_view bytes_, taken_;
  bool ok_ = true;
};

// The progress of a rank, reported every second.
struct RankReport {
  int64_t step = 0, epoch = 0;
  std::string phase;
  uint64_t sequence = 0, signature = 0;  // of the collective entered last
  std::string collective;
  bool inside = false;
  double inside_seconds = 0;  // about
  std::string awaited;        // since that was entered; empty: nothing
  int64_t awaited_steps = 0;
  double quiet_seconds = 1e18;  // since it did or announced anything; at first: it never did
  std::string announced;        // the newest announcement; empty: none
  double announced_seconds = 0, announced_limit = 0;
  int64_t loss_step = 0;
  uint64_t loss_hash = 0;

  // The fields that `values` has.
  static RankReport of(const Activity::Values& values);
  std::string frame() const;
  bool read(FrameReader& from);  // false: malformed
};

// A connection with its unsent and its received bytes.
class Link {
 public:
  Link() = default;
  explicit Link(Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  bool open() const { return static_cast<bool>(socket_); }
  bool has_unsent() const { return open() && !out_.empty(); }
  void send(std::string_view frame);  // with the next flush()
  void flush();                       // as much as the link accepts now
  // Receives available bytes. Returns false when the other end closed the link, or when the network
  // failed: then `lost_host` is set.
  bool receive();
  bool lost_host() const { return lost_host_; }
  // Takes the next whole frame. Returns false when there is none yet, or when the bytes are no
  // frame (`malformed`).
  bool next(FrameKind* kind, std::string* payload);
  bool malformed() const { return malformed_; }
  void close() {
    flush();
    socket_.close();
  }

 private:
  Socket socket_;
  std::string out_, in_;
  size_t sent_ = 0, read_ = 0;
  bool lost_host_ = false, malformed_ = false;
};

}  // namespace meshtrain
