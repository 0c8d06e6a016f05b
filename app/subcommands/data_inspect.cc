// meshtrain data inspect: what samples a config or a file has.
#include <optional>

#include "base/text.h"
#include "config_words.h"
#include "data/inspection.h"
#include "engine/run_data.h"
#include "engine/state_batches.h"
#include "output.h"
#include "subcommand.h"

namespace meshtrain {
namespace {

struct DataInspectOptions {
  ConfigWords config;  // or one file or folder
  std::string format = "text";
};

std::vector<InspectedPart> inspect_config(const ConfigWords& words) {
  Config config = load_config(words.load(true));
  config.data.nonfinite.value = Nonfinite::kAllow;  // they are counted here
  const bool drops = config.data.remainder == Remainder::kDrop;
  const auto batch = [&](const Located<int64_t>& own) {
    return own > 0 ? own.value : config.fit.batch_size.value;
  };
  const DataPart parts[] = {DataPart::kTrain, DataPart::kValidation, DataPart::kTest};
  const int64_t batches[] = {config.fit.batch_size.value, batch(config.fit.validation_batch_size),
                             batch(config.evaluate.batch_size)};
  const std::optional<ConfigObject>* const given[] = {&config.data.train, &config.data.validation,
                                                      &config.data.test};
  std::vector<InspectedPart> out;
  for (size_t i = 0; i < 3; ++i) {
    const bool is_split = (parts[i] == DataPart::kValidation && config.validates()) ||
                          (parts[i] == DataPart::kTest && config.data.split.test > 0);
    if (!given[i]->has_value() && !is_split) {
      continue;
    }
    // One part after the other: only one is in memory.
    const RunData data = load_run_data(config, parts[i] == DataPart::kTrain, parts[i]);
    out.push_back(inspect_dataset(std::string(data_part_name(parts[i])), *data.part(parts[i]),
                                  batches[i], i == 0 ? drops : drops_last_test(config)));
    if (given[i]->has_value()) {
      out.back().table = profile_source(**given[i], config.data);
    }
  }
  return out;
}

bool is_config(const std::vector<std::string>& words) {
  return words.size() > 1 || words[0] == "-" || ends_with(words[0], ".yaml") ||
         ends_with(words[0], ".yml");
}

int run_data_inspect(const DataInspectOptions& options, Invocation&) {
  const std::vector<std::string>& words = options.config.words;
  const std::vector<InspectedPart> parts =
      is_config(words) ? inspect_config(options.config) : std::vector{inspect_path(words[0])};
  out_stream().write(options.format == "json" ? inspection_json(parts) : inspection_text(parts));
  return 0;
}

}  // namespace

void add_data_inspect(Subcommands& to) {
  auto [app, options, subcommand] = to.add<DataInspectOptions>(
      "data inspect",
      "Samples, shapes, dtypes, ranges and class counts of a config's data, or of a file or folder",
      run_data_inspect);
  options.config.add_named_to(app, Steps::kNone, "CONFIG|FILE|FOLDER",
                              "A config (- is standard input), or a data file or folder");
  add_format_flag(app, options.format);
  add_color_flag(app);
}

}  // namespace meshtrain
