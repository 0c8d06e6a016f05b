#include "comm/watchdog.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/rendezvous.h"

namespace meshtrain {
namespace {

using Views = std::vector<RankView>;

const RankView& at(const Views& ranks, int rank) {
  return ranks[static_cast<size_t>(rank)];
}

bool is_waiting(const RankReport& report) {
  return report.inside && !report.awaited.empty();
}

// "all-reduce of bucket 3 (#412)", "reading a variable (after #412)"
std::string name_of(const RankReport& report) {
  return is_waiting(report) ? fmt::format("{} (after #{})", report.awaited, report.sequence)
                            : fmt::format("{} (#{})", report.collective, report.sequence);
}

// Whether a rank has still to come to where the one of `where` is inside.
bool is_behind(const RankReport& report, const RankReport& where) {
  return report.sequence != where.sequence ? report.sequence < where.sequence
                                           : is_waiting(where) && !is_waiting(report);
}

// "step 1312, forward", "opening the data (since 12 s of at most 600)"
std::string place(const RankReport& report) {
  std::string text =
      report.step > 0 ? fmt::format("step {}", report.step) : "before the first step";
  if (!report.announced.empty()) {
    text += fmt::format(", {} (for {:.0f} s of at most {:.0f})", report.announced,
                        report.announced_seconds, report.announced_limit);
  } else if (!report.inside && !report.phase.empty()) {
    text += ", " + report.phase;
  }
  if (report.inside) {
    text += ", in " + name_of(report);
  } else if (report.sequence > 0) {
    text += ", after " + name_of(report);
  }
  return text;
}

bool is_excused(const RankReport& report) {
  return !report.announced.empty() && report.announced_seconds <= report.announced_limit;
}

// Whether a rank did anything within the limit. The others may have waited for longer than that
// before it could begin to come: until what it announced ended, or while it did one thing after
// the other.
bool is_coming(const RankView& view, double limit) {
  return view.report.quiet_seconds + view.silent_seconds <= limit;
}

// Names the ranks that wait in a collective which `rank` has not entered.
std::string waiting_note(const Views& ranks, int rank) {
  const RankReport& own = at(ranks, rank).report;
  std::vector<int> waiting;
  const RankReport* where = nullptr;
  for (int other = 0; other < static_cast<int>(ranks.size()); ++other) {
    const RankReport& report = at(ranks, other).report;
    if (other != rank && !at(ranks, other).ended && report.inside && is_behind(own, report)) {
      waiting.push_back(other);
      where = where == nullptr ? &report : where;
    }
  }
  if (where == nullptr) {
    return {};
  }
  return fmt::format("{} other rank{} waiting in {}, rank {} had not entered", waiting.size(),
                     waiting.size() == 1 ? " was" : "s were", name_of(*where), rank);
}

std::vector<std::string> last_report(const Views& ranks, int rank) {
  const RankView& view = at(ranks, rank);
  if (!view.reported) {
    return {"last report: none yet"};
  }
  const std::string others = waiting_note(ranks, rank);
  return {fmt::format("last report: {}{}", place(view.report),
                      others.empty() ? "" : fmt::format(" ({})", others))};
}

// E602: the announced limit of a rank has passed.
std::optional<Verdict> judge_announcements(const Views& ranks) {
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const RankReport& report = at(ranks, rank).report;
    if (!report.announced.empty() && !is_excused(report)) {
      return Verdict{
          "E602",
          {rank},
          fmt::format("{} takes more than {:.0f} s for {}; training stopped",
                      describe(at(ranks, rank), rank), report.announced_limit, report.announced),
          last_report(ranks, rank)};
    }
  }
  return std::nullopt;
}

// E603: two ranks at the same place of the sequence are in different collectives. To blame are
// those that fewest agree with; of two halves, the one without rank 0.
std::optional<Verdict> judge_signatures(const Views& ranks) {
  std::map<uint64_t, std::map<uint64_t, std::vector<int>>> entered;  // sequence -> signature -> who
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const RankReport& report = at(ranks, rank).report;
    if (report.sequence > 0 && report.signature != 0) {
      entered[report.sequence][report.signature].push_back(rank);
    }
  }
  for (const auto& [sequence, groups] : entered) {
    if (groups.size() < 2) {
      continue;
    }
    std::vector<std::vector<int>> sorted;
    for (const auto& [signature, members] : groups) {
      sorted.push_back(members);
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.size() != b.size() ? a.size() < b.size() : a.front() > b.front();
    });
    const std::vector<int>& odd = sorted.front();
    Verdict verdict = {
        "E603",
        odd,
        fmt::format("{} entered another collective than the others; training "
                    "stopped",
                    odd.size() == 1 ? describe(at(ranks, odd[0]), odd[0]) : rank_list(odd)),
        {}};
    for (const std::vector<int>& members : sorted) {
      const RankReport& report = at(ranks, members[0]).report;
      verdict.notes.push_back(
          fmt::format("{}: {}, step {}", rank_list(members), name_of(report), report.step));
    }
    verdict.notes.push_back(
        "likely: another config, program or environment there; compare `meshtrain plan` on both");
    return verdict;
  }
  return std::nullopt;
}

Verdict hang_verdict(const Views& ranks, int rank, const RankReport& where, double limit) {
  std::vector<std::string> notes = last_report(ranks, rank);
  notes.push_back(
      fmt::format("likely: the process is stuck or much slower than the others; `gdb -p "
                  "{}` on {} shows where",
                  at(ranks, rank).pid, at(ranks, rank).host));
  return {"E602",
          {rank},
          fmt::format("{} did not come to {} within {:g} s; training stopped",
                      describe(at(ranks, rank), rank), name_of(where), limit),
          std::move(notes)};
}

// E602: a rank has waited too long in a collective, for one that has not come or, when all have,
// for the library or the network.
std::optional<Verdict> judge_collectives(const Views& ranks, double limit) {
  const int size = static_cast<int>(ranks.size());
  int stuck = -1;  // in the earliest collective
  for (int rank = 0; rank < size; ++rank) {
    const RankReport& report = at(ranks, rank).report;
    if (report.inside && report.inside_seconds > limit &&
        (stuck < 0 || is_behind(report, at(ranks, stuck).report))) {
      stuck = rank;
    }
  }
  if (stuck < 0) {
    return std::nullopt;
  }
  const RankReport& where = at(ranks, stuck).report;
  int last = -1;  // the rank that is furthest behind, of those that do nothing
  bool some_come = false;
  std::vector<int> inside;
  for (int rank = 0; rank < size; ++rank) {
    const RankReport& report = at(ranks, rank).report;
    if (!is_behind(report, where)) {
      if (report.inside && !is_behind(where, report)) {
        inside.push_back(rank);
      }
    } else if (is_excused(report)) {
      return std::nullopt;
    } else if (is_coming(at(ranks, rank), limit)) {
      some_come = true;
    } else if (last < 0 || report.sequence < at(ranks, last).report.sequence) {
      last = rank;
    }
  }
  if (last >= 0) {
    return hang_verdict(ranks, last, where, limit);
  }
  if (some_come) {
    return std::nullopt;
  }
  if (is_waiting(where)) {  // what all began may be many steps
    limit *= static_cast<double>(std::max<int64_t>(where.awaited_steps, 1));
    if (where.inside_seconds <= limit) {
      return std::nullopt;
    }
  }
  return Verdict{"E602",
                 inside,
                 fmt::format("{} of {} did not get out of {} within {:g} s, though all entered it; "
                             "training stopped",
                             rank_list(inside), size, name_of(where), limit),
                 {fmt::format("last report: {}", place(where)),
                  "likely: the network between the hosts, or MPI or NCCL"}};
}

// E602: not all came to what the monitor does itself.
std::optional<Verdict> judge_waiting(const Views& ranks, const std::vector<Waiting>& waiting) {
  for (const Waiting& wait : waiting) {
    std::vector<int> missing;
    bool excused = false;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      const RankView& view = at(ranks, rank);
      if (!wait.came[static_cast<size_t>(rank)] && !is_coming(view, wait.limit)) {
        missing.push_back(rank);
        excused |= is_excused(view.report);
      }
    }
    if (wait.seconds <= wait.limit || missing.empty() || excused) {
      continue;
    }
    const std::string who =
        missing.size() == 1 ? describe(at(ranks, missing[0]), missing[0]) : rank_list(missing);
    return Verdict{"E602", missing,
                   fmt::format("{} did not come to {} within {:g} s; training stopped", who,
                               wait.what, wait.limit),
                   last_report(ranks, missing[0])};
  }
  return std::nullopt;
}

bool lost_another(const RankFailure& failure) {
  return failure.exit_code == static_cast<int>(ExitCode::kRankLost);
}

}  // namespace

std::string describe(const RankView& view, int rank) {
  return fmt::format("rank {} on host {} (pid {})", rank, view.host, view.pid);
}

Verdict ended_verdict(const Views& ranks, int rank) {
  const RankView& view = at(ranks, rank);
  std::vector<std::string> notes = last_report(ranks, rank);
  notes.push_back(
      view.lost_host
          ? fmt::format("likely: host {} is down, or the network to it", view.host)
          : fmt::format("likely: process killed (out of memory?) or crashed; `dmesg` on {}",
                        view.host));
  return {"E601",
          {rank},
          fmt::format("{} {}; training stopped", describe(view, rank),
                      view.malformed   ? "sent what is no message of this program"
                      : view.lost_host ? "cannot be reached any more"
                                       : "ended without a word (signal unknown)"),
          std::move(notes)};
}

Verdict silent_verdict(const Views& ranks, int rank) {
  const RankView& view = at(ranks, rank);
  std::vector<std::string> notes = last_report(ranks, rank);
  notes.push_back(
      fmt::format("likely: process stopped, host {} down, or the network to it; `ps {}` there",
                  view.host, view.pid));
  return {"E601",
          {rank},
          fmt::format("{} stopped answering {:.0f} s ago; training stopped", describe(view, rank),
                      view.silent_seconds),
          std::move(notes)};
}

Verdict paused_verdict(const Views& ranks, int rank, double seconds) {
  return {"E601",
          {rank},
          fmt::format("{} was stopped for {:.0f} s, and the others went without it",
                      describe(at(ranks, rank), rank), seconds),
          {}};
}

Verdict different_loss(const Views& ranks, int rank, int64_t step) {
  return {"E604",
          {rank},
          fmt::format("{} has another loss at step {} than rank 0; training stopped",
                      describe(at(ranks, rank), rank), step),
          {"likely: a hardware error, or other libraries there; the weights differ since that step "
           "or before"}};
}

std::optional<Verdict> judge(const Views& ranks, const std::vector<Waiting>& waiting,
                             const Limits& limits) {
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (at(ranks, rank).ended) {
      return ended_verdict(ranks, rank);
    }
  }
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    if (at(ranks, rank).silent_seconds > limits.silence) {
      return silent_verdict(ranks, rank);
    }
  }
  if (auto verdict = judge_signatures(ranks)) {
    return verdict;
  }
  if (auto verdict = judge_announcements(ranks)) {
    return verdict;
  }
  if (auto verdict = judge_collectives(ranks, limits.collective)) {
    return verdict;
  }
  return judge_waiting(ranks, waiting);
}

std::string failure_text(const Verdict& verdict, int64_t checkpoint, int64_t step,
                         const std::string& resume) {
  std::string text = fmt::format("error[{}]: {}\n", verdict.code, verdict.message);
  for (const std::string& note : verdict.notes) {
    text += fmt::format("  = {}\n", note);
  }
  if (checkpoint > 0) {
    const int64_t lost = step - checkpoint;
    text += fmt::format(
        "  = last complete checkpoint: step {}{}\n", checkpoint,
        lost > 0 ? fmt::format(" ({} step{} would be repeated)", lost, lost == 1 ? "" : "s") : "");
  } else {
    text += "  = last complete checkpoint: none\n";
  }
  if (!resume.empty()) {
    text += fmt::format("  = to resume: {}\n", resume);
  }
  return text + "\n";
}

std::string failures_text(const std::vector<RankFailure>& failures, const Views& ranks,
                          int64_t checkpoint) {
  std::vector<std::pair<std::string, std::vector<int>>> texts;
  for (const RankFailure& failure : failures) {
    const auto same = std::find_if(texts.begin(), texts.end(),
                                   [&](const auto& entry) { return entry.first == failure.text; });
    if (same == texts.end()) {
      texts.push_back({failure.text, {failure.rank}});
    } else {
      same->second.push_back(failure.rank);
    }
  }
  std::string out;
  for (const auto& [text, from] : texts) {
    out += text.substr(0, text.find_last_not_of(" \n") + 1) + "\n";
    if (from.size() < ranks.size()) {
      out += fmt::format("  = on {}; all {} processes stopped\n",
                         from.size() == 1 ? describe(at(ranks, from[0]), from[0]) : rank_list(from),
                         ranks.size());
    }
    if (checkpoint > 0) {
      out += fmt::format("  = last complete checkpoint: step {}\n", checkpoint);
    }
    out += "\n";
  }
  return out;
}

std::optional<Verdict> lost_rank(const std::vector<RankFailure>& failures, const Views& ranks) {
  if (!std::all_of(failures.begin(), failures.end(), lost_another)) {
    return std::nullopt;
  }
  const auto ended =
      std::find_if(ranks.begin(), ranks.end(), [](const RankView& view) { return view.ended; });
  return ended == ranks.end()
             ? std::nullopt
             : std::optional(ended_verdict(ranks, static_cast<int>(ended - ranks.begin())));
}

int exit_code_of(const std::vector<RankFailure>& failures) {
  const auto cause = std::find_if_not(failures.begin(), failures.end(), lost_another);
  return (cause == failures.end() ? failures.front() : *cause).exit_code;
}

}  // namespace meshtrain
