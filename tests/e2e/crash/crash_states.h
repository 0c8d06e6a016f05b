// What a disk may hold after a power cut: rebuilt from the calls that recorder.cc wrote down.
//
// A file's bytes are certain once it was fsynced, a name once its folder was. Of everything later a
// crash may keep all, lose all, keep half of the new bytes, or leave zeros; of the names any
// subset.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace meshtrain::crash {

struct Call {
  char kind = 0;  // D mkdir, C create, T truncate, W write, S fsync of a file, F of a folder,
                  // R rename a to b, X exchange them, Z cut to `offset`, E close, U remove,
                  // L link a to b, A "saved step" in `data`
  std::string a, b, data;
  int64_t offset = 0;
};
std::vector<Call> read_calls(const std::string& log);

// A folder, a link or a file of a disk, in the order in which they can be made.
struct Entry {
  enum class Kind { kFolder, kLink, kFile } kind;
  std::string path;     // below the folder of the disk
  std::string content;  // of a file; of a link its target
  auto operator<=>(const Entry&) const = default;
};
using State = std::vector<Entry>;

enum class Bytes { kKeep, kLose, kHalve, kZero };
enum class Names { kKeep, kLose, kEven, kOdd };  // of the changes that are not certain

class Disk {
 public:
  Disk();
  void apply(const Call& call);
  // The step last said to be saved, or -1.
  int64_t acknowledged() const { return acknowledged_; }
  void forget_acknowledged() { acknowledged_ = -1; }
  // One possible state. Many are the same: where all is certain there is but one.
  State state(Bytes bytes, Names names) const;

 private:
  struct Node {
    bool is_folder = false;
    std::string target;       // of a link
    std::string synced, now;  // bytes of a file
    std::map<std::string, int> synced_entries, entries;
    // Changes since the last fsync: names and the nodes they get, -1 for none.
    std::vector<std::vector<std::pair<std::string, int>>> unsynced;
  };
  int add(Node node);
  int find(const std::string& path) const;
  void change(const std::string& path, int node);
  void add_to(State& out, int node, const std::string& path, Bytes bytes, Names names) const;

  std::vector<Node> nodes_;
  int64_t acknowledged_ = -1;
};

// Makes it at `folder`, which must not exist.
void write_state(const State& state, const std::string& folder);

}  // namespace meshtrain::crash
