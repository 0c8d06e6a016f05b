#include "comm/mpi/group.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "comm/mpi/calls.h"
#include "comm/mpi/exchange.h"

namespace meshtrain::mpi {
namespace {

// How long a process that ends waits for the others to end, too.
constexpr double kPartingSeconds = 5;
// The limit of one process's text in one call: counts of MPI are int, also the total of all.
constexpr int64_t kMostGathered = int64_t{16} << 20;

// Errors of MPI are return codes from now on.
void return_errors(MPI_Comm comm) {
  check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

}  // namespace

Session::Session() {
  int level = 0;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  return_errors(MPI_COMM_WORLD);
  return_errors(MPI_COMM_SELF);
  if (level < MPI_THREAD_FUNNELED) {
    throw RuntimeFailure(ExitCode::kRankLost,
                         "this MPI allows no threads other than the one that uses it");
  }
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  return_errors(comm_);
}

// MPI's own end waits for all processes, for ever; one that ends by itself, after an error, leaves
// without it.
Session::~Session() {
  if (all_have_come()) {
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }
}

bool Session::all_have_come() noexcept {
  MPI_Request request = MPI_REQUEST_NULL;
  int done = MPI_Ibarrier(comm_, &request) == MPI_SUCCESS ? 0 : -1;
  for (Waiting waiting; done == 0 && waiting.seconds() < kPartingSeconds; waiting.pause()) {
    if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return false;
    }
  }
  return done > 0;
}

MpiGroup::MpiGroup() {
  check(MPI_Comm_rank(session_.comm(), &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(session_.comm(), &size_), "MPI_Comm_size");
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(session_.comm(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  check(MPI_Comm_rank(host, &local_rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(host, &local_size_), "MPI_Comm_size");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
}

MpiGroup::~MpiGroup() {
  for (auto& [ranks, comm] : teams_) {
    MPI_Comm_free(&comm);
  }
}

std::vector<int64_t> MpiGroup::all_gather_numbers(int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check(
      MPI_Iallgather(&mine, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, session_.comm(), &request),
      "MPI_Iallgather");
  wait(request, "MPI_Iallgather");
  return all;
}

std::vector<std::string> MpiGroup::all_gather(std::string_view mine) {
  const std::vector<int64_t> lengths = all_gather_numbers(static_cast<int64_t>(mine.size()));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const int64_t most = std::min<int64_t>(kMostGathered, INT32_MAX / size_);
  std::vector<std::string> texts(static_cast<size_t>(size_));
  std::vector<int> counts(texts.size()), places(texts.size());
  std::vector<char> round;
  for (int64_t at = 0; at < longest; at += most) {
    for (size_t r = 0; r < texts.size(); ++r) {
      counts[r] = static_cast<int>(std::clamp<int64_t>(lengths[r] - at, 0, most));
    }
    std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
    round.resize(static_cast<size_t>(places.back() + counts.back()));
    const size_t rank = static_cast<size_t>(rank_);
    const char* part = counts[rank] == 0 ? nullptr : mine.data() + at;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(part, counts[rank], MPI_BYTE, round.data(), counts.data(), places.data(),
                          MPI_BYTE, session_.comm(), &request),
          "MPI_Iallgatherv");
    wait(request, "MPI_Iallgatherv");
    for (size_t r = 0; r < texts.size(); ++r) {
      texts[r].append(round.data() + places[r], static_cast<size_t>(counts[r]));
    }
  }
  return texts;
}

std::unique_ptr<Transfer> MpiGroup::make_exchange(std::vector<Message> sends,
                                                  std::vector<Message> receives) {
  return mpi::make_exchange(session_.comm(), sends, receives);
}

MPI_Comm MpiGroup::team(const std::vector<int>& ranks) {
  if (static_cast<int>(ranks.size()) == size_) {
    return session_.comm();
  }
  if (const auto known = teams_.find(ranks); known != teams_.end()) {
    return known->second;
  }
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  check(MPI_Comm_group(session_.comm(), &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some), "MPI_Group_incl");
  MPI_Comm comm = MPI_COMM_NULL;
  check(MPI_Comm_create_group(session_.comm(), some, 0, &comm), "MPI_Comm_create_group");
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return_errors(comm);
  teams_.emplace(ranks, comm);
  return comm;
}

std::unique_ptr<Transfer> MpiGroup::make_all_reduce(Reduction reduction, DType dtype,
                                                    std::byte* data, int64_t elements,
                                                    const std::vector<int>& ranks) {
  MESHTRAIN_CHECK(std::find(ranks.begin(), ranks.end(), rank_) != ranks.end(),
                  "rank {} is not among the {} that reduce", rank_, ranks.size());
  return mpi::make_all_reduce(team(ranks), operations_.of(reduction, dtype), dtype, data, elements);
}

}  // namespace meshtrain::mpi
