// TextGather: texts that ranks give under a key and that come to all, over links to rank 0. Each
// rank has one; the thread of the links calls it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "comm/monitor_frames.h"
#include "comm/watchdog.h"

namespace meshtrain {

struct GatherRequest {
  std::string key, text;
  double limit = 0;       // seconds for the others to come
  bool to_first = false;  // the others get only rank 0's text
};

class TextGather {
 public:
  // `send` sends a frame: of rank 0 to all others, of the others to rank 0. `deliver` gets the
  // texts of a key by rank, when all are there.
  using Send = std::function<void(const std::string& frame)>;
  using Deliver = std::function<void(const std::string& key, std::vector<std::string> texts)>;
  TextGather(int rank, int size, Send send, Deliver deliver);

  void start(const GatherRequest& request, double now);
  // A frame of kind kGather at rank 0, kGathered elsewhere; false: malformed.
  bool receive(int from, FrameReader& frame, double now);
  // The keys for which rank 0 waits.
  std::vector<Waiting> waiting(double now) const;

 private:
  struct Entry {
    std::vector<std::deque<std::string>> texts;  // by rank, oldest first
    double since = 0, limit = 0;
    bool to_first = false;
  };

  bool receive_at_first(int from, FrameReader& frame, double now);
  bool receive_at_others(FrameReader& frame);
  void add(int rank, GatherRequest given, double now);
  void send_to_all(const std::string& key, const std::vector<std::string>& texts, bool to_first);

  const int rank_, size_;
  const Send send_;
  const Deliver deliver_;
  std::map<std::string, Entry> entries_;  // of rank 0
  // Texts of which not all parts have come: of rank 0 by rank and key, of the others by key.
  std::map<std::pair<int, std::string>, std::string> parts_;
  std::map<std::string, std::vector<std::string>> incoming_;
};

}  // namespace meshtrain
