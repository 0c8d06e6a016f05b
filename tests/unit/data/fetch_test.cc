#include "data/fetch.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/sha256.h"
#include "support/file_server.h"
#include "support/golden.h"
#include "support/splitmix.h"
#include "support/temp_folder.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A folder to serve with one file, "set.bin", and one to download to.
struct Place {
  Place() {
    fs::create_directories(served.file("."));
    for (uint64_t i = 0; i < 200'000; ++i) {
      content += static_cast<char>(i * i >> 3);
    }
    served.write("set.bin", content);
    sha256 = sha256_of(InputFile(served.file("set.bin")));
    server = std::make_unique<test::FileServer>(served.path());
  }

  Download download(const std::string& way) const {
    return {server->url(way + "/set.bin"), path(), content.size(), sha256};
  }
  std::string path() const { return cache.file("sets/set.bin"); }
  std::string part() const { return path() + ".part"; }
  // What stands under the file's final name.
  std::string found() const { return test::read_text(path()); }
  // The requests so far, with what part of the file each asked for.
  std::string log() const {
    const std::string to = cache.file("log");
    fs::remove(to);
    const std::string command = "python3 -c 'import urllib.request as r; print(r.urlopen(\"" +
                                server->url("log") + "\").read().decode(), end=\"\")' > " + to;
    CHECK(std::system(command.c_str()) == 0);
    return test::read_text(to);
  }

  test::TempFolder served, cache;
  std::string content, sha256;
  std::unique_ptr<test::FileServer> server;
};

// "E325 message" of a download that fails, or what it ended with.
std::string outcome(const Download& download, const FetchOptions& options = {}) {
  try {
    switch (fetch(download, options)) {
      case Fetched::kDownloaded:
        return "downloaded";
      case Fetched::kWasThere:
        return "was there";
      case Fetched::kStopped:
        return "stopped";
    }
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == ExitCode::kData);
    return error.diagnostics().list().front().code + " " +
           error.diagnostics().list().front().message;
  } catch (const FileError& error) {
    CHECK(error.exit_code() == ExitCode::kWriteFailed);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("fetch: a file comes whole and the second time it is there") {
  const Place place;
  uint64_t most = 0;
  FetchOptions options;
  options.on_progress = [&](uint64_t bytes) {
    most = std::max(most, bytes);
    return false;
  };
  CHECK(outcome(place.download("range"), options) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(most == place.content.size());
  CHECK(!fs::exists(place.part()));
  CHECK(outcome(place.download("range")) == "was there");
  CHECK(place.log() == "GET /range/set.bin \n");
}

TEST_CASE("fetch: a server may send the reader elsewhere") {
  const Place place;
  CHECK(outcome(place.download("away")) == "downloaded");
  CHECK(place.found() == place.content);
}

TEST_CASE("fetch: a cut download resumes where it was cut") {
  const Place place;
  CHECK(outcome(place.download("cut")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log() ==
        "GET /cut/set.bin \nGET /cut/set.bin bytes=60000-\nGET /cut/set.bin bytes=120000-\n"
        "GET /cut/set.bin bytes=180000-\n");
}

TEST_CASE("fetch: another process resumes what the last one left") {
  const Place place;
  fs::create_directories(place.cache.file("sets"));
  std::ofstream(place.part(), std::ios::binary) << place.content.substr(0, 150'000);
  CHECK(outcome(place.download("range")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log() == "GET /range/set.bin bytes=150000-\n");
}

TEST_CASE("fetch: everything came but the name is still missing") {
  const Place place;
  fs::create_directories(place.cache.file("sets"));
  std::ofstream(place.part(), std::ios::binary) << place.content;
  CHECK(outcome(place.download("range")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log() == "");
}

TEST_CASE("fetch: a server without ranges is read from the start") {
  const Place place;
  fs::create_directories(place.cache.file("sets"));
  std::ofstream(place.part(), std::ios::binary) << place.content.substr(0, 150'000);
  CHECK(outcome(place.download("whole")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log() == "GET /whole/set.bin bytes=150000-\nGET /whole/set.bin \n");
}

TEST_CASE("fetch: a damaged part is thrown away and the file read again") {
  const Place place;
  fs::create_directories(place.cache.file("sets"));
  std::ofstream(place.part(), std::ios::binary) << std::string(1000, 'x');
  CHECK(outcome(place.download("range")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log() == "GET /range/set.bin bytes=1000-\nGET /range/set.bin \n");
}

TEST_CASE("fetch: another file than expected is refused and nothing is left") {
  const Place place;
  const std::string url = place.server->url("range/set.bin");
  Download wrong = place.download("range");
  wrong.sha256[0] = wrong.sha256[0] == '0' ? '1' : '0';
  CHECK(outcome(wrong) == "E326 " + url + " is not the file that was expected: SHA-256 " +
                              place.sha256 + ", expected " + wrong.sha256);
  wrong = place.download("range");
  wrong.num_bytes = 100'000;
  CHECK(outcome(wrong) ==
        "E326 " + url + " is not the file that was expected: it has more bytes, not 100,000");
  wrong.num_bytes = 300'000;
  CHECK(outcome(wrong) ==
        "E326 " + url + " is not the file that was expected: it has 200,000 bytes, not 300,000");
  CHECK(outcome(place.download("long")).starts_with("E326 "));
  CHECK(fs::is_empty(place.cache.file("sets")));
}

TEST_CASE("fetch: a file of the user's under that name is not touched") {
  const Place place;
  fs::create_directories(place.cache.file("sets"));
  std::ofstream(place.path()) << "mine";
  const std::string text = outcome(place.download("range"));
  CHECK(text.starts_with("E326 `" + place.path() + "` is another file (SHA-256 "));
  CHECK(text.ends_with("remove it to download it again"));
  CHECK(place.found() == "mine");
}

TEST_CASE("fetch: servers that refuse are named with what they said and nothing is left") {
  const Place place;
  Download missing = place.download("range");
  missing.url = place.server->url("range/none");
  CHECK(outcome(missing) ==
        "E325 cannot download " + missing.url + ": The requested URL returned error: 404");
  CHECK(outcome(place.download("refuse")).ends_with("error: 503"));
  CHECK(fs::is_empty(place.cache.file("sets")));
  Download nowhere = place.download("range");
  nowhere.url = "http://127.0.0.1:1/set.bin";
  CHECK(
      outcome(nowhere).starts_with("E325 cannot download http://127.0.0.1:1/set.bin: Failed to "
                                   "connect to 127.0.0.1 port 1"));
  nowhere.url = "file:///etc/passwd";
  CHECK(
      outcome(nowhere).starts_with("E325 cannot download file:///etc/passwd: Protocol \"file\" "
                                   "not supported"));
  CHECK(fs::is_empty(place.cache.file("sets")));
}

TEST_CASE("fetch: a server that falls silent is given up and its bytes are kept") {
  const Place place;
  FetchOptions options;
  options.timeout_seconds = 1;
  const std::string text = outcome(place.download("stall"), options);
  CHECK(text.starts_with("E325 cannot download " + place.server->url("stall/set.bin") +
                         ": no byte for 1 s; "));
  CHECK(text.ends_with(" of 200,000 bytes are in `" + place.part() +
                       "`, the next try resumes there"));
  CHECK(!fs::exists(place.path()));
  CHECK(fs::file_size(place.part()) >= 100'000);
  CHECK(outcome(place.download("range")) == "downloaded");
  CHECK(place.found() == place.content);
}

TEST_CASE("fetch: it stops when asked to and keeps what came") {
  const Place place;
  FetchOptions options;
  options.on_progress = [](uint64_t bytes) { return bytes >= 40'000; };
  CHECK(outcome(place.download("slow"), options) == "stopped");
  CHECK(!fs::exists(place.path()));
  CHECK(fs::file_size(place.part()) >= 40'000);
  CHECK(fs::file_size(place.part()) < 200'000);
}

TEST_CASE("fetch: one process downloads a file at a time") {
  const Place place;
  std::string second;
  FetchOptions options;
  options.on_progress = [&](uint64_t bytes) {
    if (bytes > 0 && second.empty()) {
      second = outcome(place.download("range"));
    }
    return false;
  };
  CHECK(outcome(place.download("slow"), options) == "downloaded");
  CHECK(second == "E325 `" + place.part() + "`: another process is downloading it");
}

TEST_CASE("fetch: what somebody put in the way is not written to") {
  const Place place;
  place.cache.write("victim", "mine");
  fs::create_directories(place.cache.file("sets"));
  const std::string refused =
      "E325 `" + place.part() + "`: is a link or belongs to somebody else; remove it";
  fs::create_symlink(place.cache.file("victim"), place.part());
  CHECK(outcome(place.download("range")) == refused);
  fs::remove(place.part());
  fs::create_hard_link(place.cache.file("victim"), place.part());
  CHECK(outcome(place.download("range")) == refused);
  fs::remove(place.part());
  if (::geteuid() == 0) {
    std::ofstream(place.part()) << "theirs";
    CHECK(::chown(place.part().c_str(), 4321, 4321) == 0);
    CHECK(outcome(place.download("range")) == refused);
    fs::remove(place.part());
  }
  CHECK(test::read_text(place.cache.file("victim")) == "mine");
}

TEST_CASE("fetch: nobody else writes a file that is coming, and all may read it then") {
  const Place place;
  const mode_t before = ::umask(02);
  fs::perms coming = fs::perms::unknown;
  FetchOptions options;
  options.on_progress = [&](uint64_t) {
    coming = fs::status(place.part()).permissions();
    return false;
  };
  CHECK(outcome(place.download("range"), options) == "downloaded");
  ::umask(before);
  CHECK(static_cast<int>(coming) == 0600);
  CHECK(static_cast<int>(fs::status(place.path()).permissions()) == 0664);
}

TEST_CASE("fetch: a folder that cannot be written is exit 74") {
  const Place place;
  Download download = place.download("range");
  download.path = "/proc/none/set.bin";
  CHECK(outcome(download).starts_with("cannot write `/proc/none`: "));
  place.cache.write("file", "x");
  download.path = place.cache.file("file") + "/set.bin";
  CHECK(outcome(download) == "cannot write `" + place.cache.file("file") + "`: Not a directory");
}

TEST_CASE("fetch: a full disk is exit 74 and the next try resumes") {
  const Place place;
  // A file-size limit fails writes as a full disk does, with another errno.
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit low = before;
  low.rlim_cur = 100'000;
  setrlimit(RLIMIT_FSIZE, &low);
  const std::string text = outcome(place.download("range"));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(text == "cannot write `" + place.part() + "`: File too large");
  CHECK(!fs::exists(place.path()));
  CHECK(outcome(place.download("range")) == "downloaded");
  CHECK(place.found() == place.content);
  CHECK(place.log().ends_with("GET /range/set.bin bytes=100000-\n"));
}

}  // namespace meshtrain

TEST_SUITE_END();
