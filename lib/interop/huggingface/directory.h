// The files of a Hugging Face directory: config.json, and model.safetensors or the shards that
// model.safetensors.index.json names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensor/safetensors.h"

namespace meshtrain {

class HuggingFaceDirectory {
 public:
  // Opens all files. Throws ConfigError (exit 6): E404 for a folder or file that is not there, E405
  // for a malformed index or shard, E415 for a folder that has only pickled weights.
  explicit HuggingFaceDirectory(const std::string& folder);

  const std::string& folder() const { return folder_; }
  std::string path_of(const std::string& file) const;
  bool has_file(const std::string& file) const;
  const std::string& config() const { return config_; }  // the text of config.json
  const std::map<std::string, size_t>& tensors() const { return tensors_; }  // name, file
  const SafetensorsReader::Entry* find(const std::string& name) const;       // null: none
  HostTensor read(const std::string& name) const;

 private:
  void open_index();
  void open_shard(const std::string& file);

  std::string folder_, config_;
  std::vector<SafetensorsReader> files_;
  std::map<std::string, size_t> tensors_;
};

}  // namespace meshtrain
