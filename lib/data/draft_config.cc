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
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

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
  const int64_t devices = batch & -batch;  // that divide it: a power of two
  return fmt::format(
             "\nfit: {{batch_size: {}, epochs: {}}}\n\ncallbacks:\n"
             "  - EarlyStopping: {{{}patience: 5, restore_best_weights: true}}\n",
             batch, epochs, validates ? "" : "monitor: loss, ") +
         (devices == 1 ? ""
                       : fmt::format("\n# Several devices: `distribution: {{device_mesh: {{shape: "
                                     "[{}]}}}}`\n",
                                     std::min<int64_t>(devices, 8)));
}

std::string draft_config(const std::string& given, const std::string& label) {
  std::error_code error;
  const fs::path absolute = fs::absolute(given, error).lexically_normal();
  const std::string path = (absolute.has_filename() ? absolute : absolute.parent_path()).string();
  if (fs::is_directory(path, error)) {
    return draft_folder_config(path);
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
      .help(
          "drafts are made of tables, texts, .npz, HDF5 and IDX files, and folders of images or "
          "texts");
}

}  // namespace meshtrain
