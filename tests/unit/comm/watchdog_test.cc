// What is judged from reports, and how it reads.
#include "comm/watchdog.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "comm/rendezvous.h"

namespace meshtrain {
namespace {

// Ranks that have all left collective #100 in step 20.
std::vector<RankView> healthy(int size) {
  std::vector<RankView> ranks;
  for (int rank = 0; rank < size; ++rank) {
    RankView view;
    view.host = fmt::format("h{}", rank / 2);
    view.pid = 1000 + rank;
    view.reported = true;
    view.report.step = 20;
    view.report.phase = "backward";
    view.report.sequence = 100;
    view.report.signature = 42;
    view.report.collective = "all-reduce of bucket 3";
    ranks.push_back(view);
  }
  return ranks;
}

void enter(RankView& view, uint64_t sequence, uint64_t signature, double seconds) {
  view.report.sequence = sequence;
  view.report.signature = signature;
  view.report.inside = true;
  view.report.inside_seconds = seconds;
}

TEST_CASE("nothing is wrong with ranks that are busy or wait within the limits") {
  auto ranks = healthy(4);
  CHECK_FALSE(judge(ranks, {}, {}));
  enter(ranks[1], 101, 43, 119);
  enter(ranks[2], 101, 43, 100);
  ranks[3].silent_seconds = 9.9;
  CHECK_FALSE(judge(ranks, {}, {}));
  CHECK_FALSE(judge(ranks, {{"`k`", 119, 120, {true, false, true, true}}}, {}));
}

TEST_CASE("a rank that ended comes before those that wait for it") {
  auto ranks = healthy(6);
  for (const size_t rank : {0, 1, 2, 3}) {
    enter(ranks[rank], 101, 43, 500);
  }
  ranks[5].ended = true;
  const auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E601");
  CHECK(failure_text(*verdict, 15, 20, "run it again") ==
        "error[E601]: rank 5 on host h2 (pid 1005) ended without a word (signal unknown); training "
        "stopped\n"
        "  = last report: step 20, backward, after all-reduce of bucket 3 (#100) (4 other ranks "
        "were waiting in all-reduce of bucket 3 (#101), rank 5 had not entered)\n"
        "  = likely: process killed (out of memory?) or crashed; `dmesg` on h2\n"
        "  = last complete checkpoint: step 15 (5 steps would be repeated)\n"
        "  = to resume: run it again\n\n");
}

TEST_CASE("a silent rank and a host that cannot be reached are called so") {
  auto ranks = healthy(4);
  ranks[2].silent_seconds = 10.4;
  ranks[2].reported = false;
  auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(failure_text(*verdict, 0, 20, "") ==
        "error[E601]: rank 2 on host h1 (pid 1002) stopped answering 10 s ago; training stopped\n"
        "  = last report: none yet\n"
        "  = likely: process stopped, host h1 down, or the network to it; `ps 1002` there\n"
        "  = last complete checkpoint: none\n\n");
  ranks[1].ended = ranks[1].lost_host = true;
  verdict = judge(ranks, {}, {});
  CHECK(verdict->message ==
        "rank 1 on host h0 (pid 1001) cannot be reached any more; training stopped");
}

TEST_CASE("those that fewest agree with entered the wrong collective") {
  auto ranks = healthy(5);
  for (const size_t rank : {0, 2, 4}) {
    enter(ranks[rank], 101, 7, 1);
  }
  for (const size_t rank : {1, 3}) {
    enter(ranks[rank], 101, 8, 1);
    ranks[rank].report.collective = "all-gather of d1/kernel";
  }
  auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E603");
  CHECK(verdict->ranks == std::vector<int>{1, 3});
  CHECK(verdict->notes[0] == "ranks 1, 3: all-gather of d1/kernel (#101), step 20");
  CHECK(verdict->notes[1] == "ranks 0, 2, 4: all-reduce of bucket 3 (#101), step 20");
  // Two halves: the one without rank 0.
  ranks.resize(4);
  CHECK(judge(ranks, {}, {})->ranks == std::vector<int>{1, 3});
  // Those without a signature agree with all.
  ranks[1].report.signature = ranks[3].report.signature = 0;
  CHECK_FALSE(judge(ranks, {}, {}));
}

TEST_CASE("the rank that is furthest behind hangs") {
  auto ranks = healthy(4);
  enter(ranks[0], 102, 7, 121);
  enter(ranks[1], 102, 7, 121);
  enter(ranks[2], 101, 7, 3);
  auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E602");
  CHECK(verdict->ranks == std::vector<int>{3});
  CHECK(verdict->message ==
        "rank 3 on host h1 (pid 1003) did not come to all-reduce of bucket 3 (#102) within 120 s; "
        "training stopped");
  // It said that it takes long.
  ranks[3].report.announced = "compiling";
  ranks[3].report.announced_seconds = 500;
  ranks[3].report.announced_limit = 600;
  CHECK_FALSE(judge(ranks, {}, {}));
  ranks[3].report.announced_seconds = 601;
  verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->message ==
        "rank 3 on host h1 (pid 1003) takes more than 600 s for compiling; training stopped");
}

TEST_CASE("a rank that did something within the limit is not stuck and hides none that is") {
  auto ranks = healthy(4);
  enter(ranks[0], 101, 7, 500);
  enter(ranks[1], 101, 7, 500);
  enter(ranks[2], 101, 7, 2);
  ranks[3].report.quiet_seconds = 1;  // what it announced has just ended
  CHECK_FALSE(judge(ranks, {}, {}));
  ranks[3].report.quiet_seconds = 120;
  CHECK_FALSE(judge(ranks, {}, {}));
  ranks[3].silent_seconds = 0.1;  // stopped: its last report grows old
  CHECK(judge(ranks, {}, {})->ranks == std::vector<int>{3});
  ranks[3].silent_seconds = 0;
  ranks[3].report.quiet_seconds = 120.1;
  auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E602");
  CHECK(verdict->ranks == std::vector<int>{3});
  // Beside one that is further behind, but coming.
  ranks[2] = healthy(3)[2];
  ranks[2].report.sequence = 99;
  ranks[2].report.quiet_seconds = 4;
  verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->ranks == std::vector<int>{3});
  // So it is where the monitor itself waits.
  ranks = healthy(3);
  const std::vector<Waiting> gather = {{"`k`", 500, 120, {true, false, false}}};
  ranks[1].report.quiet_seconds = 1;
  ranks[2].report.quiet_seconds = 120;
  CHECK_FALSE(judge(ranks, gather, {}));
  ranks[2].report.quiet_seconds = 121;
  verdict = judge(ranks, gather, {});
  REQUIRE(verdict);
  CHECK(verdict->ranks == std::vector<int>{2});
}

TEST_CASE("a collective that all entered and some do not leave is the network's") {
  auto ranks = healthy(3);
  enter(ranks[0], 101, 7, 121);
  enter(ranks[1], 101, 7, 121);
  enter(ranks[2], 102, 7, 121);  // it waits for them: not the cause
  const auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->ranks == std::vector<int>{0, 1});
  CHECK(verdict->message ==
        "ranks 0, 1 of 3 did not get out of all-reduce of bucket 3 (#101) within 120 s, though all "
        "entered it; training stopped");
}

TEST_CASE("a rank that neither enters more nor waits for results keeps the others waiting") {
  auto ranks = healthy(3);
  const auto wait = [](RankView& view, double seconds) {
    view.report.inside = true;
    view.report.inside_seconds = seconds;
    view.report.awaited = "reading the results of steps";
    view.report.awaited_steps = 32;
  };
  wait(ranks[0], 121);
  wait(ranks[2], 3);
  auto verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E602");
  CHECK(verdict->ranks == std::vector<int>{1});
  CHECK(verdict->message ==
        "rank 1 on host h0 (pid 1001) did not come to reading the results of steps (after #100) "
        "within 120 s; training stopped");
  CHECK(verdict->notes[0] ==
        "last report: step 20, backward, after all-reduce of bucket 3 (#100) (2 other ranks were "
        "waiting in reading the results of steps (after #100), rank 1 had not entered)");
  // It said that it takes long.
  ranks[1].report.announced = "compiling";
  ranks[1].report.announced_limit = 600;
  CHECK_FALSE(judge(ranks, {}, {}));
  // One that has not even come out of what all entered before.
  ranks[1].report.announced = "";
  enter(ranks[1], 100, 42, 119);
  CHECK(judge(ranks, {}, {})->ranks == std::vector<int>{1});
  // All wait: for as many steps as they began.
  wait(ranks[1], 121);
  CHECK_FALSE(judge(ranks, {}, {}));
  ranks[1].report.inside_seconds = 32 * 120 + 1;
  verdict = judge(ranks, {}, {});
  REQUIRE_FALSE(verdict);  // by the first of them
  ranks[0].report.inside_seconds = 32 * 120 + 1;
  verdict = judge(ranks, {}, {});
  REQUIRE(verdict);
  CHECK(verdict->message ==
        "ranks 0-2 of 3 did not get out of reading the results of steps (after #100) within 3840 "
        "s, though all entered it; training stopped");
}

TEST_CASE("who does not come to what the monitor does is named") {
  const auto verdict =
      judge(healthy(4), {{"`checkpoint 500`", 61, 60, {true, false, true, false}}}, {});
  REQUIRE(verdict);
  CHECK(verdict->code == "E602");
  CHECK(verdict->message ==
        "ranks 1, 3 did not come to `checkpoint 500` within 60 s; training stopped");
}

TEST_CASE("ranks are listed in runs") {
  CHECK(rank_list({3}) == "rank 3");
  CHECK(rank_list({1, 0}) == "ranks 0, 1");
  CHECK(rank_list({0, 1, 2, 5, 8, 9}) == "ranks 0-2, 5, 8, 9");
}

TEST_CASE("reports come back as they were sent and bytes that are none are refused") {
  RankReport report;
  report.step = 1312;
  report.phase = std::string(5000, 'p');  // cut: a report fits a message
  report.sequence = 412;
  report.signature = 0xfedcba9876543210;
  report.collective = "all-reduce";
  report.inside = true;
  report.quiet_seconds = 2.5;
  report.announced_limit = 600;
  report.loss_hash = 3;
  const std::string frame = report.frame();
  RankReport copy;
  FrameReader reader(std::string_view(frame).substr(5));
  CHECK(copy.read(reader));
  CHECK(copy.frame() == frame);
  CHECK(copy.signature == report.signature);
  CHECK(copy.quiet_seconds == 2.5);
  CHECK(copy.phase.size() == 400);
  for (size_t length = 0; length + 5 < frame.size(); ++length) {
    FrameReader shorter(std::string_view(frame).substr(5, length));
    CHECK_FALSE(copy.read(shorter));
  }
}

}  // namespace
}  // namespace meshtrain
