// Sources of windows over ids: text, tokens.
#include "base/text.h"
#include "config/source_like.h"
#include "data/characters.h"
#include "data/learned.h"
#include "data/source_files.h"
#include "data/sources.h"
#include "data/splits.h"
#include "data/windows.h"

namespace meshtrain {
namespace {

std::vector<std::string> paths_of(const ConfigObject& source, const std::string& base_dir) {
  std::vector<std::string> paths;
  for (NamedFile& file : find_files(source.arg("path"), base_dir)) {
    paths.push_back(std::move(file.path));
  }
  return paths;
}

std::vector<TextInput> texts_of(const ConfigObject& source, const std::string& base_dir) {
  std::vector<TextInput> texts;
  for (const std::string& path : paths_of(source, base_dir)) {
    texts.push_back(text_in_file(path));
  }
  return texts;
}

// The windows of the ids that the source's slice leaves.
void add_source_windows(const ConfigObject& source, const IdsPtr& ids, Dataset& dataset) {
  using Targets = WindowSettings::Targets;
  WindowSettings settings;
  settings.length = source.integer("sequence_length");
  settings.stride = source.has("stride") ? source.integer("stride") : settings.length;
  settings.targets = !source.has("target")               ? Targets::kNone
                     : source.string("target") == "last" ? Targets::kLast
                                                         : Targets::kSequence;
  std::pair<int64_t, int64_t> part = {0, ids->size()};
  SourceLoc loc = source.loc_of("path");
  if (source.has("slice")) {
    loc = source.loc_of("slice");
    part = parse_slice(source.string("slice"), ids->size(), loc);
    dataset.description += " " + source.string("slice");
  }
  dataset.is_sliced = true;
  add_windows(ids, part.first, part.second, settings, loc, dataset);
}

// Returns the characters in the order of their ids: the known or given ones, else those of the
// training data. Throws E324 when `characters` are given and differ from the known ones.
Vocabulary vocabulary_of(const ConfigObject& source, const std::string& base_dir,
                         const TextContent& content, const LearnedData* known) {
  const bool is_known = known != nullptr && !known->characters.empty();
  if (source.has("characters")) {
    const Vocabulary given =
        vocabulary_of(text_in_memory("characters", source.string("characters")));
    if (is_known && given != known->characters) {
      throw ConfigError("E324", source.loc_of("characters"),
                        "`characters` are not those of the training data")
          .help("leave them out: ids are always those of the training data");
    }
    return given;
  }
  if (is_known) {
    return known->characters;
  }
  if (source.has("characters_file")) {
    return vocabulary_of(text_in_file(resolve(base_dir, source.string("characters_file"))));
  }
  const ConfigObject* const train = training_source(source);
  if (train == nullptr) {
    return content.vocabulary;
  }
  Vocabulary characters;
  Reads reads;
  reads.run(train->loc_of("path"),
            [&] { characters = read_content(texts_of(*train, base_dir)).vocabulary; });
  reads.finish();
  return characters;
}

}  // namespace

Dataset read_text_source(const ConfigObject& source, const std::string& base_dir,
                         const LearnedData* known) {
  Dataset dataset;
  Reads reads;
  reads.run(source.loc_of("path"), [&] {
    IdsPtr ids;
    if (source.string("vocabulary") == "bytes") {
      dataset.description = fmt::format("text {}, bytes", shown_paths(source.arg("path")));
      ids = ids_in_files(paths_of(source, base_dir), DType::kUInt8, 256, source.loc_of("path"));
    } else {
      const std::vector<TextInput> texts = texts_of(source, base_dir);
      const TextContent content = read_content(texts);
      const Vocabulary vocabulary = vocabulary_of(source, base_dir, content, known);
      dataset.description =
          fmt::format("text {}, {} characters", shown_paths(source.arg("path")), vocabulary.size());
      ids = ids_in_memory(encode(texts, vocabulary, content.size));
      dataset.learned =
          std::make_shared<LearnedData>(LearnedData{source.class_name, {}, vocabulary, {}});
    }
    add_source_windows(source, ids, dataset);
  });
  reads.finish();
  return dataset;
}

Dataset read_tokens_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  Reads reads;
  reads.run(source.loc_of("path"), [&] {
    const DType dtype = parse_dtype(source.string("dtype")).value();
    const int64_t vocabulary = source.has("vocabulary") ? source.integer("vocabulary") : 0;
    const IdsPtr ids =
        ids_in_files(paths_of(source, base_dir), dtype, vocabulary, source.loc_of("path"));
    dataset.description = fmt::format("tokens {}, {} of {}", shown_paths(source.arg("path")),
                                      format_thousands(ids->size()), dtype_name(dtype));
    add_source_windows(source, ids, dataset);
  });
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
