#include "sarif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "base/error_codes.h"
#include "base/json.h"

namespace meshtrain {
namespace {

using Json = nlohmann::ordered_json;

// A path as a URI reference (RFC 3986, 2.3).
std::string uri_of(const std::string& path) {
  std::string out;
  for (const char c : path) {
    const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                          std::string_view("-._~/").find(c) != std::string_view::npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Json rule_of(const std::string& code) {
  Json rule = {{"id", code}};
  if (const ErrorCode* entry = find_error_code(code)) {
    rule["shortDescription"] = {{"text", std::string(entry->title)}};
    rule["help"] = {{"text", std::string(entry->text)}};
  }
  return rule;
}

Json location_of(const SourceLoc& loc) {
  return {{"physicalLocation",
           {{"artifactLocation", {{"uri", uri_of(loc.file->name)}}},
            {"region",
             {{"startLine", loc.line},
              {"startColumn", loc.column},
              {"endColumn", loc.column + std::max(loc.length, 1)}}}}}};
}

std::string text_of(const Diagnostic& problem) {
  std::string out = problem.message;
  for (const std::string& note : problem.notes) {
    out += "\n" + note;
  }
  return problem.label.empty() ? out : out + "\n" + problem.label;
}

}  // namespace

std::string sarif_of(const Diagnostics& diagnostics) {
  std::map<std::string, size_t> rule_index;
  Json rules = Json::array(), results = Json::array();
  for (const Diagnostic& problem : diagnostics.list()) {
    const auto [rule, is_new] = rule_index.try_emplace(problem.code, rules.size());
    if (is_new) {
      rules.push_back(rule_of(problem.code));
    }
    Json result = {{"ruleId", problem.code},
                   {"ruleIndex", rule->second},
                   {"level", problem.severity == Severity::kError ? "error" : "warning"},
                   {"message", {{"text", text_of(problem)}}}};
    if (problem.loc) {
      result["locations"] = Json::array({location_of(problem.loc)});
    }
    results.push_back(std::move(result));
  }
  const Json driver = {{"name", "meshtrain"}, {"version", MESHTRAIN_VERSION}, {"rules", rules}};
  const Json run = {
      {"tool", {{"driver", driver}}}, {"columnKind", "unicodeCodePoints"}, {"results", results}};
  const Json log = {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
                    {"version", "2.1.0"},
                    {"runs", Json::array({run})}};
  return json_text(log, 1, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshtrain
