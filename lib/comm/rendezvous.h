// How the processes of a run come to know each other's connections: rank 0 listens, the others
// connect and prove that they know a secret that only processes of this run have (proof.h), and
// rank 0 proves it to them. Who has not done so within 5 s is dropped; the port closes as soon as
// all ranks are there.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/proof.h"
#include "comm/socket.h"

namespace meshtrain {

using Print = std::function<void(std::string_view)>;
// Whole texts to standard error, at once.
void print_to_stderr(std::string_view text);

// "rank 3", "ranks 2, 5-7, 9"
std::string rank_list(std::vector<int> ranks);

// Upper bound on sockets that accept_ranks() holds open, including 16 for its caller.
constexpr int kMostStrangers = 32;
constexpr int most_sockets(int size) {
  return 2 * size + kMostStrangers + 16;
}

// On rank 0: returns the connections of ranks 1 to size-1, by rank (the first is empty). Throws
// ConfigError E612 (exit 8), which names ranks that were late, connected twice, exited early, or
// expect another number of ranks. Connected ranks throw the same error. Connections of strangers
// are counted and reported in one warning.
std::vector<Socket> accept_ranks(const std::vector<Socket>& listeners, const Token& token, int size,
                                 double limit_seconds, const Print& print);

// By the others: the connection to rank 0, when all ranks are there. `find` gives where to look for
// it, asked again after each failure; with none, its `error` says why. Throws ConfigError E612, or
// E613 (both exit 8) where nothing was found.
using FindAddresses = std::function<std::vector<Address>(std::string* error)>;
Socket join_rank_zero(const FindAddresses& find, const std::string& place, const Token& token,
                      int rank, int size, double limit_seconds);

// Allows as many open files as `more` than are open now. Throws ConfigError E640 (exit 4).
void allow_open_files(int more);

}  // namespace meshtrain
