// Sources of windows over ids: text, tokens.
#include <algorithm>

#include "base/file.h"
#include "base/text.h"
#include "config/source_like.h"
#include "data/characters.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/splits.h"
#include "data/tokenizer/tokenizer.h"
#include "data/windows.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;  // of a file that is encoded in memory

std::vector<std::string> paths_of(const ConfigValue& path, const std::string& base_dir) {
  std::vector<std::string> paths;
  for (NamedFile& file : find_files(path, base_dir)) {
    paths.push_back(std::move(file.path));
  }
  return paths;
}

std::vector<TextInput> texts_of(const ConfigValue& path, const std::string& base_dir) {
  std::vector<TextInput> texts;
  for (const std::string& file : paths_of(path, base_dir)) {
    texts.push_back(text_in_file(file));
  }
  return texts;
}

// Throws E314 for a separator that no id can be; 0: any number of ids.
void check_separator(const WindowOptions& source, int64_t vocabulary) {
  if (const auto separator = source.document_separator.value;
      separator && vocabulary > 0 && *separator >= vocabulary) {
    throw ConfigError("E314", source.document_separator.loc,
                      fmt::format("`document_separator` is {}, but the vocabulary has {} ids",
                                  *separator, format_thousands(vocabulary)));
  }
}

// The known tokenizer, else that of the config's folder: the text of its tokenizer.json.
std::string tokenizer_text(const TextOptions& source, const SourceContext& context) {
  return context.known != nullptr && !context.known->tokenizer.empty()
             ? context.known->tokenizer
             : read_tokenizer_text(resolve(context.base_dir, source.tokenizer()));
}

// The ids of whole files, one file after the other.
IdsPtr tokens_of(const std::vector<std::string>& paths, Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& path : paths) {
    tokenizer.encode(read_utf8(open_input(path, "E300", "E300").path(), kMaxTextBytes), ids, path);
  }
  HostTensor tensor(tokenizer.size() <= 65536 ? DType::kUInt16 : DType::kUInt32,
                    {static_cast<int64_t>(ids.size())});
  if (tensor.dtype() == DType::kUInt16) {
    std::copy(ids.begin(), ids.end(), tensor.data<uint16_t>());
  } else {
    std::copy(ids.begin(), ids.end(), tensor.data<uint32_t>());
  }
  return ids_in_memory(std::move(tensor));
}

// Bytes of the files for each of their ids.
double bytes_for_each(const IdsPtr& ids, const std::vector<std::string>& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : paths) {
    bytes += open_input(path, "E300", "E300").size();
  }
  return static_cast<double>(bytes) / static_cast<double>(ids->size());
}

// The windows of the ids that the source's slice leaves.
void add_source_windows(const WindowOptions& source, const IdsPtr& ids, Dataset& dataset) {
  const int64_t length = source.sequence_length.value();
  const WindowSettings settings{length, source.stride.value_or(length), source.target,
                                source.document_separator.value};
  std::pair<int64_t, int64_t> part = {0, ids->size()};
  SourceLoc loc = source.path.loc;
  if (const auto& slice = source.slice.value) {
    loc = source.slice.loc;
    part = parse_slice(*slice, ids->size(), loc);
    dataset.description += " " + *slice;
  }
  dataset.is_sliced = true;
  dataset.ranges = {{"", part.first, part.second}};
  add_windows(ids, part.first, part.second, settings, loc, dataset);
}

// Returns the characters in the order of their ids: the known or given ones, else those of the
// training data. Throws E324 when `characters` are given and differ from the known ones.
Vocabulary vocabulary_of(const TextOptions& source, const SourceContext& context,
                         const TextContent& content) {
  const bool is_known = context.known != nullptr && !context.known->characters.empty();
  if (!source.characters->empty()) {
    const Vocabulary given = vocabulary_of(text_in_memory("characters", source.characters.value));
    if (is_known && given != context.known->characters) {
      throw ConfigError("E324", source.characters.loc,
                        "`characters` are not those of the training data")
          .help("leave them out: ids are always those of the training data");
    }
    return given;
  }
  if (is_known) {
    return context.known->characters;
  }
  if (!source.characters_file.empty()) {
    return vocabulary_of(text_in_file(resolve(context.base_dir, source.characters_file)));
  }
  const ConfigObject* const train = training_source(context.source);
  if (train == nullptr) {
    return content.vocabulary;
  }
  const ConfigValue& path = train->arg("path");
  Vocabulary characters;
  Reads reads;
  reads.run(path.loc,
            [&] { characters = read_content(texts_of(path, context.base_dir)).vocabulary; });
  reads.finish();
  return characters;
}

}  // namespace

Dataset read_text_source(const TextOptions& source, const SourceContext& context) {
  Dataset dataset;
  Reads reads;
  reads.run(source.path.loc, [&] {
    IdsPtr ids;
    if (!source.tokenizer().empty()) {
      const auto learned = std::make_shared<LearnedData>();
      std::optional<Tokenizer> tokenizer;
      learned->source = context.source.class_name;
      Reads files;
      files.run(source.vocabulary.loc, [&] {
        learned->tokenizer = tokenizer_text(source, context);
        tokenizer.emplace(learned->tokenizer, source.tokenizer());
      });
      files.finish();
      check_separator(source, tokenizer->size());
      ids = tokens_of(paths_of(source.path, context.base_dir), *tokenizer);
      dataset.description =
          fmt::format("text {}, {} tokens of {}", shown_paths(source.path),
                      format_thousands(ids->size()), format_thousands(tokenizer->size()));
      dataset.learned = learned;
    } else if (source.has_bytes()) {
      dataset.description = fmt::format("text {}, bytes", shown_paths(source.path));
      check_separator(source, 256);
      ids = ids_in_files(paths_of(source.path, context.base_dir), DType::kUInt8, TokenHeader::kNone,
                         256, source.path.loc);
    } else {
      const std::vector<TextInput> texts = texts_of(source.path, context.base_dir);
      const TextContent content = read_content(texts);
      const Vocabulary vocabulary = vocabulary_of(source, context, content);
      check_separator(source, static_cast<int64_t>(vocabulary.size()));
      dataset.description =
          fmt::format("text {}, {} characters", shown_paths(source.path), vocabulary.size());
      ids = ids_in_memory(encode(texts, vocabulary, content.size));
      dataset.learned = std::make_shared<LearnedData>(
          LearnedData{context.source.class_name, {}, vocabulary, {}, {}});
    }
    add_source_windows(source, ids, dataset);
    dataset.bytes_per_token = bytes_for_each(ids, paths_of(source.path, context.base_dir));
  });
  reads.finish();
  return dataset;
}

Dataset read_tokens_source(const TokensOptions& source, const SourceContext& context) {
  Dataset dataset;
  Reads reads;
  reads.run(source.path.loc, [&] {
    const DType dtype = parse_dtype(source.dtype).value();
    check_separator(source, source.vocabulary.value_or(0));
    const IdsPtr ids = ids_in_files(paths_of(source.path, context.base_dir), dtype, source.header,
                                    source.vocabulary.value_or(0), source.path.loc);
    dataset.description = fmt::format("tokens {}, {} of {}", shown_paths(source.path),
                                      format_thousands(ids->size()), dtype_name(dtype));
    add_source_windows(source, ids, dataset);
    dataset.bytes_per_token = 0;
  });
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
