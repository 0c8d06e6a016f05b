// What any ProcessGroup must do, and what is checked before a run over it begins.
#include <doctest/doctest.h>

#include <mutex>

#include "base/host.h"
#include "comm/communicator_self_test.h"
#include "comm/handshake.h"
#include "comm/socket.h"
#include "support/group_check.h"
#include "support/temp_folder.h"
#include "support/thread_group.h"

namespace meshtrain::test {
namespace {

TEST_CASE("threads that play processes do what processes must do") {
  for (const int size : {1, 2, 3}) {
    run_as_processes(size, [&](std::shared_ptr<ThreadGroup> group) {
      const std::vector<std::string> problems = check_group(*group);
      CHECK_MESSAGE(problems.empty(), (problems.empty() ? "" : problems[0]));
    });
  }
}

// A group whose transfers go wrong on one rank.
class Faulty : public ProcessGroup {
 public:
  enum class Fault { kNone, kText, kBytes, kSum, kLargest };

  Faulty(std::shared_ptr<ProcessGroup> group, Fault fault) : group_(group), fault_(fault) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int local_rank() const override { return group_->local_rank(); }
  int local_size() const override { return group_->local_size(); }
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> texts = group_->all_gather(mine);
    if (fault_ == Fault::kText) {
      texts[1] += "?";
      fault_ = Fault::kNone;  // what is said about it afterwards arrives
    }
    return texts;
  }
  std::unique_ptr<Transfer> make_exchange(std::vector<Message> sends,
                                          std::vector<Message> receives) override {
    std::byte* const spoiled =
        fault_ == Fault::kBytes ? receives.back().data + receives.back().bytes - 1 : nullptr;
    return std::make_unique<Spoil>(group_->make_exchange(sends, receives), spoiled);
  }
  std::unique_ptr<Transfer> make_all_reduce(Reduction reduction, DType dtype, std::byte* data,
                                            int64_t elements,
                                            const std::vector<int>& ranks) override {
    const bool is_bad = (fault_ == Fault::kSum && reduction == Reduction::kSum) ||
                        (fault_ == Fault::kLargest && reduction == Reduction::kMax);
    return std::make_unique<Spoil>(group_->make_all_reduce(reduction, dtype, data, elements, ranks),
                                   is_bad ? data : nullptr);
  }

 private:
  class Spoil : public Transfer {
   public:
    Spoil(std::unique_ptr<Transfer> transfer, std::byte* place)
        : transfer_(std::move(transfer)), place_(place) {}
    void run() override {
      transfer_->run();
      if (place_ != nullptr) {
        *place_ ^= std::byte{1};
      }
    }

   private:
    std::unique_ptr<Transfer> transfer_;
    std::byte* place_;
  };

  std::shared_ptr<ProcessGroup> group_;
  Fault fault_;
};

// What each of `size` ranks caught.
template <class Body>
std::vector<Caught> caught_on_all_ranks(int size, const Body& body) {
  std::vector<Caught> all(static_cast<size_t>(size));
  run_as_processes(size, [&](std::shared_ptr<ThreadGroup> group) {
    all[static_cast<size_t>(group->rank())] = caught([&] { body(group); });
  });
  return all;
}

TEST_CASE("a rank that gets something else than was sent is named on all ranks") {
  using Fault = Faulty::Fault;
  const std::pair<Fault, const char*> cases[] = {
      {Fault::kNone, ""},
      {Fault::kText, "rank 2 got another text than rank 1 gave"},
      {Fault::kBytes, "rank 2 got other bytes than rank 1 sent"},
      {Fault::kSum, "as the sum of all ranks"},
      {Fault::kLargest, "as the largest of all ranks"}};
  for (const auto& [fault, says] : cases) {
    const std::vector<Caught> errors =
        caught_on_all_ranks(3, [fault = fault](std::shared_ptr<ThreadGroup> group) {
          Faulty faulty(group, group->rank() == 2 ? fault : Fault::kNone);
          check_communicator(faulty, true);
        });
    for (const Caught& error : errors) {
      CHECK(error.code == (fault == Fault::kNone ? "" : "E605"));
      CHECK_MESSAGE(error.says(says), error.text);
      CHECK(error.exit_code == (fault == Fault::kNone ? 0 : 8));
      CHECK(!error.says("rank 0 "));
    }
  }
}

TEST_CASE("a group of texts alone is asked for no tensors") {
  const std::vector<Caught> errors = caught_on_all_ranks(2, [](std::shared_ptr<ThreadGroup> group) {
    check_communicator(*group, false);
    CHECK(group->exchanges() == 0);
    CHECK(group->bytes_reduced() == 0);
  });
  CHECK(errors[0].code.empty());
}

std::vector<Fact> facts_of(const std::string& version, const std::string& config) {
  return {{"version", version},
          {"config", config, [](const std::string& first, const std::string& other) {
             return std::vector<std::string>{"first " + first, "other " + other};
           }}};
}

TEST_CASE("ranks that are started alike continue") {
  for (const Caught& error : caught_on_all_ranks(3, [](std::shared_ptr<ThreadGroup> group) {
         check_consistent(*group, facts_of("1", std::string(100000, 'x')));
       })) {
    CHECK(error.code.empty());
  }
}

TEST_CASE("who differs is named with host and what differs on every rank") {
  const std::vector<Caught> errors = caught_on_all_ranks(4, [](std::shared_ptr<ThreadGroup> group) {
    const int rank = group->rank();
    check_consistent(*group, facts_of(rank == 1 ? "2" : "1", rank == 3 ? "b\xff" : "a"));
  });
  for (const Caught& error : errors) {
    CHECK(error.code == "E611");
    CHECK(error.exit_code == 2);
    CHECK(error.says(fmt::format("rank 1 on host {} is not started as rank 0", host_name())));
    CHECK(error.says("version: `2`, rank 0 has `1`"));
    CHECK(error.says("rank 3 on host "));
    CHECK(error.says("config: first a"));
    CHECK(error.says("config: other b"));
    CHECK(!error.says("rank 2"));
    CHECK(error.text == errors[0].text);
  }
}

TEST_CASE("a hundred differing ranks fill no screen") {
  const std::vector<Caught> errors =
      caught_on_all_ranks(12, [](std::shared_ptr<ThreadGroup> group) {
        check_consistent(*group, facts_of("1", std::to_string(group->rank())));
      });
  CHECK(errors[0].says("rank 8 on"));
  CHECK(!errors[0].says("rank 9 on"));
  CHECK(errors[0].says("and 3 more ranks differ"));
}

TEST_CASE("failures of all ranks become one") {
  const auto failures = [](const std::vector<Failure>& each) {
    std::vector<Failure> all(each.size());
    run_as_processes(static_cast<int>(each.size()), [&](std::shared_ptr<ThreadGroup> group) {
      const size_t rank = static_cast<size_t>(group->rank());
      all[rank] = common_failure(*group, each[rank]);
    });
    for (const Failure& failure : all) {
      CHECK(failure.text == all[0].text);
      CHECK(failure.exit_code == all[0].exit_code);
    }
    return all[0];
  };
  CHECK(failures({{}, {}}).text.empty());
  CHECK(failures({{}, {}}).exit_code == 0);
  const Failure alike = failures({{2, "bad\n"}, {2, "bad\n"}});
  CHECK(alike.text == "bad\n");
  CHECK(alike.exit_code == 2);
  const Failure one = failures({{}, {3, "no file\n"}, {}});
  CHECK(one.text == fmt::format("[rank 1 on host {}] no file\n", host_name()));
  CHECK(one.exit_code == 3);
  const Failure two = failures({{2, "a\n"}, {3, "b\n"}});
  CHECK(two.text.find("] a\n[rank 1") != std::string::npos);
  CHECK(two.exit_code == 2);
}

}  // namespace
}  // namespace meshtrain::test
