#include "record/predicted_masks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/diagnostic.h"
#include "base/file.h"
#include "data/image.h"
#include "record/run_dir.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostNumbers = 256;  // of eight bits

// The folder around all files.
fs::path common_folder(const std::vector<std::string>& files) {
  fs::path common = fs::path(files.front()).parent_path();
  const auto is_around = [&](const std::string& file) {
    const fs::path rest = fs::path(file).lexically_relative(common.empty() ? "." : common);
    return !rest.empty() && *rest.begin() != "..";
  };
  while (!common.empty() && common.has_relative_path() &&
         !std::all_of(files.begin(), files.end(), is_around)) {
    common = common.parent_path();
  }
  return common;
}

// "in/a.png" of each sample; of two files a.jpg and a.png the second keeps its whole name.
std::vector<fs::path> names_of_masks(const std::vector<std::string>& files, int64_t samples) {
  std::vector<fs::path> names;
  std::set<fs::path> taken;
  const fs::path common = files.empty() ? fs::path() : common_folder(files);
  for (int64_t i = 0; i < samples; ++i) {
    fs::path name = fmt::format("{}", i), short_name = name;
    if (!files.empty()) {
      const std::string& file = files[static_cast<size_t>(i)];
      name = common.empty() ? fs::path(file) : fs::path(file).lexically_relative(common);
      short_name = name.parent_path() / name.stem();
    }
    short_name += ".png";
    name += ".png";
    names.push_back(taken.insert(short_name).second ? short_name : name);
    taken.insert(names.back());
  }
  return names;
}

Image mask_of(const Predictions& predictions, int64_t sample, const std::vector<int64_t>& numbers) {
  const HostTensor& output = predictions.outputs.front().tensor;
  Image mask = make_image(output.shape()[1], output.shape()[2], 1);
  const auto pixels = static_cast<int64_t>(mask.num_bytes());
  for (int64_t i = 0; i < pixels; ++i) {
    const int64_t id = predicted_class(predictions.classes.front(), output, sample * pixels + i).id;
    mask.pixels.get()[i] =
        static_cast<uint8_t>(numbers.empty() ? id : numbers[static_cast<size_t>(id)]);
  }
  return mask;
}

}  // namespace

bool are_masks(const std::string& path, const std::string& format) {
  std::error_code error;
  return format == "png" ||
         (format.empty() && (path.ends_with('/') || fs::is_directory(path, error)));
}

void check_masks_folder(const std::string& path, const std::vector<ClassOutput>& classes,
                        const std::vector<Shape>& outputs) {
  const bool is_one = outputs.size() == 1 && outputs[0].size() == 4 &&
                      classes[0].kind != ClassOutput::Kind::kNone &&
                      outputs[0].back() <= kMostNumbers;
  if (!is_one) {
    throw ConfigError("E140", {},
                      fmt::format("`--output {}` is a folder for masks, which need a model whose "
                                  "only output has a class for each pixel, of at most {}",
                                  path, kMostNumbers))
        .help("end it with .npy, .npz, .csv or .jsonl");
  }
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    throw ConfigError("E142", {}, fmt::format("`--output {}` is no folder", path));
  }
  Diagnostics diagnostics;
  check_can_make(path, {}, diagnostics);
  diagnostics.throw_if_errors();
}

void check_masks_replace_nothing(const std::string& folder, const std::vector<std::string>& files,
                                 const std::vector<std::string>& kept) {
  std::error_code error;
  for (const std::string& other : kept) {
    if (fs::equivalent(folder, other, error)) {
      throw ConfigError("E140", {},
                        fmt::format("`--output {}` holds masks of the config's data", folder))
          .help("name another folder for the predictions");
    }
  }
  std::multimap<fs::path, const std::string*> by_name;
  for (const std::string& file : files) {
    by_name.emplace(fs::path(file).filename(), &file);
  }
  for (const fs::path& name : names_of_masks(files, std::ssize(files))) {
    const auto [first, last] = by_name.equal_range(name.filename());
    for (auto same = first; same != last; ++same) {
      if (fs::equivalent(fs::path(folder) / name, *same->second, error)) {
        throw ConfigError(
            "E140", {},
            fmt::format("`--output {}` would replace `{}` of --input", folder, *same->second))
            .help("name another folder for the predictions");
      }
    }
  }
}

bool write_masks(const std::string& folder, const Predictions& predictions,
                 const std::vector<int64_t>& numbers) {
  const Shape& shape = predictions.outputs.front().tensor.shape();
  const bool is_yes_no = predictions.classes.front().kind == ClassOutput::Kind::kYesNo;
  const int64_t classes = is_yes_no ? 2 : shape.back();
  const bool has_numbers =
      std::ssize(numbers) == classes &&
      std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n < kMostNumbers; });
  const std::vector<int64_t> shown = has_numbers ? numbers : std::vector<int64_t>();
  const std::vector<fs::path> names = names_of_masks(predictions.files, shape[0]);
  for (int64_t i = 0; i < shape[0]; ++i) {
    const fs::path path = fs::path(folder) / names[static_cast<size_t>(i)];
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      throw FileError(ExitCode::kWriteFailed, "cannot create", path.parent_path().native(),
                      error.value());
    }
    write_file_atomic(path.native(), std::string_view(encode_png(mask_of(predictions, i, shown))));
  }
  return has_numbers;
}

}  // namespace meshtrain
