#include "data/draft_config.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/text.h"
#include "config/flow.h"
#include "data/draft_model.h"
#include "data/guess_source.h"
#include "data/image.h"
#include "data/image_listing.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestImage = 128;  // larger images are made smaller

HostTensor ids_of(const std::vector<int32_t>& labels) {
  HostTensor ids(DType::kInt32, {static_cast<int64_t>(labels.size())});
  std::copy(labels.begin(), labels.end(), ids.data<int32_t>());
  return ids;
}

// The folder of one part: F/train and F/val, or F itself.
std::optional<std::string> subfolder(const std::string& path,
                                     std::initializer_list<const char*> names) {
  std::error_code error;
  for (const char* const name : names) {
    if (fs::is_directory(path + "/" + name, error)) {
      return path + "/" + name;
    }
  }
  return std::nullopt;
}

bool has_folders(const std::string& path) {
  std::error_code error;
  fs::directory_iterator at(path, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->is_directory(error) && !at->path().filename().native().starts_with('.')) {
      return true;
    }
  }
  return false;
}

// A size that fits most images, whether any has colours, and how many cannot be read.
struct ImageForm {
  int64_t height = 0, width = 0;
  bool has_colours = false;
  size_t bad = 0;
};
ImageForm form_of(const std::vector<std::string>& paths) {
  constexpr size_t kLooked = 30;
  std::vector<int64_t> heights, widths;
  ImageForm form;
  const auto look_at = [&](const Image& image) {
    heights.push_back(image.height);
    widths.push_back(image.width);
    for (size_t at = 0; at + 2 < image.num_bytes() && !form.has_colours; at += 3) {
      const uint8_t* pixel = image.pixels.get() + at;
      form.has_colours = pixel[0] != pixel[1] || pixel[1] != pixel[2];
    }
  };
  const size_t looked = std::min(kLooked, paths.size());
  for (size_t i = 0; i < looked; ++i) {
    try {
      look_at(read_image(paths[i * paths.size() / looked], 3));
    } catch (const ConfigError&) {
      if (++form.bad == looked) {
        throw;
      }
    }
  }
  const auto middle = [](std::vector<int64_t>& sizes) {
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2),
                     sizes.end());
    return std::min(kLargestImage, sizes[sizes.size() / 2]);
  };
  form.height = middle(heights);
  form.width = middle(widths);
  return form;
}

std::string folder_config(const std::string& path) {
  const auto train = subfolder(path, {"train", "training"});
  auto validation = subfolder(path, {"val", "valid", "validation"});
  auto test = subfolder(path, {"test", "testing"});
  for (std::optional<std::string>* part : {&validation, &test}) {
    if (*part && !has_folders(**part)) {
      part->reset();  // images without classes are to be predicted
    }
  }
  const std::string folder = train && (validation || test || has_folders(*train)) ? *train : path;
  const ImageListing listing = list_images(folder, true, std::nullopt, false, {}, {});
  const ImageForm form = form_of(listing.paths);
  std::string out =
      draft_head(path, fmt::format("{} images of {} classes",
                                   format_thousands(static_cast<int64_t>(listing.paths.size())),
                                   listing.class_names.size()));
  out += fmt::format(
      "\ndata:\n  train:\n    source: image_folder\n    directory: {}\n"
      "    image_size: [{}, {}]  # others are made so\n    color_mode: {}\n",
      yaml_text(folder), form.height, form.width, form.has_colours ? "rgb" : "grayscale");
  out += form.bad == 0
             ? ""
             : fmt::format("    on_bad_record: skip  # {} of those looked at cannot be read\n",
                           form.bad);
  const auto count = static_cast<int64_t>(listing.paths.size());
  const std::string split =
      validation && folder != path
          ? fmt::format("  validation: {{source: image_folder, directory: {}}}\n",
                        yaml_text(*validation))
          : draft_split(count, largest_class_of(make_rows(ids_of(listing.labels))).value_or(0));
  out += split;
  out += test && folder != path
             ? fmt::format("  test: {{source: image_folder, directory: {}}}\n", yaml_text(*test))
             : "";
  const Shape sample = {form.height, form.width, form.has_colours ? 3 : 1};
  out += model_draft(sample, true, true, output_draft(Shape{}, true, sample), false);
  return out + draft_fit(count, 10, !split.empty());
}

std::string text_config(const std::string& path, const TextProfile& text) {
  const int64_t length = text.characters > 2000 ? 32 : 4;
  if (text.characters < 20 * length) {
    throw ConfigError(
        "E327", {},
        fmt::format("`{}` has {} characters, too few to learn from", path, text.characters));
  }
  const int64_t stride = std::max<int64_t>(1, text.characters / 200000);
  std::string out = draft_head(
      path, fmt::format("the next character of a text of {}", format_thousands(text.characters)));
  out += fmt::format(
      "\ndata:\n  train:\n    source: text\n    path: {0}\n    sequence_length: {1}\n"
      "    stride: {2}  # from one sample to the next\n    target: last\n"
      "    slice: \"[:90%]\"\n"
      "  validation: {{source: text, path: {3}, slice: \"[90%:]\"}}\n",
      yaml_text(path), length, stride, yaml_text(path));
  out += fmt::format(
      "\nmodel:\n  layers:\n    - Input: {{shape: [{}], dtype: int32}}\n"
      "    - Embedding: {{input_dim: =vocabulary_size(), output_dim: 16}}\n"
      "    - Flatten\n    - Dense: {{units: 128, activation: relu}}\n"
      "    - Dense: {{name: next, units: =vocabulary_size(), activation: softmax}}\n"
      "\ncompile:\n  optimizer: {{Adam: {{learning_rate: 0.003}}}}\n"
      "  loss: sparse_categorical_crossentropy\n  metrics: [accuracy]\n",
      length);
  return out + draft_fit(text.characters / stride, 3);
}

}  // namespace

std::string draft_head(const std::string& path, const std::string& what) {
  std::string name;
  for (const char c : fs::path(path).lexically_normal().stem().string()) {
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' ? c : '_';
  }
  return fmt::format(
      "# {}.\n# Drafted by `meshtrain init --from`; `meshtrain explain KEY` says what "
      "a key does.\nversion: 1\nname: {}\n",
      what, yaml_text(name.empty() ? "draft" : name));
}

std::string draft_split(int64_t samples, int64_t largest_class) {
  constexpr int64_t kLeast = 3;  // a fifth of fewer is rounded to none
  if (samples < kLeast) {
    return "";
  }
  return fmt::format("  split: {{validation: 0.2, seed: 1{}}}\n",
                     largest_class >= kLeast ? ", stratify: label" : "");
}

std::string draft_fit(int64_t samples, int epochs, bool validates) {
  const int64_t batch = samples >= 10000 ? 128
                        : samples >= 100 ? 32
                                         : std::max<int64_t>(1, samples / 4);
  return fmt::format(
      "\nfit: {{batch_size: {}, epochs: {}}}\n\ncallbacks:\n"
      "  - EarlyStopping: {{{}patience: 5, restore_best_weights: true}}\n"
      "\n# Several devices: `distribution: {{device_mesh: {{shape: [8]}}}}`\n",
      batch, epochs, validates ? "" : "monitor: loss, ");
}

std::string draft_config(const std::string& given, const std::string& label) {
  std::error_code error;
  const fs::path absolute = fs::absolute(given, error).lexically_normal();
  const std::string path = (absolute.has_filename() ? absolute : absolute.parent_path()).string();
  if (fs::is_directory(path, error)) {
    return folder_config(path);
  }
  char buffer[16] = {};
  const InputFile file = open_input(path, "E300", "E300");
  file.read_at(0, reinterpret_cast<std::byte*>(buffer),
               std::min<uint64_t>(file.size(), sizeof(buffer)));
  const std::string_view begin(buffer, sizeof(buffer));
  refuse_foreign_table(begin, path);
  if (begin.starts_with("PK\x03\x04")) {
    return draft_npz_config(path, label);
  }
  if (begin.starts_with("\x89HDF\r\n\x1a\n")) {
    return draft_hdf5_config(path, label);
  }
  if ((begin.starts_with("\x1f\x8b") && !is_packed_table(path, begin)) ||
      begin.starts_with(std::string_view("\0\0", 2))) {
    return draft_idx_config(path);
  }
  Guessed guessed = read_guessed(path, [](const std::string&, const Rows&, bool) {});
  if (guessed.table) {
    return draft_table_config(path, label);
  }
  if (guessed.text) {
    return text_config(path, *guessed.text);
  }
  if (starts_with(guessed.description, "tokens ")) {
    throw ConfigError("E327", {},
                      fmt::format("{}: no config can be drafted from it", guessed.description))
        .help(fmt::format("begin with `meshtrain init gpt2_124m` and write `path: {}` in `data`",
                          path));
  }
  throw ConfigError("E327", {},
                    fmt::format("{}: no config can be drafted from it", guessed.description))
      .help("drafts are made of tables, texts, .npz, HDF5 and IDX files, and folders of images");
}

}  // namespace meshtrain
