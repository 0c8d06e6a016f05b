#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <ostream>

#include "support/sampled.h"

namespace {

// Says under a failed test case which sample of its cases ran.
struct OffsetOfFailures : doctest::IReporter {
  explicit OffsetOfFailures(const doctest::ContextOptions& options) : out(options.cout) {}

  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    if (stats.failure_flags != 0 && !meshtrain::test::runs_everything() && out != nullptr)
      *out << "repeat with MESHTRAIN_TEST_OFFSET=" << meshtrain::test::test_offset() << "\n";
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

  std::ostream* out;
};

REGISTER_LISTENER("offset", 1, OffsetOfFailures);

}  // namespace
