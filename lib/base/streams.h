// stdout and stderr of the program: each text is written at once, and a reader that went away
// (`| head`) is no error.
#pragma once

#include <string>
#include <string_view>

namespace meshtrain {

class TextStream {
 public:
  explicit TextStream(int fd) : fd_(fd) {}

  void write(std::string_view text);
  // Nothing is written while it is silent: of several processes one speaks.
  void silence(bool is_silent) { is_silent_ = is_silent; }
  bool is_terminal() const;
  bool is_pipe() const;  // or a socket
  // Of the terminal now: from the system, else COLUMNS, else 80.
  int columns() const;
  // What set_color() says, with NO_COLOR, CLICOLOR_FORCE and TERM=dumb.
  bool has_color() const;
  // errno of the first write that failed for another reason than a closed pipe; 0: none did.
  int error_number() const { return error_number_; }

 private:
  int fd_;
  bool closed_ = false, is_silent_ = false;
  int error_number_ = 0;
};

TextStream& out_stream();
TextStream& err_stream();

// "always", "never", or "auto": on a terminal that has colours, unless the environment says
// otherwise. For both streams.
void set_color(const std::string& choice);

// Before anything else: ignores SIGPIPE and SIGXFSZ, so that writes report their failure, and opens
// /dev/null for standard streams that are closed, so that no file of a run gets their numbers.
void prepare_streams();

}  // namespace meshtrain
