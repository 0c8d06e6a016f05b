#include "train/callbacks/csv_logger.h"

#include <algorithm>
#include <filesystem>

#include "base/durable_file.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "record/csv_field.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTable = uint64_t{1} << 30;

int64_t size_of(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

// How many bytes at the beginning of `text` are the rows of the epochs from `epoch` on, one after
// the other, with a header before them or not.
size_t size_of_rows(std::string_view text, int64_t epoch, bool has_header, char separator) {
  size_t size = 0;
  std::string first = has_header ? "epoch" : std::to_string(epoch);
  while (starts_with(text.substr(size), first + separator)) {
    const size_t end = text.find('\n', size);
    size = end == std::string_view::npos ? text.size() : end + 1;
    first = std::to_string(has_header ? epoch : ++epoch);
    has_header = false;
  }
  return size;
}

}  // namespace

CsvLogger::CsvLogger(const CsvLoggerOptions& options, CallbackContext& context,
                     std::string state_name)
    : Callback(context, std::move(state_name)),
      name_(options.filename),
      path_(context.output(name_)),
      separator_(options.separator.value[0]),
      append_(options.append) {}

void CsvLogger::on_train_begin(const TrainPosition& at) {
  make_folders(fs::path(path_).parent_path().string());
  const int64_t size = size_of(path_);
  const bool appends = append_ && !(context().begins_again && is_within_run(name_));
  if (resumed_ && size > num_bytes_) {
    cut_back(at.epoch);
  } else if (resumed_ && size > 0 && size < num_bytes_) {
    context().warn(fmt::format("`{}` has lost rows since the checkpoint", path_));
  }
  if (!resumed_ || size == 0) {  // nothing there: a new run that begins from a checkpoint
    has_header_ = appends && size > 0;
    resumed_ = false;
  }
  if (size == 0) {
    keys_.clear();
  }
  old_keys_ = !keys_.empty();
  file_ = std::make_unique<LineLog>(path_, context().warn, appends || resumed_);
  num_bytes_ = size_of(path_);
  has_header_ = has_header_ || num_bytes_ > 0;  // another run's
}

// Takes out what this run wrote after the checkpoint: those epochs come again.
void CsvLogger::cut_back(int64_t epoch) const {
  const auto size = static_cast<size_t>(num_bytes_);
  if (!append_) {
    fs::resize_file(path_, size);
    return;
  }
  // Other runs may have added rows since, and cut theirs.
  std::string text = read_file(path_, kMaxTable);
  if (size > 0 && text[size - 1] != '\n') {
    context().warn(fmt::format("`{}` has other rows than at the checkpoint: all stay", path_));
    return;
  }
  text.erase(size,
             size_of_rows(std::string_view(text).substr(size), epoch, !has_header_, separator_));
  write_file_atomic(path_, text);
}

// Columns are those of the first row.
void CsvLogger::warn_of_left_out(const Logs& logs) {
  for (const auto& [name, value] : logs) {
    if (std::find(keys_.begin(), keys_.end(), name) == keys_.end()) {
      context().warn(fmt::format("`{}` has no column for `{}`, which is new since the checkpoint",
                                 path_, name));
      old_keys_ = false;  // said once
      return;
    }
  }
}

void CsvLogger::on_epoch_end(EpochReport& report) {
  if (keys_.empty()) {
    for (const auto& [name, value] : report.logs) {
      keys_.push_back(name);
    }
    std::sort(keys_.begin(), keys_.end());
    const bool validated = std::any_of(keys_.begin(), keys_.end(), [](const std::string& key) {
      return starts_with(key, "val_");
    });
    const size_t count = validated ? 0 : keys_.size();
    for (size_t i = 0; i < count; ++i) {
      keys_.push_back("val_" + keys_[i]);
    }
  }
  if (old_keys_ && context().writes) {
    warn_of_left_out(report.logs);
  }
  if (!has_header_) {
    std::vector<std::string> header = {"epoch"};
    header.insert(header.end(), keys_.begin(), keys_.end());
    write_row(header);
    has_header_ = true;
  }
  std::vector<std::string> row = {std::to_string(report.epoch - 1)};
  for (const std::string& key : keys_) {
    const double* value = find_log(report.logs, key);
    row.push_back(value == nullptr ? "NA" : python_float(*value));
  }
  write_row(row);
}

void CsvLogger::write_row(const std::vector<std::string>& fields) {
  std::string line;
  for (const std::string& field : fields) {
    line += (line.empty() ? "" : std::string(1, separator_)) + csv_field(field, separator_);
  }
  line += '\r';  // LineLog adds the rest of Python's "\r\n"
  file_->append(line);
  num_bytes_ += static_cast<int64_t>(line.size()) + 1;
}

void CsvLogger::on_train_end() {
  file_->close();
}

void CsvLogger::sync() {
  if (file_ == nullptr) {
    return;
  }
  file_->sync();
  if (!is_named_) {
    const std::string folder = fs::path(path_).parent_path().string();
    sync_folder(folder.empty() ? "." : folder);
    is_named_ = true;
  }
}

std::string CsvLogger::save_state() const {
  return json_text(nlohmann::json(
      {{"bytes", num_bytes_}, {"header", has_header_}, {"keys", keys_}, {"name", name_}}));
}

void CsvLogger::load_state(const std::string& json) {
  const nlohmann::json state = parse_json(json);
  if (state.at("name") != name_) {
    return;  // it writes another file now
  }
  num_bytes_ = state.at("bytes");
  has_header_ = state.at("header");
  keys_ = state.at("keys").get<std::vector<std::string>>();
  resumed_ = !append_ || context().same_run;  // rows of another run stay
}

}  // namespace meshtrain
