// meshtrain plan for hardware that is not here, and bench comm.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "base/json.h"
#include "command.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr const char* kModel = R"(model:
  layers:
    - Input: {shape: [784]}
    - Dense: {units: 256, activation: relu, name: d1}
    - Dense: {units: 256, activation: relu, name: d2}
    - Dense: {units: 10, name: d3}
compile: {optimizer: adam, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 64}
)";

Json estimate_of(const std::vector<std::string>& more, const TemporaryFolder& folder) {
  std::vector<std::string> args = {"plan", "model.yaml", "--format", "json"};
  args.insert(args.end(), more.begin(), more.end());
  const Result result = meshtrain(args, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  return parse_json(result.out);
}

double number(const Json& json, const char* key) {
  return json.at(key).get<double>();
}

// All sums of an estimate add up, to the last digits that are printed.
void check_sums(const Json& plan) {
  const Json& e = plan.at("estimate");
  const auto close = [](double a, double b) {
    CHECK(std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b)));
  };
  REQUIRE(e.at("collectives").size() == plan.at("collectives").size());
  double communication = 0, exposed = 0;
  for (const Json& call : e.at("collectives")) {
    communication += number(call, "seconds");
    exposed += number(call, "exposed_seconds");
    CHECK(number(call, "seconds") > 0);
    CHECK(number(call, "exposed_seconds") <= number(call, "seconds") * (1 + 1e-9));
    CHECK_FALSE(call.at("algorithm").get<std::string>().empty());
  }
  close(number(e, "communication_seconds"), communication);
  close(number(e, "exposed_seconds"), exposed);
  close(number(e, "overlapped_seconds"), communication - exposed);
  close(number(e, "step_seconds"), number(e, "compute_seconds") + number(e, "memory_seconds") +
                                       number(e, "launch_seconds") + exposed +
                                       number(e, "jitter_seconds"));
  close(number(e, "samples_per_second"),
        number(plan.at("batch"), "global") / number(e, "step_seconds"));
  const double peak =
      number(e.at("hardware").at("peak"), e.at("products").get<std::string>().c_str());
  CHECK(number(e, "product_flops") <= number(plan.at("flops"), "total"));
  close(number(e, "mfu"),
        number(e, "product_flops") / number(e, "step_seconds") / peak /
            (e.at("hardware").at("per_host").is_null() ? 1 : number(e, "devices")));
  CHECK(number(e, "mfu") < 1);
}

}  // namespace

TEST_CASE("plan estimates a step on GPUs that are not here") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const Json plan = estimate_of({"--devices", "16xh100"}, folder);
  check_sums(plan);
  const Json& e = plan.at("estimate");
  CHECK(e.at("hardware").at("name") == "H100");
  CHECK(e.at("devices") == 16);
  CHECK(e.at("hosts") == 2);
  CHECK(e.at("fits") == true);
  CHECK(plan.at("mesh").at("kind") == "16 x h100 (on paper)");
  CHECK(e.at("axes")[0] == Json({{"name", "batch"}, {"size", 16}, {"hosts", 2}, {"per_host", 8}}));
  const Result text = meshtrain({"plan", "model.yaml", "--devices", "16xh100"}, folder.path());
  CHECK(text.exit_code == 0);
  for (const char* part : {"hardware  16 x H100 on 2 hosts", "a device: fits",
                           "batch=16 2 hosts x 8", "step      ", "samples/s, MFU", "bound by"}) {
    CHECK_MESSAGE(contains(text.out, part), text.out);
  }
}

TEST_CASE("plan says that a small model is slower on several devices than on one") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  for (const char* devices : {"2xH200", "8xH200"}) {
    const Json plan = estimate_of({"--devices", devices}, folder);
    check_sums(plan);
    const Json& e = plan.at("estimate");
    REQUIRE(e.at("one_device_seconds").is_number());
    CHECK(number(e, "one_device_seconds") < number(e, "step_seconds"));
    CHECK(contains(e.at("notes").dump(), "times slower"));
  }
  const Json one = estimate_of({"--devices", "1xH200"}, folder);
  check_sums(one);
  CHECK(one.at("estimate").at("one_device_seconds").is_null());
  CHECK(one.at("estimate").at("exposed_seconds") == 0);
}

TEST_CASE("the axis that lies inside a host is the last and hosts can be given") {
  const TemporaryFolder folder;
  folder.write("model.yaml", std::string(kModel) + R"(distribution:
  device_mesh: {axis_names: [data, model]}
  layout_map: {d1/kernel: [null, model], d1/bias: [model], d2/kernel: [model, null]}
)");
  const Json inside = estimate_of({"--devices", "32xH100", "--mesh", "4x8"}, folder);
  check_sums(inside);
  CHECK(inside.at("estimate").at("axes")[0].at("hosts") == 4);
  CHECK(inside.at("estimate").at("axes")[1].at("hosts") == 1);
  const Json across =
      estimate_of({"--devices", "32xH100", "--mesh", "4x8", "--hosts", "16"}, folder);
  check_sums(across);
  CHECK(across.at("estimate").at("axes")[1].at("hosts") == 4);
  CHECK(number(across.at("estimate"), "communication_seconds") >
        number(inside.at("estimate"), "communication_seconds"));
  const Result wrong =
      meshtrain({"plan", "model.yaml", "--devices", "32xH100", "--mesh", "4x8", "--hosts", "5"},
                folder.path());
  CHECK(wrong.exit_code == 2);
  CHECK(contains(wrong.err, "E140"));
  CHECK(contains(wrong.err, "--hosts 5"));
}

TEST_CASE("a file of hardware changes the estimate and its errors have places") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  folder.write("own.yaml", "H100: {kernel: 1e-3}\nMine: {like: H100, per_host: 2, memory: 1 MB}\n");
  const Json known = estimate_of({"--devices", "4xH100"}, folder);
  const Json slow = estimate_of({"--devices", "4xH100", "--hardware", "own.yaml"}, folder);
  check_sums(slow);
  CHECK(number(slow.at("estimate"), "launch_seconds") >
        100 * number(known.at("estimate"), "launch_seconds"));
  const Json mine = estimate_of({"--devices", "4xmine", "plan.hardware=own.yaml"}, folder);
  check_sums(mine);
  CHECK(mine.at("estimate").at("hosts") == 2);
  CHECK(mine.at("estimate").at("fits") == false);
  CHECK(contains(mine.at("estimate").at("notes").dump(), "a device needs"));

  folder.write("bad.yaml", "H100:\n  memmory: 80 GB\n");
  const Result bad = meshtrain(
      {"plan", "model.yaml", "--devices", "4xH100", "--hardware", "bad.yaml"}, folder.path());
  CHECK(bad.exit_code == 2);
  CHECK(contains(bad.err, "bad.yaml:2:3"));
  CHECK(contains(bad.err, "did you mean `memory`?"));
  const Result none = meshtrain(
      {"plan", "model.yaml", "--devices", "4xH100", "--hardware", "none.yaml"}, folder.path());
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "E100"));
  const Result unknown = meshtrain({"plan", "model.yaml", "--devices", "4xH300"}, folder.path());
  CHECK(unknown.exit_code == 2);
  CHECK(contains(unknown.err, "names no known hardware"));
  CHECK(contains(unknown.err, "A100, H100, H200, B200, V100, T4, A10G, L4, L40S, RTX4090, cpu"));
  CHECK(!contains(unknown.err, "NVIDIA"));
  const Result other = meshtrain({"plan", "model.yaml", "--devices", "4xMI300X"}, folder.path());
  CHECK(other.exit_code == 2);
  CHECK_MESSAGE(contains(other.err, "meshtrain runs on CPUs and NVIDIA GPUs"), other.err);
  CHECK(contains(other.err, "give it as `--hardware FILE`"));
}

TEST_CASE("plan says why there is no estimate and where a graph cannot be written") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  folder.write("own.yaml", "H100: {kernel: 1e-3}\n");
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "model.yaml"});
    return meshtrain(more, folder.path());
  };
  for (const auto& more :
       std::vector<std::vector<std::string>>{{"--devices", "gpu:0-7", "--hosts", "2"},
                                             {"--devices", "gpu:0-7", "--hardware", "own.yaml"},
                                             {"--devices", "cpu:8", "--hosts", "2"}}) {
    const Result result = plan(more);
    CHECK(result.exit_code == 0);
    CHECK_MESSAGE(contains(result.out, "W621"), result.out);
    CHECK_MESSAGE(contains(result.out, "`--devices 8xH100`"), result.out);
  }
  CHECK_FALSE(contains(plan({"--devices", "gpu:0-7"}).out, "W621"));
  CHECK_FALSE(contains(plan({"--devices", "cpu:8", "--hardware", "own.yaml"}).out, "W621"));

  const Result result = plan({"--dump-ir", "model.yaml/graphs"});
  CHECK(result.exit_code == 74);
  CHECK_MESSAGE(contains(result.err,
                         "cannot write model.yaml/graphs/train_64_01_simplify.ir: Not a directory"),
                result.err);
}

TEST_CASE("devices on paper are refused by what computes") {
  const TemporaryFolder folder;
  folder.write("model.yaml",
               std::string(kModel) +
                   "data: {train: digits, transform: [Reshape: [784]]}\nevaluate: {on: train}\n");
  for (const char* subcommand : {"train", "evaluate"}) {
    CAPTURE(subcommand);
    const Result result =
        meshtrain({subcommand, "model.yaml", "--devices", "8xH100"}, folder.path());
    CHECK_MESSAGE(result.exit_code == 4, result.err);
    CHECK_MESSAGE(contains(result.err, "E621"), result.err);
    CHECK(contains(result.err, "only `plan`"));
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/runs"));
  }
  CHECK(meshtrain({"validate", "model.yaml", "--devices", "8xH100"}, folder.path()).exit_code == 0);
  CHECK(meshtrain({"train", "model.yaml", "--devices", "8xH100", "--dry-run"}, folder.path())
            .exit_code == 0);
}

TEST_CASE("virtual devices are estimated with the processor that was measured") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const Json plan = estimate_of({"--devices", "4xcpu"}, folder);
  check_sums(plan);
  CHECK(plan.at("estimate").at("hardware").at("name") == "cpu");
  // Contracts of the plan are as without it.
  for (const char* key :
       {"mesh", "batch", "variables", "outputs", "collectives", "memory", "flops", "warnings"}) {
    CHECK(plan.contains(key));
  }
}

TEST_CASE("bench comm measures collectives and prints what plan can read") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const std::vector<std::string> quick = {"--smallest", "1KiB",      "--largest",
                                          "16KiB",      "--seconds", "0.001"};
  const auto bench = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"bench", "comm"});
    args.insert(args.end(), quick.begin(), quick.end());
    return meshtrain(args, folder.path());
  };
  const Result text = bench({"--mesh", "data=2,model=2"});
  REQUIRE_MESSAGE(text.exit_code == 0, text.err);
  for (const char* part : {"all_reduce over data (2)", "all_to_all over model (2)", "bus rate",
                           "fit       ", "plan --hardware FILE"}) {
    CHECK_MESSAGE(contains(text.out, part), text.out);
  }
  const Result json_text = bench({"--devices", "cpu:4", "--format", "json"});
  REQUIRE_MESSAGE(json_text.exit_code == 0, json_text.err);
  const Json json = parse_json(json_text.out);
  CHECK(json.at("devices") == "4 x cpu (virtual)");
  REQUIRE(json.at("series").size() == 4);
  for (const Json& series : json.at("series")) {
    CHECK(series.at("members") == 4);
    CHECK(series.at("hosts") == 1);
    CHECK(series.at("reductions").is_null());  // one process adds up in one way
    CHECK(series.at("points").size() == 3);
    for (const Json& point : series.at("points")) {
      CHECK(number(point, "seconds") > 0);
      CHECK(number(point, "rate") * number(point, "seconds") ==
            doctest::Approx(number(point, "bytes")));
    }
  }
  folder.write("measured.yaml", json.at("hardware").get<std::string>());
  check_sums(estimate_of({"--devices", "cpu:4", "--hardware", "measured.yaml"}, folder));

  // Nothing to measure is said.
  CHECK(contains(bench({"--devices", "cpu:1"}).out, "# nothing was measured: no axis"));
  const Result many = bench({"--devices", "cpu:4096"});
  CHECK_MESSAGE(contains(many.out, "no tensor of at most 16 KiB splits over them"), many.out);
  CHECK_FALSE(contains(many.out, "fit  "));

  CHECK(bench({"--devices", "8xH100"}).exit_code == 4);
  CHECK(bench({"--mesh", "3x"}).exit_code == 2);
  CHECK(meshtrain({"bench", "comm", "--largest", "many"}, folder.path()).exit_code == 2);
  CHECK(meshtrain({"bench", "comm", "--smallest", "1MiB", "--largest", "1KiB"}, folder.path())
            .exit_code == 2);
}

namespace {

TEST_CASE("plan --mesh all ranks every mesh and ZeRO level by predicted time") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const std::vector<std::string> words = {"plan", "model.yaml", "--mesh",
                                          "all",  "--devices",  "8xH100"};
  const Result text = meshtrain(words, folder.path());
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "8 x H100 (on paper), axes batch, model"));
  std::vector<std::string> as_json = words;
  as_json.insert(as_json.end(), {"--format", "json"});
  const Json ranking = parse_json(meshtrain(as_json, folder.path()).out);
  const Json& plans = ranking.at("plans");
  CHECK(plans.size() == 3 * 4 + 1);  // 8x1, 4x2, 2x4 with ZeRO 0 to 3, and 1x8
  for (size_t i = 1; i < plans.size(); ++i) {
    CHECK(number(plans[i - 1], "step_seconds") <= number(plans[i], "step_seconds"));
  }
  // Each row is what `plan` says of that mesh.
  const Json first =
      estimate_of({"--devices", "8xH100", "distribution.device_mesh.axis_names=[data,model]",
                   "distribution.device_mesh.shape=" + json_text(plans[0].at("mesh")),
                   "distribution.zero=" + json_text(plans[0].at("zero"))},
                  folder);
  CHECK(number(first.at("estimate"), "step_seconds") ==
        doctest::Approx(number(plans[0], "step_seconds")));
  const Result rules = meshtrain(
      {"plan", "model.yaml", "--mesh", "all", "--devices", "12xH100", "fit.batch_size=48",
       "distribution.type=ModelParallel", "distribution.layout_map[\"d1/kernel\"]=[null,model]"},
      folder.path());
  CHECK(contains(rules.out, "2x6  not possible: cannot split dimension 1 of `d1/kernel`"));
  const Result gpu =
      meshtrain({"plan", "model.yaml", "--mesh", "all", "--devices", "gpu:0-7"}, folder.path());
  CHECK(gpu.exit_code == 2);
  CHECK(contains(gpu.err, "--devices 8xH100"));
}

TEST_CASE("suggest prints a distribution that a config can have") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const Result text =
      meshtrain({"suggest", "model.yaml", "--devices", "8xH100", "--mesh", "2x4"}, folder.path());
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "distribution:\n"));
  folder.write("both.yaml", std::string(kModel) + text.out);  // the other lines are comments
  const Json plan =
      parse_json(meshtrain({"plan", "both.yaml", "--format", "json"}, folder.path()).out);
  const Json all = parse_json(
      meshtrain({"suggest", "model.yaml", "--devices", "8xH100", "--format", "json"}, folder.path())
          .out);
  REQUIRE(all.size() == 4);
  CHECK(plan.at("mesh").at("shape") == Json({2, 4}));
  for (const Json& entry : all) {
    if (entry.at("mesh") == Json({2, 4})) {
      CHECK(number(plan.at("estimate"), "step_seconds") ==
            doctest::Approx(number(entry, "step_seconds")));
      CHECK(plan.at("memory").at("total") == entry.at("memory"));
    }
  }
  CHECK(number(all[0], "step_seconds") <= 1.02 * number(all[2], "step_seconds"));
  CHECK(all[3].at("mesh") == Json({1, 8}));  // copies, whatever their time
}

TEST_CASE("suggest splits work over the devices that there are to be") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const Json all = parse_json(
      meshtrain({"suggest", "model.yaml", "--devices", "cpu:8", "--format", "json"}, folder.path())
          .out);
  REQUIRE(all.size() == 4);
  const Json& best = all[0];
  CHECK_MESSAGE((best.at("mesh")[1] == Json(1) || !best.at("rules").empty()), best.dump());
  for (const Json& entry : all) {  // of equal times the least memory
    const bool is_equal = number(entry, "step_seconds") == number(best, "step_seconds");
    CHECK((!is_equal || number(best, "memory") <= number(entry, "memory")));
  }
}

TEST_CASE("hardware is known by its names, with or without a count") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  for (const char* name :
       {"V100", "T4", "A10G", "L4", "L40S", "RTX4090", "rtx 4090", "H100", "4xA100"}) {
    const Json plan = estimate_of({"--devices", name, "--mesh", "4"}, folder);
    CHECK(plan.at("mesh").at("devices") == 4);
    CHECK(number(plan.at("estimate"), "step_seconds") > 0);
  }
  const Result typo = meshtrain({"plan", "model.yaml", "--devices", "8xL40"}, folder.path());
  CHECK(contains(typo.err, "did you mean"));
}

TEST_CASE("a mesh that does not fit the devices gets a mesh that does") {
  const TemporaryFolder folder;
  folder.write("model.yaml", kModel);
  const Result other =
      meshtrain({"plan", "model.yaml", "--mesh", "2 x 4", "--devices", "64xH100"}, folder.path());
  CHECK(contains(other.err, "or a mesh of 64: `--mesh 16x4`"));
  const Result large =
      meshtrain({"plan", "model.yaml", "--mesh", "1000x1000", "--devices", "cpu:8"}, folder.path());
  CHECK(contains(large.err, "a mesh has at most 65536 devices"));
  const Result twice =
      meshtrain({"plan", "model.yaml", "--mesh", "4x2", "--mesh", "8x1"}, folder.path());
  CHECK(contains(twice.err, "`--mesh` is given more than once"));
}

// As in a block whose norms come last: the input feeds query, key, value and the sum behind them.
TEST_CASE("cotangents of query, key and value are added before they are reduced") {
  const TemporaryFolder folder;
  folder.write("attention.yaml", R"(model:
  layers:
    - Input: {name: ids, shape: [8], dtype: int32}
    - Embedding: {name: table, input_dim: 50, output_dim: 16}
    - MultiHeadAttention: {name: attn, num_heads: 4, key_dim: 4}
    - Add: {name: sum, inputs: [table, attn]}
    - LayerNormalization: {name: norm}
    - Dense: {name: out, units: 50}
compile: {optimizer: sgd, loss: {SparseCategoricalCrossentropy: {from_logits: true}}}
fit: {batch_size: 8}
distribution:
  device_mesh: {shape: [2, 2], axis_names: [data, model]}
  layout_map:
    attn/(query|key|value)/kernel: [null, model, null]
    attn/(query|key|value)/bias: [model, null]
    attn/attention_output/kernel: [model, null, null]
)");
  const Result result = meshtrain({"plan", "attention.yaml", "--format", "json"}, folder.path());
  REQUIRE_MESSAGE(result.exit_code == 0, result.err);
  int forward = 0, backward = 0;
  const Json plan = parse_json(result.out);
  for (const Json& collective : plan.at("collectives")) {
    if (collective.at("axes") == Json{"model"}) {
      forward += collective.at("phase") == "forward";
      backward += collective.at("phase") == "backward";
    }
  }
  CHECK(forward == 1);
  CHECK(backward == 1);
}

TEST_CASE("what remat computes again beside norms, other passes may compute again, too") {
  for (const char* norm : {"LayerNormalization", "RMSNormalization"}) {
    std::string first;
    for (const char* remat : {"none", "dots", "block"}) {
      CAPTURE(remat);
      const TemporaryFolder folder;
      folder.write(
          "c.yaml",
          std::string("data: {train: {source: random, samples: 8, shape: [12], classes: 3}}\n"
                      "model:\n  layers:\n    - Input: {shape: [12]}\n"
                      "    - Dense: {units: 64}\n    - ") +
              norm +
              "\n    - Activation: relu\n    - Dense: {units: 3, activation: softmax}\n"
              "compile: {loss: sparse_categorical_crossentropy, optimizer: adam}\n"
              "fit: {epochs: 1, batch_size: 4}\n");
      const Result result = meshtrain({"train", "c.yaml", "-o", "run", "--log-format", "json",
                                       std::string("model.remat={\".*\": ") + remat + "}"},
                                      folder.path());
      REQUIRE_MESSAGE(result.exit_code == 0, result.err);
      const std::string loss = result.out.substr(result.out.find("\"loss\":"), 24);
      first = first.empty() ? loss : first;
      CHECK(loss == first);
    }
  }
}

}  // namespace
}  // namespace meshtrain
