#include "comm/handshake.h"

#include <algorithm>

#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/host.h"
#include "base/json.h"
#include "comm/socket.h"

namespace meshtrain {
namespace {

using nlohmann::json;

constexpr size_t kMostRanks = 8;  // that a message names

std::string hashes(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    text += fmt::format("{:016x}", hash_text(fact.value));
  }
  return text;
}

bool all_equal(const std::vector<std::string>& texts) {
  return std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == texts[0]; });
}

std::vector<std::string> both_values(const std::string& first, const std::string& other) {
  return {fmt::format("`{}`, rank 0 has `{}`", other, first)};
}

// Texts may have bytes that JSON may not.
std::string gathered(const json& value) {
  return json_text(value, -1, json::error_handler_t::replace);
}

struct Rank {
  std::string host;
  std::vector<std::string> values;
};

std::vector<Rank> gather_values(ProcessGroup& group, const std::vector<Fact>& facts) {
  json mine = {{"host", host_name()}, {"values", json::array()}};
  for (const Fact& fact : facts) {
    mine["values"].push_back(fact.value);
  }
  std::vector<Rank> ranks;
  for (const std::string& text : group.all_gather(gathered(mine))) {
    const json parsed = parse_json(text);
    ranks.push_back({parsed.at("host").get<std::string>(),
                     parsed.at("values").get<std::vector<std::string>>()});
  }
  return ranks;
}

}  // namespace

void check_consistent(ProcessGroup& group, const std::vector<Fact>& facts,
                      std::string_view differs) {
  if (all_equal(group.all_gather(hashes(facts)))) {
    return;
  }
  const std::vector<Rank> ranks = gather_values(group, facts);
  Diagnostics diagnostics;
  size_t unlike = 0;
  for (size_t r = 1; r < ranks.size(); ++r) {
    const size_t known = std::min(facts.size(), ranks[r].values.size());
    std::vector<std::string> lines;
    for (size_t f = 0; f < known; ++f) {
      const std::string &first = ranks[0].values[f], &other = ranks[r].values[f];
      if (first != other) {
        for (const std::string& line :
             facts[f].difference ? facts[f].difference(first, other) : both_values(first, other)) {
          lines.push_back(fmt::format("{}: {}", facts[f].name, line));
        }
      }
    }
    if (ranks[r].values.size() != ranks[0].values.size()) {
      lines.push_back("another version of meshtrain");
    }
    if (lines.empty() || ++unlike > kMostRanks) {
      continue;
    }
    Diagnostic& d = diagnostics.error("E611", {},
                                      fmt::format("rank {} on host {} {} rank 0 on host {}", r,
                                                  ranks[r].host, differs, ranks[0].host));
    for (const std::string& line : lines) {
      d.note(line);
    }
  }
  if (unlike > kMostRanks) {
    diagnostics.error("E611", {}, fmt::format("and {} more ranks differ", unlike - kMostRanks));
  }
  diagnostics.throw_if_errors();
}

Failure common_failure(ProcessGroup& group, const Failure& mine) {
  const json entry = {{"host", host_name()}, {"code", mine.exit_code}, {"text", mine.text}};
  const std::vector<std::string> all = group.all_gather(mine.text.empty() ? "" : gathered(entry));
  Failure out;
  std::vector<std::string> texts;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) {
      continue;
    }
    const json parsed = parse_json(all[r]);
    texts.push_back(parsed.at("text").get<std::string>());
    if (out.exit_code == 0) {
      out.exit_code = parsed.at("code").get<int>();
    }
    if (texts.size() <= kMostRanks) {
      out.text += fmt::format("[rank {} on host {}] {}", r, parsed.at("host").get<std::string>(),
                              texts.back());
    }
  }
  if (texts.size() == all.size() && all_equal(texts)) {
    out.text = texts[0];
  } else if (texts.size() > kMostRanks) {
    out.text += fmt::format("and {} more ranks failed\n", texts.size() - kMostRanks);
  }
  return out;
}

}  // namespace meshtrain
