#include "train/devices.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "backend/gpu/load.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int64_t kMostDevices = 65536;

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  return is_whole && !text.empty() ? std::optional(value) : std::nullopt;
}

bool parse_gpu(std::string_view text, DeviceRequest& out) {
  const size_t cross = text.find('x');
  const std::optional<int64_t> index = whole_number(text.substr(0, cross));
  out.count = cross == std::string_view::npos ? 1 : whole_number(text.substr(cross + 1));
  if (!index || *index > 1024 || !out.count) {
    return false;
  }
  out.gpu = static_cast<int>(*index);
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
  if (!is_gpu) {
    return fmt::format("{} x cpu (virtual)", num_devices);
  }
  return num_devices == 1 ? fmt::format("gpu:{}", gpu)
                          : fmt::format("{} x gpu:{} (virtual)", num_devices, gpu);
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
  if (out.is_gpu && text.find_first_of(",-") != std::string_view::npos) {
    diagnostics
        .error("E620", devices.loc, fmt::format("`{}` asks for several GPUs; a run uses one", text))
        .help("write `devices: gpu:0`, or `gpu:0x8` for eight virtual devices on one GPU");
    return out;
  }
  const std::string_view number = text.size() > 4 ? text.substr(4) : std::string_view();
  if (text == "cpu" || text == "gpu") {
    out.count = 1;
  } else if (!out.is_gpu) {
    out.count = whole_number(number);
  } else if (!parse_gpu(number, out)) {
    out.count.reset();
  }
  if (!out.count || *out.count < 1 || *out.count > kMostDevices) {
    diagnostics.error("E113", devices.loc, fmt::format("`{}` names no devices", text))
        .help(
            "write `auto`, `cpu:8` for eight virtual CPU devices (1 to 65536), or `gpu:0x8` for "
            "eight on one GPU");
    out.count.reset();
  }
  return out;
}

void settle_auto(DeviceRequest& request, int64_t num_devices) {
  if (!request.is_auto || num_devices != 1) {
    return;
  }
  std::error_code ignored;
  const bool has_driver = std::filesystem::exists("/dev/nvidiactl", ignored) ||
                          std::filesystem::exists("/dev/dxg", ignored);
  request.is_gpu = has_driver && gpu::has_library();
}

std::shared_ptr<gpu::Device> open_device(const DeviceRequest& request,
                                         const gpu::DeviceOptions& options) {
  if (!request.is_gpu) {
    return nullptr;
  }
  const std::string asked = request.is_auto ? "gpu:0" : request.text.value;
  constexpr std::string_view kInstead =
      "write `devices: cpu:8` for virtual devices on the processor";
  std::string reason;
  gpu::Runtime* runtime = gpu::load_runtime(reason);
  if (runtime == nullptr) {
    throw no_gpu(request, fmt::format("`{}` cannot be used here: {}", asked, reason), "", kInstead);
  }
  const int count = runtime->device_count(reason);
  if (count == 0) {
    throw no_gpu(request, fmt::format("`{}` cannot be used here: {}", asked, reason), "", kInstead);
  }
  if (request.gpu >= count) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw no_gpu(request,
                 fmt::format("there is no GPU number {}; there {} {}", request.gpu,
                             count == 1 ? "is" : "are", count),
                 visible == nullptr ? "" : fmt::format("CUDA_VISIBLE_DEVICES is `{}`", visible),
                 fmt::format("the first one is `gpu:0`{}",
                             count > 1 ? fmt::format(", the last `gpu:{}`", count - 1) : ""));
  }
  return runtime->open(request.gpu, options);
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
