#include "exec/cpu_collective.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "comm/heartbeat_monitor.h"
#include "comm/local/combine.h"

namespace meshtrain {
namespace {

// Transfers between processes. One unit, so that worker 0 runs it: the thread that created the
// group.
class TransferKernel final : public cpu::Kernel {
 public:
  TransferKernel(std::unique_ptr<Transfer> transfer, std::vector<Access> accesses,
                 std::shared_ptr<HeartbeatMonitor> monitor, const std::string& name,
                 uint64_t signature)
      : transfer_(std::move(transfer)),
        accesses_(std::move(accesses)),
        monitor_(std::move(monitor)),
        name_(monitor_ == nullptr ? "" : monitor_->keep(name)),
        signature_(signature) {}

  void run(int64_t, int64_t, std::byte*) const override {
    if (monitor_ == nullptr) {
      transfer_->run();
      return;
    }
    monitor_->enter(signature_, name_);
    try {
      transfer_->run();
    } catch (const std::exception& error) {  // other workers wait: no way back from here
      monitor_->fail(static_cast<int>(ExitCode::kRankLost),
                     fmt::format("error[E605]: {}: {}\n", name_, error.what()));
    }
    monitor_->leave();
  }
  void accesses(int64_t, int64_t, std::vector<Access>& out) const override {
    out.insert(out.end(), accesses_.begin(), accesses_.end());
  }
  double cost() const override { return 0; }
  bool keeps_place() const override { return true; }

 private:
  std::unique_ptr<Transfer> transfer_;
  std::vector<Access> accesses_;
  std::shared_ptr<HeartbeatMonitor> monitor_;
  const char* name_;
  uint64_t signature_;
};

// The kernel of each spec.
class Collectives {
 public:
  explicit Collectives(Processes processes) : processes_(std::move(processes)) {}

  cpu::KernelPtr make(const CombineSpec& spec, const std::string&) const {
    return local::make_combine(spec.reduction, spec.dtype, spec.regions);
  }
  cpu::KernelPtr make(const ExchangeSpec& spec, const std::string& path) const {
    std::vector<Access> accesses;
    for (const Message& message : spec.sends)
      accesses.push_back({message.data, message.data + message.bytes, false});
    for (const Message& message : spec.receives)
      accesses.push_back({message.data, message.data + message.bytes, true});
    return transfer(processes_.group->make_exchange(spec.sends, spec.receives), std::move(accesses),
                    path);
  }
  cpu::KernelPtr make(const AllReduceSpec& spec, const std::string& path) const {
    return transfer(processes_.group->make_all_reduce(spec.reduction, spec.dtype, spec.data,
                                                      spec.elements, spec.ranks),
                    {{spec.data, spec.data + spec.bytes(), true}}, path);
  }
  template <class Spec>
  cpu::KernelPtr make(const Spec&, const std::string& path) const {
    throw InternalError(fmt::format("{}: this backend has no such collective", path));
  }

 private:
  cpu::KernelPtr transfer(std::unique_ptr<Transfer> transfer, std::vector<Access> accesses,
                          const std::string& path) const {
    // The same on all ranks, which lower the same steps.
    const uint64_t signature = hash_text(path);
    return std::make_unique<TransferKernel>(std::move(transfer), std::move(accesses),
                                            processes_.monitor, path, signature);
  }

  Processes processes_;
};

}  // namespace

cpu::CpuLowering::MakeCollective collectives_of(Processes processes) {
  return [all = Collectives(std::move(processes))](const KernelSpec& spec,
                                                   const std::string& path) -> cpu::KernelPtr {
    return std::visit([&](const auto& one) { return all.make(one, path); }, spec);
  };
}

}  // namespace meshtrain
