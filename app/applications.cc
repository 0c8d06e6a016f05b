#include "applications.h"

#include <algorithm>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace meshtrain {
namespace {

// A network: the template that it is one size of, and the variables that differ, as "name: value".
// `before` follows from `repeats`.
struct Network {
  std::string_view name, base;
  std::vector<std::string_view> variables;
};

const std::vector<Network>& networks() {
  static const std::vector<Network> kNetworks = {
      {"xception", "xception", {}},
      {"vgg16", "vgg16", {}},
      {"vgg19", "vgg16", {"convolutions: [2, 2, 4, 4, 4]"}},
      {"resnet50", "resnet50", {}},
      {"resnet101", "resnet50", {"units: [3, 4, 23, 3]"}},
      {"resnet152", "resnet50", {"units: [3, 8, 36, 3]"}},
      {"resnet50v2", "resnet50v2", {}},
      {"resnet101v2", "resnet50v2", {"units: [3, 4, 23, 3]"}},
      {"resnet152v2", "resnet50v2", {"units: [3, 8, 36, 3]"}},
      {"inception_v3", "inception_v3", {}},
      {"inception_resnet_v2", "inception_resnet_v2", {}},
      {"mobilenet", "mobilenet", {}},
      {"mobilenet_v2", "mobilenet_v2", {}},
      {"mobilenet_v3_small", "mobilenet_v3_small", {}},
      {"mobilenet_v3_large", "mobilenet_v3_large", {}},
      {"densenet121", "densenet121", {}},
      {"densenet169", "densenet121", {"units: [6, 12, 32, 32]", "widths: [64, 128, 256, 640]"}},
      {"densenet201", "densenet121", {"units: [6, 12, 48, 32]", "widths: [64, 128, 256, 896]"}},
      {"efficientnet_b0", "efficientnet_b0", {}},
      {"efficientnet_b1", "efficientnet_b0", {"size: 240", "repeats: [2, 3, 3, 4, 4, 5, 2]"}},
      {"efficientnet_b2",
       "efficientnet_b0",
       {"size: 260", "dropout: 0.3", "repeats: [2, 3, 3, 4, 4, 5, 2]",
        "filters: [32, 16, 24, 48, 88, 120, 208, 352]", "top: 1408"}},
      {"efficientnet_b3",
       "efficientnet_b0",
       {"size: 300", "dropout: 0.3", "repeats: [2, 3, 3, 5, 5, 6, 2]",
        "filters: [40, 24, 32, 48, 96, 136, 232, 384]", "top: 1536"}},
      {"efficientnet_b4",
       "efficientnet_b0",
       {"size: 380", "dropout: 0.4", "repeats: [2, 4, 4, 6, 6, 8, 2]",
        "filters: [48, 24, 32, 56, 112, 160, 272, 448]", "top: 1792"}},
      {"efficientnet_b5",
       "efficientnet_b0",
       {"size: 456", "dropout: 0.4", "repeats: [3, 5, 5, 7, 7, 9, 3]",
        "filters: [48, 24, 40, 64, 128, 176, 304, 512]", "top: 2048"}},
      {"efficientnet_b6",
       "efficientnet_b0",
       {"size: 528", "dropout: 0.5", "repeats: [3, 6, 6, 8, 8, 11, 3]",
        "filters: [56, 32, 40, 72, 144, 200, 344, 576]", "top: 2304"}},
      {"efficientnet_b7",
       "efficientnet_b0",
       {"size: 600", "dropout: 0.5", "repeats: [4, 7, 7, 10, 10, 13, 4]",
        "filters: [64, 32, 48, 80, 160, 224, 384, 640]", "top: 2560"}},
      {"efficientnet_v2_b0", "efficientnet_v2_b0", {}},
      {"efficientnet_v2_b1", "efficientnet_v2_b0", {"size: 240", "repeats: [2, 3, 3, 4, 6, 9]"}},
      {"efficientnet_v2_b2",
       "efficientnet_v2_b0",
       {"size: 260", "repeats: [2, 3, 3, 4, 6, 10]", "filters: [32, 16, 32, 56, 104, 120, 208]",
        "top: 1408"}},
      {"efficientnet_v2_b3",
       "efficientnet_v2_b0",
       {"size: 300", "repeats: [2, 3, 3, 5, 7, 12]", "filters: [40, 16, 40, 56, 112, 136, 232]",
        "top: 1536"}},
      {"efficientnet_v2_s",
       "efficientnet_v2_b0",
       {"size: 384", "scale: =1/128", "offset: -1", "mean: [0, 0, 0]", "variance: [1, 1, 1]",
        "repeats: [2, 4, 4, 6, 9, 15]", "filters: [24, 24, 48, 64, 128, 160, 256]"}},
      {"efficientnet_v2_m",
       "efficientnet_v2_b0",
       {"size: 480", "scale: =1/128", "offset: -1", "mean: [0, 0, 0]", "variance: [1, 1, 1]",
        "repeats: [3, 5, 5, 7, 14, 18, 5]", "filters: [24, 24, 48, 80, 160, 176, 304, 512]",
        "stages: 7"}},
      {"efficientnet_v2_l",
       "efficientnet_v2_b0",
       {"size: 480", "scale: =1/128", "offset: -1", "mean: [0, 0, 0]", "variance: [1, 1, 1]",
        "repeats: [4, 7, 7, 10, 19, 25, 7]", "filters: [32, 32, 64, 96, 192, 224, 384, 640]",
        "stages: 7"}},
      {"nasnet_mobile", "nasnet_mobile", {}},
      {"nasnet_large",
       "nasnet_mobile",
       {"size: 331", "stem: 96", "filters: 168", "blocks: 6", "skip: 1"}},
      {"convnext_tiny", "convnext_tiny", {}},
      {"convnext_small", "convnext_tiny", {"depths: [3, 3, 27, 3]"}},
      {"convnext_base",
       "convnext_tiny",
       {"depths: [3, 3, 27, 3]", "widths: [128, 256, 512, 1024]"}},
      {"convnext_large",
       "convnext_tiny",
       {"depths: [3, 3, 27, 3]", "widths: [192, 384, 768, 1536]"}},
      {"convnext_xlarge",
       "convnext_tiny",
       {"depths: [3, 3, 27, 3]", "widths: [256, 512, 1024, 2048]"}}};
  return kNetworks;
}

// The text with the line `  name: ...` of a variable replaced, its comment kept.
std::string with_variable(std::string text, std::string_view variable) {
  const std::string key = "\n  " + std::string(variable.substr(0, variable.find(':') + 1));
  const size_t begin = text.find(key);
  MESHTRAIN_CHECK(begin != std::string::npos, "{}", variable);
  const size_t end = std::min(text.find('\n', begin + 1), text.find(" #", begin + 1));
  std::string line = "\n  " + std::string(variable);
  line.append(line.size() < end - begin ? end - begin - line.size() : 0, ' ');
  return text.replace(begin, end - begin, line);
}

// "repeats: [2, 3]" as the blocks before each stage and after all: "before: [0, 2, 5]".
std::string before_of(std::string_view repeats) {
  int64_t sum = 0;
  std::vector<std::string> sums = {"0"};
  const size_t begin = repeats.find('[') + 1;
  for (const std::string& count : split(repeats.substr(begin, repeats.find(']') - begin), ',')) {
    sum += parse_number<int64_t>(trim(count)).value_or(0);
    sums.push_back(std::to_string(sum));
  }
  return "before: [" + join(sums, ", ") + "]";
}

}  // namespace

std::vector<std::string> application_names() {
  std::vector<std::string> out;
  for (const Network& network : networks()) {
    out.emplace_back(network.name);
  }
  return out;
}

std::optional<std::string> application_config(std::string_view name) {
  for (const Network& network : networks()) {
    if (network.name != name) {
      continue;
    }
    for (const Template& entry : application_templates()) {
      if (entry.name == network.base) {
        std::string text(entry.text);
        for (const std::string_view variable : network.variables) {
          text = with_variable(std::move(text), variable);
          if (starts_with(variable, "repeats:")) {
            text = with_variable(std::move(text), before_of(variable));
          }
        }
        for (size_t at = text.find(network.base); at != std::string::npos;
             at = text.find(network.base, at + name.size())) {
          text.replace(at, network.base.size(), name);
        }
        return text;
      }
    }
    MESHTRAIN_CHECK(false, "no template {}", network.base);
  }
  return std::nullopt;
}

}  // namespace meshtrain
