#include "interop/huggingface/directory.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kShardIndex = "model.safetensors.index.json";
constexpr uint64_t kMaxConfig = uint64_t{16} << 20, kMaxIndex = uint64_t{256} << 20;

std::string read_text(const std::string& path, uint64_t most) {
  const InputFile file = open_input(path, "E404", "E404");
  if (file.size() > most) {
    read_error("E405", path, "larger than {}", format_bytes(static_cast<int64_t>(most)));
  }
  return read_file(path, most);
}

// The first pickled file of the folder; empty when there is none.
std::string pickle_in(const std::string& folder) {
  std::string found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string(), lower = to_lower(name);
    for (const char* end : {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}) {
      if (ends_with(lower, end) && lower != "training_args.bin" &&
          (found.empty() || name < found)) {
        found = name;
      }
    }
  }
  return found;
}

[[noreturn]] void refuse_without_weights(const std::string& folder) {
  if (const std::string pickle = pickle_in(folder); !pickle.empty()) {
    throw ConfigError("E415", {},
                      fmt::format("`{}/{}`: pickled files can run code and are never read", folder,
                                  printable(pickle)))
        .help(
            "convert it where it was made: model.save_pretrained(DIR, safe_serialization=True) "
            "writes model.safetensors");
  }
  throw ConfigError("E404", {}, fmt::format("`{}` has no {}", folder, kWeightsFile))
      .help(fmt::format("weights are read from {} or the shards that {} names", kWeightsFile,
                        kShardIndex));
}

// {tensor: file} of an index.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  const Json json = parse_json(read_text(path, kMaxIndex));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object() || map->empty()) {
    read_error("E405", path, "no object `weight_map` of names and files: truncated?");
  }
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : map->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : std::string();
    if (text.empty() || text != fs::path(text).filename().string() ||
        !ends_with(text, ".safetensors")) {
      read_error("E405", path, "`{}` is in {}, which is no .safetensors file of the same folder",
                 printable(name),
                 printable(file.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    out.emplace(name, text);
  }
  return out;
}

}  // namespace

HuggingFaceDirectory::HuggingFaceDirectory(const std::string& folder) : folder_(folder) {
  if (!has_file(kConfigFile)) {
    throw ConfigError("E404", {}, fmt::format("`{}` has no {}", folder, kConfigFile))
        .help("give the folder that save_pretrained() wrote, or a model.keras");
  }
  config_ = read_text(path_of(kConfigFile), kMaxConfig);
  if (has_file(kWeightsFile)) {
    open_shard(kWeightsFile);
  } else if (has_file(kShardIndex)) {
    open_index();
  } else {
    refuse_without_weights(folder);
  }
}

std::string HuggingFaceDirectory::path_of(const std::string& file) const {
  return (fs::path(folder_) / file).string();
}

bool HuggingFaceDirectory::has_file(const std::string& file) const {
  std::error_code error;
  return fs::exists(path_of(file), error);
}

void HuggingFaceDirectory::open_shard(const std::string& file) {
  // The hub's cache has links to files that are named by their hash.
  std::error_code error;
  const std::string path = path_of(file);
  const bool is_link = fs::is_symlink(path, error);
  files_.emplace_back(is_link ? fs::canonical(path, error).string() : path);
  for (const SafetensorsReader::Entry& entry : files_.back().entries()) {
    if (!tensors_.emplace(entry.name, files_.size() - 1).second) {
      read_error("E405", path, "`{}` is in another shard, too", printable(entry.name));
    }
  }
}

void HuggingFaceDirectory::open_index() {
  const std::string path = path_of(kShardIndex);
  const std::map<std::string, std::string> map = read_weight_map(path);
  std::map<std::string, size_t> shards;
  std::vector<std::string> missing;
  for (const auto& [name, file] : map) {
    if (shards.emplace(file, 0).second && !has_file(file)) {
      missing.push_back(file);
    }
  }
  if (!missing.empty()) {
    throw ConfigError("E404", {},
                      fmt::format("`{}` names {} of {} shards that are not there: {}", path,
                                  missing.size(), shards.size(), join(missing, ", ")))
        .help("copy them into the folder, or download it again");
  }
  for (auto& [file, index] : shards) {
    open_shard(file);
    index = files_.size() - 1;
  }
  for (const auto& [name, file] : map) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || found->second != shards.at(file)) {
      read_error("E405", path, "`{}` is not in `{}`", printable(name), file);
    }
  }
}

const SafetensorsReader::Entry* HuggingFaceDirectory::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : files_[found->second].find(name);
}

HostTensor HuggingFaceDirectory::read(const std::string& name) const {
  return files_[tensors_.at(name)].read(*find(name));
}

}  // namespace meshtrain
