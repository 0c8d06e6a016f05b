// One run by several processes: its files, its end and how it resumes. Losses of processes
// and hosts are in tests/cluster.
#include "ranks.h"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

#include "base/json.h"
#include "checkpoint/reader.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kConfig = R"(name: ranks
seed: 5
distribution:
  type: ModelParallel
  batch_dim_name: data
  device_mesh: {shape: [2, 2], axis_names: [data, model], devices: "cpu:4"}
  layout_map: {d1/kernel: [null, model], d1/bias: [model]}
  zero: 1
  reductions: fixed
data:
  train: {source: random, samples: 44, shape: [6], classes: 3, seed: 1}
  validation: {source: random, samples: 18, shape: [6], classes: 3, seed: 2}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8, activation: relu}
    - Dropout: 0.3
    - Dense: {name: d2, units: 3}
compile:
  optimizer: {Adam: {learning_rate: 0.05}}
  loss: {SparseCategoricalCrossentropy: {from_logits: true}}
  metrics: [accuracy]
fit: {batch_size: 8, epochs: 3}
run: {log_steps: true, check_replicas: 4}
checkpoint: {every: 4 steps}
callbacks:
  - CSVLogger: {filename: table.csv}
  - ModelCheckpoint: {filepath: "model-{epoch}.weights.h5"}
  - ModelCheckpoint: {filepath: state, save_best_only: true}
  - EarlyStopping: {monitor: val_loss, patience: 5, restore_best_weights: true}
  - TensorBoard: {log_dir: board, histogram_freq: 1}
  - ReduceLROnPlateau: {monitor: val_loss, patience: 1}
)";

class RanksFolder : public TemporaryFolder {
 public:
  RanksFolder() { write("ranks.yaml", kConfig); }

  Result train(int size, std::vector<std::string> more, const std::vector<Rank>& ranks = {}) const {
    std::vector<std::string> args = {"train", "ranks.yaml"};
    args.insert(args.end(), more.begin(), more.end());
    return run(size == 1 && ranks.empty() ? Command{.args = args, .folder = path()}
                                          : as_ranks(size, args, path(), ranks),
               240);
  }
};

// Without what a clock says and without the processes' names.
Json events_of(const std::string& text) {
  Json out = Json::array();
  for (const std::string& line : lines_of(text)) {
    Json event = parse_json(line);
    for (const char* key : {"seconds", "ms_per_step", "devices", "run_dir"}) {
      event.erase(key);
    }
    out.push_back(event);
  }
  return out;
}

std::string without_times(const std::string& text) {
  return std::regex_replace(text, std::regex(" [0-9]+(s|ms|us)(/step)?"), " T");
}

std::map<std::string, std::string> tensors_of(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  reader.verify();
  std::map<std::string, std::string> out;
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    const HostTensor value = reader.read(tensor);
    out[tensor.path].assign(reinterpret_cast<const char*>(value.bytes()), value.num_bytes());
  }
  return out;
}

// Everything that training computed is bit for bit the same.
void check_same_run(const RanksFolder& folder, const std::string& a, const std::string& b) {
  CHECK(folder.read(a + "/weights.safetensors") == folder.read(b + "/weights.safetensors"));
  CHECK(folder.read(a + "/table.csv") == folder.read(b + "/table.csv"));
  const std::vector<int64_t> steps = checkpoint_steps(folder.file(a + "/checkpoints"));
  REQUIRE(!steps.empty());
  CHECK(steps == checkpoint_steps(folder.file(b + "/checkpoints")));
  for (const int64_t step : steps) {
    const std::string name = fmt::format("/checkpoints/{:06}", step);
    CHECK(tensors_of(folder.file(a + name)) == tensors_of(folder.file(b + name)));
  }
}

TEST_CASE("several processes leave behind what one does and print what one prints") {
  const RanksFolder folder;
  const Result one = folder.train(1, {"-o", "one"});
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  for (const int size : {2, 4}) {
    CAPTURE(size);
    const std::string name = fmt::format("of-{}", size);
    const Result many = folder.train(size, {"-o", name});
    REQUIRE_MESSAGE(many.exit_code == 0, many.err);
    CHECK(without_times(many.out) == without_times(one.out));
    check_same_run(folder, name, "one");
    CHECK(events_of(folder.read(name + "/metrics.jsonl")) ==
          events_of(folder.read("one/metrics.jsonl")));
    CHECK(count(folder.read(name + "/log.txt"), " saved step ") ==
          count(folder.read("one/log.txt"), " saved step "));
    std::vector<std::string> files, expected;
    for (const auto& entry : fs::directory_iterator(folder.file(name))) {
      files.push_back(entry.path().filename());
    }
    for (const auto& entry : fs::directory_iterator(folder.file("one"))) {
      expected.push_back(entry.path().filename());
    }
    std::sort(files.begin(), files.end());
    std::sort(expected.begin(), expected.end());
    CHECK(files == expected);
    CHECK(std::distance(fs::directory_iterator(folder.file(name + "/board/train")), {}) == 1);
  }
}

// Caches of what rank 0 writes are no replicas, and no checkpoint has them.
TEST_CASE("a run of several processes saves beside the samples of its language model") {
  const RanksFolder folder;
  folder.write("text.txt", "a tale of a tale of a tale of a tale, heard again and again");
  folder.write("text.yaml", R"(
data: {train: {source: text, path: text.txt, sequence_length: 8, target: sequence}}
model:
  layers:
    - Input: {shape: [8], dtype: int32}
    - Embedding: {input_dim: =vocabulary_size(), output_dim: 8}
    - MultiHeadAttention: {num_heads: 2, key_dim: 4, call: {use_causal_mask: true}}
    - LSTM: {units: 4, return_sequences: true}
    - Dense: {units: =vocabulary_size()}
compile: {loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 8, epochs: 2}
run: {check_replicas: 2}
callbacks: [{TextSamples: {prompts: [a t], max_new_tokens: 6}}]
distribution: {device_mesh: {shape: [2, 1], axis_names: [data, model], devices: "cpu:2"}}
)");
  const Result run =
      meshtrain::run(as_ranks(2, {"train", "text.yaml", "--run-dir", "r"}, folder.path(), {}), 240);
  CHECK_MESSAGE(run.exit_code == 0, run.err);
  CHECK(fs::exists(folder.file("r/weights.safetensors")));
}

TEST_CASE("a run resumed by other numbers of processes comes to the same bits") {
  const RanksFolder folder;
  REQUIRE(folder.train(1, {"-o", "whole"}).exit_code == 0);
  int size = 4;
  for (const char* epochs : {"fit.epochs=1", "fit.epochs=2", "fit.epochs=3"}) {
    const Result part = folder.train(size, {"-o", "parts", "--resume=auto", epochs});
    REQUIRE_MESSAGE(part.exit_code == 0, part.err);
    size = size == 4 ? 1 : 2;
  }
  CHECK(folder.read("parts/weights.safetensors") == folder.read("whole/weights.safetensors"));
  CHECK(tensors_of(folder.file("parts/checkpoints/000018")) ==
        tensors_of(folder.file("whole/checkpoints/000018")));
}

TEST_CASE("verify proves on one process that a run of several resumes bit for bit") {
  const RanksFolder folder;
  CHECK(folder.train(2, {"-o", "run", "distribution.reductions=auto"}).exit_code == 0);
  const Result result = meshtrain({"verify", "run"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
  CHECK(folder.train(2, {"-o", "fast", "distribution.reductions=fast"}).exit_code == 0);
  const Result fast = meshtrain({"verify", "fast"}, folder.path());
  CHECK(fast.exit_code == 6);
  CHECK_MESSAGE(fast.err.find("whose sums one process cannot repeat") != std::string::npos,
                fast.err);
}

TEST_CASE("other numbers of processes resume a checkpoint on another mesh") {
  const RanksFolder folder;
  REQUIRE(folder.train(4, {"-o", "first", "fit.epochs=1"}).exit_code == 0);
  const Result result = folder.train(2, {"-o", "second", "--resume=first/checkpoints/000006",
                                         "fit.epochs=2", "--mesh", "data=4,model=1"});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.err.find("re-laid from 2 x 2 to 4 x 1") != std::string::npos);
  CHECK(newest_checkpoint(folder.file("second/checkpoints")).reader->manifest().step == 12);
}

TEST_CASE("saves by time are by rank 0's clock and on all at the same step") {
  const RanksFolder folder;
  Command command = as_ranks(
      2,
      {"train", "ranks.yaml", "-o", "run", "fit.epochs=100000", "checkpoint.every=1 s", "-v",
       "callbacks=[{ModelCheckpoint: {filepath: \"at-{step}\", save_freq: 1 s, keep: 2}}]"},
      folder.path());
  command.watch = [&](const std::string&, const std::string& err, int pid) {
    if (count(err, "saved step ") < 2) {
      return false;
    }
    kill(pid, SIGUSR1);  // mpirun passes it on
    return true;
  };
  const Result result = run(command, 120);
  CHECK_MESSAGE(result.exit_code == 75, result.err);
  CHECK(result.err.find("was not saved") == std::string::npos);
  const std::vector<int64_t> steps = checkpoint_steps(folder.file("run/checkpoints"));
  CHECK(steps.size() == 3);
  for (const int64_t step : steps) {
    CheckpointReader(folder.file(fmt::format("run/checkpoints/{:06}", step))).verify();
  }
}

TEST_CASE("a signal to one rank saves on all and ends all with 75") {
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const RanksFolder folder;
    std::vector<Rank> ranks(2);
    ranks[static_cast<size_t>(rank)].before = "echo $$ >pid";
    Command command = as_ranks(2,
                               {"train", "ranks.yaml", "-o", "run", "fit.epochs=100000",
                                "checkpoint.every=never", "callbacks=[]", "-v"},
                               folder.path(), ranks);
    command.watch = [&](const std::string&, const std::string&, int) {
      if (!fs::exists(folder.file("run/metrics.jsonl")) ||
          count(folder.read("run/metrics.jsonl"), "\"epoch\"") < 20) {
        return false;
      }
      kill(std::stoi(folder.read("pid")), SIGUSR1);
      return true;
    };
    const Result result = run(command, 120);
    CHECK_MESSAGE(result.exit_code == 75, result.err);
    CHECK(count(result.err, "stopped by SIGUSR1 after step") == 1);
    CHECK(checkpoint_steps(folder.file("run/checkpoints")).size() == 1);
    const NewestCheckpoint newest = newest_checkpoint(folder.file("run/checkpoints"));
    REQUIRE(newest.reader != nullptr);
    CHECK(newest.damaged.empty());
    CHECK(result.err.find(fmt::format("saved step {}", newest.reader->manifest().step)) !=
          std::string::npos);
  }
}

TEST_CASE("run.max_time is rank 0's and ends all with a checkpoint") {
  const RanksFolder folder;
  const Result result =
      folder.train(2, {"-o", "run", "fit.epochs=100000", "checkpoint.every=never", "--max-time",
                       "2s", "callbacks=[]"});  // EarlyStopping would come first
  CHECK_MESSAGE(result.exit_code == 75, result.err);
  CHECK(count(result.err, "stopped by run.max_time") == 1);
  CHECK(newest_checkpoint(folder.file("run/checkpoints")).reader != nullptr);
}

TEST_CASE("evaluate and predict give what one process gives") {
  const RanksFolder folder;
  REQUIRE(folder.train(1, {"-o", "run"}).exit_code == 0);
  const std::vector<std::string> evaluate = {"evaluate", "ranks.yaml", "--weights",
                                             "run/weights.safetensors"};
  const Result one = meshtrain(evaluate, folder.path());
  const Result two = run(as_ranks(2, evaluate, folder.path()), 120);
  CHECK_MESSAGE(two.exit_code == 0, two.err);
  CHECK(without_times(two.out) == without_times(one.out));
  const auto predict = [](const std::string& output) {
    return std::vector<std::string>{"predict", "ranks.yaml", "--weights", "run/weights.safetensors",
                                    "--input", "x.csv",      "--output",  output};
  };
  std::string rows = "a,b,c,d,e,f\n";
  for (int i = 0; i < 11; ++i) {
    rows += fmt::format("{},{},{},{},{},{}\n", i, 1, -i, 0.5, i % 3, 2);
  }
  folder.write("x.csv", rows);
  REQUIRE(meshtrain(predict("one.npy"), folder.path()).exit_code == 0);
  const Result predicted = run(as_ranks(4, predict("four.npy"), folder.path()), 120);
  CHECK_MESSAGE(predicted.exit_code == 0, predicted.err);
  CHECK(folder.read("four.npy") == folder.read("one.npy"));
}

TEST_CASE("what a run of several processes learned from its data outlives these") {
  const TemporaryFolder folder;
  const auto write_table = [&](const std::string& name, const char* first) {
    std::string text = "city,n,kind\n";
    for (int i = 0; i < 40; ++i) {
      const int city = i * 7 % 3;
      text += fmt::format("{},{},{}\n",
                          city == 0   ? first
                          : city == 1 ? "Oslo"
                                      : "Rome",
                          i % 5, city == 1 ? "cup" : "jug");
    }
    folder.write(name, text);
  };
  write_table("train.csv", "Bonn");
  write_table("test.csv", "Bonn");
  folder.write("table.yaml", R"(
distribution: {device_mesh: {shape: [2, 2], axis_names: [data, model], devices: "cpu:4"}, reductions: fixed}
data:
  train: {source: csv, path: train.csv, label: kind, categorical: city}
  test: {source: csv, path: test.csv}
model: {layers: [{Input: {shape: [2]}}, {Dense: {units: 2, activation: softmax}}]}
compile: {optimizer: {Adam: {learning_rate: 0.05}}, loss: sparse_categorical_crossentropy}
fit: {batch_size: 8, epochs: 2}
)");
  const auto by = [&](int size, const std::vector<std::string>& args) {
    const Result result = run(size == 1 ? Command{.args = args, .folder = folder.path()}
                                        : as_ranks(size, args, folder.path()),
                              240);
    CHECK_MESSAGE(result.exit_code == 0, result.err);
    CHECK_MESSAGE(!contains(result.err, "warning"), result.err);
    return result.out.substr(result.out.rfind("loss: "));
  };
  by(2, {"train", "table.yaml", "-o", "run"});
  const std::string loss = by(1, {"evaluate", "run"});
  write_table("train.csv", "Zagreb");  // the ids of Oslo and Rome would be 0 and 1 now
  CHECK(by(1, {"evaluate", "run"}) == loss);
  CHECK(by(2, {"evaluate", "run"}) == loss);
  write_table("train.csv", "Bonn");
  by(2, {"resume", "run", "fit.epochs=3", "--mesh", "4x1"});
  const std::string resumed = by(2, {"evaluate", "run"});
  fs::remove(folder.file("train.csv"));
  CHECK(by(2, {"evaluate", "run"}) == resumed);
  CHECK(by(1, {"evaluate", "run/checkpoints/000015"}) == resumed);
}

TEST_CASE("a folder that not all processes see ends all before the first step") {
  const RanksFolder folder;
  fs::create_directory(folder.file("elsewhere"));
  folder.write("elsewhere/ranks.yaml", kConfig);
  std::vector<Rank> ranks(2);
  ranks[1].before = "cd elsewhere";
  // Who looks for it is no rank that hangs, however little may pass for one.
  ranks[0].environment = ranks[1].environment = {"MESHTRAIN_COLLECTIVE_TIMEOUT=5"};
  const Result result = folder.train(2, {"-o", "run"}, ranks);
  CHECK(result.exit_code == 6);
  CHECK(count(result.err, "error[E452]: `run`, made by rank 0") == 1);
  CHECK(result.err.find("is not seen by rank 1") != std::string::npos);
  CHECK(result.err.find("`checkpoint: {gather: root}`") != std::string::npos);
  CHECK_FALSE(fs::exists(folder.file("run/metrics.jsonl")));
}

// The processes with odd ranks share no folder with rank 0, and none for temporary files.
struct TwoPlaces {
  explicit TwoPlaces(const RanksFolder& folder) : ranks(4) {
    fs::create_directory(folder.file("elsewhere"));
    folder.write("elsewhere/ranks.yaml", kConfig);
    for (const size_t r : {1, 3}) {  // each on a host of its own
      const std::string temporary = folder.file(fmt::format("temporary/{}", r));
      fs::create_directories(temporary);
      ranks[r].before = "cd elsewhere";
      ranks[r].environment = {"TMPDIR=" + temporary};
    }
  }
  std::vector<Rank> ranks;
};

// The ones elsewhere have written nothing.
void check_nothing_elsewhere(const RanksFolder& folder) {
  const auto names = [&](const char* name) {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder.file(name))) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  };
  CHECK(names("elsewhere") == std::vector<std::string>{"ranks.yaml"});
  CHECK(names("temporary/1").empty());
  CHECK(names("temporary/3").empty());
}

TEST_CASE("with gather: root hosts that share no folder save, resume and come to the same") {
  const RanksFolder folder;
  const Result one = folder.train(4, {"-o", "one"});
  REQUIRE_MESSAGE(one.exit_code == 0, one.err);
  const TwoPlaces places(folder);
  const std::string gather = "checkpoint.gather=root";
  const Result whole = folder.train(4, {"-o", "whole", gather}, places.ranks);
  REQUIRE_MESSAGE(whole.exit_code == 0, whole.err);
  CHECK(whole.err.find("; 2 of 4 processes send theirs to rank 0\n") != std::string::npos);
  CHECK(without_times(whole.out) == without_times(one.out));
  check_same_run(folder, "whole", "one");
  CHECK(tensors_of(folder.file("whole/state")) == tensors_of(folder.file("one/state")));
  check_nothing_elsewhere(folder);

  REQUIRE(folder.train(4, {"-o", "cut", gather, "fit.epochs=1"}, places.ranks).exit_code == 0);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"train", "ranks.yaml", "-o", "cut", "--resume", gather,
                                 "fit.epochs=2"},
        std::vector<std::string>{"resume", "cut", "fit.epochs=3"}}) {
    const Result more = run(as_ranks(4, args, folder.path(), places.ranks), 240);
    REQUIRE_MESSAGE(more.exit_code == 0, more.err);
    check_nothing_elsewhere(folder);
  }
  check_same_run(folder, "cut", "one");
}

TEST_CASE("with gather: root a stop is saved, and the newest model of a callback is sent") {
  const RanksFolder folder;
  const TwoPlaces places(folder);
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "checkpoint.gather=root");
    return folder.train(4, more, places.ranks);
  };
  const Result stopped =
      train({"-o", "run", "callbacks=[]", "--max-time", "3s", "fit.epochs=100000"});
  CHECK_MESSAGE(stopped.exit_code == 75, stopped.err);
  const std::vector<int64_t> steps = checkpoint_steps(folder.file("run/checkpoints"));
  CHECK(!steps.empty());  // the stop's at least
  for (const int64_t step : steps) {
    CheckpointReader(folder.file(fmt::format("run/checkpoints/{:06}", step))).verify();
  }
  for (const char* path : {"newest/{epoch}", "models/{epoch}.keras"}) {
    CAPTURE(path);
    const std::string callbacks =
        fmt::format("callbacks=[{{ModelCheckpoint: {{filepath: \"{}\", restore: true}}}}]", path);
    const std::string name = fs::path(path).parent_path().string();
    const Result first = train({callbacks, "--name", name, "fit.epochs=1"});
    REQUIRE_MESSAGE(first.exit_code == 0, first.err);
    const Result second = train({callbacks, "--name", name, "fit.epochs=1"});
    CHECK_MESSAGE(second.exit_code == 0, second.err);
    CHECK_MESSAGE(second.err.find(name + "/1") != std::string::npos, second.err);
  }
  check_nothing_elsewhere(folder);
}

TEST_CASE("a process that cannot read the checkpoint ends all before anything is restored") {
  const RanksFolder folder;
  REQUIRE(folder.train(1, {"-o", "run", "fit.epochs=1"}).exit_code == 0);
  fs::create_directory(folder.file("elsewhere"));
  folder.write("elsewhere/ranks.yaml", kConfig);
  std::vector<Rank> ranks(2);
  ranks[1].before = "cd elsewhere";
  const Result result = folder.train(2, {"-o", "run", "--resume"}, ranks);
  CHECK(result.exit_code == 6);
  CHECK(count(result.err, "error[E457]: rank 1 on host ") == 1);
  CHECK(result.err.find("does not see what rank 0 sees as `run/checkpoints/000006`: cannot "
                        "open `run/checkpoints/000006`: No such file or directory") !=
        std::string::npos);
  fs::copy(folder.file("run"), folder.file("elsewhere/run"), fs::copy_options::recursive);
  folder.write("elsewhere/run/checkpoints/000006/manifest.json", "{}");
  CHECK(folder.train(2, {"-o", "run", "--resume"}, ranks)
            .err.find("sees as `run/checkpoints/000006`: another is there") != std::string::npos);
}

TEST_CASE("processes that read other data than rank 0 end all") {
  const RanksFolder folder;
  fs::create_directory(folder.file("elsewhere"));
  const std::string rows = "a,b,y\n1,2,0\n3,4,1\n";
  folder.write("train.csv", rows);
  folder.write("elsewhere/train.csv", rows + "5,6,1\n");
  std::string config = kConfig;
  const std::string source = "{source: random, samples: 44, shape: [6], classes: 3, seed: 1}";
  config.replace(config.find(source), source.size(), "{source: csv, path: train.csv, label: y}");
  const size_t validation = config.find("  validation:");
  config.erase(validation, config.find('\n', validation) + 1 - validation);
  config.replace(config.find("shape: [6]"), 10, "shape: [2]");
  folder.write("ranks.yaml", config);
  folder.write("elsewhere/ranks.yaml", config);
  std::vector<Rank> ranks(2);
  ranks[1].before = "cd elsewhere";
  const std::vector<std::string> more = {"-o", "run", "callbacks=[]", "fit.batch_size=2"};
  const auto is_refused = [](const Result& result) {
    CHECK_MESSAGE(result.exit_code == 3, result.err);
    CHECK(count(result.err, "error[E323]") == 1);
  };
  is_refused(folder.train(2, more, ranks));
  REQUIRE(folder.train(1, more).exit_code == 0);
  const std::string weights = folder.file("run/weights.safetensors");
  is_refused(run(as_ranks(2, {"evaluate", "ranks.yaml", "-w", weights, "fit.batch_size=2"},
                          folder.path(), ranks),
                 120));
  is_refused(run(as_ranks(2,
                          {"predict", "ranks.yaml", "-w", weights, "--input", "train.csv",
                           "--output", "out.npy", "fit.batch_size=2"},
                          folder.path(), ranks),
                 120));
  CHECK_FALSE(fs::exists(folder.file("out.npy")));
}

}  // namespace
}  // namespace meshtrain
