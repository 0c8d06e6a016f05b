// meshtrain verify: equality over meshes, proof of resume; and that both notice what is wrong.
#include <doctest/doctest.h>

#include <filesystem>

#include "example.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

// A run of the example that saved each of its epochs.
struct SavedRun : ExampleFolder {
  explicit SavedRun(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {"train", "small.yaml", "-o",
                                     "run",   "-q",         "checkpoint.every=epoch"};
    args.insert(args.end(), more.begin(), more.end());
    const Result result = meshtrain(args, path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read(name);
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    write(name, text.replace(at, from.size(), to));
  }
};

TEST_CASE("verify proves that a config gives the same on every mesh of its size") {
  const ExampleFolder folder;
  const Result result = meshtrain({"verify", "small.yaml"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  const std::vector<std::string> lines = lines_of(result.out);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "reference   one device, float64, 2 steps of 16 and one of 8 from seed 7");
  CHECK(lines[1].find("2 x 2       equal; the largest difference is ") == 0);
  CHECK(lines[2].find("1 x 4       equal; ") == 0);
  CHECK(lines[3].find("4 x 1       equal; ") == 0);
  const Result one = meshtrain({"verify", "small.yaml", "--mesh", "data=1,model=2", "--steps", "1"},
                               folder.path());
  CHECK(one.exit_code == 0);
  CHECK(one.out.find("float64, 1 step of 16 and one of 8 from seed 7\n") != std::string::npos);
  const Result whole =
      meshtrain({"verify", "small.yaml", "--steps", "1", "data.remainder=drop"}, folder.path());
  CHECK(whole.out.find("float64, 1 step of 16 from seed 7\n") != std::string::npos);
}

TEST_CASE("verify computes in float64 whatever layers say and is no proof without a step") {
  const ExampleFolder folder;
  const std::string config = std::string(MESHTRAIN_SOURCE_DIR) + "/configs/mixed_convnet.yaml";
  const Result mixed = meshtrain(
      {"verify", config, "--devices", "cpu:2", "--mesh", "2", "--steps", "1", "fit.batch_size=8"},
      folder.path());
  CHECK_MESSAGE(mixed.exit_code == 0, mixed.out, mixed.err);
  const Result none = meshtrain(
      {"verify", "small.yaml", "data.remainder=drop", "fit.batch_size=1000"}, folder.path());
  CHECK(none.exit_code == 3);
  CHECK(none.err.find("error[E316]: no step to compare: ") != std::string::npos);
}

TEST_CASE("verify says why updates differ where an optimizer takes the sign of rounding errors") {
  const TemporaryFolder folder;
  folder.write("sign.yaml", R"(
data: {train: {source: random, samples: 16, shape: [6], classes: 3, seed: 1}}
model:
  layers:
    - Input: {shape: [6]}
    - Dense: {name: d1, units: 8}
    - BatchNormalization
    - Dense: {name: d2, units: 3}
compile: {optimizer: Lion, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 16}
distribution: {device_mesh: {shape: [2], devices: cpu:2}}
)");
  const Result result = meshtrain({"verify", "sign.yaml"}, folder.path());
  CHECK(result.exit_code != 0);
  CHECK_MESSAGE(result.out.find("NOT equal: `d1/bias`") != std::string::npos, result.out);
  CHECK(result.out.find("a bias before BatchNormalization") != std::string::npos);
  const Result member =
      meshtrain({"verify", "sign.yaml",
                 "compile.optimizer={MultiOptimizer: {default_optimizer: SGD, optimizer_map: "
                 "{d1/bias: Lion}}}"},
                folder.path());
  CHECK_MESSAGE(member.out.find("note        Lion makes updates") != std::string::npos, member.out);
  const Result other = meshtrain({"verify", "sign.yaml", "compile.optimizer=SGD"}, folder.path());
  CHECK(other.out.find("note") == std::string::npos);
}

TEST_CASE("verify names the first tensor that differs") {
  const ExampleFolder folder;
  // Sums over several devices round otherwise than over one: with no tolerance that is a
  // difference.
  const Result result =
      meshtrain({"verify", "small.yaml", "--tolerance", "0", "--steps", "20"}, folder.path());
  CHECK(result.exit_code == 7);
  CHECK(result.out.find("NOT equal: ") != std::string::npos);
  CHECK(result.out.find(" on one device and ") != std::string::npos);
}

TEST_CASE("verify says which meshes cannot hold a config and that one device proves nothing") {
  const ExampleFolder folder;
  const Result result = meshtrain({"verify", "small.yaml", "--mesh", "2x3", "--devices", "cpu:6",
                                   "model.layers.d1.units=9", "fit.batch_size=6"},
                                  folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.out.find("2 x 3       equal") != std::string::npos);
  CHECK(result.out.find("3 x 2       not possible: [E2") != std::string::npos);
  const Result one =
      meshtrain({"verify", "small.yaml", "--mesh", "1x1", "--devices", "cpu:1"}, folder.path());
  CHECK(one.exit_code == 2);
  CHECK(one.err.find("error[E140]: the mesh has one device") == 0);
  CHECK(meshtrain({"verify", "gone.yaml"}, folder.path()).exit_code == 2);
}

TEST_CASE("verify proves that a run resumes bit for bit") {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{},
        {"checkpoint.every=2 steps", "checkpoint.keep=9"},
        {"compile.optimizer={Adam: {learning_rate: 0.01, use_ema: true}}"},
        {"callbacks=[{ReduceLROnPlateau: {monitor: loss, patience: 1, min_delta: 5}}]"}}) {
    const SavedRun folder(more);
    const std::string before = folder.read("run/metrics.jsonl");
    const Result result = meshtrain({"verify", "run"}, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
    CHECK(result.out.find(" is the same bit for bit: ") != std::string::npos);
    CHECK(folder.read("run/metrics.jsonl") == before);
  }
}

TEST_CASE("verify and evaluate compare a run's weights with their checksum") {
  const SavedRun folder;
  const Result good = meshtrain({"verify", "run", "--checksums"}, folder.path());
  CHECK(good.exit_code == 0);
  CHECK(good.out.find("\nrun/weights.safetensors: good, 3 tensors, ") != std::string::npos);
  std::string bytes = folder.read("run/weights.safetensors");
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  folder.write("run/weights.safetensors", bytes);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"verify", "run"}, {"evaluate", "run"}}) {
    const Result result = meshtrain(args, folder.path());
    CHECK(result.exit_code == 6);
    CHECK_MESSAGE(
        result.err.find("weights.safetensors`: its checksum does not match") != std::string::npos,
        result.err);
  }
  // Those of older versions have none.
  folder.replace("run/weights.safetensors", "meshtrain_xxh3_128", "meshtrain_xxh3_129");
  const Result older = meshtrain({"verify", "run", "--checksums"}, folder.path());
  CHECK(older.exit_code == 0);
  CHECK(older.out.find("\nrun/weights.safetensors: no checksum, as of older versions") !=
        std::string::npos);
}

TEST_CASE("verify leaves the files of callbacks alone") {
  const TemporaryFolder elsewhere;
  const std::string table = elsewhere.file("table.csv");
  const SavedRun folder({"callbacks=[{CSVLogger: {filename: " + table + "}}]"});
  const std::string before = elsewhere.read("table.csv");
  REQUIRE(!before.empty());
  CHECK(meshtrain({"verify", "run"}, folder.path()).exit_code == 0);
  CHECK(elsewhere.read("table.csv") == before);
}

TEST_CASE("verify finds a run whose checkpoint is not what training gives") {
  const SavedRun folder;
  // A checkpoint of another seed's run under the same name: whole, and wrong.
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "other", "-q", "checkpoint.every=epoch",
                     "compile.optimizer.SGD.learning_rate=0.2"},
                    folder.path())
              .exit_code == 0);
  fs::remove_all(folder.file("run/checkpoints/000003"));
  fs::copy(folder.file("other/checkpoints/000003"), folder.file("run/checkpoints/000003"),
           fs::copy_options::recursive);
  CHECK(meshtrain({"verify", "run", "--checksums"}, folder.path()).exit_code == 0);
  const Result result = meshtrain({"verify", "run", "--scratch", folder.path()}, folder.path());
  CHECK(result.exit_code == 7);
  CHECK(result.out.find("run: resumed from step 3, step 6 is NOT the same\n  `d1/kernel`: element "
                        "0 was saved as ") != std::string::npos);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    CHECK(entry.path().filename().string().find("meshtrain-verify") == std::string::npos);
  }
}

TEST_CASE("verify says what it lacks for the proof of a run") {
  const SavedRun folder({"fit.epochs=1"});
  const Result one = meshtrain({"verify", "run"}, folder.path());
  CHECK(one.exit_code == 6);
  CHECK(one.err.find("error[E400]: `run/checkpoints` has one checkpoint: the proof of resume "
                     "needs two") == 0);
  CHECK(meshtrain({"verify", "run", "--checksums"}, folder.path()).exit_code == 0);
  REQUIRE(meshtrain({"resume", "run", "fit.epochs=2", "--mesh", "4x1", "-q"}, folder.path())
              .exit_code == 0);
  const Result moved = meshtrain({"verify", "run"}, folder.path());
  CHECK(moved.exit_code == 6);
  CHECK(moved.err.find("no two neighbours in `run/checkpoints` are of the same mesh, model, "
                       "optimizer and data") != std::string::npos);
  CHECK(moved.err.find("help: --checksums compares checksums alone") != std::string::npos);
}

TEST_CASE("verify passes over the place where another optimizer began") {
  const SavedRun folder;
  REQUIRE(meshtrain({"resume", "run", "fit.epochs=3", "compile.optimizer=adam", "--reset-optimizer",
                     "-q"},
                    folder.path())
              .exit_code == 0);
  const Result result = meshtrain({"verify", "run"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.err);
  CHECK(result.out.find("run: resumed from step 3, step 6 is the same") != std::string::npos);
}

TEST_CASE("verify passes over the place where a flag of resume began something anew") {
  const auto check = [](const std::vector<std::string>& first, std::vector<std::string> second,
                        const std::string& says) {
    const SavedRun folder(first);
    second.insert(second.begin(), {"resume", "run", "fit.epochs=3", "-q"});
    const Result resumed = meshtrain(second, folder.path());
    REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.err);
    const Result result = meshtrain({"verify", "run"}, folder.path());
    CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
    CHECK_MESSAGE(result.out.find(says) != std::string::npos, result.out);
  };
  const std::string older = "run: resumed from step 3, step 6 is the same";
  check({}, {"seed=5", "--reset-cursor"}, older);
  check({}, {"--partial", "--reset-optimizer", "model.layers.d1.units=4"}, older);
  check({}, {"--reset-optimizer"}, older);
  check({}, {"--batch-size", "8"}, "run: resumed from step 6, step 11 is the same");
  // A run that continues in spite of a change is the same again.
  check({}, {"model.layers.d1.activation=tanh", "--allow", "model"},
        "run: resumed from step 6, step 9 is the same");
}

TEST_CASE("verify passes over an epoch that began anew in its middle") {
  const SavedRun folder({"checkpoint.every=2 steps", "checkpoint.keep=9"});
  fs::remove_all(folder.file("run/checkpoints/000006"));  // step 4 is the first of epoch 2
  const Result resumed = meshtrain(
      {"resume", "run", "--reset-cursor", "checkpoint.every=99 steps", "-q"}, folder.path());
  REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.err);
  REQUIRE(fs::exists(folder.file("run/checkpoints/000007")));
  const Result result = meshtrain({"verify", "run"}, folder.path());
  CHECK_MESSAGE(result.exit_code == 0, result.out, result.err);
  CHECK(result.out.find("run: resumed from step 2, step 4 is the same") != std::string::npos);
}

TEST_CASE("verify of a run whose data are gone or others says so") {
  const ExampleFolder folder;
  const auto npy = [](std::string header, size_t num_bytes) {
    header.resize(117, ' ');
    return std::string("\x93NUMPY\x01\0v\0", 10) + header + "\n" + std::string(num_bytes, '\0');
  };
  const std::string x = folder.write(
      "x.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (40, 6), }", 40 * 6 * 4));
  folder.write("y.npy", npy("{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }", 40 * 4));
  REQUIRE(meshtrain({"train", "small.yaml", "-o", "run", "-q", "checkpoint.every=epoch",
                     "data.train={source: npy, x: x.npy, y: y.npy}"},
                    folder.path())
              .exit_code == 0);
  CHECK(meshtrain({"verify", "run"}, folder.path()).exit_code == 0);
  std::string changed = folder.read("x.npy");
  changed[200] = 1;
  folder.write("x.npy", changed);
  const Result other = meshtrain({"verify", "run"}, folder.path());
  CHECK(other.exit_code == 6);
  CHECK(other.err.find("error[E413]: the place in the data (epoch 2, batch 0) cannot be found in "
                       "other data or another order") == 0);
  fs::remove(x);
  CHECK(meshtrain({"verify", "run"}, folder.path()).exit_code == 3);
}

}  // namespace
}  // namespace meshtrain
