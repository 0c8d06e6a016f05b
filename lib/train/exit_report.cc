#include "train/exit_report.h"

#include <fmt/format.h>

#include <new>
#include <string_view>

#include "base/printable.h"
#include "base/streams.h"
#include "engine/signals.h"

namespace meshtrain {
namespace {

// "2 errors; nothing was started"
std::string text_of(const ConfigError& error, bool started) {
  const int count = error.diagnostics().num_errors();
  std::string text = error.diagnostics().render(err_stream().has_color());
  if (!started) {
    text += fmt::format("{} error{}; nothing was started\n", count, count == 1 ? "" : "s");
  }
  return text;
}

ExitReport of(ExitCode code, std::string text, std::string message) {
  return {static_cast<int>(code), std::move(text), std::move(message)};
}

std::string last_message(const Diagnostics& diagnostics) {
  return diagnostics.list().empty() ? "" : diagnostics.list().back().message;
}

}  // namespace

std::string error_text(ExitCode code, std::string_view given) {
  const std::string text = escaped_controls(given);
  const std::string_view message = text;
  constexpr size_t kCodeLength = std::string_view("[E420] ").size();
  // A code within the message says more than that of the kind: "the last [E420] step 5 was not ..."
  for (size_t at = message.find("[E"); at != std::string_view::npos;
       at = message.find("[E", at + 1)) {
    const std::string_view found = message.substr(at, kCodeLength);
    if (found.size() == kCodeLength && found.substr(5) == "] " &&
        found.find_first_not_of("0123456789", 2) == 5) {
      return fmt::format("error{}: {}{}\n", found.substr(0, 6), message.substr(0, at),
                         message.substr(at + kCodeLength));
    }
  }
  const char* label = code == ExitCode::kWriteFailed ? "[E142]"
                      : code == ExitCode::kRankLost  ? "[E605]"
                                                     : "";
  return fmt::format("error{}: {}\n", label, message);
}

ExitReport current_exit_report(bool started) {
  try {
    throw;
  } catch (const RemoteExit& end) {
    return {static_cast<int>(end.exit_code()), end.what(), end.what(), true};
  } catch (const ConfigError& error) {
    return of(error.exit_code(), text_of(error, started), last_message(error.diagnostics()));
  } catch (const StopRequested& stop) {
    return {static_cast<int>(stop.exit_code()), fmt::format("{}\n", stop.what()), stop.what(),
            true};
  } catch (const Error& error) {
    return of(error.exit_code(), error_text(error.exit_code(), error.what()), error.what());
  } catch (const std::bad_alloc&) {
    return of(ExitCode::kMesh, "error[E632]: out of memory\n", "out of memory");
  } catch (const std::exception& error) {
    return of(
        ExitCode::kUnexpected,
        error_text(ExitCode::kUnexpected, fmt::format("unexpected failure: {}", error.what())),
        error.what());
  }
}

}  // namespace meshtrain
