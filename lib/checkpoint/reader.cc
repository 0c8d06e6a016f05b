#include "checkpoint/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "checkpoint/json.h"
#include "checkpoint/non_finite.h"
#include "checkpoint/writer.h"
#include "config/run_files.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr size_t kMostOpen = 128;  // at once: the limit of a process may be low

// Whether an error says that something is not there as it was saved: gone, cut short, of another
// kind. Others (no permission, a disk that fails, too many open files) say nothing of what is
// there.
bool is_damage(int error_number) {
  return error_number == 0 || error_number == ENOENT || error_number == ENOTDIR ||
         error_number == EISDIR || error_number == ELOOP || error_number == ENXIO;
}

// Translates read errors of files.
template <class F>
auto with_file_errors(const std::string& path, F&& read) {
  try {
    return read();
  } catch (const FileError& error) {
    read_error(is_damage(error.error_number()) ? "E404" : "E409", path, "{}", error.what());
  }
}

InputFile open_file(const std::string& path) {
  try {
    return InputFile(path, InputFile::Links::kRefuse);
  } catch (const FileError& error) {
    if (!is_damage(error.error_number())) {
      throw ConfigError("E409", {}, error.what());
    }
  }
  return open_input(path, "E404", "E406", InputFile::Links::kRefuse);  // says what is there
}

// As is_real_folder(), where the system can tell.
bool is_folder_here(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0) {
    return S_ISDIR(status.st_mode);
  }
  if (!is_damage(errno)) {
    throw ConfigError("E409", {}, FileError(ExitCode::kData, "cannot read", path, errno).what());
  }
  return false;
}

std::string read_text(const std::string& path, uint64_t limit) {
  return with_file_errors(path, [&] {
    const InputFile file = open_file(path);
    if (file.size() > limit) {
      read_error("E402", path, "{} bytes; at most {} are read", file.size(), limit);
    }
    std::string text(file.size(), '\0');
    file.read_at(0, reinterpret_cast<std::byte*>(text.data()), text.size());
    return text;
  });
}

std::string read_checked(const std::string& path, const CheckpointFile& file) {
  const std::string name = std::filesystem::path(path).filename().string();
  const std::string text = read_text(path, max_text_bytes(name));
  if (checksum128(std::as_bytes(std::span(text))) != file.xxh3_128) {
    read_error("E404", path, "its checksum does not match: the file was changed");
  }
  return text;
}

std::string first_message(const ConfigError& error) {
  const Diagnostic& first = error.diagnostics().list().front();
  return fmt::format("[{}] {}", first.code, first.message);
}

}  // namespace

CheckpointReader::CheckpointReader(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') {
    path_.pop_back();
  }
  if (!is_folder_here(path_)) {
    throw ConfigError("E400", {}, fmt::format("there is no checkpoint `{}`", path_));
  }
  const std::string manifest = path_ + "/manifest.json";
  manifest_ = parse_manifest(read_text(manifest, kMaxManifest), manifest);
  const std::filesystem::path place(path_);
  const std::string name = place.filename().string();
  // In other folders a number may be an epoch's (ModelCheckpoint).
  const bool says_step =
      place.parent_path().filename() == run_files::kCheckpoints && step_of_name(name) >= 0;
  if (says_step && step_of_name(name) != manifest_.step) {
    read_error("E402", manifest, "it is of step {}, not of {}", manifest_.step, name);
  }
  check_files();
  const auto state = manifest_.files.find("state.json");
  if (state == manifest_.files.end()) {
    read_error("E402", manifest, "it names no state.json");
  }
  const std::string state_path = path_ + "/state.json";
  state_ = parse_state(read_checked(state_path, state->second), state_path);
  check_shard_files();
}

void CheckpointReader::check_files() const {
  for (const char* folder : {"model", "optimizer"}) {
    if (!is_folder_here(path_ + "/" + folder)) {
      read_error("E406", path_, "`{}` is no folder", folder);
    }
  }
  for (const auto& [name, file] : manifest_.files) {
    const std::string path = path_ + "/" + name;
    const uint64_t size = open_file(path).size();
    if (size != file.size) {
      read_error("E404", path, "{} bytes, {} were written{}", size, file.size,
                 size < file.size ? ": truncated?" : "");
    }
  }
}

void CheckpointReader::check_shard_files() const {
  struct Place {
    const CheckpointTensor* tensor;
    const CheckpointShard* shard;
  };
  std::map<std::string_view, std::vector<Place>> files;
  for (const CheckpointTensor& tensor : manifest_.tensors) {
    for (const CheckpointShard& shard : tensor.shards) {
      if (!manifest_.files.contains(shard.file)) {
        read_error("E402", path_ + "/manifest.json", "it has no checksum of `{}`", shard.file);
      }
      files[shard.file].push_back({&tensor, &shard});
    }
  }
  for (const auto& [name, places] : files) {
    const std::string path = fmt::format("{}/{}", path_, name);
    open_file(path);  // for what it says when the system refuses
    const SafetensorsReader file = with_file_errors(path, [&] { return SafetensorsReader(path); });
    std::map<std::string_view, const SafetensorsReader::Entry*> entries;
    for (const SafetensorsReader::Entry& entry : file.entries()) {
      entries[entry.name] = &entry;
    }
    for (const auto& [tensor, shard] : places) {
      const auto found = entries.find(tensor->path);
      const SafetensorsReader::Entry* entry = found == entries.end() ? nullptr : found->second;
      if (entry == nullptr || entry->dtype != tensor->dtype || entry->shape != shard->shape ||
          entry->begin != shard->begin || entry->begin + entry->num_bytes != shard->end) {
        read_error("E405", path, "its header and the manifest say different things about `{}`",
                   tensor->path);
      }
    }
    if (files.size() <= kMostOpen) {  // open files outlive a rename of the checkpoint
      opened(std::string(name));
    }
  }
}

const InputFile& CheckpointReader::opened(const std::string& file) const {
  const auto found = open_.find(file);
  if (found != open_.end()) {
    return found->second;
  }
  if (open_.size() == kMostOpen) {
    open_.clear();
  }
  const std::string path = path_ + "/" + file;
  return open_.emplace(file, open_file(path)).first->second;
}

int64_t CheckpointReader::num_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, file] : manifest_.files) {
    bytes += static_cast<int64_t>(file.size);
  }
  return bytes;
}

std::string CheckpointReader::text(const std::string& name) const {
  const auto found = manifest_.files.find(name);
  return found == manifest_.files.end() ? "" : read_checked(path_ + "/" + name, found->second);
}

const CheckpointTensor* CheckpointReader::find(std::string_view path) const {
  const auto found =
      std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                   [&](const CheckpointTensor& tensor) { return tensor.path == path; });
  return found == manifest_.tensors.end() ? nullptr : &*found;
}

size_t CheckpointReader::read_block(const CheckpointTensor& tensor, const CheckpointShard& shard,
                                    size_t block, std::byte* to) const {
  const std::string path = path_ + "/" + shard.file;
  const size_t at = block * kChecksumBlock;
  const size_t bytes = std::min<size_t>(kChecksumBlock, shard.end - shard.begin - at);
  with_file_errors(path, [&] { opened(shard.file).read_at(shard.begin + at, to, bytes); });
  if (hash_bytes(to, bytes) != shard.blocks[block]) {
    read_error("E404", path, "block {} of `{}` does not match its checksum (bytes {} to {})", block,
               tensor.path, shard.begin + at, shard.begin + at + bytes - 1);
  }
  return bytes;
}

namespace {

bool reaches_into(const CheckpointShard& shard, std::span<const int64_t> offset,
                  const Shape& shape) {
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shard.offset[d] + shard.shape[d] <= offset[d] || offset[d] + shape[d] <= shard.offset[d]) {
      return false;
    }
  }
  return true;
}

// The part of two boxes of a tensor that is in both, and its runs: elements that are contiguous in
// either.
struct Overlap {
  Overlap(const CheckpointShard& shard, std::span<const int64_t> offset, const Shape& shape) {
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t begin = std::max(shard.offset[d], offset[d]);
      const int64_t end = std::min(shard.offset[d] + shard.shape[d], offset[d] + shape[d]);
      size.push_back(std::max<int64_t>(end - begin, 0));
      in_shard.push_back(begin - shard.offset[d]);
      in_box.push_back(begin - offset[d]);
    }
  }

  // f(first element in the shard, first element in the box, elements), in ascending order.
  template <class F>
  void for_each_run(const Shape& shard, const Shape& box, F&& f) const {
    const std::vector<int64_t> shard_strides = row_major_strides(shard);
    const std::vector<int64_t> box_strides = row_major_strides(box);
    // The dimensions after `split` are whole in both.
    size_t split = size.size();
    while (split > 0 && size[split - 1] == shard[split - 1] && size[split - 1] == box[split - 1]) {
      --split;
    }
    int64_t run = 1, runs = 1;
    for (size_t d = 0; d < size.size(); ++d) {
      (d + 1 >= split ? run : runs) *= size[d];
    }
    const size_t outer = split == 0 ? 0 : split - 1;
    for (int64_t r = 0; r < (run == 0 ? 0 : runs); ++r) {
      int64_t from = 0, to = 0, rest = r;
      for (size_t d = size.size(); d-- > 0;) {
        const int64_t at = d < outer ? rest % size[d] : 0;
        rest = d < outer ? rest / size[d] : rest;
        from += (in_shard[d] + at) * shard_strides[d];
        to += (in_box[d] + at) * box_strides[d];
      }
      f(from, to, run);
    }
  }

  Shape size;
  std::vector<int64_t> in_shard, in_box;  // where it begins
};

}  // namespace

HostTensor CheckpointReader::read(const CheckpointTensor& tensor) const {
  HostTensor whole(tensor.dtype, tensor.shape);
  const std::vector<int64_t> origin(tensor.shape.size(), 0);
  read_box(tensor, origin, tensor.shape, whole.bytes());
  return whole;
}

void CheckpointReader::read_box(const CheckpointTensor& tensor, std::span<const int64_t> offset,
                                const Shape& shape, std::byte* to) const {
  const size_t item = dtype_size(tensor.dtype);
  std::vector<std::byte> block;
  for (const CheckpointShard& shard : tensor.shards) {
    if (!reaches_into(shard, offset, shape)) {
      continue;
    }
    size_t loaded = shard.blocks.size();  // which one is in `block`: none
    const auto copy = [&](int64_t first, int64_t place, int64_t count) {
      size_t at = static_cast<size_t>(first) * item;
      std::byte* out = to + static_cast<size_t>(place) * item;
      for (size_t left = static_cast<size_t>(count) * item; left > 0;) {
        if (at / kChecksumBlock != loaded) {
          loaded = at / kChecksumBlock;
          block.resize(std::min<size_t>(kChecksumBlock, shard.end - shard.begin));
          block.resize(read_block(tensor, shard, loaded, block.data()));
        }
        const size_t begin = at % kChecksumBlock;
        const size_t bytes = std::min(left, block.size() - begin);
        out = std::copy_n(block.data() + begin, bytes, out);
        at += bytes;
        left -= bytes;
      }
    };
    Overlap(shard, offset, shape).for_each_run(shard.shape, shape, copy);
  }
}

void CheckpointReader::verify_tensor(const CheckpointTensor& tensor,
                                     std::vector<std::byte>& buffer) const {
  buffer.resize(kChecksumBlock);
  NonFinite found;
  for (const CheckpointShard& shard : tensor.shards) {
    for (size_t b = 0; b < shard.blocks.size(); ++b) {
      const size_t bytes = read_block(tensor, shard, b, buffer.data());
      found += non_finite(tensor, std::span(buffer).first(bytes));
    }
  }
  if (found.any()) {
    read_error("E414", path_, "`{}` has {} values", tensor.path, in_words(found));
  }
}

void CheckpointReader::verify_file(const std::string& name, const CheckpointFile& expected) const {
  const std::string path = path_ + "/" + name;
  with_file_errors(path, [&] {
    const InputFile file = open_file(path);
    std::vector<std::byte> block(std::min<uint64_t>(kChecksumBlock, expected.size));
    Checksum128 sum;
    for (uint64_t at = 0; at < expected.size; at += block.size()) {
      const size_t bytes = std::min<uint64_t>(block.size(), expected.size - at);
      file.read_at(at, block.data(), bytes);
      sum.update(std::span(block).first(bytes));
    }
    if (sum.hex() != expected.xxh3_128) {
      read_error("E404", path, "its checksum does not match: the file was changed");
    }
  });
}

void CheckpointReader::verify() const {
  std::vector<std::byte> buffer;
  for (const CheckpointTensor& tensor : manifest_.tensors) {
    verify_tensor(tensor, buffer);  // says where; what no tensor covers is found below
  }
  for (const auto& [name, file] : manifest_.files) {
    verify_file(name, file);
  }
}

int64_t step_of_name(std::string_view name) {
  const auto step = parse_number<uint64_t>(name);
  return step && name.size() <= 18 ? static_cast<int64_t>(*step) : -1;
}

bool is_checkpoint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::exists(fs::path(path) / "manifest.json", error) ||
         (step_of_name(fs::path(path).filename().string()) >= 0 && is_real_folder(path) &&
          !fs::exists(fs::path(path) / run_files::kMetrics, error));  // a run may have such a name
}

std::vector<int64_t> checkpoint_steps(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const std::string& name : folder_names(folder)) {
    const int64_t step = step_of_name(name);
    if (step >= 0 && name == checkpoint_name(step) && is_real_folder(folder + "/" + name)) {
      steps.push_back(step);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

namespace {

// Throws E409 where the system does not say which checkpoints there are.
void check_listed(const std::string& folder) {
  int error_number = 0;
  for (const std::string& name : folder_names(folder, &error_number)) {
    if (step_of_name(name) >= 0) {
      is_folder_here(folder + "/" + name);
    }
  }
  if (!is_damage(error_number)) {
    throw ConfigError("E409", {},
                      FileError(ExitCode::kData, "cannot read", folder, error_number).what());
  }
}

}  // namespace

bool is_only_not_read(const ConfigError& error) {
  const std::string& code = error.diagnostics().list().front().code;
  return code == "E408" || code == "E409";
}

NewestCheckpoint newest_checkpoint(const std::string& folder, const CheckpointCheck& check) {
  check_listed(folder);
  NewestCheckpoint out;
  std::vector<std::string> reasons;
  for (const int64_t step : checkpoint_steps(folder)) {
    const std::string path = folder + "/" + checkpoint_name(step);
    try {
      auto reader = std::make_unique<CheckpointReader>(path);
      check(*reader);
      out.reader = std::move(reader);
      break;
    } catch (const ConfigError& error) {
      if (std::error_code none; !std::filesystem::exists(path, none) && !none) {
        return newest_checkpoint(folder, check);
      }
      if (is_only_not_read(error)) {
        throw;
      }
      out.damaged.push_back(step);
      reasons.push_back(first_message(error));
    }
  }
  for (size_t i = 0; i < out.damaged.size(); ++i) {
    const int64_t step = out.damaged[i];
    out.warnings.push_back(
        out.reader
            ? fmt::format("checkpoint {} is damaged; step {} is taken, {} steps are lost: {}",
                          checkpoint_name(step), out.reader->manifest().step,
                          step - out.reader->manifest().step, reasons[i])
            : fmt::format("checkpoint {} is damaged: {}", checkpoint_name(step), reasons[i]));
  }
  return out;
}

}  // namespace meshtrain
