#include "data/dataset_spec.h"

#include <algorithm>
#include <filesystem>

#include "config/source_like.h"
#include "data/folder_listing.h"
#include "data/image_masks.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/transforms.h"
#include "tensor/read_error.h"

namespace meshtrain {

int64_t samples_with_classes(const ConfigObject& source) {
  constexpr int64_t kGroup = 10;  // of digits: one of each class
  constexpr int64_t kDrawn = 64, kMostNumbers = 1024;
  if (const auto digits = options_if<DigitsOptions>(source)) {
    return std::min(kGroup, digits->samples.value_or(kGroup));
  }
  const auto random = options_if<RandomOptions>(source);
  if (!random || !random->classes.value) {
    return 0;
  }
  int64_t numbers = 1;
  for (const int64_t size : random->shape.value) {
    numbers = size > kMostNumbers ? size : numbers * size;
    if (numbers > kMostNumbers) {
      return 0;
    }
  }
  return std::min(kDrawn, random->samples);
}

std::optional<Dataset> dataset_spec(const ConfigObject& source, const DataConfig& data,
                                    int64_t samples) {
  if (!class_of_object(Category::kSource, source).is_generated) {
    return std::nullopt;
  }
  ConfigObject few = source;
  few.args.at("samples").data = samples;
  if (has_options<SplitOptions>(source)) {
    few.args.at("split").data = kSplits[0];  // of parts there would be none
  }
  Dataset dataset = read_source(few, data.base_dir);
  transform_dataset(dataset, data);
  take_own_targets(source, dataset);
  return dataset;
}

bool is_small_source(const ConfigObject& source, const DataConfig& data) {
  constexpr uint64_t kSmall = uint64_t{16} << 20;
  uint64_t bytes = 0;
  bool has_files = class_of_object(Category::kSource, source).is_generated;
  for (const Spec& arg : class_of_object(Category::kSource, source).args) {
    if (!names_files(arg)) {
      continue;
    }
    for (const Wanted& wanted : wanted_arrays(source.arg(arg.name), arg.name)) {
      for (const NamedFile& file : find_files(wanted.text, wanted.loc, data.base_dir)) {
        std::error_code error;
        if (!std::filesystem::is_regular_file(file.path, error)) {
          return std::filesystem::exists(file.path, error) ? false : true;  // read: an E300
        }
        bytes += std::filesystem::file_size(file.path, error);
        has_files = true;
      }
    }
  }
  return has_files && bytes <= kSmall;
}

void check_source_files(const ConfigObject& source, const DataConfig& data) {
  const auto folder = class_folder_of(source);
  Reads reads;
  for (const Spec& arg : class_of_object(Category::kSource, source).args) {
    if (!names_files(arg)) {
      continue;
    }
    for (const Wanted& wanted : wanted_arrays(source.arg(arg.name), arg.name)) {
      reads.run(wanted.loc, [&] {
        if (folder) {
          check_folder(resolve(data.base_dir, folder_of_masks(wanted.text)),
                       folder->labels != LabelMode::kNone, wanted.loc);
          return;
        }
        for (const NamedFile& file : find_files(wanted.text, wanted.loc, data.base_dir)) {
          open_input(file.path, "E300", "E300");
        }
      });
    }
  }
  reads.finish();
}

std::vector<std::string> source_paths(const ConfigObject& source, const DataConfig& data) {
  namespace fs = std::filesystem;
  constexpr size_t kMostFolders = 1000;
  std::vector<std::string> paths;
  std::error_code error;
  for (const Spec& arg : class_of_object(Category::kSource, source).args) {
    if (!names_files(arg) || source.arg(arg.name).is_null()) {
      continue;
    }
    for (const Wanted& wanted : wanted_arrays(source.arg(arg.name), arg.name)) {
      const std::string path = resolve(data.base_dir, wanted.text);
      if (fs::is_directory(path, error)) {
        paths.push_back(path);
        for (fs::directory_iterator at(path, error);
             !error && at != fs::directory_iterator() && paths.size() < kMostFolders;
             at.increment(error)) {
          if (at->is_directory(error)) {
            paths.push_back(at->path().string());
          }
        }
        continue;
      }
      try {
        for (const NamedFile& file : find_files(wanted.text, wanted.loc, data.base_dir)) {
          paths.push_back(file.path);
        }
      } catch (const ConfigError&) {  // a pattern without a match
      }
    }
  }
  std::erase_if(paths, [&](const std::string& path) { return !fs::exists(path, error); });
  return paths;
}

}  // namespace meshtrain
