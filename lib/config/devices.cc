#include "config/devices.h"

#include <algorithm>
#include <cctype>

#include "base/parse_number.h"
#include "base/text.h"

namespace meshtrain {
namespace {

constexpr int64_t kMostGpus = 1024;  // of one machine

// 3 or 0-3, to the end of `out`; false where it is neither, or names one of them again.
bool parse_range(std::string_view text, std::vector<int>& out) {
  const size_t dash = text.find('-');
  const auto first = parse_number<int64_t>(text.substr(0, dash));
  const auto last =
      dash == std::string_view::npos ? first : parse_number<int64_t>(text.substr(dash + 1));
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
  if (cross != std::string_view::npos) {
    out.count = parse_number<int64_t>(text.substr(cross + 1));
  }
  text = text.substr(0, cross);
  const std::vector<std::string> parts = split(text, ',');
  return text == "all" || std::all_of(parts.begin(), parts.end(), [&](const std::string& part) {
           return parse_range(part, out.gpus);
         });
}

// H100: a letter, and a digit behind it. Not xH100, which lacks its count.
bool is_hardware_name(std::string_view text) {
  const std::string lower = to_lower(text);
  return !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 &&
         text[0] != 'x' && !starts_with(lower, "cpu") && !starts_with(lower, "gpu") &&
         std::any_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' ||
                  c == ' ';
         });
}

// 64xH100: digits, a cross, a name. H100 alone: as many as the mesh has.
bool parse_on_paper(std::string_view text, DeviceRequest& out) {
  if (is_hardware_name(text)) {
    out.hardware = text;
    out.count.reset();
    return true;
  }
  const size_t cross = text.find('x');
  if (cross == std::string_view::npos || cross + 1 == text.size() ||
      std::isalpha(static_cast<unsigned char>(text[cross + 1])) == 0) {
    return false;
  }
  out.count = parse_number<int64_t>(text.substr(0, cross));
  out.hardware = text.substr(cross + 1);
  return out.count.has_value();
}

bool parse(std::string_view text, DeviceRequest& out) {
  out.is_auto = text == "auto";
  out.is_gpu = text == "gpu" || starts_with(text, "gpu:");
  if (out.is_auto) {
    return true;
  }
  out.count = 1;
  if (text == "cpu") {
    return true;
  }
  if (out.is_gpu) {
    return parse_gpus(text == "gpu" ? "0" : text.substr(4), out);
  }
  if (starts_with(text, "cpu:")) {
    out.count = parse_number<int64_t>(text.substr(4));
    return true;
  }
  return parse_on_paper(text, out);
}

}  // namespace

DeviceRequest parse_devices(const Located<std::string>& devices, Diagnostics& diagnostics) {
  DeviceRequest out;
  out.text = devices;
  const bool is_read = parse(devices.value, out);
  const bool is_open = out.is_auto || (!out.hardware.empty() && !out.count);  // as the mesh needs
  if (!is_read || (!is_open && (!out.count || *out.count < 1 || *out.count > kMostDevices))) {
    diagnostics.error("E113", devices.loc, fmt::format("`devices` cannot be `{}`", devices.value))
        .help(
            "write `auto`, `cpu:8` for eight virtual CPU devices (1 to 65536), `gpu:0-7`, "
            "`gpu:0,2` or `gpu:all` for GPUs, or `gpu:0x8` for eight virtual devices on one; for "
            "`plan` `64xH100`, too");
    out.count.reset();
  }
  return out;
}

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

std::string DeviceRequest::as_many(int64_t num_devices) const {
  if (!hardware.empty()) {
    return fmt::format("{}x{}", num_devices, hardware);
  }
  if (!is_gpu) {
    return fmt::format("cpu:{}", num_devices);
  }
  return gpus.size() == 1 ? fmt::format("gpu:{}x{}", gpus[0], num_devices)
                          : fmt::format("gpu:0-{}", num_devices - 1);
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

}  // namespace meshtrain
