// A web server on 127.0.0.1 that lives as long as the object: tests/support/file_server.py says how
// it answers.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace meshtrain::test {

class FileServer {
 public:
  explicit FileServer(const std::string& folder) {
    ::setenv("no_proxy", "127.0.0.1", 1);  // of this process and of the programs that it runs
    int to_server[2], from_server[2];
    MESHTRAIN_CHECK(::pipe(to_server) == 0 && ::pipe(from_server) == 0);
    pid_ = ::fork();
    MESHTRAIN_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(to_server[0], 0);
      ::dup2(from_server[1], 1);
      for (const int fd : {to_server[0], to_server[1], from_server[0], from_server[1]}) {
        ::close(fd);
      }
      const std::string script =
          std::string(MESHTRAIN_SOURCE_DIR) + "/tests/support/file_server.py";
      ::execlp("python3", "python3", script.c_str(), folder.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to_server[0]);
    ::close(from_server[1]);
    input_ = to_server[1];
    FILE* const output = ::fdopen(from_server[0], "r");
    const int found = std::fscanf(output, "%d", &port_);
    std::fclose(output);
    MESHTRAIN_CHECK(found == 1, "python3 file_server.py did not start");
  }
  ~FileServer() {
    ::close(input_);
    ::waitpid(pid_, nullptr, 0);
  }
  FileServer(const FileServer&) = delete;
  FileServer& operator=(const FileServer&) = delete;

  // "http://127.0.0.1:4711/range/x" of "range/x".
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + path;
  }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int port_ = 0;
};

}  // namespace meshtrain::test
