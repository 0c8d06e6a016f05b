// The source lines: each line of a text is a sample.
#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "base/text_lines.h"
#include "config/source_like.h"
#include "data/learned.h"
#include "data/packed_text.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxLinesBytes = uint64_t{4} << 30;  // of a file

// The known tokenizer, else that of the config's folder: the text of its tokenizer.json.
std::string tokenizer_text(const LinesOptions& source, const SourceContext& context) {
  return context.known != nullptr ? context.known->tokenizer
                                  : read_tokenizer_text(resolve(context.base_dir, source.folder()));
}

// The ids of all lines that are not empty, at most `length` of each.
PackedTextsPtr packed_lines(const std::vector<NamedFile>& files, TextPacker& packer,
                            int64_t length) {
  auto texts = std::make_shared<PackedTexts>();
  texts->padding = packer.padding();
  int64_t bytes = 0, tokens = 0;
  for (const auto& [path, loc] : files) {
    const std::string text = read_utf8(open_input(path, "E300", "E300").path(), kMaxLinesBytes);
    for (const auto& [line, number] : text_lines(text)) {
      tokens += packer.append(line, fmt::format("{}, line {}", path, number), length, texts->ids);
      bytes += std::ssize(line);
      texts->begins.push_back(std::ssize(texts->ids));
    }
  }
  texts->bytes_per_token =
      static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(tokens, 1));
  return texts;
}

// Ids, and those that follow them: x = ids[:-1], y = ids[1:], and weight 1 where y is no padding.
void add_arrays(const PackedTextsPtr& texts, int64_t length, bool has_targets, Dataset& dataset) {
  std::vector<int32_t> counts, counts_behind;
  for (int64_t i = 0; i < texts->size(); ++i) {
    const auto at = static_cast<size_t>(i);
    counts.push_back(static_cast<int32_t>(texts->begins[at + 1] - texts->begins[at]));
    counts_behind.push_back(counts.back() - 1);
  }
  dataset.inputs.push_back({"x", packed_rows(texts, length)});
  add_padding_inputs(counts, length, dataset);
  if (has_targets) {
    dataset.targets.push_back({"y", packed_rows(texts, length, 1)});
    dataset.sample_weight = padding_mask(std::move(counts_behind), length, DType::kFloat32);
  }
}

}  // namespace

Dataset read_lines_source(const LinesOptions& source, const SourceContext& context) {
  Dataset dataset;
  const auto learned = std::make_shared<LearnedData>();
  std::optional<TextPacker> packer;
  Reads tokenizer;
  tokenizer.run(source.vocabulary.loc, [&] {
    learned->source = context.source.class_name;
    learned->tokenizer = tokenizer_text(source, context);
    packer.emplace(learned->tokenizer, source.folder(), source);
  });
  tokenizer.finish();
  Reads files;
  files.run(source.path.loc, [&] {
    const bool has_targets = source.target.has_value();
    const int64_t length = source.max_length.value.value();
    // Lines to predict are cut as those that were trained on.
    const ConfigObject* const train = training_source(context.source);
    const bool has_next =
        has_targets || (train != nullptr && read_options<LinesOptions>(*train).target.has_value());
    const PackedTextsPtr texts = packed_lines(find_files(source.path, context.base_dir), *packer,
                                              length + (has_next ? 1 : 0));
    dataset.description = fmt::format("lines {}, {} tokens of {}", shown_paths(source.path),
                                      format_thousands(std::ssize(texts->ids)),
                                      format_thousands(packer->tokenizer().size()));
    add_arrays(texts, length, has_targets, dataset);
    dataset.bytes_per_token = texts->bytes_per_token;
  });
  files.finish();
  dataset.learned = learned;
  return dataset;
}

}  // namespace meshtrain
