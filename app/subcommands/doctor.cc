// meshtrain doctor: what this machine has for training, what is missing, and what to do about it.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "backend/cpu/kernel_table.h"
#include "base/columns.h"
#include "base/environment_names.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/text.h"
#include "comm/mpi/load.h"
#include "data/named_sets.h"
#include "engine/devices.h"
#include "host.h"
#include "output.h"
#include "record/events.h"
#include "subcommand.h"
#include "train/verify_meshes.h"

namespace meshtrain {
namespace {

struct DoctorOptions {
  std::string format = "text";
};

struct Finding {
  // kAbsent: not there, which is fine where nobody needs it.
  enum class State { kGood, kAbsent, kBad } state = State::kGood;
  std::string what, text, cure;
};
using Findings = std::vector<Finding>;
using State = Finding::State;

const char* word_for(State state) {
  return state == State::kGood ? "ok" : state == State::kAbsent ? "none" : "BAD";
}

void add_host(Findings& out) {
  const ThisHost host = this_host();
  out.push_back({State::kGood, "program",
                 fmt::format("meshtrain {}, {} {}, {}", MESHTRAIN_VERSION, MESHTRAIN_COMPILER,
                             __VERSION__, MESHTRAIN_BUILD_TYPE),
                 ""});
  out.push_back(
      {State::kGood, "CPU", fmt::format("{}, kernels for {}", host.cpu, cpu::kernel_level()), ""});
  const char* threads = std::getenv("OMP_NUM_THREADS");
  out.push_back(
      {State::kGood, "threads",
       threads == nullptr || *threads == '\0'
           ? fmt::format("{}, one for each core", host.cores)
           : fmt::format("{} of {} cores (OMP_NUM_THREADS)", printable(threads), host.cores),
       ""});
  const int64_t available = available_memory();
  const bool is_little = available > 0 && available < (int64_t{1} << 28);
  out.push_back({is_little ? State::kBad : State::kGood, "memory",
                 fmt::format("{} of {} free", format_bytes(available), format_bytes(host.memory)),
                 is_little ? "end other programs; small models need 256 MiB" : ""});
}

void add_gpus(Findings& out) {
  const Gpus gpus = find_gpus();
  if (gpus.devices.empty()) {
    out.push_back({State::kAbsent, "GPU", gpus.reason, ""});
    return;
  }
  for (size_t i = 0; i < gpus.devices.size(); ++i) {
    const gpu::DeviceInfo& device = gpus.devices[i];
    out.push_back(
        {State::kGood, fmt::format("gpu:{}", i),
         fmt::format("{}, {} of {} free, driver {}", device.name, format_bytes(device.free_bytes),
                     format_bytes(device.total_bytes), device.driver),
         ""});
  }
  for (const gpu::LibraryInfo& library : gpus.libraries) {
    const bool is_bad = !library.problem.empty();
    out.push_back({is_bad ? State::kBad : State::kGood, library.name,
                   is_bad ? library.problem : fmt::format("{}, {}", library.version, library.file),
                   is_bad ? "scripts/gpu_libraries.sh, or the system's packages" : ""});
  }
}

void add_mpi(Findings& out) {
  std::string reason;
  const std::string version = mpi_version(reason);
  out.push_back(version.empty() ? Finding{State::kAbsent, "MPI", reason, ""}
                                : Finding{State::kGood, "MPI", version, ""});
}

// Whether files can be made in `folder`, or in the folder where it would be.
bool is_writable(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path existing = std::filesystem::absolute(folder, error);
  while (!existing.empty() && !std::filesystem::exists(existing, error) &&
         existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  std::string name = existing / ".meshtrain-XXXXXX";
  const int file = ::mkstemp(name.data());
  if (file < 0) {
    return false;
  }
  ::close(file);
  ::unlink(name.c_str());
  return true;
}

void add_folder(Findings& out, const char* what, const std::string& folder, const char* cure) {
  const bool is_good = is_writable(folder);
  out.push_back({is_good ? State::kGood : State::kBad, what,
                 folder + (is_good ? "" : ": nothing can be written there"), is_good ? "" : cure});
}

void add_folders(Findings& out) {
  add_folder(out, "runs", "runs", "train with -o DIR, or from a folder of your own");
  add_folder(out, "data sets", datasets_folder(), "set MESHTRAIN_CACHE");
  Diagnostics warnings;
  const std::string kernels = gpu_cache_folder(&warnings);
  if (kernels.empty()) {
    out.push_back({State::kBad, "kernel cache", "compiled kernels are not kept",
                   "set MESHTRAIN_CACHE to a folder that only you can write"});
  } else {
    add_folder(out, "kernel cache", kernels, "set MESHTRAIN_CACHE");
  }
}

void add_limits(Findings& out) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const bool is_low = files.rlim_cur < 256;
  out.push_back({is_low ? State::kBad : State::kGood, "open files",
                 fmt::format("up to {}", files.rlim_cur), is_low ? "ulimit -n 1024" : ""});
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space("/dev/shm", error);
  if (!error) {
    out.push_back({State::kGood, "/dev/shm",
                   fmt::format("{} free, for processes of one host",
                               format_bytes(static_cast<int64_t>(space.available))),
                   ""});
  }
}

// Variables that are set; a misspelled one has its own warning, W141.
void add_environment(Findings& out) {
  for (const EnvironmentName& entry : environment_names()) {
    const char* value = std::getenv(std::string(entry.name).c_str());
    if (entry.reader != EnvironmentName::Reader::kTests && value != nullptr) {
      const bool is_secret = entry.name == "MESHTRAIN_TOKEN";
      out.push_back({State::kGood, std::string(entry.name),
                     fmt::format("{}: {}", is_secret ? "(set)" : printable(value), entry.text),
                     ""});
    }
  }
}

constexpr const char* kSelfTest = R"(distribution:
  type: ModelParallel
  device_mesh: {shape: [2, 2], axis_names: [data, model], devices: "cpu:4"}
  layout_map: {hidden/kernel: [null, model]}
model:
  layers:
    - Input: {shape: [12]}
    - Dense: {name: hidden, units: 16, activation: gelu}
    - Dropout: 0.2
    - Dense: {name: logits, units: 4}
compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
data: {train: {source: random, samples: 32, shape: [12], classes: 4}}
fit: {batch_size: 16}
)";

void add_self_test(Findings& out) {
  MeshProofOptions proof;
  proof.load.source = std::make_shared<const SourceFile>(SourceFile{"the self-test", kSelfTest});
  proof.steps = 2;
  proof.show = [](std::string_view) {};
  const bool is_good = verify_meshes(proof);
  out.push_back(
      {is_good ? State::kGood : State::kBad, "self-test",
       is_good ? "two steps of training give the same numbers on every mesh of four CPU devices"
               : "meshes of CPU devices give different numbers",
       is_good ? "" : "please report it, with the output of `meshtrain doctor --format json`"});
}

std::string as_text(const Findings& findings) {
  std::vector<std::vector<std::string>> rows;
  for (const Finding& each : findings) {
    rows.push_back({word_for(each.state), each.what, each.text});
    if (!each.cure.empty()) {
      rows.push_back({"", "", "-> " + each.cure});
    }
  }
  return aligned_columns(rows);
}

std::string as_json(const Findings& findings) {
  std::string list;
  for (const Finding& each : findings) {
    list += fmt::format(R"({}{{"state":{},"what":{},"text":{},"cure":{}}})",
                        list.empty() ? "" : ",", json_string(to_lower(word_for(each.state))),
                        json_string(each.what), json_string(each.text), json_string(each.cure));
  }
  return fmt::format(R"({{"findings":[{}]}})"
                     "\n",
                     list);
}

int run_doctor(const DoctorOptions& options, Invocation&) {
  Findings findings;
  for (const auto add :
       {add_host, add_gpus, add_mpi, add_folders, add_limits, add_environment, add_self_test}) {
    add(findings);
  }
  out_stream().write(options.format == "json" ? as_json(findings) : as_text(findings));
  for (const Finding& each : findings) {
    if (each.state == State::kBad) {
      return static_cast<int>(ExitCode::kCheckFailed);
    }
  }
  return 0;
}

}  // namespace

void add_doctor(Subcommands& to) {
  auto [app, options, subcommand] = to.add<DoctorOptions>(
      "doctor", "What this machine has for training, and what is wrong with it", run_doctor);
  add_format_flag(app, options.format);
  app.footer("Exit codes: 0 nothing is wrong; 7 something is.");
}

}  // namespace meshtrain
