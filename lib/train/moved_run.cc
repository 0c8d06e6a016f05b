#include "train/moved_run.h"

#include <algorithm>
#include <filesystem>

#include "config/config_changes.h"
#include "config/flow.h"
#include "record/run_dir.h"
#include "record/run_meta.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// `data.dir` of a resolved config; "" where it has none.
std::string data_dir_of(const SourceFile& config) {
  for (const auto& [key, value] : config_values(config.text)) {
    if (key == "data.dir") {
      return value;
    }
  }
  return "";
}

}  // namespace

void follow_move(const std::string& place, LoadOptions& options) {
  std::error_code error;
  fs::path run = fs::canonical(place, error);
  if (!is_run_dir(run.string())) {  // a checkpoint
    run = run.parent_path().parent_path();
  }
  const fs::path data = options.source ? data_dir_of(*options.source) : "";
  if (!data.is_absolute() || fs::exists(data, error)) {
    return;
  }
  for (const std::string& place_before : former_places(run.string())) {
    const fs::path now = (run / data.lexically_relative(place_before)).lexically_normal();
    if (fs::is_directory(now, error)) {
      options.overrides.insert(options.overrides.begin(),
                               fmt::format("data.dir={}", yaml_text(now.string())));
      return;
    }
  }
}

}  // namespace meshtrain
