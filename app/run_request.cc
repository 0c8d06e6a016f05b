#include "run_request.h"

#include "base/text.h"

namespace meshtrain {

RunRequest run_request(const Arguments& arguments, LoadOptions load) {
  RunRequest request;
  request.shown_name = join(load.files, " ");
  if (request.shown_name.empty()) {
    request.shown_name = arguments.target;
  }
  request.load = std::move(load);
  request.version = kVersion;
  request.command_line = arguments.command_line;
  request.run_dir = arguments.run_dir;
  request.restore = {.allow = arguments.allow,
                     .reset_optimizer = arguments.reset_optimizer,
                     .reset_cursor = arguments.reset_cursor,
                     .partial = arguments.partial};
  request.engine = engine_options(arguments);
  request.console = console_options(arguments);
  request.verbosity = progress_verbosity(arguments);
  request.prints_events = arguments.log_format == "json";
  request.tells_more = arguments.verbosity > 0;
  request.warn = [&arguments](const Diagnostics& warnings) { show_warnings(warnings, arguments); };
  request.started_at = seconds_now();
  return request;
}

}  // namespace meshtrain
