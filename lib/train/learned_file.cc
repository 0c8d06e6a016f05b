#include "train/learned_file.h"

#include <filesystem>

#include "checkpoint/json.h"
#include "checkpoint/reader.h"
#include "config/run_files.h"
#include "data/data_sizes.h"
#include "record/run_dir.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  const InputFile file = open_input(path, "E404", "E406");
  if (file.size() > kMaxManifest) {
    read_error("E402", path, "{} bytes; at most {} are read", file.size(), kMaxManifest);
  }
  std::string text(file.size(), '\0');
  try {
    file.read_at(0, reinterpret_cast<std::byte*>(text.data()), text.size());
  } catch (const FileError& error) {
    throw ConfigError("E409", {}, error.what());
  }
  return text;
}

LearnedPtr read_learned(const std::string& path) {
  return parse_learned(read_text(path), path);
}

// Outside of a run a data.json may belong to another program; such a file is ignored.
LearnedPtr read_if_learned(const std::string& path) {
  const std::string text = read_text(path);
  return is_learned_text(text) ? parse_learned(text, path) : nullptr;
}

LearnedPtr learned_beside_file(const std::string& weights) {
  std::error_code error;
  if (const std::string own = weights + "." + run_files::kLearned; fs::exists(own, error)) {
    return read_learned(own);
  }
  const fs::path place = fs::absolute(weights, error);
  for (fs::path folder = place.parent_path(); !error; folder = folder.parent_path()) {
    if (is_run_dir(folder.string())) {
      const std::string path = (folder / run_files::kLearned).string();
      return fs::exists(path, error) ? read_learned(path) : nullptr;
    }
    if (folder == folder.parent_path()) {
      break;
    }
  }
  const std::string path = (place.parent_path() / run_files::kLearned).string();
  const bool is_run_name = place.filename() == run_files::kWeights;
  return is_run_name && fs::exists(path, error) ? read_if_learned(path) : nullptr;
}

}  // namespace

LearnedPtr learned_beside(const std::string& given) {
  std::error_code error;
  if (!fs::is_directory(given, error)) {
    return learned_beside_file(given);
  }
  const std::string folder = fs::canonical(given, error).string();
  const std::string path = folder + "/" + run_files::kLearned;
  if (is_checkpoint(folder)) {
    const std::string text = CheckpointReader(folder).text(run_files::kLearned);
    return text.empty() ? nullptr : parse_learned(text, path);
  }
  return fs::exists(path, error) ? read_learned(path) : nullptr;
}

DataSizes sizes_of_training_data(const DataConfig& data, double held_out,
                                 const std::string& weights) {
  const ConfigObject& train = *data.train;
  const LearnedPtr stored = weights.empty() ? nullptr : learned_beside(weights);
  const LearnedData* learned = stored == nullptr ? nullptr : learned_of(stored, train);
  if (learned == nullptr) {
    return read_data_sizes(data, held_out);
  }
  DataSizes sizes = data_sizes_of(train, *learned);
  if (sizes.classes.empty()) {
    try {
      sizes.classes = read_data_sizes(data, held_out).classes;
    } catch (const ConfigError&) {
      // The data are gone: num_classes() is unknown, vocabularies are not.
    }
  }
  return sizes;
}

std::string write_learned_beside(const std::string& weights, const LearnedPtr& learned) {
  const std::string path = weights + "." + run_files::kLearned;
  if (learned) {
    write_file_atomic(path, std::string_view(learned_text(*learned)));
    return path;
  }
  std::error_code error;
  fs::remove(path, error);
  return "";
}

void warn_of_nothing_learned(const ConfigObject& source, const std::string& from,
                             Diagnostics& warnings) {
  if (learns_from_data(source) && !from.empty()) {  // without weights nothing was trained
    warnings
        .warning("W328", source.loc,
                 fmt::format("`{}` has no {}: ids of texts, classes and means are those of the "
                             "data as they are now",
                             from, run_files::kLearned))
        .help("if the training data changed since, results are wrong");
  }
}

}  // namespace meshtrain
