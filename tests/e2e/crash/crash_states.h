// What a disk may hold after a power cut: rebuilt from the calls that recorder.cc wrote down.
//
// A file's bytes are certain once it was fsynced, a name once its folder was. Of everything later a
// crash may keep all, lose all, keep half of the new bytes, or leave zeros; of the names any
// subset.
#pragma once

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

enum class Bytes { kKeep, kLose, kHalve, kZero };
enum class Names { kKeep, kLose, kEven, kOdd };  // of the changes that are not certain

class Disk {
 public:
  Disk();
  void apply(const Call& call);
  // The step last said to be saved, or -1.
  int64_t acknowledged() const { return acknowledged_; }
  void forget_acknowledged() { acknowledged_ = -1; }
  // Writes one possible state below `folder`, which must not exist.
  void rebuild(const std::string& folder, Bytes bytes, Names names) const;

 private:
  struct Node {
    bool is_folder = false;
    std::string target;       // of a link
    std::string synced, now;  // bytes of a file
    std::map<std::string, int> synced_entries, entries;
    // Changes since the last fsync: names and the nodes they get, -1 for none.
    std::vector<std::vector<std::pair<std::string, int>>> pending;
  };
  int add(Node node);
  int find(const std::string& path) const;
  void change(const std::string& path, int node);
  void rebuild(int node, const std::string& path, Bytes bytes, Names names) const;

  std::vector<Node> nodes_;
  int64_t acknowledged_ = -1;
};

}  // namespace meshtrain::crash
