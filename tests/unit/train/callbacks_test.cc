// Callbacks against Keras' own (tests/reference/callbacks.py), and when the run is killed and goes
// on after any epoch.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "config/load.h"
#include "fake_runner.h"
#include "support/golden_json.h"
#include "support/temp_folder.h"
#include "train/callbacks/make_callbacks.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr int kBatches = 3;  // of an epoch in the reference

std::vector<Json> golden_cases() {
  return test::golden_json("keras/callbacks").get<std::vector<Json>>();
}

Config config_of(const Json& callbacks, const test::TempFolder& folder) {
  const std::string text =
      "model: {layers: [{Input: {shape: [4]}}, {Dense: 2}]}\n"
      "compile: {optimizer: sgd, loss: mse}\n"
      "fit: {epochs: 25}\n"
      "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n"
      "callbacks: " +
      json_text(callbacks) + "\n";
  LoadOptions options;
  options.files = {folder.write("config.yaml", text)};
  return load_config(options);
}

Logs logs_of(const Json& pairs) {
  Logs out;
  for (const Json& pair : pairs) {
    out.emplace_back(pair.at(0), pair.at(1));
  }
  return out;
}

// Its one weight is the number of the epoch, and its running logs are given.
struct ScriptedRunner : FakeRunner {
  Logs logs() const override { return running; }
  void set_weight(double value) {
    weights["w"] = tensor_of(DType::kFloat32, {1}, std::vector{value});
  }
  double weight() const { return weights.at("w").at(0); }
  Logs running;
};

// One process of a run: it may resume from the files of another.
class Process {
 public:
  Process(const Json& golden, const Config& config, const std::string& folder)
      : golden_(golden), folder_(folder), list_(make_context(config, folder)) {
    runner.rate = golden.at("rate");
    runner.set_weight(-1);
    add_callbacks(list_);
  }

  // What a checkpoint has of them.
  struct Saved {
    std::map<std::string, std::string> states;
    float rate = 0;
    double weight = 0;
    std::map<std::string, double> kept;
  };
  Saved save() {
    Saved out{.rate = runner.rate, .weight = runner.weight()};
    for (const auto& callback : list_.all()) {
      out.states[callback->state_name()] = callback->save_state();
    }
    for (const auto& [owner, weights] : runner.kept) {
      out.kept[owner] = weights.at("w").at(0);
    }
    return out;
  }
  void load(const Saved& saved) {
    runner.rate = saved.rate;
    runner.set_weight(saved.weight);
    for (const auto& [owner, weight] : saved.kept) {
      runner.kept[owner]["w"] = tensor_of(DType::kFloat32, {1}, std::vector{weight});
    }
    for (const auto& callback : list_.all()) {
      callback->load_state(saved.states.at(callback->state_name()));
    }
  }

  void forget_model() {
    for (const auto& callback : list_.all()) {
      callback->forget_model();
    }
  }
  CallbackContext& context() { return list_.context(); }

  // Epochs first ... last - 1; whether it stopped.
  void begin(int64_t epoch) {
    for_each([&](Hook& hook) { hook.on_train_begin({.epoch = epoch}); });
  }
  bool stopped() const {
    return std::any_of(list_.all().begin(), list_.all().end(),
                       [](const auto& callback) { return callback->stops_training(); });
  }
  void epoch(int64_t epoch) {
    const Json& given = golden_.at("logs").at(static_cast<size_t>(epoch));
    runner.running = {{given[0][0], given[0][1]}};
    for_each([&](Hook& hook) { hook.on_epoch_begin({.epoch = epoch}); });
    runner.set_weight(static_cast<double>(epoch));
    for (int64_t batch = 0; batch < kBatches; ++batch) {
      const TrainPosition at = {.epoch = epoch, .batch = batch + 1};
      for_each([&](Hook& hook) { hook.on_train_step(at, runner); });
    }
    EpochReport report = {.epoch = epoch + 1, .logs = logs_of(given)};
    for_each([&](Hook& hook) { hook.on_epoch_end(report); });
    rates.push_back(runner.learning_rate());
    all_logs.push_back(report.logs);
  }
  void end() {
    for_each([](Hook& hook) { hook.before_finalize(); });
    for_each([](Hook& hook) { hook.on_train_end(); });
  }

  ScriptedRunner runner;
  std::string printed;
  std::vector<std::string> warnings;
  std::vector<double> rates;
  std::vector<Logs> all_logs;
  std::vector<std::pair<std::string, double>> saved;

 private:
  template <class F>
  void for_each(const F& call) {
    for (const auto& callback : list_.all()) {
      call(*callback);
    }
  }

  CallbackContext make_context(const Config& config, const std::string& folder) {
    return {.runner = runner,
            .config = config,
            .run_dir = folder,
            .now = [] { return 0.0; },
            .print = [this](const std::string& text) { printed += text; },
            .warn = [this](const std::string& text) { warnings.push_back(text); },
            .larger_is_better = [](const std::string&) { return false; },
            .save_model =
                [this](const std::string& path) {
                  saved.emplace_back(path.substr(folder_.size() + 1), runner.weight());
                }};
  }

  const Json& golden_;
  std::string folder_;
  CallbackList list_;
};

std::string name_of(const Json& golden) {
  return json_text(golden.at("callbacks"));
}

// Keras saves each epoch where `save_best_only` finds no log; here none of them is saved.
Json saved_here(const Json& golden) {
  const Json& callback = golden.at("callbacks").at(0);
  const bool finds_none = callback.contains("ModelCheckpoint") &&
                          callback.at("ModelCheckpoint").value("monitor", "") == "nothing";
  return finds_none ? Json::array() : golden.at("result").at("saved");
}

void check_files(const Json& golden, const test::TempFolder& folder) {
  for (const auto& [name, text] : golden.at("result").at("files").items()) {
    std::ifstream in(folder.file(name), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), {});
    CHECK_MESSAGE(content == text.get<std::string>(), name, " of ", name_of(golden));
  }
}

void write_files(const Json& golden, const test::TempFolder& folder) {
  for (const auto& [name, text] : golden.at("files").items()) {
    folder.write(name, text.get<std::string>());
  }
}

TEST_CASE("callbacks: each class of the catalogue has a type, each type a class") {
  std::set<std::string> types;
  for (const CallbackType& type : callback_types()) {
    CHECK(types.insert(std::string(type.class_name)).second);
  }
  const std::vector<std::string> declared = class_names(Category::kCallback);
  CHECK(types == std::set<std::string>(declared.begin(), declared.end()));
}

TEST_CASE("callbacks print and write and save and set what Keras' do") {
  for (const Json& golden : golden_cases()) {
    const test::TempFolder folder;
    write_files(golden, folder);
    const Config config = config_of(golden.at("callbacks"), folder);
    Process process(golden, config, folder.path());
    const Json& want = golden.at("result");
    process.begin(0);
    const int64_t count = static_cast<int64_t>(golden.at("logs").size());
    for (int64_t e = 0; e < count && !process.stopped(); ++e) {
      process.epoch(e);
    }
    process.end();
    const std::string name = name_of(golden);
    if (saved_here(golden) == want.at("saved")) {
      CHECK_MESSAGE(process.printed == want.at("printed").get<std::string>(), name);
    }
    CHECK_MESSAGE(Json(process.warnings) == want.at("warnings"), name);
    CHECK_MESSAGE(Json(process.rates) == want.at("rates"), name);
    CHECK_MESSAGE(Json(process.saved) == saved_here(golden), name);
    CHECK_MESSAGE(process.runner.weight() == want.at("weight").get<double>(), name);
    REQUIRE_MESSAGE(process.all_logs.size() == want.at("logs").size(), name);
    for (size_t e = 0; e < process.all_logs.size(); ++e) {
      CHECK_MESSAGE(process.all_logs[e] == logs_of(want.at("logs")[e]), name);
    }
    check_files(golden, folder);
  }
}

std::string problems_of(const std::string& callbacks, const std::string& more = "") {
  const test::TempFolder folder;
  LoadOptions options;
  options.files = {
      folder.write("t.yaml",
                   "model: {layers: [{Input: {shape: [4]}}, {Dense: 2}]}\n"
                   "compile: {optimizer: sgd, loss: mse, metrics: [mae, Mean]}\n"
                   "data: {train: {source: random, samples: 8, shape: [4], labels: [2]}}\n" +
                       more + "callbacks: " + callbacks + "\n")};
  Diagnostics found;
  try {
    const Config config = load_config(options);
    const Setup setup(config, nullptr);
    check_callbacks(setup, config.fit.validation_split > 0, found);
  } catch (const ConfigError& error) {
    found = error.diagnostics();
  }
  std::string out;
  for (const Diagnostic& d : found.list()) {
    out += d.code + ": " + d.message + "\n";
    for (const std::string& note : d.notes) {
      out += "  " + note + "\n";
    }
  }
  return out;
}

TEST_CASE("logs and placeholders that there are not are refused with those there are") {
  CHECK(problems_of("[EarlyStopping: {monitor: loss}]") == "");
  CHECK(problems_of("[EarlyStopping]") ==
        "E113: `EarlyStopping` watches `val_loss`, which is no log here\n"
        "  note: logs: loss, mae, mean\n"
        "  help: `val_` logs need validation data: data.validation, data.split or "
        "fit.validation_split\n");
  CHECK(problems_of("[EarlyStopping, ModelCheckpoint: '{epoch}-{val_mae:.2f}.keras']",
                    "fit: {validation_split: 0.5}\n") == "");
  CHECK(problems_of("[ReduceLROnPlateau: {monitor: acc}]") ==
        "E113: `ReduceLROnPlateau` watches `acc`, which is no log here\n"
        "  note: logs: loss, mae, mean, learning_rate\n");
  CHECK(problems_of("[ModelCheckpoint: '{epoch}-{batch}-{mea}.keras']") ==
        "E113: `filepath` has `{batch}`, which is not known here\n"
        "  note: known: epoch, step, loss, mae, mean\n"
        "E113: `filepath` has `{mea}`, which is not known here\n"
        "  note: known: epoch, step, loss, mae, mean\n");
  CHECK(problems_of("[ModelCheckpoint: {filepath: '{batch}-{loss}.keras', save_freq: 2}]") == "");
  CHECK(problems_of("[LearningRateScheduler: =lr, ModelCheckpoint: '{learning_rate}.keras']") ==
        "");
  CHECK(problems_of("[ModelCheckpoint: '{val_loss}.keras']",
                    "fit: {validation_split: 0.5, validation_freq: 2}\n")
            .find("E113: `{val_loss}` is not there after each epoch that is saved") == 0);
  CHECK(problems_of("[ModelCheckpoint: {filepath: '{val_loss}.keras', save_freq: 4 epochs}]",
                    "fit: {validation_split: 0.5, validation_freq: 2}\n") == "");
  CHECK(problems_of("[EarlyStopping: {monitor: mean}]") ==
        "E113: whether a larger `mean` is better is not known\n"
        "  help: write `mode: max` or `mode: min`\n");
  CHECK(problems_of("[EarlyStopping: {monitor: mean, mode: max}]") == "");
  CHECK(problems_of("[CSVLogger: /proc/none/log.csv]") ==
        "E142: cannot write to `/proc/none`: No such file or directory\n");
}

TEST_CASE("a run that is killed two epochs after a checkpoint ends as the one that was not") {
  for (const Json& golden : golden_cases()) {
    const int64_t ran = static_cast<int64_t>(golden.at("result").at("rates").size());
    for (int64_t saved_after = 1; saved_after < ran; saved_after += 3) {
      const test::TempFolder folder;
      write_files(golden, folder);
      const Config config = config_of(golden.at("callbacks"), folder);
      Process first(golden, config, folder.path());
      first.begin(0);
      for (int64_t e = 0; e < saved_after; ++e) {
        first.epoch(e);
      }
      const Process::Saved checkpoint = first.save();
      for (int64_t e = saved_after; e < std::min(saved_after + 2, ran); ++e) {
        first.epoch(e);  // lost
      }
      Process second(golden, config, folder.path());
      second.load(checkpoint);
      second.begin(saved_after);
      for (int64_t e = saved_after; e < ran; ++e) {
        REQUIRE_FALSE(second.stopped());
        second.epoch(e);
      }
      CHECK(second.stopped() == (ran < static_cast<int64_t>(golden.at("logs").size())));
      second.end();
      const Json& rates = golden.at("result").at("rates");
      CHECK_MESSAGE(Json(second.rates) == Json(rates.begin() + saved_after, rates.end()),
                    name_of(golden));
      CHECK_MESSAGE(second.runner.weight() == golden.at("result").at("weight").get<double>(),
                    name_of(golden));
      const std::string& printed = golden.at("result").at("printed").get_ref<const std::string&>();
      CHECK_MESSAGE(printed.size() >= second.printed.size(), name_of(golden));
      CHECK_MESSAGE(printed.substr(printed.size() - second.printed.size()) == second.printed,
                    name_of(golden));
      check_files(golden, folder);
    }
  }
}

// One epoch for each loss; val_loss is its negative.
Json scripted(const std::string& callbacks, const std::vector<double>& losses) {
  Json logs = Json::array();
  for (const double loss : losses) {
    logs.push_back(Json::array({Json::array({"loss", loss}), Json::array({"val_loss", -loss})}));
  }
  return {{"rate", 0.5}, {"callbacks", parse_json(callbacks)}, {"logs", logs}};
}

// A run in a folder that other runs may share, from epoch `first` with what `from` saved.
struct Scripted {
  Scripted(const std::string& callbacks, const std::vector<double>& losses,
           const test::TempFolder& folder)
      : golden(scripted(callbacks, losses)),
        config(config_of(golden.at("callbacks"), folder)),
        process(golden, config, folder.path()) {}
  void run(int64_t first, int64_t end) {
    process.begin(first);
    for (int64_t e = first; e < end && !process.stopped(); ++e) {
      process.epoch(e);
    }
  }
  Json golden;
  Config config;
  Process process;
};

TEST_CASE("what is known of another log or direction is not compared with") {
  const test::TempFolder folder;
  const auto rates_after = [&](const std::string& was, const std::string& is) {
    Scripted first("[{\"ReduceLROnPlateau\": " + was + "}]", {4, 4}, folder);
    first.run(0, 2);  // one epoch without an improvement
    Scripted second("[{\"ReduceLROnPlateau\": " + is + "}]", {4, 4, 4, 4}, folder);
    second.process.load(first.process.save());
    second.run(2, 4);
    return second.process.rates;
  };
  const std::string loss = R"({"monitor": "loss", "mode": "min", "patience": 2, "factor": 0.5})";
  const std::string other =
      R"({"monitor": "val_loss", "mode": "min", "patience": 2, "factor": 0.5})";
  const std::string up = R"({"monitor": "loss", "mode": "max", "patience": 2, "factor": 0.5})";
  CHECK(rates_after(loss, loss) == std::vector<double>{0.25, 0.25});
  CHECK(rates_after(loss, other) == std::vector<double>{0.5, 0.5});
  CHECK(rates_after(loss, up) == std::vector<double>{0.5, 0.5});

  const auto stops_after = [&](const std::string& is) {
    Scripted first(R"([{"EarlyStopping": {"monitor": "loss", "restore_best_weights": true}}])",
                   {4, 3}, folder);
    first.run(0, 2);
    Scripted second(is, {4, 3, -9, 5, 6}, folder);
    second.process.load(first.process.save());
    second.run(2, 5);
    second.process.end();
    return std::make_pair(second.process.rates.size(), second.process.runner.weight());
  };
  CHECK(stops_after(R"([{"EarlyStopping": {"monitor": "loss", "restore_best_weights": true}}])") ==
        std::make_pair(size_t{2}, 2.0));
  // val_loss 9, -5, -6: nothing was better before the first
  CHECK(stops_after(R"([{"EarlyStopping": {"monitor": "val_loss",
                                           "restore_best_weights": true}}])") ==
        std::make_pair(size_t{3}, 4.0));
  CHECK(stops_after(R"([{"EarlyStopping": {"monitor": "loss", "mode": "max",
                                           "restore_best_weights": true}}])") ==
        std::make_pair(size_t{3}, 4.0));

  const auto saved_after = [&](const std::string& monitor) {
    Scripted first(R"([{"ModelCheckpoint": {"filepath": "b.keras", "save_best_only": true,
                        "monitor": "loss"}}])",
                   {1, 2}, folder);
    first.run(0, 2);
    Scripted second(R"([{"ModelCheckpoint": {"filepath": "b.keras", "save_best_only": true,
                         "monitor": ")" +
                        monitor + "\"}}]",
                    {1, 2, -3}, folder);
    Process::Saved state = first.process.save();
    second.process.load(state);
    second.run(2, 3);
    return second.process.saved.size();
  };
  CHECK(saved_after("loss") == 1);
  CHECK(saved_after("val_loss") == 1);  // 3, the first one
}

TEST_CASE("what is known of another model is forgotten") {
  const test::TempFolder folder;
  const std::string callbacks =
      R"([{"EarlyStopping": {"monitor": "loss", "restore_best_weights": true}},
          {"ModelCheckpoint": {"filepath": "b.keras", "save_best_only": true, "monitor": "loss"}}])";
  Scripted first(callbacks, {1, 2}, folder);
  first.run(0, 2);
  CHECK(first.process.stopped());
  Scripted second(callbacks, {1, 2, 8, 7, 9}, folder);
  Process::Saved state = first.process.save();
  state.kept.clear();  // they did not fit
  second.process.load(state);
  second.process.forget_model();
  second.run(2, 5);
  second.process.end();
  CHECK(second.process.saved.size() == 2);
  CHECK(second.process.runner.weight() == 3);
}

TEST_CASE("models of another filepath are not those that are kept") {
  const test::TempFolder folder;
  const auto callbacks = [](const std::string& name) {
    return R"([{"ModelCheckpoint": {"filepath": ")" + name + R"(-{epoch}.keras", "keep": 1}}])";
  };
  Scripted first(callbacks("a"), {1, 2}, folder);
  first.run(0, 2);
  const std::string model = folder.write("a-2.keras", "");
  for (const char* name : {"b", "a"}) {
    Scripted second(callbacks(name), {1, 2, 3}, folder);
    second.process.load(first.process.save());
    second.run(2, 3);
    CHECK(std::filesystem::exists(model) == (name == std::string("b")));
  }
}

TEST_CASE("a table that several runs append to loses the rows of none") {
  const test::TempFolder folder;
  const std::string callbacks = R"([{"CSVLogger": {"filename": "all.csv", "append": true}}])";
  const auto rows = [&] { return read_file(folder.file("all.csv"), 1 << 20); };
  Scripted first(callbacks, {1, 2, 3}, folder);
  first.run(0, 2);
  const Process::Saved checkpoint = first.process.save();
  const std::string own = rows();
  first.process.epoch(2);
  Scripted other(callbacks, {5, 6}, folder);
  other.run(0, 2);
  const std::string theirs = "0,5.0,-5.0\r\n1,6.0,-6.0\r\n";
  CHECK(rows() == own + "2,3.0,-3.0\r\n" + theirs);
  Scripted again(callbacks, {1, 2, 4}, folder);
  again.process.load(checkpoint);
  again.run(2, 3);
  CHECK(rows() == own + theirs + "2,4.0,-4.0\r\n");
  // From a checkpoint of another run, whose rows all stay.
  Scripted next(callbacks, {1, 2, 7}, folder);
  next.process.context().same_run = false;
  next.process.load(checkpoint);
  next.run(2, 3);
  CHECK(rows() == own + theirs + "2,4.0,-4.0\r\n2,7.0,-7.0\r\n");
}

TEST_CASE("rows of an attempt that saved nothing are not there twice") {
  const test::TempFolder folder;
  for (const std::string& name : {std::string("own.csv"), folder.file("shared.csv")}) {
    const std::string callbacks =
        R"([{"CSVLogger": {"append": true, "filename": ")" + name + R"("}}])";
    Scripted first(callbacks, {1, 2}, folder);
    first.run(0, 2);
    Scripted again(callbacks, {1, 2}, folder);
    again.process.context().begins_again = true;
    again.run(0, 2);
  }
  const std::string header = "epoch,loss,val_loss\r\n", rows = "0,1.0,-1.0\r\n1,2.0,-2.0\r\n";
  CHECK(read_file(folder.file("own.csv"), 1 << 20) == header + rows);
  // Those may be another run's.
  CHECK(read_file(folder.file("shared.csv"), 1 << 20) == header + rows + rows);
}

TEST_CASE("a log that a table has no column for is said once") {
  const test::TempFolder folder;
  Scripted first("[]", {1, 2}, folder);
  first.run(0, 1);
  Scripted second(R"([{"LearningRateScheduler": {"schedule": "=lr"}}])", {1, 2, 3}, folder);
  Process::Saved state = first.process.save();
  state.states["LearningRateScheduler"] = "{}";
  second.process.load(state);
  second.run(1, 3);
  CHECK(second.process.warnings ==
        std::vector{"`" + folder.file("metrics.csv") +
                    "` has no column for `learning_rate`, which is new since the checkpoint"});
}

}  // namespace
}  // namespace meshtrain
