#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace meshtrain {
namespace {

std::string& color_choice() {
  static std::string choice = "auto";
  return choice;
}

bool is_set(const char* variable) {
  return variable != nullptr && *variable != '\0';
}

}  // namespace

void TextStream::write(std::string_view text) {
  while (!text.empty() && !closed_ && !is_silent_) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EINTR) {
      usleep(1000);  // a terminal or pipe set to not wait by someone else
    } else {
      closed_ = true;
      error_number_ = errno == EPIPE ? 0 : errno;
    }
  }
}

bool TextStream::is_terminal() const {
  return isatty(fd_) == 1;
}

bool TextStream::is_pipe() const {
  struct stat status = {};
  return fstat(fd_, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

int TextStream::columns() const {
  winsize size = {};
  if (ioctl(fd_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* text = getenv("COLUMNS");
  const int columns = text == nullptr ? 0 : atoi(text);
  return columns > 0 ? columns : 80;
}

bool TextStream::has_color() const {
  if (color_choice() != "auto") {
    return color_choice() == "always";
  }
  if (is_set(getenv("NO_COLOR"))) {
    return false;
  }
  const char* force = getenv("CLICOLOR_FORCE");
  if (is_set(force) && std::string_view(force) != "0") {
    return true;
  }
  const char* terminal = getenv("TERM");
  return is_terminal() && terminal != nullptr && std::string_view(terminal) != "dumb";
}

void set_color(const std::string& choice) {
  color_choice() = choice;
}

TextStream& out_stream() {
  static TextStream stream(STDOUT_FILENO);
  return stream;
}
TextStream& err_stream() {
  static TextStream stream(STDERR_FILENO);
  return stream;
}

void prepare_streams() {
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", 1);  // lib/tensor/h5_write.cc
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // where it was ignored, how children ended would be lost
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) < 0) {
      _exit(1);  // not even a place to say so
    }
  }
}

}  // namespace meshtrain
