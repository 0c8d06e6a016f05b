#include "comm/communicator_self_test.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/diagnostic.h"
#include "base/hash.h"

namespace meshtrain {
namespace {

constexpr size_t kLong = size_t{1} << 18, kShort = 100;  // bytes

// The first message from rank `from` to rank `to`: a pattern that depends on both.
std::vector<std::byte> bytes_between(int from, int to, size_t count) {
  std::vector<std::byte> bytes(count);
  uint64_t state = hash_mix(static_cast<uint64_t>(from), static_cast<uint64_t>(to));
  for (size_t i = 0; i < count; ++i) {
    state = i % 8 == 0 ? hash_mix(state, i) : state >> 8;
    bytes[i] = static_cast<std::byte>(state & 0xff);
  }
  return bytes;
}

// Empty, or what was wrong.
std::string try_texts(ProcessGroup& group) {
  const auto text_of = [](int rank) {
    return std::string(static_cast<size_t>(rank % 3) * 1000, static_cast<char>('a' + rank % 26)) +
           std::to_string(rank);
  };
  const std::vector<std::string> texts = group.all_gather(text_of(group.rank()));
  for (int r = 0; r < group.size(); ++r) {
    if (texts.size() != static_cast<size_t>(group.size()) ||
        texts[static_cast<size_t>(r)] != text_of(r)) {
      return fmt::format("got another text than rank {} gave", r);
    }
  }
  return {};
}

std::string try_ring(ProcessGroup& group, size_t count) {
  const int size = group.size(), rank = group.rank();
  std::vector<int> peers = {(rank + 1) % size, (rank + size - 1) % size};
  peers.resize(size == 2 ? 1 : 2);
  std::vector<std::vector<std::byte>> out, in(peers.size(), std::vector<std::byte>(count));
  std::vector<Message> sends, receives;
  for (size_t i = 0; i < peers.size(); ++i) {
    out.push_back(bytes_between(rank, peers[i], count));
    sends.push_back({peers[i], out.back().data(), static_cast<int64_t>(count)});
    receives.push_back({peers[i], in[i].data(), static_cast<int64_t>(count)});
  }
  const std::unique_ptr<Transfer> transfer = group.make_exchange(sends, receives);
  std::string wrong;
  for (int time = 0; time < 2; ++time) {  // a transfer is done again and again, by all ranks
    for (std::vector<std::byte>& bytes : in) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    transfer->run();
    for (size_t i = 0; i < peers.size(); ++i) {
      if (in[i] != bytes_between(peers[i], rank, count)) {
        wrong = fmt::format("got other bytes than rank {} sent ({} of them)", peers[i], count);
      }
    }
  }
  return wrong;
}

std::string try_all_reduce(ProcessGroup& group, Reduction reduction, const char* name) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto term = [](int rank, size_t i) {  // whole numbers: sums are exact in any order
    return static_cast<float>((rank + 3) * static_cast<int>(i % 17 + 1) % 101);
  };
  std::vector<float> values(kLong / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = term(group.rank(), i);
  }
  group
      .make_all_reduce(reduction, DType::kFloat32, reinterpret_cast<std::byte*>(values.data()),
                       static_cast<int64_t>(values.size()), ranks)
      ->run();
  for (size_t i = 0; i < values.size(); ++i) {
    float expected = term(0, i);
    for (int r = 1; r < group.size(); ++r) {
      expected =
          reduction == Reduction::kSum ? expected + term(r, i) : std::max(expected, term(r, i));
    }
    if (values[i] != expected) {
      return fmt::format("has {} instead of {} as {} of all ranks", values[i], expected, name);
    }
  }
  return {};
}

std::string try_all(ProcessGroup& group, bool moves_tensors) {
  std::vector<std::string> wrong = {try_texts(group)};
  if (moves_tensors && group.size() > 1) {  // all of them, whatever one gave: others wait for it
    wrong.push_back(try_ring(group, kShort));
    wrong.push_back(try_ring(group, kLong));
    wrong.push_back(try_all_reduce(group, Reduction::kSum, "the sum"));
    wrong.push_back(try_all_reduce(group, Reduction::kMax, "the largest"));
  }
  const auto first =
      std::find_if(wrong.begin(), wrong.end(), [](const auto& text) { return !text.empty(); });
  return first == wrong.end() ? "" : *first;
}

}  // namespace

void check_communicator(ProcessGroup& group, bool moves_tensors) {
  const std::string mine = try_all(group, moves_tensors);
  const std::vector<std::string> all = group.all_gather(mine);
  std::vector<std::string> wrong;
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].empty()) {
      wrong.push_back(fmt::format("rank {} {}", r, all[r]));
    }
  }
  if (wrong.empty()) {
    return;
  }
  ConfigError problem("E605", {}, "processes do not get from each other what was sent");
  for (const std::string& line : wrong) {
    problem.note(line);
  }
  problem.help(
      "another network interface (MESHTRAIN_NET_INTERFACE), or another version of MPI; nothing "
      "was trained");
  throw problem;
}

}  // namespace meshtrain
