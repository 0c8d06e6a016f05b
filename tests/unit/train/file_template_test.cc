#include "config/file_template.h"

#include <doctest/doctest.h>

#include "config/arithmetic.h"

namespace meshtrain {
namespace {

std::string filled(const char* text) {
  return FileTemplate(text).fill([](const std::string& name) -> FileTemplate::Value {
    return name == "epoch" ? FileTemplate::Value(int64_t{7}) : FileTemplate::Value(0.125);
  });
}

std::string problem_of(const char* text) {
  try {
    const FileTemplate made(text);
    return "";
  } catch (const ExprError& error) {
    return error.message;
  }
}

TEST_CASE("placeholders take Python's formats") {
  CHECK(filled("a/{epoch:03d}-{val_loss:.2f}.keras") == "a/007-0.12.keras");
  CHECK(filled("{epoch}{{}}{x}{x:e}{epoch:.1f}") == "7{}0.1251.250000e-017.0");
  CHECK(FileTemplate("{epoch}-{a}-{epoch:d}").names() ==
        std::vector<std::string>{"epoch", "a", "epoch"});
}

TEST_CASE("what cannot be filled is refused") {
  CHECK(problem_of("{epoch") == "`{` is not closed");
  CHECK(problem_of("a}b") == "`}` without `{`; write `}}` for the sign itself");
  CHECK(problem_of("{}") == "`{}` names no value");
  CHECK(problem_of("{logs[loss]}") == "`{logs[loss]}` names no value");
  CHECK(problem_of("{epoch:s}") == "`s` is no format of an integer");
  CHECK(problem_of("{loss:d}") == "`d` is no format of a number");
  CHECK(problem_of("{loss:999999999f}") == "`999999999f` is no format of a number");
  CHECK(problem_of("{loss:{width}}") != "");
}

TEST_CASE("the epoch is read back from a name that the template could have made") {
  const FileTemplate path("ckpt-{epoch:02d}-{val_loss:.2f}.keras");
  CHECK(path.epoch_in("ckpt-07-0.25.keras") == 7);
  CHECK(path.epoch_in("ckpt-112-0.25.keras") == 112);
  CHECK(path.epoch_in("ckpt-00-1.keras") == 0);
  CHECK_FALSE(path.epoch_in("ckpt--0.25.keras"));
  CHECK_FALSE(path.epoch_in("ckpt-x-0.25.keras"));
  CHECK_FALSE(path.epoch_in("ckpt-07-0.25.keras.tmp"));
  CHECK_FALSE(path.epoch_in("ckpt-99999999999999999999-0.25.keras"));
  CHECK(FileTemplate("a/b/c-{epoch}").folder() == "a/b");
  CHECK(FileTemplate("/c-{epoch}").folder() == "/");
  CHECK(FileTemplate("{epoch}").folder() == "");
  CHECK_FALSE(FileTemplate("a{epoch}/b").folder());
}

}  // namespace
}  // namespace meshtrain
