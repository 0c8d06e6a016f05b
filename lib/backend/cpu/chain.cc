#include "backend/cpu/chain.h"

#include <algorithm>
#include <deque>
#include <numeric>

namespace meshtrain::cpu {

Chain::Chain(KernelList members, int64_t parts) : members_(std::move(members)), parts_(parts) {
  for (const KernelPtr& member : members_) {
    cost_ += member->cost();
    scratch_bytes_ = std::max(scratch_bytes_, member->scratch_bytes());
  }
}

void Chain::run(int64_t begin, int64_t end, std::byte* scratch) const {
  for (int64_t part = begin; part < end; ++part) {
    for (const KernelPtr& member : members_)
      run_part(*member, part, scratch);
  }
}

void Chain::run_part(const Kernel& member, int64_t part, std::byte* scratch) const {
  const int64_t units = member.units() / parts_;
  member.run(part * units, (part + 1) * units, scratch);
}

void Chain::accesses(int64_t begin, int64_t end, std::vector<Access>& out) const {
  for (const KernelPtr& member : members_) {
    const int64_t units = member->units() / parts_;
    member->accesses(begin * units, end * units, out);
  }
}

namespace {

constexpr int64_t kMostParts = 128;
constexpr int64_t kPartsOfWorker = 4;  // at least
constexpr size_t kMostMembers = 24;
constexpr size_t kWindow = 12;         // kernels from one member to the next
constexpr double kWorthJoining = 1e4;  // nanoseconds of all members

bool any_conflict(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& x) {
    return std::any_of(b.begin(), b.end(), [&](const Access& y) { return conflict(x, y); });
  });
}

class Joiner {
 public:
  Joiner(KernelList kernels, int num_workers)
      : kernels_(std::move(kernels)), least_parts_(kPartsOfWorker * num_workers) {
    for (const KernelPtr& kernel : kernels_) {
      whole_.emplace_back();
      kernel->accesses(0, kernel->units(), whole_.back());
      left_.push_back(left_.size());
    }
  }

  KernelList run() {
    while (!left_.empty()) {
      const size_t first = left_.front();
      left_.pop_front();
      if (!find_chain(first)) {
        place(first);
        continue;
      }
      left_.erase(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(scanned_));
      left_.insert(left_.begin(), after_.begin(), after_.end());
      for (const size_t kernel : before_)
        place(kernel);
      place_chain();
    }
    return std::move(placed_);
  }

 private:
  void place(size_t kernel) { placed_.push_back(std::move(kernels_[kernel])); }

  void place_chain() {
    KernelList members;
    for (const size_t member : members_)
      members.push_back(std::move(kernels_[member]));
    placed_.push_back(std::make_unique<Chain>(std::move(members), parts_));
  }

  // Members of the chain that begins with `first`, and what is between them, of those left.
  bool find_chain(size_t first) {
    members_ = {first};
    before_.clear();
    after_.clear();
    scanned_ = 0;
    parts_ = largest_parts(kernels_[first]->units());
    if (parts_ < least_parts_ || kernels_[first]->keeps_place())
      return false;
    std::vector<size_t> before, after;
    for (size_t i = 0; i < left_.size() && i < scanned_ + kWindow; ++i) {
      const size_t kernel = left_[i];
      if (kernels_[kernel]->keeps_place() || members_.size() == kMostMembers)
        break;
      if (!touches(kernel, after) && joins(kernel)) {
        members_.push_back(kernel);
        scanned_ = i + 1;
        before_ = before;
        after_ = after;
      } else if (!touches(kernel, after) && !touches(kernel, members_)) {
        before.push_back(kernel);
      } else {
        after.push_back(kernel);
      }
    }
    const double cost =
        std::accumulate(members_.begin(), members_.end(), 0.0,
                        [&](double sum, size_t m) { return sum + kernels_[m]->cost(); });
    return members_.size() > 1 && cost >= kWorthJoining;
  }

  static int64_t largest_parts(int64_t units) {
    int64_t parts = std::min(units, kMostParts);
    while (parts > 1 && units % parts != 0)
      --parts;
    return parts;
  }

  bool touches(size_t kernel, const std::vector<size_t>& others) const {
    return std::any_of(others.begin(), others.end(),
                       [&](size_t other) { return any_conflict(whole_[kernel], whole_[other]); });
  }

  // Whether a kernel uses something of the chain, part by part. Then it has as many parts, or the
  // chain has fewer from now on: parts of parts that do not touch each other do not, either.
  bool joins(size_t kernel) {
    const int64_t parts = std::gcd(parts_, kernels_[kernel]->units());
    if (parts < least_parts_ || !touches(kernel, members_))
      return false;
    for (const size_t member : members_) {
      if (!any_conflict(whole_[member], whole_[kernel]))
        continue;
      for (int64_t part = 0; part < parts; ++part) {
        const std::vector<Access> own = accesses(kernel, part, part + 1, parts);
        if (any_conflict(own, accesses(member, 0, part, parts)) ||
            any_conflict(own, accesses(member, part + 1, parts, parts)))
          return false;
      }
    }
    parts_ = parts;
    return true;
  }

  std::vector<Access> accesses(size_t kernel, int64_t first, int64_t last, int64_t parts) const {
    const int64_t units = kernels_[kernel]->units() / parts;
    std::vector<Access> out;
    if (first < last)
      kernels_[kernel]->accesses(first * units, last * units, out);
    return out;
  }

  KernelList kernels_;
  int64_t least_parts_;
  std::vector<std::vector<Access>> whole_;  // what each kernel accesses
  std::deque<size_t> left_;
  KernelList placed_;
  // Of the chain that is being looked for.
  std::vector<size_t> members_, before_, after_;
  size_t scanned_ = 0;  // of those left, up to its last member
  int64_t parts_ = 1;
};

}  // namespace

KernelList join_chains(KernelList kernels, int num_workers) {
  return Joiner(std::move(kernels), num_workers).run();
}

}  // namespace meshtrain::cpu
