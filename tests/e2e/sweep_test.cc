// meshtrain sweep and compare: runs that are stopped and killed are each done once, and the table
// is whole.
#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.h"
#include "example.h"
#include "outcome.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kMeshes = "mesh=1x1,2x1,1x2,4x1,2x2,1x4,8x1,4x2,2x4,1x8,8x2,4x4";
constexpr const char* kRates = "compile.optimizer.learning_rate=1e-1,1e-2,1e-3";
constexpr int kMembers = 36;

Result in_folder(const ExampleFolder& folder, std::vector<std::string> args) {
  return meshtrain(std::move(args), folder.path());
}

std::vector<Json> events_of(const std::string& path, const std::string& kind) {
  std::ifstream stream(path);
  std::vector<Json> out;
  for (std::string line; std::getline(stream, line);) {
    Json event = parse_json(line);
    if (event.is_object() && event.value("event", "") == kind) {
      out.push_back(std::move(event));
    }
  }
  return out;
}

// Starts the sweep and sends a signal when `count` runs have ended.
Result interrupted(const ExampleFolder& folder, std::vector<std::string> args, int count,
                   int number) {
  Command command;
  command.args = std::move(args);
  command.folder = folder.path();
  command.watch = [count, number](const std::string& out, const std::string&, int pid) {
    if (static_cast<int>(lines_of(out).size()) < count) {
      return false;
    }
    kill(pid, number);
    return true;
  };
  return run(command);
}

// Each member ended well once, and was not started after that; its epochs are there once.
void check_each_once(const std::string& sweep, int members, int64_t epochs) {
  std::map<int, int> ended;
  std::ifstream stream(sweep + "/sweep.jsonl");
  for (std::string line; std::getline(stream, line);) {
    const Json event = parse_json(line);
    REQUIRE(event.is_object());
    const int member = event.value("member", 0);
    if (event["event"] == "start") {
      CHECK_MESSAGE(ended[member] == 0, "member ", member, " was started again");
    } else if (event["event"] == "end" && event["exit_code"] == 0) {
      ++ended[member];
    }
  }
  for (int member = 1; member <= members; ++member) {
    CHECK_MESSAGE(ended[member] == 1, "member ", member);
    const std::string run = sweep + "/" + fmt::format("{:03}", member);
    const std::vector<Json> done = events_of(run + "/metrics.jsonl", "epoch");
    REQUIRE(std::ssize(done) == epochs);
    for (int64_t e = 0; e < epochs; ++e) {
      CHECK(done[static_cast<size_t>(e)]["epoch"] == e + 1);
    }
    CHECK(fs::exists(run + "/weights.safetensors"));
  }
}

TEST_CASE("12 meshes x 3 rates, interrupted and killed, are each done once") {
  const ExampleFolder folder;
  const std::vector<std::string> sweep = {"sweep",        "small.yaml", "--grid", kMeshes,
                                          "--grid",       kRates,       "-j",     "2",
                                          "fit.epochs=3", "-o",         "s"};
  const auto with = [&](const std::string& word) {
    std::vector<std::string> words = sweep;
    words.push_back(word);
    return words;
  };
  const Result stopped = interrupted(folder, sweep, 6, SIGINT);
  CHECK(stopped.exit_code == 75);
  CHECK(contains(stopped.err, "--resume continues it"));
  const Result killed = interrupted(folder, with("--resume"), 8, SIGKILL);
  CHECK(killed.exit_code == 128 + SIGKILL);
  const Result again = in_folder(folder, sweep);
  CHECK(again.exit_code == 2);
  CHECK(contains(again.err, "error[E141]: `s` holds another sweep"));
  const Result rest = in_folder(folder, with("--resume"));
  CHECK(rest.exit_code == 0);
  check_each_once(folder.file("s"), kMembers, 3);
  const Result table = in_folder(folder, {"compare", "s", "--check-equal", "1e-5"});
  CHECK(table.exit_code == 0);
  CHECK(lines_of(table.out).size() == kMembers + 1);
  CHECK(contains(table.err, "equal: 36 runs in 3 groups"));
  const Json rows = parse_json(in_folder(folder, {"compare", "s", "--format", "json"}).out);
  REQUIRE(rows.size() == kMembers);
  for (const Json& row : rows) {
    CHECK(row["state"] == "finished");
    CHECK(row["logs"].contains("loss"));
    CHECK(row["ms_per_step"].get<double>() > 0);
    CHECK(row["memory_per_device"].get<int64_t>() > 0);
  }
  // As a run that nothing interrupted.
  CHECK(in_folder(folder, {"train", "small.yaml", "--mesh", "1x4", "-o", "plain", "fit.epochs=3",
                           "compile.optimizer.learning_rate=1e-3"})
            .exit_code == 0);
  CHECK(outcome_of(folder.file("plain")).weights == outcome_of(folder.file("s/018")).weights);
  // Nothing is left to do.
  const Result none = in_folder(folder, {"sweep", "s"});
  CHECK(none.exit_code == 0);
  CHECK(contains(none.err, "36 runs, 0 to do"));
  // A loss that differs is found.
  const std::string metrics = folder.read("s/001/metrics.jsonl");
  const size_t loss = metrics.rfind("\"loss\":", metrics.rfind("\"event\":\"epoch\"") + 200) + 7;
  folder.write("s/001/metrics.jsonl", metrics.substr(0, loss) + "9" + metrics.substr(loss));
  const Result unequal = in_folder(folder, {"compare", "s", "--check-equal", "1e-5"});
  CHECK(unequal.exit_code == 7);
  CHECK(contains(unequal.err, "not equal: loss: 001"));
}

TEST_CASE("a word may set an argument that only the classes of the sweep have") {
  const ExampleFolder folder;  // whose optimizer is SGD
  const Result result =
      in_folder(folder, {"sweep", "small.yaml", "--grid", "compile.optimizer=adam,adamw",
                         "compile.optimizer.beta_1=0.75", "fit.epochs=1", "-o", "s"});
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(contains(folder.read("s/001/config.resolved.yaml"), "beta_1: 0.75"));
  CHECK(contains(folder.read("s/002/config.resolved.yaml"), "beta_1: 0.75"));
  CHECK(contains(in_folder(folder, {"sweep", "s"}).err, "2 runs, 0 to do"));
}

TEST_CASE("a run that fails is kept and named, and can be tried again") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"sweep",        "small.yaml", "--grid",
                                          "mesh=2x2,2x3", "-o",         "s"};
  const Result result = in_folder(folder, words);
  CHECK(result.exit_code == 7);
  CHECK(contains(result.err, "1 of 2 runs failed"));
  CHECK(contains(result.err, "002 mesh=2x3: exit code"));
  CHECK(contains(result.err, "E204"));
  CHECK(contains(result.out, "failed with exit code"));
  const Result resumed = in_folder(folder, {"sweep", "s"});
  CHECK(resumed.exit_code == 7);
  CHECK(contains(resumed.err, "0 to do"));
  CHECK(contains(in_folder(folder, {"sweep", "s", "--retry"}).err, "1 to do"));
  const Result quiet = in_folder(folder, {"sweep", "s", "--retry", "-q"});
  CHECK(contains(quiet.err, "002 mesh=2x3: exit code"));
  CHECK_FALSE(contains(quiet.err, "to do"));
}

TEST_CASE("a run that fails again has the error of its last start") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"sweep",
                                          "small.yaml",
                                          "--grid",
                                          "seed=1",
                                          "-o",
                                          "s",
                                          "data.train={source: npy, x: x.npy, y: y.npy}"};
  CHECK(contains(in_folder(folder, words).err, "E300"));
  folder.write("x.npy", "no array");
  folder.write("y.npy", "no array");
  const Result again = in_folder(folder, {"sweep", "s", "--retry"});
  CHECK(again.exit_code == 7);
  CHECK(contains(again.err, "E301"));
  CHECK_FALSE(contains(again.err, "E300"));
}

TEST_CASE("a sweep under a launcher of processes is refused at once") {
  const ExampleFolder folder;
  Command command;
  command.args = {"sweep", "small.yaml", "--grid", "seed=1"};
  command.folder = folder.path();
  command.environment = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"};
  const Result result = run(command);
  CHECK(result.exit_code == 2);
  CHECK_MESSAGE(contains(result.err, "without the launcher"), result.err);
  CHECK_FALSE(fs::exists(folder.file("sweeps")));
}

TEST_CASE("a sweep that its folder names takes no other values, and needs its list whole") {
  const ExampleFolder folder;
  REQUIRE(
      in_folder(folder, {"sweep", "small.yaml", "--grid", "seed=1,2", "-o", "s", "-q"}).exit_code ==
      0);
  const Result changed = in_folder(folder, {"sweep", "s", "fit.epochs=5", "--grid", "seed=3"});
  CHECK(changed.exit_code == 2);
  CHECK(contains(changed.err, "error[E140]"));
  CHECK(contains(changed.err, "fit.epochs=5, --grid"));
  std::string journal;
  for (const std::string& line : lines_of(folder.read("s/sweep.jsonl"))) {
    journal += contains(line, "\"002\"") ? "" : line + "\n";
  }
  folder.write("s/sweep.jsonl", journal);
  const Result cut = in_folder(folder, {"sweep", "s", "-n"});
  CHECK(cut.exit_code == 6);
  CHECK(contains(cut.err, "lists 1 of 2 runs"));
}

TEST_CASE("a sweep that is resumed may grow, with the same config") {
  const ExampleFolder folder;
  CHECK(in_folder(folder, {"sweep", "small.yaml", "--grid", "seed=1,2", "-o", "s"}).exit_code == 0);
  const Result more =
      in_folder(folder, {"sweep", "small.yaml", "--grid", "seed=1,2,3", "-o", "s", "--resume"});
  CHECK(more.exit_code == 0);
  CHECK(contains(more.err, "3 runs, 1 to do"));
  const Result other = in_folder(
      folder, {"sweep", "small.yaml", "--grid", "seed=1,2", "-o", "s", "--resume", "fit.epochs=3"});
  CHECK(other.exit_code == 2);
  CHECK(contains(other.err, "error[E149]"));
  CHECK(contains(other.err, "fit.epochs"));
}

TEST_CASE("a file of a sweep: lists, drawn values, and its mistakes") {
  const ExampleFolder folder;
  folder.write("list.yaml",
               "config: small.yaml\nmethod: list\nfixed: {fit.epochs: 1}\n"
               "runs:\n  - {mesh: 4x1, seed: 1}\n  - {mesh: [2, 2]}\n");
  const Result list = in_folder(folder, {"sweep", "list.yaml", "-n"});
  CHECK(list.out == "001 mesh=4x1 seed=1\n002 mesh=[2, 2]\n");
  folder.write("random.yaml",
               "config: small.yaml\nmethod: random\ntrials: 4\nseed: 3\nparameters:\n"
               "  compile.optimizer.learning_rate: {min: 1e-4, max: 1e-1, scale: log}\n"
               "  model.layers.d1.units: {min: 8, max: 9, integer: true}\n  seed: [1, 2]\n");
  const std::string drawn = in_folder(folder, {"sweep", "random.yaml", "-n"}).out;
  CHECK(lines_of(drawn).size() == 4);
  CHECK(contains(drawn, "units=8"));
  const std::string longer = in_folder(folder, {"sweep", "random.yaml", "-n", "--trials", "6"}).out;
  CHECK(longer.find(drawn) == 0);  // more trials leave the first ones as they are
  CHECK(in_folder(folder, {"sweep", "random.yaml", "-n", "--sweep-seed", "4"}).out != drawn);
  const Result zip = in_folder(folder, {"sweep", "small.yaml", "-n", "--zip", "seed=1,2", "--zip",
                                        "mesh=data=4,model=1;data=2,model=2"});
  CHECK(zip.out == "001 seed=1 mesh=data=4,model=1\n002 seed=2 mesh=data=2,model=2\n");
  const Result split =
      in_folder(folder, {"sweep", "small.yaml", "-n", "--grid", "mesh=data=2,model=2"});
  CHECK(split.exit_code == 2);
  CHECK_MESSAGE(contains(split.err,
                         "error[E140]: `,` parts values: these are 2 meshes of one axis each, "
                         "`data=2`, `model=2`"),
                split.err);
  CHECK(contains(split.err, "help: one mesh: --grid 'mesh=\"data=2,model=2\"'\n"));
  CHECK(in_folder(folder, {"sweep", "small.yaml", "-n", "--grid", "mesh=\"data=2,model=2\""})
            .exit_code == 0);

  folder.write("quotes.yaml",
               "config: small.yaml\nmethod: grid\nparameters:\n"
               "  name: ['say \"hi\"', \"it's\", \"3\"]\n");
  const Result quotes = in_folder(folder, {"sweep", "quotes.yaml", "-n"});
  CHECK_MESSAGE(quotes.exit_code == 0, quotes.err);
  CHECK(lines_of(quotes.out).size() == 3);

  folder.write("bad.yaml",
               "config: small.yaml\nmetod: grid\nparameters:\n  fit.epochs: 3\n"
               "early_stop: {min_epochs: 0}\n");
  const Result bad = in_folder(folder, {"sweep", "bad.yaml"});
  CHECK(bad.exit_code == 2);
  CHECK(contains(bad.err, "bad.yaml:2:1"));
  CHECK(contains(bad.err, "did you mean `method`?"));
  CHECK(contains(bad.err, "bad.yaml:5:26"));
  const Result unknown =
      in_folder(folder, {"sweep", "small.yaml", "--grid", "compile.optimiser.learning_rate=1,2"});
  CHECK(unknown.exit_code == 2);
  CHECK(contains(unknown.err, "error[E111]: unknown key `optimiser`"));
  const Result value = in_folder(folder, {"sweep", "small.yaml", "--grid", "fit.epochs=1,many"});
  CHECK(value.exit_code == 2);
  CHECK(contains(value.err, "many"));
  CHECK(contains(in_folder(folder, {"sweep", "small.yaml"}).err, "the sweep varies nothing"));
  const auto refused = [&](const std::vector<std::string>& words, const char* text) {
    const Result result = in_folder(folder, words);
    CHECK(result.exit_code == 2);
    CHECK_MESSAGE(contains(result.err, text), result.err);
  };
  refused({"sweep", "small.yaml", "--grid", "fit.epochs=1,2", "--grid", "epochs=3"},
          "`--grid fit.epochs` is given twice");
  refused({"sweep", "small.yaml", "--random", "fit.batch_size=int:1.5..6.7", "--trials", "2"},
          "must have whole ends");
  refused({"sweep", "small.yaml", "--grid", "seed=1,2", "seed=5"},
          "`seed` varies in the sweep and is set for all runs");
  refused({"sweep", "small.yaml", "--grid", "fit.epochs=1,2", "--epochs", "3"},
          "varies in the sweep and is set for all runs");
  refused({"sweep", "small.yaml", "--grid", "seed=1,2", "--random", "fit.epochs=int:1..3"},
          "--grid and --random do not go together");
  folder.write("grid.yaml",
               "config: small.yaml\nmethod: grid\ntrials: 3\nfixed: {fit.epochs: 1}\n"
               "parameters: {fit.epochs: [1, 2]}\n");
  refused({"sweep", "grid.yaml"}, "`trials` is for `method: random`");
  refused({"sweep", "grid.yaml"}, "`fit.epochs` of `fixed` varies in the sweep, too");
  CHECK_FALSE(fs::exists(folder.file("sweeps")));
}

TEST_CASE("a config that changes while a sweep runs ends it; removed runs are made again") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"sweep",        "small.yaml", "--grid", "seed=1,2,3",
                                          "fit.epochs=1", "-o",         "s"};
  CHECK(in_folder(folder, words).exit_code == 0);
  CHECK(in_folder(folder, {"runs", "rm", "s/002"}).exit_code == 0);
  CHECK(contains(in_folder(folder, {"sweep", "s"}).err, "3 runs, 1 to do"));
  CHECK(fs::exists(folder.file("s/002/weights.safetensors")));
  // A command of the first member writes the file that the second one would read.
  std::vector<std::string> changing = words;
  changing.back() = "t";
  const std::string command = "echo 'fit: {epochs: 2}' >> " + folder.file("small.yaml");
  changing.push_back("callbacks+={RunCommand: {command: [sh, -c, \"" + command + "\"]}}");
  changing.erase(std::find(changing.begin(), changing.end(), "fit.epochs=1"));
  const Result changed = in_folder(folder, changing);
  CHECK(changed.exit_code != 0);
  CHECK_FALSE(fs::exists(folder.file("t/003")));
}

TEST_CASE("hopeless runs are stopped by the median rule and stay stopped") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"sweep",
                                          "small.yaml",
                                          "--grid",
                                          "compile.optimizer.learning_rate=0.1,0.11,0.12,1e-9",
                                          "fit.epochs=4000",
                                          "data.train.samples=160",
                                          "checkpoint.every=never",
                                          "--early-stop",
                                          "-o",
                                          "s"};
  const Result result = in_folder(folder, words);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "hopeless: after epoch"));
  const std::vector<Json> hopeless = events_of(folder.file("s/sweep.jsonl"), "hopeless");
  REQUIRE(hopeless.size() == 1);
  CHECK(hopeless[0]["member"] == 4);
  CHECK(hopeless[0]["value"].get<double>() > hopeless[0]["median"].get<double>());
  CHECK(contains(in_folder(folder, {"sweep", "s"}).err, "0 to do"));
  fs::remove_all(folder.file("s/004"));
  CHECK(contains(in_folder(folder, {"sweep", "s"}).err, "1 to do"));
}

TEST_CASE("a sweep whose runs stopped is not done") {
  const ExampleFolder folder;
  std::vector<std::string> words = {
      "sweep", "small.yaml", "--grid", "fit.epochs=400000,1", "run.max_time=1s", "-o", "s"};
  CHECK(in_folder(folder, words).exit_code == 75);
  const Result again = in_folder(folder, {"sweep", "s"});
  CHECK(contains(again.err, "2 runs, "));
  CHECK_FALSE(contains(again.err, ", 0 to do"));
}

TEST_CASE("signals do to a sweep what run.on_signal says of them") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {"sweep",
                                          "small.yaml",
                                          "--grid",
                                          "seed=1,2",
                                          "-o",
                                          "s",
                                          "run.on_signal={SIGUSR1: checkpoint}"};
  const Result result = interrupted(folder, words, 1, SIGUSR1);
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(fs::exists(folder.file("s/002/weights.safetensors")));
}

// A program of Slurm's, played by a script in `bin`.
void play(const ExampleFolder& folder, const std::string& name, const std::string& text) {
  fs::create_directories(folder.file("bin"));
  folder.write("bin/" + name, "#!/bin/bash\n" + text);
  fs::permissions(folder.file("bin/" + name), fs::perms::owner_all);
}

TEST_CASE("a job array of Slurm does what the sweep does") {
  const ExampleFolder folder;
  const std::vector<std::string> words = {
      "sweep", "small.yaml", "--grid",  "seed=1,2",
      "-o",    "s",          "--slurm", "--sbatch=--partition=gpu"};
  Command without;  // whatever this machine has
  without.args = words;
  without.folder = folder.path();
  without.environment = {"PATH=" + folder.file("bin")};
  const Result none = run(without);
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "error[E148]: there is no `sbatch` on PATH"));
  CHECK(contains(none.out, "#SBATCH --array=1-2"));
  CHECK(contains(none.out, "#SBATCH --partition=gpu"));
  play(folder, "sbatch",
       "for id in 1 2; do SLURM_ARRAY_TASK_ID=$id SLURM_ARRAY_JOB_ID=7 bash \"$1\"; done\n"
       "echo Submitted batch job 7\n");
  play(folder, "srun", "while [[ \"$1\" == --* ]]; do shift; done\nexec \"$@\"\n");
  play(folder, "scontrol", "echo \"scontrol $*\" >> requeued\n");
  Command command;
  command.args = words;
  command.args.push_back("--resume");
  command.folder = folder.path();
  command.environment = {"PATH=" + folder.file("bin") + ":" + std::getenv("PATH")};
  const Result result = run(command);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "Submitted batch job 7"));
  const Json rows = parse_json(in_folder(folder, {"compare", "s", "--format", "json"}).out);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["state"] == "finished");
  CHECK(rows[1]["state"] == "finished");
  CHECK(contains(in_folder(folder, {"sweep", "s"}).err, "2 runs, 0 to do"));
  CHECK_FALSE(fs::exists(folder.file("requeued")));
}

TEST_CASE("launch --slurm submits a job that is queued again when it stopped") {
  const ExampleFolder folder;
  const Result script =
      in_folder(folder, {"launch", "small.yaml", "--slurm", "--dry-run", "--processes", "2",
                         "--nodes", "2", "--sbatch=--time=2:00:00"});
  CHECK(script.exit_code == 0);
  CHECK(contains(script.out, "#SBATCH --ntasks=2\n"));
  CHECK(contains(script.out, "#SBATCH --time=2:00:00\n"));
  CHECK(contains(script.out, "srun --mpi=pmix "));
  CHECK_FALSE(fs::exists(folder.file("runs")));
  play(folder, "sbatch", "SLURM_JOB_ID=7 bash \"$1\"; SLURM_JOB_ID=7 bash \"$1\"\n");
  // The first start ends after a signal, as near the end of its time.
  play(folder, "srun",
       "while [[ \"$1\" == --* ]]; do shift; done\n"
       "[ -e started ] && exec \"$@\"\ntouch started\nexec \"$@\" --max-time=0.001\n");
  play(folder, "scontrol", "echo \"$*\" >> requeued\n");
  Command command;
  command.args = {"launch", "small.yaml", "--slurm", "-o", "run"};
  command.folder = folder.path();
  command.environment = {"PATH=" + folder.file("bin") + ":" + std::getenv("PATH")};
  const Result result = run(command);
  CHECK(result.exit_code == 0);
  CHECK(folder.read("requeued") == "requeue 7\n");
  CHECK(fs::exists(folder.file("run/weights.safetensors")));
}

// A folder where jobs of Slurm run at once; a job that stopped runs again.
struct SlurmFolder : ExampleFolder {
  SlurmFolder() {
    play(*this, "sbatch",
         "export SLURM_JOB_ID=7; rm -f requeued; bash \"$1\"; code=$?\n"
         "[ -e requeued ] || exit $code\nSLURM_RESTART_COUNT=1 bash \"$1\"\n");
    // The first start of a job ends after a signal, as near the end of its time.
    play(*this, "srun",
         "while [[ \"$1\" == --* ]]; do shift; done\necho \"$*\" >> starts\n"
         "[ -n \"$SLURM_RESTART_COUNT\" ] && exec \"$@\"\nexec \"$@\" --max-time=0.001\n");
    play(*this, "scontrol", "echo \"$*\" >> requeued\n");
  }
  Result launch(std::vector<std::string> words) const {
    words.insert(words.begin(), {"launch", "small.yaml", "--slurm", "fit.epochs=4"});
    Command command;
    command.args = std::move(words);
    command.folder = path();
    command.environment = {"PATH=" + file("bin") + ":" + std::getenv("PATH")};
    fs::remove(file("starts"));
    return run(command);
  }
};

TEST_CASE("launch --slurm resumes what --resume names, and continues when it is queued again") {
  const SlurmFolder folder;
  const Result none = folder.launch({"--resume=latest", "--dry-run"});
  CHECK(none.exit_code == 6);
  CHECK_MESSAGE(contains(none.err, "error[E400]: there is no checkpoint in "), none.err);
  REQUIRE(
      in_folder(folder, {"train", "small.yaml", "-q", "-o", "whole", "fit.epochs=4"}).exit_code ==
      0);
  for (const char* from : {"--resume", "--resume=latest", "--resume=best", "PATH", "run"}) {
    fs::remove_all(folder.file("runs"));
    REQUIRE(in_folder(folder, {"train", "small.yaml", "-q", "checkpoint.every=epoch",
                               "checkpoint.monitor=loss"})
                .exit_code == 0);
    const std::string own =
        "runs/small/" + fs::read_symlink(folder.file("runs/small/latest")).string();
    const std::string word = from == std::string("PATH") ? "--resume=" + own + "/checkpoints/000003"
                             : from == std::string("run") ? "--resume=" + own
                                                          : from;
    const Result result = folder.launch({word});
    CHECK_MESSAGE(result.exit_code == 0, word, result.err);
    const std::vector<std::string> starts = lines_of(folder.read("starts"));
    REQUIRE(starts.size() == 2);
    for (const std::string& start : starts) {
      CHECK_MESSAGE(contains(start, "--run-dir=" + own), start);
    }
    CHECK(folder.read(own + "/weights.safetensors") == folder.read("whole/weights.safetensors"));
  }
  // A checkpoint of elsewhere begins a new run, which continues from its own.
  REQUIRE(in_folder(folder, {"train", "small.yaml", "-q", "-o", "old", "checkpoint.every=epoch"})
              .exit_code == 0);
  fs::copy(folder.file("old/checkpoints/000003"), folder.file("alone"),
           fs::copy_options::recursive);
  const Result other = folder.launch({"--resume=alone", "--reset-optimizer"});
  CHECK_MESSAGE(other.exit_code == 0, other.err);
  const std::vector<std::string> starts = lines_of(folder.read("starts"));
  REQUIRE(starts.size() == 2);
  CHECK(contains(starts[0], "--resume=alone"));
  CHECK(contains(starts[0], "--reset-optimizer"));
  CHECK(contains(starts[1], "--resume=auto"));
  CHECK_FALSE(contains(starts[1], "--reset-optimizer"));
}

TEST_CASE("launch --slurm refuses what the job could not do") {
  const SlurmFolder folder;
  const auto refused = [&](const std::vector<std::string>& words, const std::string& says) {
    const Result result = folder.launch(words);
    CHECK(result.exit_code != 0);
    CHECK_MESSAGE(contains(result.err, says), result.err);
    CHECK_FALSE(fs::exists(folder.file("starts")));
    CHECK_FALSE(fs::exists(folder.file("runs")));
  };
  refused({"--restarts", "3"}, "`--restarts` does not go together with `--slurm`");
  refused({"--hosts", "a:2,b:2"}, "`--hosts` does not go together with `--slurm`");
  refused({"--hostfile", "hosts"}, "`--hostfile` does not go together with `--slurm`");
  refused({"--interface", "eth0"}, "export MESHTRAIN_NET_INTERFACE=NAME");
  refused({"--remote-agent", "rsh"}, "srun starts the processes");
  refused({"--sbatch=--ntasks=4"}, "with `--ntasks=4` alone, srun starts one process");
  refused({"--processes", "3"}, "error[E210]: 4 devices do not split over 3 processes");
  refused({"--processes", "2", "fit.batch_size=7"}, "error[E211]");
  refused({"--processes", "2", "distribution.layout_map[\"dx/kernel\"]=[null,model]"},
          "error[E202]");
}

TEST_CASE("compare shows what differs, in every form") {
  const ExampleFolder folder;
  for (const char* rate : {"0.1", "0.2"}) {
    CHECK(in_folder(folder, {"train", "small.yaml", std::string("-oruns/x/r") + rate,
                             std::string("compile.optimizer.learning_rate=") + rate})
              .exit_code == 0);
  }
  CHECK(in_folder(folder, {"runs", "tag", "runs/x/r0.2", "good"}).exit_code == 0);
  const Result table = in_folder(folder, {"compare", "runs/x"});
  REQUIRE(lines_of(table.out).size() == 3);
  CHECK(lines_of(table.out)[0].find("run   learning_rate  mesh") == 0);
  CHECK(contains(table.out, "data=2 model=2"));
  CHECK(contains(table.out, "good"));
  const Result csv = in_folder(folder, {"compare", "runs/x", "--format", "csv"});
  CHECK(contains(csv.out, "compile.optimizer.SGD.learning_rate,mesh,state,tags,epochs"));
  CHECK(contains(in_folder(folder, {"compare", "runs/x", "--format=markdown"}).out, "|---|"));
  const Result page = in_folder(folder, {"compare", "runs/x", "--format=html", "-o", "c.html"});
  CHECK(page.exit_code == 0);
  const std::string html = folder.read("c.html");
  CHECK(contains(html, "series-1"));
  CHECK(contains(html, "r0.2 0.2"));  // the run, and what sets it apart
  CHECK(contains(html, "</html>"));
  const Result sorted = in_folder(folder, {"compare", "runs/x", "--sort=-learning_rate"});
  CHECK(lines_of(sorted.out)[1].find("r0.2") == 0);
  CHECK(
      contains(in_folder(folder, {"compare", "runs/x", "--sort=los"}).err, "did you mean `loss`?"));
  const Result alone = in_folder(folder, {"compare", "runs/x", "--check-equal", "1e-5"});
  CHECK(alone.exit_code == 2);
  CHECK(contains(alone.err, "no two of these runs differ in their mesh alone"));
}

TEST_CASE("compare of several sweeps has what their configs differ in") {
  const ExampleFolder folder;
  for (const char* rate : {"0.1", "0.2"}) {
    CHECK(in_folder(folder, {"sweep", "small.yaml", "--grid", "mesh=2x2,4x1", "-q", "-o",
                             std::string("s") + rate,
                             std::string("compile.optimizer.learning_rate=") + rate})
              .exit_code == 0);
  }
  const Result both = in_folder(folder, {"compare", "s0.1", "s0.2", "--check-equal", "1e-5"});
  CHECK_MESSAGE(both.exit_code == 0, both.out, both.err);
  CHECK(contains(both.out, "learning_rate"));
  CHECK_FALSE(contains(in_folder(folder, {"compare", "s0.1"}).out, "learning_rate"));
}

TEST_CASE("compare is the same in any order, and takes a run that lost its config") {
  const ExampleFolder folder;
  for (const char* mesh : {"2x2", "4x1"}) {
    CHECK(in_folder(folder, {"train", "small.yaml", "-q", "--mesh", mesh, "-o",
                             std::string("runs/") + mesh})
              .exit_code == 0);
  }
  CHECK(in_folder(folder, {"compare", "runs/2x2", "runs/4x1", "--check-equal", "1e-5"}).exit_code ==
        0);
  std::string text = folder.read("runs/4x1/metrics.jsonl");
  const size_t at = text.find("{\"event\":\"evaluate\"");
  if (at != std::string::npos) {
    text.erase(at, text.find('\n', at) + 1 - at);
    folder.write("runs/4x1/metrics.jsonl", text);
    for (const auto& [a, b] : {std::pair("runs/2x2", "runs/4x1"), {"runs/4x1", "runs/2x2"}}) {
      CHECK(in_folder(folder, {"compare", a, b, "--check-equal", "1e-5"}).exit_code == 7);
    }
  }
  fs::remove(folder.file("runs/4x1/config.resolved.yaml"));
  const Result table = in_folder(folder, {"compare", "runs/2x2", "runs/4x1"});
  CHECK(lines_of(table.out)[0].size() < 200);
}

TEST_CASE("the last line of train -q has what a script wants to know") {
  const ExampleFolder folder;
  const Result result = in_folder(folder, {"train", "small.yaml", "--mesh", "4x1", "fit.epochs=2",
                                           "-q", "--log-format", "json"});
  REQUIRE(result.exit_code == 0);
  const Json line = parse_json(result.out);
  CHECK(line["overrides"] == Json({"fit.epochs=2", "distribution.device_mesh.shape=4x1"}));
  CHECK(line["mesh"]["shape"] == Json({4, 1}));
  CHECK(line["epochs"] == 2);
  CHECK(line["best_epoch"].get<int>() >= 1);
  CHECK(line["train_seconds"].get<double>() > 0);
  CHECK(line["ms_per_step"].get<double>() > 0);
  CHECK(line["bytes_per_device"].get<int64_t>() > 0);
}

TEST_CASE("runs are listed, tagged, removed and pruned") {
  const ExampleFolder folder;
  for (int i = 0; i < 3; ++i) {
    CHECK(in_folder(folder, {"train", "small.yaml", "-q"}).exit_code == 0);
  }
  const Json all = parse_json(in_folder(folder, {"runs", "list", "--format=json"}).out);
  REQUIRE(all.size() == 3);
  const std::string first = all[0]["folder"], last = all[2]["folder"];
  CHECK(in_folder(folder, {"runs", "tag", first, "good", "old"}).out == "good old\n");
  CHECK(in_folder(folder, {"runs", "tag", first, "--remove", "old"}).out == "good\n");
  CHECK(in_folder(folder, {"runs", "note", first, "as in the paper"}).exit_code == 0);
  const Result tagged = in_folder(folder, {"runs", "list", "--tag", "good"});
  CHECK(lines_of(tagged.out).size() == 2);
  CHECK(contains(tagged.out, "as in the paper"));
  const Result groups = in_folder(folder, {"watch", "runs", "--once"});
  CHECK(groups.exit_code == 6);
  CHECK_MESSAGE(contains(groups.err, "runs in it: small"), groups.err);
  // `runs/small` stands for its newest run.
  CHECK(in_folder(folder, {"report", "runs/small", "-o", "r.html"}).exit_code == 0);
  CHECK(in_folder(folder, {"evaluate", "runs/small", "-q"}).exit_code == 0);
  // `latest` is a run before it moves to another, however often it is named.
  CHECK(
      in_folder(folder, {"runs", "rm", last, "runs/small/latest", "runs/small/latest"}).exit_code ==
      0);
  CHECK_FALSE(fs::exists(folder.file(last)));
  CHECK(fs::exists(folder.file(all[1]["folder"].get<std::string>())));
  CHECK(fs::exists(folder.file("runs/small/latest/metrics.jsonl")));
  CHECK(in_folder(folder, {"runs", "rm", "small.yaml"}).exit_code == 6);
  CHECK(in_folder(folder, {"runs", "prune", "--keep", "1", "-n"}).out.empty());  // it has a tag
  CHECK(in_folder(folder, {"runs", "tag", first, "--remove", "good"}).exit_code == 0);
  CHECK(in_folder(folder, {"runs", "tag", first, ""}).exit_code == 2);
  CHECK(in_folder(folder, {"runs", "note", first, "two\nlines"}).exit_code == 2);
  CHECK(in_folder(folder, {"runs", "list", "nowhere"}).exit_code == 6);
  const Result dry = in_folder(folder, {"runs", "prune", "--keep", "1", "-n"});
  CHECK(dry.out.find(first) == 0);
  CHECK(fs::exists(folder.file(first)));
  CHECK(in_folder(folder, {"runs", "prune", "--checkpoints"}).exit_code == 0);
  CHECK(in_folder(folder, {"evaluate", "runs/small", "-q"}).exit_code == 0);
  CHECK(in_folder(folder, {"runs", "prune", "--keep", "1"}).exit_code == 0);
  CHECK_FALSE(fs::exists(folder.file(first)));
  CHECK(in_folder(folder, {"runs", "prune"}).exit_code == 2);
  CHECK(in_folder(folder, {"runs", "prune", "--older", "0.001"}).exit_code == 2);  // of what?
  CHECK(in_folder(folder, {"runs", "prune", "--older", "7d"}).exit_code == 0);
}

TEST_CASE("the newest run is found where `latest` was lost or copied as a folder") {
  const ExampleFolder folder;
  REQUIRE(in_folder(folder, {"train", "small.yaml", "-q"}).exit_code == 0);
  const fs::path runs = folder.file("runs/small");
  fs::copy(runs / "latest", runs / "copy", fs::copy_options::recursive);
  fs::remove(runs / "latest");
  fs::rename(runs / "copy", runs / "latest");  // as tools make it that follow links
  REQUIRE(in_folder(folder, {"train", "small.yaml", "-q", "fit.epochs=4"}).exit_code == 0);
  const Json listed = parse_json(in_folder(folder, {"runs", "list", "--format=json"}).out);
  const std::string newest = listed.back()["folder"];
  CHECK(contains(in_folder(folder, {"evaluate", "runs/small"}).err, newest + "/weights"));
  fs::remove_all(runs / "latest");
  const Result resumed = in_folder(folder, {"train", "small.yaml", "--resume", "fit.epochs=5"});
  CHECK_MESSAGE(contains(resumed.out, "Epoch 5/5"), resumed.err);
}

TEST_CASE("prune goes by when runs began, leaves sweeps whole, and passes over what it cannot") {
  const ExampleFolder folder;
  for (const char* name : {"jobs/job-9", "jobs/job-10"}) {
    REQUIRE(in_folder(folder, {"train", "small.yaml", "-q", "-o", name}).exit_code == 0);
  }
  REQUIRE(in_folder(folder, {"sweep", "small.yaml", "--grid", "seed=1,2", "-o", "jobs/s", "-q"})
              .exit_code == 0);
  fs::remove(folder.file("jobs/job-9/weights.safetensors"));
  const Result checkpoints = in_folder(folder, {"runs", "prune", "jobs", "--checkpoints", "-n"});
  CHECK_FALSE(contains(checkpoints.out, "job-9"));
  CHECK(contains(checkpoints.out, "job-10"));
  CHECK(in_folder(folder, {"runs", "prune", "jobs", "--keep", "1"}).exit_code == 0);
  CHECK_FALSE(fs::exists(folder.file("jobs/job-9")));
  CHECK(fs::exists(folder.file("jobs/job-10")));
  CHECK(fs::exists(folder.file("jobs/s/001")));
  folder.write("jobs/job-10/notes.json", R"({"note": null, "tags": [1, "good"]})");
  CHECK(contains(in_folder(folder, {"runs", "list", "jobs"}).out, "good"));
}

TEST_CASE("--threads and OMP_NUM_THREADS set the threads of a run") {
  const ExampleFolder folder;
  CHECK(
      contains(in_folder(folder, {"train", "small.yaml", "--threads", "1"}).err, "on 1 thread\n"));
  Command command;
  command.args = {"train", "small.yaml"};
  command.folder = folder.path();
  command.environment = {"OMP_NUM_THREADS=1"};
  CHECK(contains(run(command).err, "on 1 thread\n"));
}

}  // namespace
}  // namespace meshtrain
