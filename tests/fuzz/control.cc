// What one rank sends another, and strangers to both: the messages of the heartbeat monitor.
#include <sys/socket.h>

#include "base/diagnostic.h"
#include "base/host.h"
#include "comm/monitor_frames.h"
#include "target.h"

namespace meshtrain::fuzz {

void read_control(Bytes bytes) {
  int ends[2];
  MESHTRAIN_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Socket sender(ends[0]);
  Link link{Socket(ends[1])};
  std::string_view rest = as_text(bytes);
  FrameKind kind = {};
  std::string payload;
  do {
    // In chunks, as the network gives them.
    const std::string_view chunk = rest.substr(0, 1 + rest.size() / 3);
    rest.remove_prefix(chunk.size());
    MESHTRAIN_CHECK(send_all(sender, chunk.substr(0, 100000), steady_seconds() + 1));
    MESHTRAIN_CHECK(link.receive());
    while (link.next(&kind, &payload)) {
      MESHTRAIN_CHECK(payload.size() < kMostFrameBytes);
      FrameReader fields(payload);
      RankReport report;
      if (kind == FrameKind::kReport && report.read(fields)) {
        continue;
      }
      FrameReader others(payload);
      others.text();
      others.get<double>();
      others.text();
      if (!others.ok()) {
        throw ConfigError("E601", {}, "no message");
      }
    }
  } while (!rest.empty() && !link.malformed());
}

}  // namespace meshtrain::fuzz
