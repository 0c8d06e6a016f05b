// Three passes over the commands in their order, each of which moves a command only to a place
// behind everything that it must wait for:
//   1. equal launches become instances of one launch (Group);
//   2. tiny groups become members of one block (Chain), stage by stage;
//   3. what must wait for what among the chains, without what follows from the rest.
//
// Communications are one behind another. What waits for one of them, directly or not, is never
// merged with what does not: it would keep from running beside the communication what could.
#include "backend/gpu/merge_launches.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "backend/gpu/dependencies.h"
#include "backend/gpu/module_text.h"
#include "base/error.h"

namespace meshtrain::gpu {
namespace {

constexpr uint64_t kMaxGrid = (uint64_t{1} << 31) - 1;

// Things that are placed in one order: instances of a group, members of a chain. Those of a place
// are indices of the pass before.
struct Placed {
  std::vector<std::vector<int>> places;
  std::vector<std::vector<int>> after;  // earlier places, with repetitions
  std::vector<int> level;               // communications up to the last that a place waits for

  // `previous`: what the thing waits for, as places here; its own place may be among them.
  void put(int thing, size_t place, const std::vector<int>& previous) {
    if (place == places.size()) {
      places.emplace_back();
      after.emplace_back();
      level.push_back(level_of(previous));
    }
    places[place].push_back(thing);
    for (int other : previous) {
      if (other != static_cast<int>(place))
        after[place].push_back(other);
    }
  }
  // Returns the level of a group that depends on these places.
  int level_of(const std::vector<int>& previous) const {
    int out = 0;
    for (int other : previous)
      out = std::max(out, level[static_cast<size_t>(other)]);
    return out;
  }
};

std::vector<int> mapped(const std::vector<int>& things, const std::vector<int>& place_of) {
  std::vector<int> out;
  for (int thing : things)
    out.push_back(place_of[static_cast<size_t>(thing)]);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

const Launch* launch_of(const Command& command) {
  return std::get_if<Launch>(&command.what);
}

// The groups of one body with as many arguments, in their order.
class Groups {
 public:
  // The first group behind `last` that has room, or a new one at `place`.
  size_t put(const Launch& launch, int last, size_t place) {
    const size_t words = launch.args.size() + 1;  // one for its first block
    auto group = std::upper_bound(
        groups_.begin(), groups_.end(), last,
        [](int after, const Group& g) { return after < static_cast<int>(g.place); });
    while (group != groups_.end() &&
           (group->words + words > kMaxParams || group->blocks + launch.blocks > kMaxGrid))
      ++group;
    if (group == groups_.end())
      group = groups_.insert(group, {place, 0, 0});
    group->blocks += launch.blocks;
    group->words += words;
    return group->place;
  }

 private:
  struct Group {
    size_t place;
    uint64_t blocks;
    size_t words;
  };
  std::vector<Group> groups_;
};

// Instances of one launch.
Placed make_groups(const std::vector<Command>& commands) {
  Placed groups;
  std::vector<int> group_of;
  std::map<std::tuple<std::string_view, size_t, int>, Groups> of_body;  // and level
  MemoryOrder order;
  int last_communication = -1;
  for (size_t i = 0; i < commands.size(); ++i) {
    std::vector<int> previous = mapped(order.add(commands[i].accesses), group_of);
    size_t place = groups.places.size();
    const int level = groups.level_of(previous);
    if (const Launch* launch = launch_of(commands[i])) {
      MESHTRAIN_CHECK(
          launch->blocks <= kMaxGrid && launch->blocks > 0 && launch->args.size() < kMaxParams,
          "{} has {} blocks and {} arguments", launch->body->name, launch->blocks,
          launch->args.size());
      const int last = previous.empty() ? -1 : previous.back();
      place = of_body[{launch->body->name, launch->args.size(), level}].put(*launch, last, place);
    }
    if (communicates(commands[i].what)) {
      if (last_communication >= 0)
        previous.push_back(last_communication);
      last_communication = static_cast<int>(place);
    }
    groups.put(static_cast<int>(i), place, previous);
    if (communicates(commands[i].what))
      ++groups.level[place];
    group_of.push_back(static_cast<int>(place));
  }
  return groups;
}

// Words of arguments of a group that is small enough to be computed by one block; 0: it is not.
size_t tiny_words(const std::vector<Command>& commands, const std::vector<int>& group) {
  uint64_t blocks = 0;
  int64_t work = 0;
  size_t words = 0;
  for (int i : group) {
    const Launch* launch = launch_of(commands[static_cast<size_t>(i)]);
    if (launch == nullptr)
      return 0;
    blocks += launch->blocks;
    work += launch->work;
    words += launch->args.size();
    if (blocks > kTinyBlocks || work > kTinyWork)
      return 0;
  }
  return std::max<size_t>(words, 1);
}

// Whether something that is not tiny waits for a group: the others (metrics, counters) can be
// computed beside all that follows.
std::vector<bool> waited_for(const Placed& groups, const std::vector<size_t>& words) {
  std::vector<bool> out(words.size());
  for (size_t g = words.size(); g-- > 0;) {
    out[g] = out[g] || words[g] == 0;
    for (int earlier : groups.after[g])
      out[static_cast<size_t>(earlier)] = out[static_cast<size_t>(earlier)] || out[g];
  }
  return out;
}

// Tiny groups are appended to the last chain of their level, since that one is behind most of what
// they wait for. Those that nothing waits for come after everything else, in chains of their own.
Placed make_chains(const std::vector<Command>& commands, const Placed& groups) {
  std::vector<size_t> words;
  for (const std::vector<int>& group : groups.places)
    words.push_back(tiny_words(commands, group));
  const std::vector<bool> is_waited_for = waited_for(groups, words);
  Placed chains;
  std::vector<int> chain_of(words.size(), -1);
  struct Last {
    int place = -1;
    size_t words = 0;
  };
  std::map<int, Last> last_of_level;
  const auto put = [&](size_t g) {
    const std::vector<int> previous = mapped(groups.after[g], chain_of);
    size_t place = chains.places.size();
    if (words[g] > 0) {
      Last& last = last_of_level[groups.level[g]];
      const bool joins = last.place >= 0 && last.words + words[g] <= kMaxParams &&
                         (previous.empty() || previous.back() <= last.place);
      if (!joins)
        last = {static_cast<int>(place), 0};
      place = static_cast<size_t>(last.place);
      last.words += words[g];
    }
    chains.put(static_cast<int>(g), place, previous);
    chain_of[g] = static_cast<int>(place);
  };
  for (size_t g = 0; g < words.size(); ++g) {
    if (is_waited_for[g])
      put(g);
  }
  last_of_level.clear();
  for (size_t g = 0; g < words.size(); ++g) {
    if (!is_waited_for[g])
      put(g);
  }
  return chains;
}

// The groups of a chain in stages: those of one do not wait for each other.
std::vector<std::vector<int>> stages_of(const Placed& groups, const std::vector<int>& chain) {
  std::map<int, size_t> stage_of;
  std::vector<std::vector<int>> stages;
  for (int g : chain) {
    size_t stage = 0;
    for (int earlier : groups.after[static_cast<size_t>(g)]) {
      if (const auto found = stage_of.find(earlier); found != stage_of.end())
        stage = std::max(stage, found->second + 1);
    }
    stage_of[g] = stage;
    stages.resize(std::max(stages.size(), stage + 1));
    stages[stage].push_back(g);
  }
  return stages;
}

// "a, b and 3 more": each path once.
std::string paths_of(const std::vector<Command>& commands, const std::vector<int>& members) {
  constexpr size_t kNamed = 3;
  std::vector<std::string_view> paths;
  for (int i : members) {
    const std::string_view path = commands[static_cast<size_t>(i)].path;
    if (std::find(paths.begin(), paths.end(), path) == paths.end())
      paths.push_back(path);
  }
  std::string text;
  for (size_t i = 0; i < std::min(paths.size(), kNamed); ++i) {
    text += i == 0 ? "" : ", ";
    text += paths[i];
  }
  if (paths.size() > kNamed)
    text += fmt::format(" and {} more", paths.size() - kNamed);
  return text;
}

// A command that is no launch becomes a call of its own.
decltype(Call::what) alone(const Command& command) {
  return std::visit(
      [](const auto& what) -> decltype(Call::what) {
        if constexpr (std::is_same_v<std::decay_t<decltype(what)>, Launch>)
          throw InternalError("a launch belongs to a kernel of the module");
        else
          return what;
      },
      command.what);
}

}  // namespace

MergedLaunches merge_launches(const std::vector<Command>& commands) {
  const Placed groups = make_groups(commands);
  const Placed chains = make_chains(commands, groups);
  ModuleText module;
  PathReduction paths;
  MergedLaunches merged;
  for (size_t c = 0; c < chains.places.size(); ++c) {
    Call call;
    std::vector<int> after = chains.after[c];
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    call.after = paths.add(after);
    std::vector<std::vector<const Launch*>> stages;
    for (const std::vector<int>& stage : stages_of(groups, chains.places[c])) {
      stages.emplace_back();
      for (int g : stage) {
        for (int i : groups.places[static_cast<size_t>(g)]) {
          call.commands.push_back(i);
          stages.back().push_back(launch_of(commands[static_cast<size_t>(i)]));
        }
      }
    }
    call.path = paths_of(commands, call.commands);
    const Command& first = commands[static_cast<size_t>(call.commands[0])];
    if (std::holds_alternative<Launch>(first.what)) {
      call.what = chains.places[c].size() == 1 ? module.instances(stages[0]) : module.chain(stages);
    } else {
      call.what = alone(first);
    }
    merged.calls.push_back(std::move(call));
  }
  merged.module = module.take();
  return merged;
}

}  // namespace meshtrain::gpu
