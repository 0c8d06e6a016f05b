#include "data/sources.h"

#include <algorithm>
#include <map>

#include "config/split.h"
#include "data/learned.h"
#include "data/splits.h"

namespace meshtrain {
namespace {

Dataset read_whole(const ConfigObject& source, const std::string& base_dir, const LearnedPtr& known,
                   const ReadLimits& limits) {
  const auto* const found = std::find_if(
      std::begin(kSourceReaders), std::end(kSourceReaders),
      [&](const SourceReader& entry) { return source.class_name == entry.class_name; });
  MESHTRAIN_CHECK(found != std::end(kSourceReaders), "no data source {}", source.class_name);
  const LearnedData* const like = learned_of(known, source);
  Dataset dataset = found->read({source, base_dir, like, limits});
  dataset.learned = like ? known : dataset.learned;
  dataset.loc = source.loc;
  if (source.args.contains("path") && source.arg("path").loc.file != source.loc.file) {
    dataset.loc = source.arg("path").loc;  // given on the command line
  }
  return dataset;
}

}  // namespace

Dataset read_source(const ConfigObject& source, const std::string& base_dir,
                    const LearnedPtr& known, const ReadLimits& limits) {
  if (!has_options<SplitOptions>(source)) {
    return read_whole(source, base_dir, known, limits);
  }
  const auto& [words, loc] = read_options<SplitOptions>(source).split;
  const SplitString split = parse_split(words, kSplits);
  MESHTRAIN_CHECK(split.problem.empty(), "{}", split.problem);
  std::map<std::string, Dataset> wholes;  // by split
  std::vector<Dataset> parts;
  std::vector<SourceRange> ranges;
  for (const SplitPart& part : split.parts) {
    if (wholes.count(part.split) == 0) {
      ConfigObject bare = source;
      bare.args["split"].data = part.split;
      wholes[part.split] = read_whole(bare, base_dir, known, limits);
    }
    parts.push_back(wholes.at(part.split));
    std::pair<int64_t, int64_t> range = {0, parts.back().inputs.at(0).rows->size()};
    if (!part.slice.empty()) {
      range = parse_slice(part.slice, range.second, loc);
      parts.back() = cut_dataset(std::move(parts.back()), range.first, range.second);
    }
    ranges.push_back({part.split, range.first, range.second});
  }
  Dataset joined = join_datasets(std::move(parts));
  joined.ranges = std::move(ranges);
  return joined;
}

}  // namespace meshtrain
