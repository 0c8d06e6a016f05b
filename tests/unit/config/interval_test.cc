#include "config/interval.h"

#include <doctest/doctest.h>

namespace meshtrain {
namespace {

TEST_CASE("durations add up their parts") {
  CHECK(parse_duration("90").value_or(0) == 90);
  CHECK(parse_duration("23h30m").value_or(0) == 84600);
  CHECK(parse_duration("30 min").value_or(0) == 1800);
  CHECK(parse_duration("1d 2h 3m 4s").value_or(0) == 93784);
  CHECK(parse_duration("0.5h").value_or(0) == 1800);
  for (const char* wrong : {"", "0", "-1s", "h", "3 weeks", "1h30", "1e3s", "nan", "inf", "5 5"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_duration(wrong).has_value());
  }
}

TEST_CASE("intervals have a unit") {
  using Unit = Interval::Unit;
  CHECK((parse_interval("never") == Interval{}));
  CHECK((parse_interval("epoch") == Interval{Unit::kEpochs, 1}));
  CHECK((parse_interval("3 epochs") == Interval{Unit::kEpochs, 3}));
  CHECK((parse_interval("200 steps") == Interval{Unit::kSteps, 200}));
  CHECK((parse_interval("1h30m") == Interval{Unit::kSeconds, 5400}));
  for (const char* wrong : {"", "200", "0 steps", "1.5 steps", "2 epochs 3", "soon"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_interval(wrong).has_value());
  }
}

TEST_CASE("sizes in bytes know both kinds of units") {
  CHECK(parse_bytes("4096").value_or(0) == 4096);
  CHECK(parse_bytes("1.5 GiB").value_or(0) == int64_t{3} << 29);
  CHECK(parse_bytes("2 GB").value_or(0) == 2'000'000'000);
  for (const char* wrong : {"", "0", "-5", "3 apples", "1 GiB 2", "0.5 B"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_bytes(wrong).has_value());
  }
}

}  // namespace
}  // namespace meshtrain
