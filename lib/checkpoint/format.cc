#include "checkpoint/format.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/json.h"
#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "checkpoint/json.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr std::string_view kKinds[] = {"weight", "slot", "scalar", "metric"};
constexpr size_t kMaxRank = 8;
constexpr size_t kMaxShards = 16384;  // of a tensor: devices of the largest mesh
constexpr size_t kMaxFiles = 2 * kMaxShards + 64;

Json cursor_json(const DataCursor& cursor) {
  return {{"data", cursor.data},
          {"description", cursor.description},
          {"num_samples", cursor.num_samples},
          {"batch_size", cursor.batch_size},
          {"steps_per_epoch", cursor.steps_per_epoch},
          {"shuffle", cursor.shuffle},
          {"remainder", cursor.remainder},
          {"order_seed", cursor.seed}};
}

DataCursor parse_cursor(const Json& json, const std::string& path) {
  const JsonFields fields(json, path);
  DataCursor out;
  out.data = fields.text("data");
  out.description = fields.text("description");
  out.num_samples = fields.integer("num_samples");
  out.batch_size = fields.integer("batch_size");
  out.steps_per_epoch = fields.integer("steps_per_epoch");
  out.shuffle = fields.boolean("shuffle");
  out.remainder = fields.text("remainder");
  out.seed = fields.integer("order_seed");
  return out;
}

Json tensor_json(const CheckpointTensor& tensor) {
  Json shards = Json::array();
  for (const CheckpointShard& shard : tensor.shards) {
    Json blocks = Json::array();
    for (const uint64_t block : shard.blocks) {
      blocks.push_back(hex64(block));
    }
    shards.push_back({{"file", shard.file},
                      {"key", tensor.path},
                      {"offset", shard.offset},
                      {"shape", shard.shape},
                      {"bytes", {shard.begin, shard.end}},
                      {"xxh3_64", std::move(blocks)}});
  }
  return {{"path", tensor.path},           {"kind", tensor_kind_name(tensor.kind)},
          {"trainable", tensor.trainable}, {"dtype", dtype_name(tensor.dtype)},
          {"global_shape", tensor.shape},  {"layout", tensor.layout},
          {"pieces", std::move(shards)}};
}

// Files are in model/ or optimizer/ and have plain names.
bool is_shard_name(const std::string& name) {
  const size_t slash = name.find('/');
  if (slash == std::string::npos) {
    return false;
  }
  const std::string folder = name.substr(0, slash);
  const std::string file = name.substr(slash + 1);
  return (folder == "model" || folder == "optimizer") && file.find('/') == std::string::npos &&
         ends_with(file, ".safetensors") && file[0] != '.';
}

uint64_t parse_hex64(const Json& json, const std::string& path) {
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  const auto value = parse_number<uint64_t>(text, 16);
  if (text.size() != 16 || !value) {
    read_error("E402", path, "`xxh3_64` must be a list of 16 hexadecimal digits each");
  }
  return *value;
}

// Shards of one tensor, which are read before all of it is known.
struct ReadShards {
  std::string key;  // of each
  std::vector<CheckpointShard> list;
};

[[noreturn]] void stray_shard(const std::string& tensor, const std::string& path) {
  read_error("E402", path, "a shard of `{}` does not belong to it", printable(tensor));
}

void parse_shard(const Json& json, ReadShards& out, const std::string& path) {
  const JsonFields fields(json, path);
  CheckpointShard shard;
  shard.file = fields.text("file");
  if (!is_shard_name(shard.file)) {
    read_error("E406", path, "`{}` is no name of a shard", printable(shard.file));
  }
  const std::string key = fields.text("key");
  shard.offset = fields.sizes("offset");
  shard.shape = fields.sizes("shape");
  const std::vector<int64_t> bytes = fields.sizes("bytes");
  out.key = out.list.empty() ? key : out.key;
  if (key != out.key || shard.shape.size() > kMaxRank ||
      shard.offset.size() != shard.shape.size() || bytes.size() != 2 || bytes[1] < bytes[0]) {
    stray_shard(out.key, path);
  }
  shard.begin = static_cast<uint64_t>(bytes[0]);
  shard.end = static_cast<uint64_t>(bytes[1]);
  for (const Json& block : fields.at("xxh3_64")) {
    shard.blocks.push_back(parse_hex64(block, path));
  }
  const uint64_t size = shard.end - shard.begin;
  if (shard.blocks.size() != (size + kChecksumBlock - 1) / kChecksumBlock) {
    read_error("E402", path, "`{}` has {} checksums for {} bytes", printable(key),
               shard.blocks.size(), size);
  }
  if (out.list.size() == kMaxShards) {
    read_error("E402", path, "`{}` has more than {} shards", printable(key), kMaxShards);
  }
  out.list.push_back(std::move(shard));
}

CheckpointTensor parse_tensor(const Json& json, ReadShards shards, const std::string& path) {
  const JsonFields fields(json, path);
  CheckpointTensor out;
  out.path = fields.text("path");
  const std::string kind = fields.text("kind");
  const auto found = std::find(std::begin(kKinds), std::end(kKinds), kind);
  const std::optional<DType> dtype = parse_dtype(fields.text("dtype"));
  if (found == std::end(kKinds) || !dtype) {
    read_error("E402", path, "`{}` has kind `{}` and dtype `{}`, which this version does not know",
               printable(out.path), printable(kind), printable(fields.text("dtype")));
  }
  out.kind = static_cast<TensorKind>(found - std::begin(kKinds));
  out.dtype = *dtype;
  out.trainable = fields.boolean("trainable");
  const std::vector<int64_t> shape = fields.sizes("global_shape");
  if (shape.size() > kMaxRank) {
    read_error("E402", path, "`{}` has more than {} dimensions", printable(out.path), kMaxRank);
  }
  out.shape.assign(shape.begin(), shape.end());
  out.layout = fields.text("layout");
  if (!fields.at("pieces").is_array()) {
    read_error("E402", path, "`pieces` of `{}` must be a list", printable(out.path));
  }
  for (const CheckpointShard& shard : shards.list) {
    if (shards.key != out.path || shard.shape.size() != out.shape.size()) {
      stray_shard(out.path, path);
    }
  }
  out.shards = std::move(shards.list);
  check_tiling(out, path);
  return out;
}

std::string signature(std::vector<std::string> lines) {
  std::sort(lines.begin(), lines.end());
  const std::string text = join(lines, "");
  return checksum128(std::as_bytes(std::span(text)));
}

}  // namespace

std::string_view tensor_kind_name(TensorKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

std::string model_signature(const std::vector<CheckpointTensor>& tensors) {
  std::vector<std::string> lines;
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.kind == TensorKind::kWeight) {
      lines.push_back(fmt::format("{} {} {}\n", tensor.path, dtype_name(tensor.dtype),
                                  shape_string(tensor.shape)));
    }
  }
  return signature(std::move(lines));
}

std::string plan_signature(const std::vector<MeshAxis>& mesh,
                           const std::vector<CheckpointTensor>& tensors) {
  std::vector<std::string> lines;
  for (const CheckpointTensor& tensor : tensors) {
    lines.push_back(fmt::format("{} {}\n", tensor.path, tensor.layout));
  }
  std::string axes;
  for (const MeshAxis& axis : mesh) {
    axes += fmt::format("{}={} ", axis.name, axis.size);
  }
  lines.push_back(axes + "\n");
  return signature(std::move(lines));
}

std::string manifest_text(const Manifest& manifest) {
  Json files = Json::object(), axes = Json::array(), sizes = Json::array();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"size", file.size}, {"xxh3_128", file.xxh3_128}};
  }
  for (const MeshAxis& axis : manifest.mesh) {
    axes.push_back(axis.name);
    sizes.push_back(axis.size);
  }
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : manifest.tensors) {
    tensors.push_back(tensor_json(tensor));
  }
  Json json = {{"format", {{"major", manifest.major}, {"minor", manifest.minor}}},
               {"written_by", manifest.written_by},
               {"run_id", manifest.run_id},
               {"parent_run", manifest.parent_run},
               {"step", manifest.step},
               {"epoch", manifest.epoch},
               {"time", manifest.time},
               {"config_xxh3_128", manifest.config_checksum},
               {"model_signature", manifest.model_signature},
               {"plan_signature", manifest.plan_signature},
               {"mesh", {{"axes", std::move(axes)}, {"sizes", std::move(sizes)}}},
               {"tensors", std::move(tensors)},
               {"files", std::move(files)},
               {"cursor", cursor_json(manifest.cursor)},
               {"rng", {{"scheme", "philox-1"}, {"seed", manifest.cursor.seed}}},
               {"numbers", {{"finite", true}, {"loss", number_json(manifest.loss)}}}};
  if (manifest.processes > 1) {
    json["processes"] = manifest.processes;
  }
  return sealed_json(json);
}

namespace {

CheckpointFile parse_file(const std::string& name, const Json& json, const std::string& path) {
  const JsonFields fields(json, path);
  const bool is_text = name.find('/') == std::string::npos && !name.empty() && name[0] != '.';
  if (!is_text && !is_shard_name(name)) {
    read_error("E406", path, "`{}` is no name of a file here", printable(name));
  }
  CheckpointFile out{fields.natural("size"), fields.text("xxh3_128")};
  if (out.xxh3_128.size() != kSumDigits) {
    read_error("E402", path, "`xxh3_128` of `{}` must be {} hexadecimal digits", name, kSumDigits);
  }
  return out;
}

// Tensors and files.
void parse_entries(std::string_view text, const std::string& path, Manifest& out) {
  std::set<std::string> paths;
  ReadShards shards;
  const auto take_shard = [&](const std::string&, const Json& json) {
    parse_shard(json, shards, path);
  };
  const auto take_tensor = [&](const std::string&, const Json& json) {
    out.tensors.push_back(parse_tensor(json, std::exchange(shards, {}), path));
    if (!paths.insert(out.tensors.back().path).second) {
      read_error("E402", path, "tensor `{}` twice", printable(out.tensors.back().path));
    }
  };
  const auto take_file = [&](const std::string& name, const Json& json) {
    if (out.files.size() == kMaxFiles) {
      read_error("E402", path, "more than {} files", kMaxFiles);
    }
    out.files[name] = parse_file(name, json, path);
  };
  const EntryList lists[] = {
      {"tensors", "pieces", take_shard}, {"tensors", "", take_tensor}, {"files", "", take_file}};
  parse_bounded_json(text, path, lists);
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path) {
  check_seal(text, path, "manifest");
  // The format first: another one may have other tensors.
  const EntryList left_out[] = {
      {"tensors", "", nullptr}, {"tensors", "pieces", nullptr}, {"files", "", nullptr}};
  const Json json = parse_bounded_json(text, path, left_out);
  const JsonFields fields(json, path);
  Manifest out;
  const JsonFields format(fields.at("format"), path);
  out.major = static_cast<int>(std::min<int64_t>(format.integer("major"), 1 << 20));
  out.minor = static_cast<int>(std::min<int64_t>(format.integer("minor"), 1 << 20));
  if (out.major != kCheckpointMajor) {
    read_error("E408", path, "format {}, this build reads format {}: written by {}", out.major,
               kCheckpointMajor, printable(fields.text("written_by")));
  }
  out.written_by = fields.text("written_by");
  out.run_id = fields.text("run_id");
  out.parent_run = fields.text("parent_run");
  out.time = fields.text("time");
  out.step = fields.integer("step");
  out.epoch = fields.integer("epoch");
  out.config_checksum = fields.text("config_xxh3_128");
  out.model_signature = fields.text("model_signature");
  out.plan_signature = fields.has("plan_signature") ? fields.text("plan_signature") : "";
  out.processes = fields.has("processes") ? fields.integer("processes") : 1;
  const JsonFields mesh(fields.at("mesh"), path);
  const std::vector<int64_t> sizes = mesh.sizes("sizes");
  for (const Json& axis : mesh.at("axes")) {
    if (!axis.is_string() || out.mesh.size() >= sizes.size()) {
      read_error("E402", path, "`mesh` must have a name and a size for each axis");
    }
    out.mesh.push_back({axis.get<std::string>(), sizes[out.mesh.size()]});
  }
  if (!fields.at("tensors").is_array()) {
    read_error("E402", path, "`tensors` must be a list");
  }
  if (!fields.at("files").is_object() || !fields.at("files").empty()) {
    read_error("E402", path, "`files` must have an object for each file");
  }
  parse_entries(text, path, out);
  out.cursor = parse_cursor(fields.at("cursor"), path);
  out.loss = JsonFields(fields.at("numbers"), path).number("loss");
  return out;
}

std::string state_text(const TrainState& state) {
  const TrainPosition& at = state.position;
  Json callbacks = Json::object();
  for (const auto& [name, text] : state.callbacks) {
    callbacks[name] = parse_json(text);
  }
  Json json = {{"step", at.step},
               {"epoch", at.epoch},
               {"batch", at.batch},
               {"epoch_trained", at.epoch_trained},
               {"epoch_logs", logs_json(at.logs)},
               {"epoch_lists", lists_json(at.lists)},
               {"iterations", state.iterations},
               {"learning_rate", number_json(state.learning_rate)},
               {"cursor", cursor_json(state.cursor)},
               {"best",
                {{"monitor", state.monitor},
                 {"value", number_json(state.best)},
                 {"step", state.best_step < 0 ? Json() : Json(state.best_step)}}},
               {"callbacks", std::move(callbacks)}};
  if (at.timed_steps > 0) {
    json["epoch_time"] = {{"steps", at.timed_steps}, {"seconds", number_json(at.train_seconds)}};
  }
  return json_text(json, 1) + "\n";
}

TrainState parse_state(std::string_view text, const std::string& path) {
  const Json json = parse_bounded_json(text, path);
  const JsonFields fields(json, path);
  TrainState out;
  out.position.step = fields.integer("step");
  out.position.epoch = fields.integer("epoch");
  out.position.batch = fields.integer("batch");
  out.position.epoch_trained = fields.boolean("epoch_trained");
  out.position.logs = parse_logs(fields.at("epoch_logs"), path);
  out.position.lists = parse_lists(fields.at("epoch_lists"), path);
  if (fields.has("epoch_time")) {
    const JsonFields time(fields.at("epoch_time"), path);
    const int64_t steps = time.integer("steps");
    const double seconds = time.number("seconds");
    if (std::isfinite(seconds) && seconds >= 0) {  // else the epoch's speed is not shown
      out.position.timed_steps = steps;
      out.position.train_seconds = seconds;
    }
  }
  out.iterations = fields.integer("iterations");
  out.learning_rate = fields.number("learning_rate");
  out.cursor = parse_cursor(fields.at("cursor"), path);
  const JsonFields best(fields.at("best"), path);
  out.monitor = best.text("monitor");
  out.best = best.number("value");
  out.best_step = best.at("step").is_null() ? -1 : best.integer("step");
  for (const auto& [name, value] : fields.at("callbacks").items()) {
    out.callbacks[name] = json_text(value);
  }
  return out;
}

}  // namespace meshtrain
