#include "base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>

#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::TempFolder;

std::string message_of(const auto& function, ExitCode expected) {
  try {
    function();
  } catch (const FileError& error) {
    CHECK(error.exit_code() == expected);
    return error.what();
  }
  return "nothing thrown";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("write_file_atomic: writes and replaces whole files and leaves no other name") {
  const TempFolder folder;
  write_file_atomic(folder.file("a"), std::string_view("one"));
  CHECK(folder.read("a") == "one");
  write_file_atomic(folder.file("a"), std::string_view("another"));
  CHECK(folder.read("a") == "another");
  CHECK(folder.num_files() == 1);
  CHECK(read_file(folder.file("a"), 7) == "another");
}

TEST_CASE("write_file_atomic: failures exit with 74 and name path and reason") {
  const TempFolder folder;
  const auto write = [](const std::string& path) {
    return message_of([&] { write_file_atomic(path, std::string_view("x")); },
                      ExitCode::kWriteFailed);
  };
  CHECK(contains(write(folder.file("no/such/file")), "No such file or directory"));
  CHECK(contains(write(folder.file("no/such/file")), "no/such/file"));
  CHECK(contains(write(folder.path()), "Is a directory"));
  folder.write("plain", "x");
  CHECK(contains(write(folder.file("plain/below")), "Not a directory"));
  CHECK(contains(write("/dev/full"), "No space left on device"));
}

TEST_CASE("write_file_atomic: a write cut short keeps the old file and leaves nothing behind") {
  const TempFolder folder;
  folder.write("a", "old");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const std::string message = message_of(
      [&] { write_file_atomic(folder.file("a"), std::string_view(std::string(10000, 'x'))); },
      ExitCode::kWriteFailed);
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  CHECK(contains(message, "File too large"));
  CHECK(folder.read("a") == "old");
  CHECK(folder.num_files() == 1);
}

TEST_CASE("InputFile: refuses what is no regular file and links where they are refused") {
  const TempFolder folder;
  const std::string plain = folder.write("plain", "0123456789");
  REQUIRE(::symlink(plain.c_str(), folder.file("link").c_str()) == 0);
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  const auto open = [](const std::string& path, InputFile::Links links) {
    return message_of([&] { InputFile file(path, links); }, ExitCode::kData);
  };
  CHECK(InputFile(folder.file("link")).size() == 10);
  CHECK(contains(open(folder.file("link"), InputFile::Links::kRefuse), "symbolic link"));
  CHECK(contains(open(folder.file("pipe"), InputFile::Links::kFollow), "not a regular file"));
  CHECK(contains(open(folder.path(), InputFile::Links::kFollow), "Is a directory"));
  CHECK(contains(open(folder.file("none"), InputFile::Links::kFollow), "No such file"));
}

TEST_CASE("InputFile: reads at positions and notices a file that has shrunk") {
  const TempFolder folder;
  const InputFile file(folder.write("a", "0123456789"));
  char text[4] = {};
  file.read_at(3, reinterpret_cast<std::byte*>(text), 3);
  CHECK(std::string(text) == "345");
  std::filesystem::resize_file(folder.file("a"), 4);
  const std::string message =
      message_of([&] { file.read_at(3, reinterpret_cast<std::byte*>(text), 3); }, ExitCode::kData);
  CHECK(contains(message, "ends at byte 4"));
}

TEST_CASE("InputFile: programs that are started do not get its descriptor") {
  const TempFolder folder;
  const InputFile file(folder.write("a", "text"));
  CHECK((::fcntl(file.descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("read_file: stops at the limit") {
  const TempFolder folder;
  const std::string path = folder.write("a", std::string(5000, 'x'));
  CHECK(read_file(path, 5000).size() == 5000);
  CHECK(contains(message_of([&] { read_file(path, 4999); }, ExitCode::kData), "longer than"));
  CHECK(contains(message_of([&] { read_file("/dev/zero", 1 << 20); }, ExitCode::kData),
                 "longer than 1"));
}

TEST_CASE("similar_files: the nearest name first") {
  const TempFolder folder;
  folder.write("train.npz", "");
  folder.write("test.npz", "");
  folder.write("labels.gz", "");
  REQUIRE(!similar_files(folder.file("trian.npz"), 2).empty());
  CHECK(similar_files(folder.file("trian.npz"), 2)[0] == "train.npz");
  CHECK(similar_files(folder.file("none/x"), 2).empty());
}

}  // namespace
}  // namespace meshtrain
