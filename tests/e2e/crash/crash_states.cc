#include "crash/crash_states.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace meshtrain::crash {
namespace {

namespace fs = std::filesystem;

std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::make_pair(std::string(), path)
                                    : std::make_pair(path.substr(0, slash), path.substr(slash + 1));
}

}  // namespace

std::vector<Call> read_calls(const std::string& log) {
  std::ifstream stream(log, std::ios::binary);
  std::vector<Call> calls;
  Call call;
  size_t a = 0, b = 0, data = 0;
  while (stream >> call.kind >> a >> b >> data >> call.offset) {
    stream.get();
    const auto text = [&](size_t size) {
      std::string out(size, '\0');
      stream.read(out.data(), static_cast<std::streamsize>(size));
      return out;
    };
    call.a = text(a);
    call.b = text(b);
    call.data = text(data);
    calls.push_back(call);
  }
  return calls;
}

Disk::Disk() {
  add({.is_folder = true});
}

int Disk::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<int>(nodes_.size()) - 1;
}

int Disk::find(const std::string& path) const {
  int node = 0;
  std::istringstream parts(path);
  for (std::string part; std::getline(parts, part, '/') && node >= 0;) {
    if (!part.empty() && part != ".") {
      const auto found = nodes_[node].entries.find(part);
      node = found == nodes_[node].entries.end() ? -1 : found->second;
    }
  }
  return node;
}

void Disk::change(const std::string& path, int node) {
  const auto [folder, name] = split_path(path);
  const int parent = find(folder);
  if (parent < 0) {
    return;
  }
  if (node < 0) {
    nodes_[parent].entries.erase(name);
  } else {
    nodes_[parent].entries[name] = node;
  }
  nodes_[parent].unsynced.push_back({{name, node}});
}

void Disk::apply(const Call& call) {
  const int node = call.kind == 'A' ? -1 : find(call.a);
  switch (call.kind) {
    case 'D':
      change(call.a, add({.is_folder = true}));
      break;
    case 'C':
      change(call.a, add({}));
      break;
    case 'L': {
      Node link;
      link.target = call.b;
      change(call.a, add(link));
      break;
    }
    case 'T':
      nodes_[node].now.clear();
      break;
    case 'W': {
      std::string& now = nodes_[node].now;
      const size_t at = static_cast<size_t>(call.offset);
      now.resize(std::max(now.size(), at + call.data.size()));
      now.replace(at, call.data.size(), call.data);
      break;
    }
    case 'S':
      if (node >= 0) {
        nodes_[node].synced = nodes_[node].now;
      }
      break;
    case 'F':
      nodes_[node].synced_entries = nodes_[node].entries;
      nodes_[node].unsynced.clear();
      break;
    case 'U':
      change(call.a, -1);
      break;
    case 'Z':
      nodes_[node].now.resize(static_cast<size_t>(call.offset));
      break;
    case 'E':
      break;
    case 'X':
    case 'R': {
      const auto [from_folder, from] = split_path(call.a);
      const auto [to_folder, to] = split_path(call.b);
      const int other = call.kind == 'X' ? find(call.b) : -1;
      change(call.b, node);
      change(call.a, other);
      if (from_folder == to_folder) {  // within a folder it happens at once or not at all
        auto& unsynced = nodes_[find(from_folder)].unsynced;
        unsynced.pop_back();
        unsynced.back().emplace_back(from, other);
      }
      break;
    }
    case 'A': {
      const size_t at = call.data.find("saved step ") + 11;
      acknowledged_ = std::stoll(call.data.substr(at));
      break;
    }
    default:
      throw std::runtime_error("a call of kind " + std::string(1, call.kind));
  }
}

State Disk::state(Bytes bytes, Names names) const {
  State out;
  add_to(out, 0, "", bytes, names);
  return out;
}

void Disk::add_to(State& out, int index, const std::string& path, Bytes bytes, Names names) const {
  const Node& node = nodes_[index];
  if (!node.target.empty()) {
    out.push_back({Entry::Kind::kLink, path, node.target});
    return;
  }
  if (!node.is_folder) {
    std::string content = bytes == Bytes::kKeep ? node.now : node.synced;
    const size_t certain = node.synced.size(), all = node.now.size();
    if (node.synced != node.now && bytes == Bytes::kHalve) {
      content = node.now.substr(0, all > certain ? certain + (all - certain) / 2 : all / 2);
    } else if (node.synced != node.now && bytes == Bytes::kZero) {
      content.resize(all, '\0');
    }
    out.push_back({Entry::Kind::kFile, path, std::move(content)});
    return;
  }
  std::map<std::string, int> entries = node.synced_entries;
  for (size_t i = 0; i < node.unsynced.size(); ++i) {
    const bool happened = names == Names::kKeep || (names == Names::kEven && i % 2 == 0) ||
                          (names == Names::kOdd && i % 2 == 1);
    for (const auto& [name, target] : node.unsynced[i]) {
      if (happened && target >= 0) {
        entries[name] = target;
      } else if (happened) {
        entries.erase(name);
      }
    }
  }
  out.push_back({Entry::Kind::kFolder, path, ""});
  for (const auto& [name, target] : entries) {
    add_to(out, target, path + "/" + name, bytes, names);
  }
}

void write_state(const State& state, const std::string& folder) {
  for (const Entry& entry : state) {
    const std::string path = folder + entry.path;
    if (entry.kind == Entry::Kind::kFolder) {
      fs::create_directory(path);
    } else if (entry.kind == Entry::Kind::kLink) {
      fs::create_symlink(entry.content, path);
    } else {
      std::ofstream(path, std::ios::binary) << entry.content;
    }
  }
}

}  // namespace meshtrain::crash
