#include "train/devices.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "backend/gpu/load.h"
#include "base/text.h"
#include "comm/environment.h"

namespace meshtrain {
namespace {

constexpr int64_t kMostDevices = 65536;
constexpr int64_t kMostGpus = 1024;  // of one machine

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_whole && !text.empty() ? std::optional(value) : std::nullopt;
}

// 3 or 0-3, to the end of `out`; false where it is neither, or names one of them again.
bool parse_range(std::string_view text, std::vector<int>& out) {
  const size_t dash = text.find('-');
  const std::optional<int64_t> first = whole_number(text.substr(0, dash));
  const std::optional<int64_t> last =
      dash == std::string_view::npos ? first : whole_number(text.substr(dash + 1));
  if (!first || !last || *first > *last || *last >= kMostGpus) {
    return false;
  }
  for (int64_t index = *first; index <= *last; ++index) {
    if (std::find(out.begin(), out.end(), index) != out.end()) {
      return false;
    }
    out.push_back(static_cast<int>(index));
  }
  return true;
}

// LIST or LISTxN, where LIST is `all`, or numbers and ranges.
bool parse_gpus(std::string_view text, DeviceRequest& out) {
  const size_t cross = text.find('x');
  out.count = cross == std::string_view::npos ? 1 : whole_number(text.substr(cross + 1));
  const std::string list(text.substr(0, cross));
  if (!out.count) {
    return false;
  }
  if (list == "all") {
    return true;
  }
  const std::vector<std::string> parts = split(list, ',');
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return parse_range(part, out.gpus); });
}

// 64xH100: digits, a cross, a name.
bool parse_on_paper(std::string_view text, DeviceRequest& out) {
  const size_t cross = text.find('x');
  if (cross == std::string_view::npos || cross == 0 || cross + 1 == text.size() ||
      std::isdigit(static_cast<unsigned char>(text[0])) == 0) {
    return false;
  }
  out.count = whole_number(text.substr(0, cross));
  out.hardware = text.substr(cross + 1);
  return true;
}

ConfigError no_gpu(const DeviceRequest& request, std::string message, const std::string& note,
                   std::string_view help) {
  Diagnostics diagnostics;
  Diagnostic& d = diagnostics.error("E620", request.text.loc, std::move(message));
  if (!note.empty()) {
    d.note(note);
  }
  d.help(std::string(help));
  return ConfigError(std::move(diagnostics));
}

}  // namespace

std::string DeviceRequest::describe(int64_t num_devices) const {
  if (!hardware.empty()) {
    return fmt::format("{} x {} (on paper)", num_devices, hardware);
  }
  if (!is_gpu) {
    return fmt::format("{} x cpu (virtual)", num_devices);
  }
  if (gpus.size() != 1) {
    return fmt::format("{} x gpu", num_devices);
  }
  return num_devices == 1 ? fmt::format("gpu:{}", gpus[0])
                          : fmt::format("{} x gpu:{} (virtual)", num_devices, gpus[0]);
}

std::optional<int64_t> DeviceRequest::num_devices(int processes) const {
  if (!is_gpu || !count) {
    return count;
  }
  if (processes > 1) {
    return processes * *count;
  }
  return gpus.empty() ? std::nullopt : std::optional(static_cast<int64_t>(gpus.size()) * *count);
}

DeviceRequest parse_devices(const Located<std::string>& devices, Diagnostics& diagnostics) {
  DeviceRequest out;
  out.text = devices;
  const std::string_view text = devices.value;
  if (text == "auto" || text.empty()) {
    return out;
  }
  out.is_auto = false;
  out.is_gpu = starts_with(text, "gpu");
  const std::string_view number = text.size() > 4 ? text.substr(4) : std::string_view();
  if (text == "cpu" || text == "gpu") {
    out.count = 1;
    out.gpus = {0};
  } else if (parse_on_paper(text, out)) {
    // counted
  } else if (!out.is_gpu) {
    out.count = whole_number(number);
  } else if (!parse_gpus(number, out)) {
    out.count.reset();
  }
  if (!out.count || *out.count < 1 || *out.count > kMostDevices) {
    diagnostics.error("E113", devices.loc, fmt::format("`{}` names no devices", text))
        .help(
            "write `auto`, `cpu:8` for eight virtual CPU devices (1 to 65536), `gpu:0-7`, "
            "`gpu:0,2` or `gpu:all` for GPUs, or `gpu:0x8` for eight virtual devices on one; for "
            "`plan` `64xH100`, too");
    out.count.reset();
  }
  return out;
}

int count_gpus(const std::string& folder, const char* visible) {
  constexpr std::string_view kName = "nvidia";
  std::error_code ignored;
  int count = std::filesystem::exists(folder + "/dxg", ignored) ? 1 : 0;
  if (std::filesystem::exists(folder + "/nvidiactl", ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      const bool is_gpu = starts_with(name, kName) && whole_number(name.substr(kName.size()));
      count += is_gpu ? 1 : 0;
    }
  }
  if (visible != nullptr) {
    int named = 0;
    for (const std::string& part : split(visible, ',')) {
      if (part.empty() || starts_with(part, "-")) {
        break;  // CUDA sees none of the rest either
      }
      ++named;
    }
    count = std::min(count, named);
  }
  return count;
}

Surroundings Surroundings::here(int processes) {
  const auto get = [](const char* name) { return std::getenv(name); };
  return {processes, processes == 1 ? 1 : read_environment(get).local_size,
          gpu::has_library() ? count_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES")) : 0};
}

void settle_auto(DeviceRequest& request, int64_t num_devices, const Surroundings& around) {
  if (!request.is_auto) {
    return;
  }
  const bool is_one_each = around.processes == 1 || around.processes == num_devices;
  const int64_t here = around.processes == 1 ? num_devices : around.local_processes;
  request.is_gpu = is_one_each && here <= around.gpus;
  if (request.is_gpu) {
    request.gpus.resize(static_cast<size_t>(here));
    std::iota(request.gpus.begin(), request.gpus.end(), 0);
  }
}

namespace {

// The library, which has found `count` GPUs, at least one.
gpu::Runtime& runtime_for(const DeviceRequest& request, int& count) {
  const std::string asked = request.is_auto ? "gpu:0" : request.text.value;
  std::string reason;
  gpu::Runtime* runtime = gpu::load_runtime(reason);
  count = runtime == nullptr ? 0 : runtime->device_count(reason);
  if (count == 0) {
    throw no_gpu(request, fmt::format("`{}` cannot be used here: {}", asked, reason), "",
                 "write `devices: cpu:8` for virtual devices on the processor");
  }
  return *runtime;
}

void check_number(const DeviceRequest& request, int number, int count) {
  if (number < count) {
    return;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw no_gpu(request,
               fmt::format("there is no GPU number {}; there {} {}", number,
                           count == 1 ? "is" : "are", count),
               visible == nullptr ? "" : fmt::format("CUDA_VISIBLE_DEVICES is `{}`", visible),
               fmt::format("the first one is `gpu:0`{}",
                           count > 1 ? fmt::format(", the last `gpu:{}`", count - 1) : ""));
}

void check_not_on_paper(const DeviceRequest& request) {
  if (!request.hardware.empty()) {
    Diagnostics diagnostics;
    diagnostics
        .error("E621", request.text.loc,
               fmt::format("`{}` are devices on paper: only `plan` works with them",
                           request.text.value))
        .help("write `devices: auto` for those of this machine");
    throw ConfigError(std::move(diagnostics));
  }
}

}  // namespace

int processes_to_start(const DeviceRequest& request) {
  if (!request.is_gpu || request.gpus.size() == 1) {
    return 1;
  }
  int count = 0;
  runtime_for(request, count);
  for (const int number : request.gpus) {
    check_number(request, number, count);
  }
  return request.gpus.empty() ? count : static_cast<int>(request.gpus.size());
}

std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options,
                                         const Processes& processes) {
  check_not_on_paper(request);
  const bool is_alone = processes.size() == 1;
  // `auto` of one process means several GPUs only where it starts a process for each.
  if (!request.is_gpu || (is_alone && request.is_auto && request.gpus.size() > 1)) {
    return nullptr;
  }
  int count = 0;
  gpu::Runtime& runtime = runtime_for(request, count);
  const size_t listed = request.gpus.empty() ? static_cast<size_t>(count) : request.gpus.size();
  if (is_alone && listed > 1) {
    throw no_gpu(
        request,
        fmt::format("`{}` asks for {} GPUs; this works with one", request.text.value, listed),
        "train, resume, evaluate and predict start a process for each GPU",
        "write `devices: gpu:0`");
  }
  const size_t place = is_alone ? 0 : static_cast<size_t>(processes.group->local_rank()) % listed;
  const int number = request.gpus.empty() ? static_cast<int>(place) : request.gpus[place];
  check_number(request, number, count);
  return runtime.open(number, options);
}

std::string gpu_cache_folder() {
  for (const auto& [variable, inside] :
       {std::pair{"MESHTRAIN_CACHE", "gpu"}, std::pair{"XDG_CACHE_HOME", "meshtrain/gpu"},
        std::pair{"HOME", ".cache/meshtrain/gpu"}}) {
    const char* folder = std::getenv(variable);
    if (folder != nullptr && *folder != '\0') {
      return fmt::format("{}/{}", folder, inside);
    }
  }
  return "";
}

}  // namespace meshtrain
