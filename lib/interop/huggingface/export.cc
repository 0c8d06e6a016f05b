#include "interop/huggingface/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/json.h"
#include "interop/huggingface/describe.h"
#include "interop/huggingface/tensor_rules.h"
#include "tensor/safetensors.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

std::vector<NamedTensor> tensors_of(const HuggingFaceModel& model,
                                    const std::vector<NamedTensor>& weights) {
  std::map<std::string, const HostTensor*> by_path;
  for (const NamedTensor& weight : weights) {
    by_path.emplace(rule_path(weight.name, model.family), &weight.tensor);
  }
  std::vector<NamedTensor> out;
  for (const TensorRule& rule : tensor_rules(model)) {
    std::vector<const HostTensor*> parts;
    for (const std::string& path : rule.ours) {
      const auto found = by_path.find(path);
      MESHTRAIN_CHECK(found != by_path.end(), "no weight {}", path);
      parts.push_back(found->second);
    }
    out.push_back({file_name_of(rule, model), to_theirs(rule, parts)});
  }
  return out;
}

// Successive tensors, each group of at most `most` bytes or of one tensor.
std::vector<std::span<const NamedTensor>> shards_of(const std::vector<NamedTensor>& tensors,
                                                    int64_t most) {
  std::vector<std::span<const NamedTensor>> out;
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto size = static_cast<int64_t>(tensors[i].tensor.num_bytes());
    if (i > begin && bytes + size > most) {
      out.push_back(std::span(tensors).subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += size;
  }
  out.push_back(std::span(tensors).subspan(begin));
  return out;
}

std::string index_text(const std::vector<std::span<const NamedTensor>>& shards,
                       const std::vector<std::string>& names) {
  int64_t total = 0;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const NamedTensor& tensor : shards[i]) {
      map[tensor.name] = names[i];
      total += static_cast<int64_t>(tensor.tensor.num_bytes());
    }
  }
  return json_text(
             nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", map}},
             2) +
         "\n";
}

// Removes the weights of an earlier export, which transformers would load in place of the new ones.
void remove_other_weights(const std::string& folder, const std::vector<std::string>& written) {
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_huggingface_weights(name) && !entry.is_directory() &&
        std::find(written.begin(), written.end(), name) == written.end()) {
      old.push_back(entry.path());
    }
  }
  for (const fs::path& path : old) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      throw FileError(ExitCode::kWriteFailed, "cannot remove", path.string(), error.value());
    }
  }
}

void check_class_names(const HuggingFaceModel& model) {
  const auto names = static_cast<int64_t>(model.extras.class_names.size());
  if (names > 0 && names != model.classes) {
    throw ConfigError(
        "E417", {},
        fmt::format("`model.class_names` has {} names, the model {} classes", names, model.classes))
        .help("one name for each class, or leave them out");
  }
}

}  // namespace

bool is_huggingface_weights(const std::string& name) {
  static const std::regex shard("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  return name == kWhole || name == kIndexFile || std::regex_match(name, shard);
}

std::vector<std::string> export_huggingface(const Setup& setup,
                                            const std::vector<NamedTensor>& weights,
                                            const std::string& folder, int64_t shard_bytes,
                                            const HuggingFaceExtras& extras) {
  HuggingFaceModel model = describe_for_huggingface(setup);
  model.extras = extras;
  check_class_names(model);
  const std::vector<NamedTensor> tensors = tensors_of(model, weights);
  const auto shards = shards_of(tensors, shard_bytes);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) {
    names.push_back(shards.size() == 1
                        ? kWhole
                        : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
  }
  make_folders(folder);
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (size_t i = 0; i < shards.size(); ++i) {
    write_safetensors(path_of(names[i]), shards[i], {{"format", "pt"}});
  }
  if (shards.size() > 1) {
    const std::string index = index_text(shards, names);
    write_file_atomic(path_of(kIndexFile), std::string_view(index));
    names.push_back(kIndexFile);
  }
  const std::string config = huggingface_config(model, tensors.front().tensor.dtype());
  write_file_atomic(path_of("config.json"), std::string_view(config));
  names.push_back("config.json");
  remove_other_weights(folder, names);
  return names;
}

}  // namespace meshtrain
