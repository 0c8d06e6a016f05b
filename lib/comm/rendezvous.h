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

// That accept_ranks() has open at most, with some for whoever calls it.
constexpr int kMostStrangers = 32;
constexpr int most_sockets(int size) {
  return 2 * size + kMostStrangers + 16;
}

// By rank 0: the connections of ranks 1 to size-1, by rank (the first is empty). Throws ConfigError
// E612 (exit 8) that names who did not come in time, came twice, ended before all were there, or
// has another number of ranks in mind; those that did come throw the same. Strangers are counted
// and told of in one warning.
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
