#include "data/draft_config.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/text.h"
#include "config/flow.h"
#include "data/guess_source.h"
#include "data/hdf5_rows.h"
#include "data/idx.h"
#include "data/image.h"
#include "data/image_listing.h"
#include "data/sources.h"
#include "tensor/npz.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeastImage = 8;      // pixels of a side: smaller arrays are no images
constexpr int64_t kLargestImage = 128;  // larger images are made smaller

// The first of `likely` among the names, in any case.
std::optional<std::string> find_name(const std::vector<std::string>& names,
                                     std::initializer_list<const char*> likely) {
  for (const char* const one : likely) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return to_lower(name.substr(name.rfind('/') + 1)) == one;  // also in a group of HDF5
    });
    if (found != names.end()) {
      return *found;
    }
  }
  return std::nullopt;
}

std::string convolutions() {
  return R"(    - Conv2D: {filters: 16, kernel_size: 3, padding: same, activation: relu}
    - MaxPooling2D: {padding: same}
    - Conv2D: {filters: 32, kernel_size: 3, padding: same, activation: relu}
    - MaxPooling2D: {padding: same}
    - Conv2D: {filters: 64, kernel_size: 3, padding: same, activation: relu}
    - GlobalAveragePooling2D
)";
}

std::string shape_text(const Shape& sample) {
  std::vector<std::string> sizes;
  for (const int64_t size : sample) {
    sizes.push_back(std::to_string(size));
  }
  return "[" + join(sizes, ", ") + "]";
}

// What follows the layers: the label's.
struct Head {
  std::string layers, compile;
};

// What targets of several numbers are.
enum class Targets : uint8_t { kNumbers, kOneHot, kMultiHot };

Head head_of(const std::optional<Shape>& label, bool are_classes, const Shape& sample,
             Targets targets = Targets::kNumbers) {
  if (!label) {
    const int64_t size = num_elements(sample);
    return {fmt::format("    - Flatten\n    - Dense: {{name: code, units: 32, activation: relu}}\n"
                        "    - Dense: {{units: {}}}\n    - Reshape: {{target_shape: {}}}\n",
                        size, shape_text(sample)),
            "  loss: mse\n"};
  }
  if (are_classes) {
    return {"    - Dense: {name: class, units: =num_classes(), activation: softmax}\n",
            "  loss: sparse_categorical_crossentropy\n  metrics: [accuracy]\n"};
  }
  if (targets != Targets::kNumbers) {
    const bool is_one = targets == Targets::kOneHot;
    return {fmt::format("    - Dense: {{name: class, units: {}, activation: {}}}\n",
                        num_elements(*label), is_one ? "softmax" : "sigmoid"),
            fmt::format("  loss: {}\n  metrics: [{}]\n",
                        is_one ? "categorical_crossentropy" : "binary_crossentropy",
                        is_one ? "accuracy" : "binary_accuracy")};
  }
  return {fmt::format("    - Dense: {{name: value, units: {}}}\n", num_elements(*label)),
          "  loss: mse\n  metrics: [mae]\n"};
}

// The model and all that follows for samples of a fixed shape.
std::string array_model(const Shape& sample, bool is_image, bool is_bytes, const Head& head,
                        bool is_own_target) {
  std::string layers = fmt::format("    - Input: {{shape: {}}}\n", shape_text(sample));
  if (!is_own_target) {
    layers +=
        is_image && sample.size() == 2
            ? fmt::format("    - Reshape: {{target_shape: [{}, {}, 1]}}\n", sample[0], sample[1])
            : "";
    layers += is_bytes             ? "    - Rescaling: {scale: =1/255}\n"
              : sample.size() == 1 ? "    - Normalization\n"
                                   : "";
    layers += is_image ? convolutions() : sample.size() > 1 ? "    - Flatten\n" : "";
    layers += is_image ? "" : "    - Dense: {units: 64, activation: relu}\n";
  }
  return "\nmodel:\n  layers:\n" + layers + head.layers +
         "\ncompile:\n  optimizer: {Adam: {learning_rate: 0.003}}\n" + head.compile;
}

// Arrays of an archive, or of IDX files: names in the source, and what they are.
struct ArraysDraft {
  std::string source;  // lines of data.train
  std::string parts;   // lines of data.validation and data.test
  bool validates = false;
  RowsPtr x, y;  // y: null for an autoencoder
};

// The number of samples of the largest class; nothing for labels that are no classes.
std::optional<int64_t> largest_class_of(const RowsPtr& labels) {
  if (labels == nullptr || labels->row_bytes() != dtype_size(labels->dtype())) {
    return std::nullopt;
  }
  bool are_classes = true;
  std::vector<int64_t> counts(1000);
  labels->for_each_block([&](int64_t, const HostTensor& block) {
    for (int64_t i = 0; i < block.size() && are_classes; ++i) {
      const double label = block.at(i);
      are_classes = label >= 0 && label < 1000 && label == static_cast<int64_t>(label);
      if (are_classes) {
        ++counts[static_cast<size_t>(label)];
      }
    }
  });
  if (!are_classes || (is_floating(labels->dtype()) && labels->size() == 0)) {
    return std::nullopt;
  }
  return *std::max_element(counts.begin(), counts.end());
}

// Rows of zeros and ones, one of these in each or any number.
Targets targets_of(const RowsPtr& labels) {
  if (labels == nullptr || labels->shape().size() != 2 || labels->shape()[1] < 2) {
    return Targets::kNumbers;
  }
  bool are_hot = true, has_one_each = true;
  labels->for_each_block([&](int64_t, const HostTensor& block) {
    const int64_t width = block.shape()[1];
    for (int64_t begin = 0; begin < block.size() && are_hot; begin += width) {
      double sum = 0;
      for (int64_t i = begin; i < begin + width; ++i) {
        are_hot = are_hot && (block.at(i) == 0 || block.at(i) == 1);
        sum += block.at(i);
      }
      has_one_each = has_one_each && sum == 1;
    }
  });
  return !are_hot ? Targets::kNumbers : has_one_each ? Targets::kOneHot : Targets::kMultiHot;
}

HostTensor ids_of(const std::vector<int32_t>& labels) {
  HostTensor ids(DType::kInt32, {static_cast<int64_t>(labels.size())});
  std::copy(labels.begin(), labels.end(), ids.data<int32_t>());
  return ids;
}

std::string arrays_config(const std::string& path, const ArraysDraft& draft) {
  const Shape sample(draft.x->shape().begin() + 1, draft.x->shape().end());
  const bool is_bytes = draft.x->dtype() == DType::kUInt8;
  const bool is_image = (sample.size() == 3 || (sample.size() == 2 && is_bytes)) &&
                        sample[0] >= kLeastImage && sample[1] >= kLeastImage;
  const std::optional<int64_t> largest_class = largest_class_of(draft.y);
  const bool are_classes = largest_class.has_value();
  std::optional<Shape> label;
  if (draft.y != nullptr) {
    label = Shape(draft.y->shape().begin() + 1, draft.y->shape().end());
  }
  if (label && label->size() > 1) {
    throw ConfigError("E327", {},
                      fmt::format("`{}`: no config is drafted for targets of the shape {}", path,
                                  shape_string(*label)))
        .help("drafts are made for a class, a number or a row of numbers of each sample");
  }
  std::string out = draft_head(
      path,
      fmt::format("{} samples of {}", format_thousands(draft.x->size()), shape_string(sample)));
  out += "\ndata:\n  train:\n" + draft.source;
  const std::string split =
      draft.validates ? "" : draft_split(draft.x->size(), largest_class.value_or(0));
  out += draft.parts + split;
  if (!label && is_bytes) {  // of samples and targets
    out += "  transform: [{Rescaling: {scale: =1/255}}]\n";
  }
  out += array_model(sample, is_image, is_bytes,
                     head_of(label, are_classes, sample, targets_of(draft.y)), !label);
  return out + draft_fit(draft.x->size(), 5, draft.validates || !split.empty());
}

// The names of arrays that belong to a part: "x_test", "test/images".
std::vector<std::string> names_of_part(const std::vector<std::string>& names,
                                       std::initializer_list<const char*> marks) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const std::string lower = to_lower(name);
    if (std::any_of(marks.begin(), marks.end(),
                    [&](const char* mark) { return lower.find(mark) != std::string::npos; })) {
      found.push_back(name);
    }
  }
  return found;
}

std::optional<std::string> find_samples(const std::vector<std::string>& names) {
  return find_name(names, {"x", "x_train", "x_val", "x_valid", "x_test", "images", "image",
                           "train_images", "test_images", "data", "features", "inputs"});
}

std::optional<std::string> find_labels(const std::vector<std::string>& names) {
  return find_name(names, {"y", "y_train", "y_val", "y_valid", "y_test", "labels", "label",
                           "train_labels", "test_labels", "target", "targets"});
}

// An archive of named arrays.
template <class RowsOf>
std::string archive_config(const std::string& path, const char* source,
                           const std::vector<std::string>& names, const std::string& label,
                           RowsOf&& rows_of) {
  const std::vector<std::string> validation = names_of_part(names, {"val"}),
                                 test = names_of_part(names, {"test"});
  std::vector<std::string> own = names;
  std::erase_if(own, [&](const std::string& name) {
    return std::find(validation.begin(), validation.end(), name) != validation.end() ||
           std::find(test.begin(), test.end(), name) != test.end();
  });
  const std::vector<std::string>& trained = find_samples(own) ? own : names;
  const auto x = find_samples(trained);
  const std::optional<std::string> y = label.empty() ? find_labels(trained) : std::optional(label);
  if (!x || (!label.empty() && std::find(names.begin(), names.end(), label) == names.end())) {
    throw ConfigError(
        "E310", {}, fmt::format("`{}` has no array {}", path, x ? "`" + label + "`" : "of samples"))
        .help(fmt::format("its arrays are {}; samples are looked for as x, x_train, images or data",
                          join(names, ", ")));
  }
  ArraysDraft draft;
  draft.source = fmt::format("    source: {}\n    path: {}\n    x: {}\n    y: {}\n", source,
                             yaml_text(path), yaml_text(*x), y ? yaml_text(*y) : yaml_text(*x));
  draft.x = rows_of(*x);
  draft.y = y ? rows_of(*y) : nullptr;
  const std::pair<const char*, const std::vector<std::string>*> parts[] = {
      {"validation", &validation}, {"test", &test}};
  for (const auto& [part, of_part] : parts) {
    const auto part_x = find_samples(*of_part), part_y = find_labels(*of_part);
    if (&trained == &own && label.empty() && y && part_x && part_y) {
      draft.parts += fmt::format("  {}: {{source: {}, path: {}, x: {}, y: {}}}\n", part, source,
                                 yaml_text(path), yaml_text(*part_x), yaml_text(*part_y));
      draft.validates = draft.validates || of_part == &validation;
    }
  }
  return arrays_config(path, draft);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.rfind(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// MNIST's images; their labels are beside them.
std::string idx_config(const std::string& path) {
  const std::string labels = replaced(replaced(path, "images", "labels"), "idx3", "idx1");
  std::error_code error;
  ArraysDraft draft;
  IdxOptions source;
  source.images.data = path;
  const bool has_labels = labels != path && fs::exists(labels, error);
  if (has_labels) {
    source.labels.data = labels;
  }
  const Dataset data = read_idx_source(source, {{}, "", nullptr});
  draft.source = fmt::format("    source: idx\n    images: {}\n    {}: {}\n", yaml_text(path),
                             has_labels ? "labels" : "y", has_labels ? yaml_text(labels) : "x");
  draft.x = data.inputs[0].rows;
  draft.y = has_labels ? data.targets[0].rows : nullptr;
  return arrays_config(path, draft);
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

// A size that fits most images, and whether any has colours.
struct ImageForm {
  int64_t height = 0, width = 0;
  bool has_colours = false;
};
ImageForm form_of(const std::vector<std::string>& paths) {
  constexpr size_t kLooked = 30;
  std::vector<int64_t> heights, widths;
  ImageForm form;
  for (size_t i = 0; i < std::min(kLooked, paths.size()); ++i) {
    const Image image = read_image(paths[i * paths.size() / std::min(kLooked, paths.size())], 3);
    heights.push_back(image.height);
    widths.push_back(image.width);
    for (size_t at = 0; at + 2 < image.num_bytes() && !form.has_colours; at += 3) {
      const uint8_t* pixel = image.pixels.get() + at;
      form.has_colours = pixel[0] != pixel[1] || pixel[1] != pixel[2];
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
  out += array_model(sample, true, true, head_of(Shape{}, true, sample), false);
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
    NpzReader archive(path);
    return archive_config(path, "npz", archive.names(), label, [&](const std::string& name) {
      HostTensor array = archive.read(name);
      if (array.shape().empty()) {
        throw ConfigError("E304", {},
                          fmt::format("`{}` of `{}` is a single number, no "
                                      "array of samples",
                                      name, path));
      }
      return make_rows(std::move(array));
    });
  }
  if (begin.starts_with("\x89HDF\r\n\x1a\n")) {
    const Hdf5File opened({path, {}});
    return archive_config(path, "hdf5", opened.names(), label,
                          [&](const std::string& name) { return opened.rows(name); });
  }
  if ((begin.starts_with("\x1f\x8b") && !is_packed_table(path, begin)) ||
      begin.starts_with(std::string_view("\0\0", 2))) {
    return idx_config(path);
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
