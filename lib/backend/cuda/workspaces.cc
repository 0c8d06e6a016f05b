#include "backend/cuda/workspaces.h"

#include <algorithm>
#include <cstdint>

namespace meshtrain::cuda {
namespace {

// For every call the set of those that have ended when it begins.
class Ancestors {
 public:
  explicit Ancestors(size_t num_calls)
      : words_((num_calls + 63) / 64), bits_(num_calls, std::vector<uint64_t>(words_)) {}
  void add(size_t call, size_t before) {
    for (size_t w = 0; w < words_; ++w)
      bits_[call][w] |= bits_[before][w];
    bits_[call][before / 64] |= uint64_t{1} << before % 64;
  }
  bool has(size_t call, size_t before) const {
    return (bits_[call][before / 64] >> before % 64 & 1) != 0;
  }

 private:
  size_t words_;
  std::vector<std::vector<uint64_t>> bits_;
};

}  // namespace

WorkspaceShares share_workspaces(const std::vector<std::vector<int>>& after,
                                 const std::vector<size_t>& bytes, int most) {
  WorkspaceShares shares{std::vector<int>(after.size(), -1), after};
  Ancestors ancestors(after.size());
  std::vector<int> last_user;  // by workspace
  for (size_t call = 0; call < after.size(); ++call) {
    for (const int before : after[call])
      ancestors.add(call, static_cast<size_t>(before));
    if (bytes[call] == 0)
      continue;
    auto user = std::find_if(last_user.begin(), last_user.end(), [&](int last) {
      return ancestors.has(call, static_cast<size_t>(last));
    });
    if (user == last_user.end()) {
      if (static_cast<int>(last_user.size()) < most) {
        user = last_user.insert(last_user.end(), 0);
      } else {
        user = std::min_element(last_user.begin(), last_user.end());
        shares.after[call].push_back(*user);
        ancestors.add(call, static_cast<size_t>(*user));
      }
    }
    shares.workspace[call] = static_cast<int>(user - last_user.begin());
    *user = static_cast<int>(call);
  }
  return shares;
}

Workspaces::~Workspaces() {
  for (std::byte* data : all_)
    free_memory(data);
}

std::byte* Workspaces::memory(int workspace, size_t bytes) {
  const size_t place = static_cast<size_t>(workspace);
  if (current_.size() <= place)
    current_.resize(place + 1);
  Block& block = current_[place];
  if (block.bytes < bytes) {
    std::byte* const data = core_.try_allocate(bytes, "workspace");
    if (data == nullptr)
      return nullptr;
    all_.push_back(data);
    block = {data, bytes};
  }
  return block.data;
}

}  // namespace meshtrain::cuda
