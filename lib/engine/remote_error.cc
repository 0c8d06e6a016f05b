#include "engine/remote_error.h"

#include <memory>
#include <new>

#include "base/diagnostic.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/signals.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json) {
  return json_text(json, -1, Json::error_handler_t::replace);
}

// Only the line itself of the file is included.
Json json_of_place(const SourceLoc& loc) {
  if (!loc) {
    return nullptr;
  }
  Json out = {{"file", loc.file->name},
              {"text", std::string(loc.file->line(loc.line))},
              {"line", loc.line},
              {"column", loc.column},
              {"length", loc.length}};
  if (loc.use != nullptr) {
    out["use"] = {{"what", loc.use->what}, {"at", json_of_place(loc.use->at)}};
  }
  return out;
}

SourceLoc place_of(const Json& place) {
  if (place.is_null()) {
    return {};
  }
  const int line = place.at("line");
  SourceFile file{place.at("file"), std::string(static_cast<size_t>(line - 1), '\n')};
  file.text += place.at("text").get<std::string>() + "\n";
  SourceLoc out{std::make_shared<SourceFile>(std::move(file)), line, place.at("column"),
                place.at("length")};
  if (place.contains("use")) {
    const Json& use = place["use"];
    out.use = std::make_shared<SourceUse>(SourceUse{use.at("what"), place_of(use.at("at"))});
  }
  return out;
}

Json json_of_findings(const Diagnostics& diagnostics) {
  Json out = Json::array();
  for (const Diagnostic& finding : diagnostics.list()) {
    out.push_back({{"is_error", finding.severity == Severity::kError},
                   {"code", finding.code},
                   {"message", finding.message},
                   {"place", json_of_place(finding.loc)},
                   {"label", finding.label},
                   {"notes", finding.notes}});
  }
  return out;
}

Diagnostics findings_of(const Json& findings, const std::string& prefix) {
  Diagnostics out;
  for (const Json& finding : findings) {
    const std::string message = prefix + finding.at("message").get<std::string>();
    Diagnostic& added =
        finding.at("is_error").get<bool>()
            ? out.error(finding.at("code"), place_of(finding.at("place")), message)
            : out.warning(finding.at("code"), place_of(finding.at("place")), message);
    added.label = finding.at("label");
    added.notes = finding.at("notes").get<std::vector<std::string>>();
  }
  return out;
}

Json json_of(const char* kind, ExitCode code, const std::string& message) {
  return {{"kind", kind}, {"exit_code", static_cast<int>(code)}, {"message", message}};
}

}  // namespace

std::string serialize_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ConfigError& problem) {
    Json out = json_of("config", problem.exit_code(), "");
    out["findings"] = json_of_findings(problem.diagnostics());
    return text_of(out);
  } catch (const StopRequested& stop) {
    return text_of(json_of("stop", stop.exit_code(), stop.what()));
  } catch (const FileError& problem) {
    Json out = json_of("file", problem.exit_code(), problem.what());
    out["path"] = problem.path();
    return text_of(out);
  } catch (const RuntimeFailure& problem) {
    return text_of(json_of("runtime", problem.exit_code(), problem.what()));
  } catch (const InternalError& problem) {
    return text_of(json_of("internal", problem.exit_code(), problem.what()));
  } catch (const Error& problem) {
    return text_of(json_of("other", problem.exit_code(), problem.what()));
  } catch (const std::bad_alloc&) {
    return text_of(json_of("other", ExitCode::kMesh, "[E632] out of memory"));
  } catch (const std::exception& problem) {
    return text_of(json_of("other", ExitCode::kUnexpected,
                           fmt::format("unexpected failure: {}", problem.what())));
  }
}

void rethrow_error(std::string_view text, const std::string& who) {
  const Json error = parse_json(text);
  const std::string prefix = who.empty() ? "" : who + ": ";
  const std::string kind = error.at("kind");
  if (kind == "config") {
    throw ConfigError(findings_of(error.at("findings"), prefix));
  }
  const auto code = static_cast<ExitCode>(error.at("exit_code").get<int>());
  const std::string message = prefix + error.at("message").get<std::string>();
  if (kind == "stop") {
    throw StopRequested(code, message);
  }
  if (kind == "file") {
    throw FileError(code, message, error.at("path").get<std::string>());
  }
  if (kind == "runtime") {
    throw RuntimeFailure(code, message);
  }
  if (kind == "internal") {
    throw InternalError(message);
  }
  throw Error(code, message);
}

}  // namespace meshtrain
