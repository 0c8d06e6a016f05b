#include "checkpoint/part.h"

#include <algorithm>

#include "base/hash.h"
#include "base/json.h"
#include "checkpoint/json.h"
#include "checkpoint/non_finite.h"

namespace meshtrain {
namespace {

StringMap metadata(const Snapshot& snapshot, const Snapshot::File& file, int64_t step) {
  Json offsets = Json::object();
  for (const Snapshot::Shard& shard : file.shards) {
    const CheckpointTensor& tensor = snapshot.tensors()[shard.tensor];
    offsets[tensor.path] = {{"saved_offsets", tensor.shards[shard.index].offset}};
  }
  return {{"format", "pt"},
          {"DCP_VERSION", "1.0"},
          {"DCP_SHARDING_INFO", json_text(offsets)},
          {"meshtrain_step", std::to_string(step)}};
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

std::string part_text(const WrittenPart& part) {
  Json files = Json::object(), shards = Json::array();
  for (const auto& [name, file] : part.files) {
    files[name] = {file.size, file.xxh3_128};
  }
  for (const WrittenPart::Shard& shard : part.shards) {
    shards.push_back({shard.tensor, shard.index, shard.begin, shard.end, shard.blocks});
  }
  return json_text(Json{{"error", part.error},
                        {"non_finite", part.non_finite},
                        {"replicas", bytes_of(part.replicas)},
                        {"files", files},
                        {"pieces", shards}},
                   -1, Json::error_handler_t::replace);
}

WrittenPart parse_part(std::string_view text) {
  const Json json = parse_json(text);
  WrittenPart part{.error = json.at("error"),
                   .non_finite = json.at("non_finite"),
                   .replicas = {},
                   .files = {},
                   .shards = {}};
  const auto replicas = json.at("replicas").get<std::vector<uint8_t>>();
  part.replicas.assign(replicas.begin(), replicas.end());
  for (const auto& [name, file] : json.at("files").items()) {
    part.files[name] = {.size = file.at(0), .xxh3_128 = file.at(1)};
  }
  for (const Json& shard : json.at("pieces")) {
    part.shards.push_back({.tensor = shard.at(0),
                           .index = shard.at(1),
                           .begin = shard.at(2),
                           .end = shard.at(3),
                           .blocks = shard.at(4).get<std::vector<uint64_t>>()});
  }
  return part;
}

// The file is kept open: syncing all files together at the end takes little longer than one.
OutputFile& PartWriter::create(const std::string& name) {
  constexpr size_t kMostOpen = 64;
  if (open_.size() == kMostOpen) {
    sync_files();
  }
  if (gather_ != nullptr) {
    return *open_.emplace_back(gather_->create(name));
  }
  return *open_.emplace_back(std::make_unique<NewFile>(folder_ + "/" + name));
}

void PartWriter::written(const OutputFile& out, const std::string& name) {
  part_.files[name] = {out.size(), out.checksum()};
}

void PartWriter::sync_files() {
  for (const auto& each : open_) {
    each->finish();
  }
  open_.clear();
}

void PartWriter::sync() {
  sync_files();
  if (gather_ != nullptr) {
    return gather_->flush();
  }
  sync_folder(folder_ + "/model");
  sync_folder(folder_ + "/optimizer");
  sync_folder(folder_);
}

void PartWriter::write_text(const std::string& name, const std::string& text) {
  OutputFile& out = create(name);
  out.write(text);
  written(out, name);
}

void PartWriter::write_shard_files(const Snapshot& snapshot, int64_t step) {
  for (const Snapshot::File& file : snapshot.files()) {
    write_shard_file(snapshot, file, step);
  }
}

void PartWriter::write_shard_file(const Snapshot& snapshot, const Snapshot::File& file,
                                  int64_t step) {
  std::vector<TensorView> views;
  for (const Snapshot::Shard& shard : file.shards) {
    const CheckpointTensor& tensor = snapshot.tensors()[shard.tensor];
    views.push_back({tensor.path,
                     tensor.dtype,
                     tensor.shards[shard.index].shape,
                     {shard.data, shard.num_bytes}});
  }
  const SafetensorsHead head = make_safetensors_head(views, metadata(snapshot, file, step));
  OutputFile& out = create(file.name);
  out.write(head.bytes);
  for (const size_t i : head.order) {
    write_shard(snapshot.tensors()[file.shards[i].tensor], file.shards[i], out);
  }
  written(out, file.name);
}

void PartWriter::write_shard(const CheckpointTensor& tensor, const Snapshot::Shard& from,
                             OutputFile& out) {
  WrittenPart::Shard shard{.tensor = from.tensor,
                           .index = from.index,
                           .begin = out.size(),
                           .end = out.size() + from.num_bytes,
                           .blocks = {}};
  NonFinite found;
  for (size_t at = 0; at < from.num_bytes; at += kChecksumBlock) {
    const std::span<const std::byte> block(from.data + at,
                                           std::min(kChecksumBlock, from.num_bytes - at));
    found += non_finite(tensor, block);
    shard.blocks.push_back(hash_bytes(block.data(), block.size()));
    out.write(block);
  }
  if (part_.non_finite.empty() && found.any()) {
    part_.non_finite = fmt::format("{} has {}", tensor.path, in_words(found));
  }
  part_.shards.push_back(std::move(shard));
}

}  // namespace meshtrain
