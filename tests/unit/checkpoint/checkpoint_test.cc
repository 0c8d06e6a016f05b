// Checkpoints on disk: format, protocol, reading back on other meshes, damage.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/durable_file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "checkpoint/non_finite.h"
#include "checkpoint/restore.h"
#include "checkpoint_case.h"
#include "config/load.h"
#include "support/instrumented.h"
#include "support/sampled.h"
#include "support/temp_folder.h"

namespace meshtrain {
namespace {

using test::caught;
using test::Stored;
using test::TempFolder;
namespace fs = std::filesystem;

bool same_bytes(const HostTensor& a, const HostTensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      out.push_back(fs::relative(entry.path(), folder).string());
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST_CASE("a checkpoint is a folder of shards with the texts and a manifest") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[6]);  // 2 x 2
  const SaveResult result = test::save_step(folder.path(), stored, 500);
  REQUIRE_MESSAGE(result.saved, result.error);
  CHECK(result.path == folder.file("000500"));
  std::vector<std::string> expected = {"config.resolved.yaml", "config.yaml", "layout.json",
                                       "manifest.json"};
  for (const char* kind : {"model", "optimizer"}) {
    for (int shard = 1; shard <= 4; ++shard) {
      expected.push_back(
          fmt::format("{}/shard-{:05}-model-00001-of-00001.safetensors", kind, shard));
    }
  }
  expected.push_back("state.json");
  CHECK(files_of(result.path) == expected);
  CHECK(folder.num_files() == 1);  // nothing else is left
}

TEST_CASE("files say where their shards begin, as PyTorch's reader requires") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[6]);
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  Shape end = {0, 0};
  for (int shard = 1; shard <= 4; ++shard) {
    const SafetensorsReader reader(folder.file(
        fmt::format("000001/model/shard-{:05}-model-00001-of-00001.safetensors", shard)));
    CHECK(reader.metadata().at("format") == "pt");
    CHECK(reader.metadata().at("DCP_VERSION") == "1.0");
    const auto sharding = parse_json(reader.metadata().at("DCP_SHARDING_INFO"));
    const auto offsets = sharding.at("d/kernel").at("saved_offsets").get<std::vector<int64_t>>();
    const auto* entry = reader.find("d/kernel");
    REQUIRE(entry != nullptr);
    CHECK(entry->shape == Shape{12, 24});
    CHECK(entry->begin % 4 == 0);
    for (size_t d = 0; d < 2; ++d) {  // the global size is the largest offset + shape
      end[d] = std::max(end[d], offsets[d] + entry->shape[d]);
    }
  }
  CHECK(end == Shape{24, 48});
}

TEST_CASE("every mesh reads what every other mesh wrote byte for byte") {
  for (const test::MeshCase& from : test::mesh_cases()) {
    const TempFolder folder;
    Stored writer(from);
    REQUIRE(test::save_step(folder.path(), writer, 7).saved);
    const CheckpointReader reader(folder.file("000007"));
    reader.verify();
    for (const test::MeshCase& to : test::mesh_cases()) {
      CAPTURE(from.kernel);
      CAPTURE(to.kernel);
      Stored restored(to, 99);
      for (size_t v = 0; v < restored.store.variables().size(); ++v) {
        const Variable& variable = restored.store.variables()[v];
        const CheckpointTensor* tensor = reader.find(checkpoint_path(variable));
        REQUIRE(tensor != nullptr);
        restored.store.write(static_cast<int>(v), reader.read(*tensor));
        CHECK(same_bytes(restored.store.read(static_cast<int>(v)), test::content_of(variable, 1)));
      }
    }
  }
}

TEST_CASE("state and manifest read back as they were written") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[7]);
  CheckpointNotes notes = test::notes_of(12);
  notes.state.position.epoch_trained = true;
  notes.state.position.logs = {{"accuracy", 0.1}, {"loss", std::nextafter(0.3, 1)}};
  notes.state.position.lists = {{"auc", {0.5, INFINITY}}};
  notes.state.position.timed_steps = 3;
  notes.state.position.train_seconds = 0.75;
  notes.state.learning_rate = 1e-3;
  notes.state.monitor = "val_loss";
  notes.state.best = -std::numeric_limits<double>::infinity();
  notes.state.best_step = 9;
  notes.state.cursor = {"00ff", "digits", 100, 32, 5, false, "drop", 42};
  notes.loss = 0.5;
  const Snapshot snapshot(stored.store);
  REQUIRE(write_checkpoint(folder.path(), snapshot, notes).saved);
  const CheckpointReader reader(folder.file("000012"));
  const TrainState& state = reader.state();
  CHECK(state.position == notes.state.position);
  CHECK(state.learning_rate == 1e-3);
  CHECK(state.best == notes.state.best);
  CHECK(state.best_step == 9);
  CHECK(state.cursor.data == "00ff");
  CHECK(state.cursor.remainder == "drop");
  CHECK(state.cursor.seed == 42);
  CHECK(parse_json(state.callbacks.at("EarlyStopping")) ==
        parse_json(notes.state.callbacks.at("EarlyStopping")));
  CHECK(reader.manifest().mesh.size() == 2);
  CHECK(reader.manifest().run_id == "0123abcd");
  CHECK(reader.find("d/kernel")->layout == "[b, a]");
  CHECK(reader.find("d/kernel")->shards.size() == 8);
  CHECK(reader.text("config.yaml") == "name: x\n");
  CHECK(reader.text("nothing.txt").empty());
}

TEST_CASE("a key that a checkpoint is older than had its default") {
  const TempFolder folder;
  LoadOptions options;
  options.require_data = false;
  options.source = std::make_shared<SourceFile>(
      SourceFile{"case.yaml", "model: {layers: [Input: {shape: [4]}, Dense: {units: 3}]}\n"});
  const std::string now = show_config(options, false);
  std::string old;
  for (const std::string& line : split(now, '\n')) {
    const bool is_new = line.find("auto_shard_dataset") != std::string::npos ||
                        line.find("use_bias") != std::string::npos;
    old += is_new ? "" : line + "\n";
  }
  CHECK(config_changes(old, now).size() == 2);
  const auto changes_of = [&](const std::string& recorded) {
    Stored stored(test::mesh_cases()[0]);
    CheckpointNotes notes = test::notes_of(1);
    notes.texts = {{"config.resolved.yaml", recorded}};
    const std::string path = folder.file(std::to_string(hash_text(recorded)));
    REQUIRE(replace_checkpoint(path, Snapshot(stored.store), notes).saved);
    return changes_since(CheckpointReader(path), now);
  };
  CHECK(changes_of(old).empty());
  const size_t epochs = old.find("epochs: 1\n");
  REQUIRE(epochs != std::string::npos);
  const std::vector<ConfigChange> changes = changes_of(old.replace(epochs, 9, "epochs: 7"));
  REQUIRE(changes.size() == 1);
  CHECK(changes[0].key == "fit.epochs");
  CHECK(changes_of("model: {layers: [Dense: {sides: 3}]}\n").size() > 50);  // cannot be read now
}

TEST_CASE("an added or removed class without arguments is reported") {
  const std::string none = "compile:\n  metrics: []\n  loss_weights: null\n";
  const std::string one =
      "compile:\n  metrics:\n    - acc:\n        name: null\n        dtype: null\n";
  CHECK(changes_text(config_changes(none, one)).find("  compile.metrics.0.acc  new\n") !=
        std::string::npos);
  CHECK(changes_text(config_changes(one, none)).find("  compile.metrics.0.acc  gone\n") !=
        std::string::npos);
  CHECK(changes_text(config_changes(one, none)).find("loss_weights") == std::string::npos);
}

TEST_CASE("signatures tell models and plans apart") {
  const TempFolder folder;
  const auto manifest_of = [&](size_t mesh, int64_t step) {
    Stored stored(test::mesh_cases()[mesh], static_cast<uint64_t>(step));
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
    return CheckpointReader(folder.path() + "/" + checkpoint_name(step)).manifest();
  };
  const Manifest first = manifest_of(6, 1), same = manifest_of(6, 2), other = manifest_of(7, 3);
  CHECK(first.plan_signature.size() == 32);
  CHECK(first.plan_signature == same.plan_signature);
  CHECK(first.plan_signature != other.plan_signature);
  CHECK(first.model_signature == other.model_signature);
  std::vector<CheckpointTensor> tensors = first.tensors;
  CHECK(plan_signature(first.mesh, tensors) == first.plan_signature);
  tensors[0].layout = "[a, null]";
  CHECK(plan_signature(first.mesh, tensors) != first.plan_signature);
}

TEST_CASE("a copy in flight does not see what training writes") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[3]);
  Snapshot snapshot(stored.store);
  snapshot.copy();
  stored.store.fill(0, 0);
  REQUIRE(write_checkpoint(folder.path(), snapshot, test::notes_of(1)).saved);
  const CheckpointReader reader(folder.file("000001"));
  CHECK(same_bytes(reader.read(*reader.find("d/kernel")),
                   test::content_of(stored.store.variables()[0], 1)));
}

TEST_CASE("a non-finite state is quarantined and never a checkpoint") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[1]);
  HostTensor bad = stored.store.read(3);
  bad.set(5, std::numeric_limits<double>::quiet_NaN());
  bad.set(700, std::numeric_limits<double>::infinity());
  stored.store.write(3, bad);
  const SaveResult result = test::save_step(folder.path(), stored, 4);
  CHECK_FALSE(result.saved);
  CHECK(result.non_finite.find("adam/d_kernel_momentum has 1 NaN") == 0);
  CHECK(checkpoint_steps(folder.path()).empty());
  CHECK(fs::exists(folder.file("rejected/000004/manifest.json")));
  const test::Caught refused =
      caught([&] { CheckpointReader(folder.file("rejected/000004")).verify(); });
  CHECK(refused.code == "E414");
  CHECK(refused.says("`adam/d_kernel_momentum` has 1 NaN and 1 infinite values"));
  CHECK_FALSE(test::save_step(folder.path(), stored, 5).saved);  // the newest one only is kept
  CHECK(folder_names(folder.file("rejected")) == std::vector<std::string>{"000005"});
}

TEST_CASE("what is no checkpoint is neither replaced nor deleted") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[1]);
  const auto save = [&](const char* name) {
    return replace_checkpoint(folder.file(name), Snapshot(stored.store), test::notes_of(1));
  };
  // A web page's folder has a manifest too.
  fs::create_directories(folder.file("page/model"));
  folder.write("page/manifest.json", "{}");
  const SaveResult refused = save("page");
  CHECK_FALSE(refused.saved);
  CHECK(refused.error.find("[E456]") == 0);
  CHECK(folder_names(folder.file("page")) == std::vector<std::string>{"manifest.json", "model"});
  REQUIRE(save("ours").saved);
  fs::create_directory_symlink(folder.file("ours"), folder.file("link"));
  CHECK_FALSE(save("link").saved);
  CHECK(save("ours").saved);
  // A folder of that name beside the user's models.
  fs::create_directories(folder.file("rejected/7"));
  folder.write("rejected/notes.txt", "mine");
  HostTensor bad = stored.store.read(3);
  bad.set(5, std::numeric_limits<double>::quiet_NaN());
  stored.store.write(3, bad);
  for (const int64_t step : {4, 5}) {
    const SaveResult result = test::save_step(folder.path(), stored, step);
    CHECK_FALSE(result.non_finite.empty());
    CHECK(result.error.empty());
  }
  CHECK(folder_names(folder.file("rejected")) ==
        std::vector<std::string>{"000005", "7", "notes.txt"});
}

TEST_CASE("a link takes the place of a link only") {
  const TempFolder folder;
  replace_link("a", folder.file("link"));
  replace_link("b", folder.file("link"));
  CHECK(fs::read_symlink(folder.file("link")) == "b");
  folder.write("file", "mine");
  CHECK_THROWS_AS(replace_link("a", folder.file("file")), FileError);
  CHECK(fs::is_regular_file(folder.file("file")));
  CHECK(folder.num_files() == 2);
}

TEST_CASE("NaN and infinity are counted in every floating type") {
  for (DType dtype :
       {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32}) {
    HostTensor x(dtype, {70});
    CheckpointTensor tensor;
    tensor.dtype = dtype;
    for (int64_t i = 0; i < x.size(); ++i)
      x.set(i, static_cast<double>(i));
    CHECK(non_finite(tensor, {x.bytes(), x.num_bytes()}).nan == 0);
    if (!is_floating(dtype))
      continue;
    x.set(3, std::numeric_limits<double>::quiet_NaN());
    x.set(66, std::numeric_limits<double>::infinity());
    x.set(69, -std::numeric_limits<double>::infinity());
    const NonFinite found = non_finite(tensor, {x.bytes(), x.num_bytes()});
    CHECK(found.nan == 1);
    CHECK(found.infinite == 2);
  }
}

TEST_CASE("a step that is there already is not replaced") {
  const TempFolder folder;
  Stored first(test::mesh_cases()[1], 1), second(test::mesh_cases()[1], 2);
  REQUIRE(test::save_step(folder.path(), first, 3).saved);
  const SaveResult again = test::save_step(folder.path(), second, 3);
  CHECK_FALSE(again.saved);
  CHECK(again.error.find("[E456] step 3 was not saved") == 0);
  CHECK(folder.num_files() == 1);
  const CheckpointReader reader(folder.file("000003"));
  CHECK(same_bytes(reader.read(*reader.find("d/bias")),
                   test::content_of(first.store.variables()[1], 1)));
}

test::Caught verified(const std::string& path) {
  return caught([&] { CheckpointReader(path).verify(); });
}

// What a reader says about `path`: "" when all is well.
std::string damage(const std::string& path) {
  return verified(path).code;
}

void check_refused(const std::string& path, const char* code, const std::string& says) {
  const test::Caught found = verified(path);
  CHECK(found.code == code);
  CHECK(found.exit_code == 6);
  CHECK_MESSAGE(found.says(says), found.text);
}

TEST_CASE("every flipped bit is found") {
  constexpr size_t kFlips = 10000, kStride = test::kIsInstrumented ? 40 : 10;
  const TempFolder folder;
  Stored stored(test::mesh_cases()[1]);
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  const std::string path = folder.file("000001");
  REQUIRE(damage(path).empty());
  const std::vector<std::string> files = files_of(path);
  for (const size_t round : test::sampled(kFlips, kStride)) {
    const uint64_t random = hash_mix(1, round);
    const std::string file = path + "/" + files[random % files.size()];
    const uint64_t size = fs::file_size(file);
    const uint64_t at = (random >> 16) % size;
    const unsigned bit = static_cast<unsigned>(random >> 8) % 8;
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto flip = [&] {
      stream.seekg(static_cast<std::streamoff>(at));
      const char byte = static_cast<char>(stream.get() ^ (1 << bit));
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(byte);
      stream.flush();
    };
    flip();
    const std::string code = damage(path);
    const std::string where = fmt::format("{} byte {} bit {}: {}", file, at, bit, code);
    REQUIRE_MESSAGE(code.substr(0, 2) == "E4", where);
    flip();
  }
  CHECK(damage(path).empty());
}

TEST_CASE("every truncation is found") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  const std::string path = folder.file("000001");
  for (const std::string& name : files_of(path)) {
    const std::string file = path + "/" + name;
    const std::string content = folder.read("000001/" + name);
    constexpr size_t kStride = test::kIsInstrumented ? 40 : 10;
    for (size_t size = content.size(); size-- > 0;) {  // downwards: growing would add zeros
      const bool at_an_end = size < 16 || size + 16 > content.size();
      if (!at_an_end && !test::is_sampled(size, kStride))
        continue;
      REQUIRE(::truncate(file.c_str(), static_cast<off_t>(size)) == 0);
      REQUIRE_MESSAGE(damage(path).substr(0, 2) == "E4", file << " cut to " << size);
    }
    std::ofstream(file, std::ios::binary) << content << "x";
    CHECK_MESSAGE(damage(path).substr(0, 2) == "E4", file << " with a byte too many");
    std::ofstream(file, std::ios::binary) << content;
  }
  CHECK(damage(path).empty());
}

TEST_CASE("links pipes and missing files are refused") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  const auto fresh = [&](int64_t step) {
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
    return folder.file(checkpoint_name(step));
  };
  const std::string shard = "/model/shard-00001-model-00001-of-00001.safetensors";
  const std::string linked = fresh(1);
  fs::rename(linked + shard, folder.file("elsewhere"));
  fs::create_symlink(folder.file("elsewhere"), linked + shard);
  check_refused(linked, "E406", shard + "` is a symbolic link");
  const std::string piped = fresh(2);
  fs::remove(piped + shard);
  REQUIRE(::mkfifo((piped + shard).c_str(), 0600) == 0);
  check_refused(piped, "E406", shard + "` is not a regular file");
  const std::string missing = fresh(3);
  fs::remove(missing + shard);
  check_refused(missing, "E404", shard + "`: No such file or directory");
  const std::string outside = fresh(4);
  fs::rename(outside + "/model", folder.file("model"));
  fs::create_directory_symlink(folder.file("model"), outside + "/model");
  check_refused(outside, "E406", "000004`: `model` is no folder");
  const std::string bare = fresh(5);
  fs::remove(bare + "/manifest.json");
  check_refused(bare, "E404", "/manifest.json`: No such file or directory");
  const std::string renamed = folder.file("checkpoints/000009");
  fs::create_directories(folder.file("checkpoints"));
  fs::copy(fresh(6), renamed, fs::copy_options::recursive);
  CheckpointReader(folder.file("000006/")).verify();
  fs::rename(folder.file("000006"), folder.file("9"));
  CHECK(CheckpointReader(folder.file("9")).manifest().step == 6);  // an epoch's number, perhaps
  check_refused(renamed, "E402", "manifest.json`: it is of step 6, not of 000009");
  check_refused(folder.file("000077"), "E400", "there is no checkpoint `" + folder.file("000077"));
  const std::string changed = fresh(7);
  std::string text = folder.read("000007/state.json");
  text[text.size() / 2] ^= 1;
  std::ofstream(changed + "/state.json", std::ios::binary) << text;
  check_refused(changed, "E404", "state.json`: its checksum does not match: the file was changed");
  const std::string cut = fresh(8);
  fs::resize_file(cut + shard, 100);
  check_refused(cut, "E404", " were written: truncated?");
  const std::string flipped = fresh(10);
  std::string bytes = folder.read("000010" + shard);
  bytes[bytes.size() - 3] ^= 16;
  std::ofstream(flipped + shard, std::ios::binary) << bytes;
  check_refused(flipped, "E404", "block 0 of `d/kernel` does not match its checksum (bytes ");
}

// A manifest with its checksum made to fit again after an edit, as a hostile writer would.
std::string with_checksum(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, from);
  text.replace(at, from.size(), to);
  const std::string tail = ",\n\"self_xxh3_128\": \"";
  const std::string body = text.substr(0, text.rfind(tail));
  return body + tail + checksum128(std::as_bytes(std::span(body))) + "\"\n}\n";
}

TEST_CASE("a manifest that lies is refused with the rule it breaks") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[6]);
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  const std::string path = folder.file("000001/manifest.json");
  const std::string good = folder.read("000001/manifest.json");
  struct Lie {
    const char *from, *to, *code, *says;
  };
  const std::string deep =
      "{\"x\":" + std::string(100, '[') + std::string(100, ']') + ",\"major\":1";
  const Lie lies[] = {
      {"\"major\":1", "\"major\":2", "E408",
       "format 2, this build reads format 1: written by meshtrain test"},
      {"\"major\":1", "\"major\":1,\"major\":1", "E402", "the key `major` twice"},
      {"{\"major\":1", deep.c_str(), "E402", "nested deeper than 32"},
      {"\"step\": 1", "\"step\": 1.0", "E402", "`step` must be a whole number from 0"},
      {"\"step\": 1", "\"step\": -1", "E402", "`step` must be a whole number from 0"},
      {"\"file\":\"model/shard", "\"file\":\"model/../../shard", "E406",
       "`model/../../shard-00001-model-00001-of-0...` is no name of a shard"},
      {"\"file\":\"model/shard", "\"file\":\"/etc/shard", "E406",
       "`/etc/shard-00001-model-00001-of-00001.sa...` is no name of a shard"},
      {"\"offset\":[0,0]", "\"offset\":[12,0]", "E407", "two shards of `d/kernel` overlap"},
      {"\"offset\":[12,24]", "\"offset\":[12,25]", "E407",
       "a shard of `d/kernel` ends at 49 of 48 along dimension 1"},
      {"\"global_shape\":[24,48]", "\"global_shape\":[24,9007199254740991]", "E407",
       "`d/kernel` has more elements than any file: (24, 9007199254740991)"},
      {"\"global_shape\":[24,48]", "\"global_shape\":[24,49]", "E407",
       "24 of the 1176 elements of `d/kernel` are in no file"},
      {"\"dtype\":\"float32\"", "\"dtype\":\"object\"", "E402",
       "`d/kernel` has kind `weight` and dtype `object`, which this version does not know"},
      {"\"path\":\"adam/iteration\"", "\"path\":\"adam/iterations\"", "E402",
       "a shard of `adam/iterations` does not belong to it"},
      {"\"state.json\":", "\"../state.json\":", "E406",
       "`../state.json` is no name of a file here"},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.to);
    folder.write("000001/manifest.json", with_checksum(good, lie.from, lie.to));
    check_refused(folder.file("000001"), lie.code, lie.says);
  }
  std::string edited = good;
  edited.replace(edited.find("\"step\": 1"), 9, "\"step\": 2");
  folder.write("000001/manifest.json", edited);
  check_refused(folder.file("000001"), "E403",
                "its checksum does not match: the manifest was changed");
  folder.write("000001/manifest.json", good.substr(0, good.size() / 2));
  check_refused(folder.file("000001"), "E402",
                "does not end as a manifest does: cut short or overwritten?");
  folder.write("000001/manifest.json", good);
  CHECK(damage(folder.file("000001")).empty());
  fs::resize_file(path, uint64_t{1} << 31);  // with a hole: no time and no memory is spent on it
  check_refused(folder.file("000001"), "E402", "2147483648 bytes; at most ");
}

TEST_CASE("a shard that is cut while it is open is damage so that the checkpoint before is taken") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  const CheckpointReader reader(folder.file("000001"));
  fs::resize_file(folder.file("000001/model/shard-00001-model-00001-of-00001.safetensors"), 100);
  CHECK(caught([&] { reader.verify(); }).exit_code == 6);
  CHECK(caught([&] { reader.read(*reader.find("d/kernel")); }).code == "E404");
}

// A tensor of rank 8 that is split over `shards` devices, each with its own file.
Manifest manifest_of_shards(size_t shards) {
  Manifest manifest;
  const auto size = static_cast<int64_t>(shards);
  CheckpointTensor tensor{.path = "d/kernel", .shape = {1, 1, 1, 1, 1, 1, 1, size}};
  for (size_t p = 0; p < shards; ++p) {
    const std::string file = fmt::format("model/shard-{:05}-model-00001-of-00001.safetensors", p);
    tensor.shards.push_back({.file = file,
                             .offset = {0, 0, 0, 0, 0, 0, 0, static_cast<int64_t>(p)},
                             .shape = {1, 1, 1, 1, 1, 1, 1, 1},
                             .begin = 64,
                             .end = 68,
                             .blocks = {p}});
    manifest.files[file] = {.size = 68, .xxh3_128 = std::string(32, 'a')};
    manifest.files["optimizer" + file.substr(5)] = {.size = 68, .xxh3_128 = std::string(32, 'b')};
  }
  manifest.tensors.push_back(std::move(tensor));
  return manifest;
}

TEST_CASE("tensors in as many shards as the largest mesh has devices are read") {
  const std::string text = manifest_text(manifest_of_shards(16384));
  const Manifest read = parse_manifest(text, "manifest.json");
  REQUIRE(read.tensors.size() == 1);
  REQUIRE(read.tensors[0].shards.size() == 16384);
  CHECK(read.tensors[0].shards[7].blocks == std::vector<uint64_t>{7});
  CHECK(read.files.size() == 2 * 16384);
  CHECK(manifest_text(read) == text);
  const test::Caught more =
      caught([] { parse_manifest(manifest_text(manifest_of_shards(16385)), "manifest.json"); });
  CHECK(more.code == "E402");
  CHECK_MESSAGE(more.says("`d/kernel` has more than 16384 shards"), more.text);
}

TEST_CASE("more shards than a process may have open files are read") {
  const TempFolder folder;
  Stored stored({{12, 24}, {"a", "b"}, "[a, b]", "[b]"});
  REQUIRE(test::save_step(folder.path(), stored, 1).saved);
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{200, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const test::Caught found = verified(folder.file("000001"));
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK_MESSAGE(found.code.empty(), found.text);
}

TEST_CASE("what nobody could read again is not saved") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  const Snapshot snapshot(stored.store);
  CheckpointNotes notes = test::notes_of(5);
  notes.state.callbacks["Mine"] = json_text(nlohmann::json(std::vector<int>(100000)));
  const SaveResult many = write_checkpoint(folder.path(), snapshot, notes);
  CHECK_FALSE(many.saved);
  CHECK_MESSAGE(
      many.error.find("[E423] step 5 was not saved: nobody could read it again: [E402] `") == 0,
      many.error);
  CHECK_MESSAGE(many.error.find("more than 100000 values") != std::string::npos, many.error);
  notes = test::notes_of(6);
  notes.texts[0].second = std::string((size_t{16} << 20) + 1, '#');
  const SaveResult large = write_checkpoint(folder.path(), snapshot, notes);
  CHECK_MESSAGE(large.error ==
                    "[E423] step 6 was not saved: `config.yaml` has 16777217 bytes; at "
                    "most 16777216 could be read again",
                large.error);
  CHECK(folder.num_files() == 0);
}

TEST_CASE("the newest checkpoint that verifies is taken and damaged ones are reported") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[1]);
  for (const int64_t step : {100, 200, 300}) {
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
  }
  fs::create_directory(folder.file("tmp.000400.0123abcd"));
  fs::create_directory_symlink(folder.file("000100"), folder.file("000500"));
  CHECK(checkpoint_steps(folder.path()) == std::vector<int64_t>{300, 200, 100});
  CHECK(newest_checkpoint(folder.path()).reader->manifest().step == 300);
  fs::resize_file(folder.file("000300/state.json"), 10);
  fs::remove_all(folder.file("000200/model"));
  const NewestCheckpoint found = newest_checkpoint(folder.path());
  REQUIRE(found.reader != nullptr);
  CHECK(found.reader->manifest().step == 100);
  CHECK(found.damaged == std::vector<int64_t>{300, 200});
  CHECK(found.warnings[0].find("step 100 is taken, 200 steps are lost") != std::string::npos);
  fs::remove(folder.file("000100/manifest.json"));
  CHECK(newest_checkpoint(folder.path()).reader == nullptr);
  CHECK(newest_checkpoint(folder.path()).damaged.size() == 3);
}

TEST_CASE("a checkpoint that is deleted while it is checked is none that is damaged") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  for (const int64_t step : {1, 2}) {
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
  }
  int checks = 0;
  const NewestCheckpoint found =
      newest_checkpoint(folder.path(), [&](const CheckpointReader& reader) {
        if (++checks == 1) {  // as a run does that has saved newer ones
          fs::remove_all(reader.path());
          REQUIRE(test::save_step(folder.path(), stored, 3).saved);
        }
        reader.verify();
      });
  REQUIRE(found.reader != nullptr);
  CHECK(found.reader->manifest().step == 3);
  CHECK(found.damaged.empty());
  CHECK(found.warnings.empty());
}

TEST_CASE("what a newer program wrote or cannot be read now is not passed over") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[6]);
  for (const int64_t step : {1, 2}) {
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
  }
  const std::string good = folder.read("000002/manifest.json");
  folder.write("000002/manifest.json", with_checksum(good, "\"major\":1", "\"major\":2"));
  const test::Caught newer = caught([&] { newest_checkpoint(folder.path()); });
  CHECK(newer.code == "E408");
  CHECK(newer.exit_code == 6);
  folder.write("000002/manifest.json", good);

  rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::open("/dev/null", O_RDONLY);
  ::close(next);
  for (const int more : {0, 1, 2, 4}) {  // files that may be opened
    CAPTURE(more);
    const rlimit few{static_cast<rlim_t>(next + more), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const test::Caught refused = caught([&] { newest_checkpoint(folder.path()); });
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(refused.code == "E409");
    CHECK(refused.exit_code == 6);
    CHECK_MESSAGE(refused.says("Too many open files"), refused.text);
  }
  CHECK(newest_checkpoint(folder.path()).reader->manifest().step == 2);
}

TEST_CASE("pruning keeps the newest and the pinned and never fewer than two") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  for (int64_t step = 1; step <= 7; ++step) {
    REQUIRE(test::save_step(folder.path(), stored, step).saved);
  }
  CHECK(prune_checkpoints(folder.path(), 3, {2}, "run").empty());
  CHECK(checkpoint_steps(folder.path()) == std::vector<int64_t>{7, 6, 5, 2});
  CHECK(prune_checkpoints(folder.path(), 0, {}, "run").empty());
  CHECK(checkpoint_steps(folder.path()) == std::vector<int64_t>{7, 6});
  CHECK(folder.num_files() == 2);
}

TEST_CASE("cleaning up takes what the run itself left and old things only") {
  const TempFolder folder;
  for (const char* name : {"tmp.000005.mine", "tmp.000006.other", "trash.000001.mine",
                           "tmp.000002.old", "000003", "tmp.note"}) {
    fs::create_directory(folder.file(name));
  }
  const timespec times[2] = {{time(nullptr) - 100000, 0}, {time(nullptr) - 100000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, folder.file("tmp.000002.old").c_str(), times, 0) == 0);
  const std::vector<std::string> said = clean_checkpoints(folder.path(), {"mine"});
  CHECK(folder_names(folder.path()) ==
        std::vector<std::string>{"000003", "tmp.000006.other", "tmp.note"});
  REQUIRE(said.size() == 2);
  CHECK(said[0] == "[E401] an unfinished save of step 2 was removed");
}

TEST_CASE("two processes cannot write checkpoints into one folder") {
  const TempFolder folder;
  const CheckpointLock lock(folder.path(), "first");
  const test::Caught second = caught([&] { CheckpointLock(folder.path(), "second"); });
  CHECK(second.code == "E455");
  CHECK(second.exit_code == 6);
  CHECK(second.says("run first pid"));
  const test::Caught reader = caught([&] { check_unlocked(folder.path()); });
  CHECK(reader.code == "E455");
  CHECK(reader.says("run first pid"));
  const TempFolder unused;
  check_unlocked(unused.path());
  CHECK(unused.num_files() == 0);
  { const CheckpointLock ended(unused.path(), "ended"); }
  check_unlocked(unused.path());
}

TEST_CASE("what is quarantined is kept under another name") {
  const TempFolder folder;
  Stored stored(test::mesh_cases()[0]);
  REQUIRE(test::save_step(folder.path(), stored, 8).saved);
  CHECK(quarantine(folder.path(), {8}) == std::vector<std::string>{folder.file("aside.000008.1")});
  REQUIRE(test::save_step(folder.path(), stored, 8).saved);
  CHECK(quarantine(folder.path(), {8}).at(0) == folder.file("aside.000008.2"));
  CHECK(checkpoint_steps(folder.path()).empty());
}

TEST_CASE("too little room is an error before training with exit code 74") {
  const TempFolder folder;
  const test::Caught full =
      caught([&] { check_checkpoint_folder(folder.path(), int64_t{1} << 60, 3); });
  CHECK(full.code == "E420");
  CHECK(full.exit_code == 74);
  CHECK(caught([&] { check_checkpoint_folder(folder.path(), 1000, 3); }).code.empty());
  CHECK(folder.num_files() == 0);
  CHECK(caught([&] { check_checkpoint_folder(folder.file("none"), 1000, 3); }).code == "E421");
}

}  // namespace
}  // namespace meshtrain
