// meshtrain's side of models.py. Reads "run STEPS" lines and answers "US <median microseconds
// a step>".
//
//   bench_model gpt DEPTH WIDTH HEADS CONTEXT BATCH CLASSES BIAS GELU DEVICES
//   bench_model config FILE BATCH CLASSES DEVICES SIZE...   a model of one input, (SIZE...) floats
//   bench_model attention BATCH HEADS CONTEXT HEAD_SIZE
//   bench_model product SIZE   the machine's rate: "US" of one square product of float32
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "support/engine_case.h"
#include "support/splitmix.h"
#include "unit/exec/one_step.h"

namespace meshtrain::test {
namespace {

constexpr int64_t kBatches = 8;  // distinct batches that the loop cycles through

using Step = std::function<void()>;
using Arguments = std::vector<std::string>;

std::string gpt_yaml(int64_t depth, int64_t width, int64_t heads, int64_t context, int64_t batch,
                     int64_t classes, bool bias, const std::string& gelu, int64_t devices) {
  const std::string use_bias = bias ? "true" : "false";
  std::string layers = fmt::format(
      "    - Input: {{name: ids, shape: [{}], dtype: int32}}\n"
      "    - ReversibleEmbedding: {{name: tokens, input_dim: {}, output_dim: {}}}\n"
      "    - PositionEmbedding: {{name: positions, sequence_length: {}}}\n"
      "    - Add: {{name: start, inputs: [tokens, positions]}}\n",
      context, classes, width, context);
  std::string x = "start";
  for (int64_t i = 0; i < depth; ++i) {
    layers += fmt::format(
        "    - LayerNormalization: {{name: norm_a{0}, inputs: {1}, epsilon: 1e-5, center: {5}}}\n"
        "    - MultiHeadAttention: {{name: attention{0}, num_heads: {2}, key_dim: {3}, use_bias: "
        "{5}, call: {{use_causal_mask: true}}}}\n"
        "    - Add: {{name: middle{0}, inputs: [{1}, attention{0}]}}\n"
        "    - LayerNormalization: {{name: norm_b{0}, epsilon: 1e-5, center: {5}}}\n"
        "    - Dense: {{name: up{0}, units: {4}, activation: {{gelu: {{approximate: {6}}}}}, "
        "use_bias: {5}}}\n"
        "    - Dense: {{name: down{0}, units: {7}, use_bias: {5}}}\n"
        "    - Add: {{name: sum{0}, inputs: [middle{0}, down{0}]}}\n",
        i, x, heads, width / heads, 4 * width, use_bias, gelu == "tanh" ? "true" : "false", width);
    x = fmt::format("sum{}", i);
  }
  return fmt::format(
      "model:\n  layers:\n{}    - LayerNormalization: {{name: norm, epsilon: 1e-5, center: {}}}\n"
      "    - Call: {{layer: tokens, name: logits, call: {{reverse: true}}}}\n"
      "compile:\n  optimizer: {{AdamW: {{learning_rate: 1e-3, beta_2: 0.99, weight_decay: 0.1, "
      "global_clipnorm: 1.0}}}}\n"
      "  loss: {{SparseCategoricalCrossentropy: {{from_logits: true}}}}\nfit: {{batch_size: {}}}\n"
      "distribution: {{device_mesh: {{shape: [{}], axis_names: [data]}}}}\n",
      layers, use_bias, batch, devices);
}

struct Model {
  std::unique_ptr<Config> config;  // outlives the engine
  Dataset data;
  std::unique_ptr<Engine> engine;
  int64_t batch = 0, steps = 0;
};

// Steps of training, batch after batch.
Step training(const std::string& yaml, int64_t batch, HostTensor x, HostTensor y) {
  auto model = std::make_shared<Model>();
  model->batch = batch;
  model->config = std::make_unique<Config>(config_from(yaml));
  model->data = dataset_of(std::move(x), std::move(y));
  model->engine = std::make_unique<Engine>(*model->config, data_spec(model->data));
  return [model] {
    const std::vector<int64_t> rows =
        rows_of_step(model->steps++ % kBatches, model->batch, kBatches * model->batch);
    model->engine->train_step({&model->data, rows});
  };
}

Step config_step(const Arguments& a) {
  std::ifstream file(a.at(0));
  std::ostringstream yaml;
  yaml << file.rdbuf();
  const int64_t batch = std::stoll(a.at(1)), classes = std::stoll(a.at(2));
  Shape shape{kBatches * batch};
  for (size_t i = 4; i < a.size(); ++i)
    shape.push_back(std::stoll(a[i]));
  HostTensor x(DType::kFloat32, shape), y(DType::kInt32, {shape[0]});
  for (int64_t i = 0; i < x.size(); ++i)
    x.data<float>()[i] = splitmix_signed(1, static_cast<uint64_t>(i), 1.0F);
  for (int64_t i = 0; i < y.size(); ++i)
    y.set(i, static_cast<double>(splitmix_below(2, static_cast<uint64_t>(i), classes)));
  yaml << fmt::format(
      "fit: {{batch_size: {}}}\n"
      "distribution: {{device_mesh: {{shape: [{}], axis_names: [data]}}}}\n",
      batch, a.at(3));
  return training(yaml.str(), batch, std::move(x), std::move(y));
}

Step gpt_step(const Arguments& a) {
  const auto number = [&](size_t i) { return std::stoll(a.at(i)); };
  const int64_t context = number(3), batch = number(4), classes = number(5);
  HostTensor x(DType::kInt32, {kBatches * batch, context}), y(DType::kInt32, x.shape());
  for (int64_t i = 0; i < x.size(); ++i) {
    x.set(i, static_cast<double>(splitmix_below(1, static_cast<uint64_t>(i), classes)));
    y.set(i, static_cast<double>(splitmix_below(2, static_cast<uint64_t>(i), classes)));
  }
  return training(gpt_yaml(number(0), number(1), number(2), context, batch, classes, number(6) != 0,
                           a.at(7), number(8)),
                  batch, std::move(x), std::move(y));
}

// A program of hand-laid steps on one device and two workers.
class Steps {
 public:
  int input(const Shape& shape) {
    const int buffer = builder_.input(shape, DType::kFloat32, Sharding::replicated(shape.size()));
    shapes_.push_back(shape);
    return buffer;
  }
  int result(const Shape& shape) {
    return builder_.buffer(shape, DType::kFloat32, Sharding::replicated(shape.size()));
  }
  testing::ProgramBuilder& builder() { return builder_; }
  Step take(int output) {
    builder_.output(output);
    auto store = std::make_shared<VariableStore>(mesh_, std::vector<Variable>{});
    auto executor = std::make_shared<Executor>(builder_.take(), make_worker_pool(2), *store);
    for (size_t i = 0; i < shapes_.size(); ++i) {
      HostTensor values(DType::kFloat32, shapes_[i]);
      for (int64_t k = 0; k < values.size(); ++k)
        values.data<float>()[k] = splitmix_signed(i, static_cast<uint64_t>(k), 1.0F);
      executor->set_input(static_cast<int>(i), values.bytes(), values.num_bytes());
    }
    return [store, executor] { executor->run(); };
  }

 private:
  DeviceMesh mesh_{{1}, {"data"}};
  testing::ProgramBuilder builder_{mesh_};
  std::vector<Shape> shapes_;
};

Step attention_step(const Arguments& a) {
  const int64_t batch = std::stoll(a.at(0)), heads = std::stoll(a.at(1)),
                context = std::stoll(a.at(2)), size = std::stoll(a.at(3));
  const Shape shape{batch, context, heads, size};
  Steps steps;
  const int q = steps.input(shape), k = steps.input(shape), v = steps.input(shape),
            g = steps.input(shape);
  const int o = steps.result(shape), lse = steps.result({batch, heads, context});
  const int dq = steps.result(shape), dk = steps.result(shape), dv = steps.result(shape);
  const Attrs attrs = {
      {"scale", 0.125},     {"causal", int64_t{1}}, {"window", int64_t{0}},     {"rate", 0.0},
      {"seed", int64_t{0}}, {"stream", int64_t{0}}, {"operands", std::string()}};
  steps.builder().step("attention", {q, k, v}, {o, lse}, attrs);
  steps.builder().step("attention_grad", {q, k, v, o, lse, g}, {dq, dk, dv}, attrs);
  return steps.take(lse);
}

Step product_step(const Arguments& a) {
  const int64_t size = std::stoll(a.at(0));
  Steps steps;
  const int x = steps.input({size, size}), y = steps.input({size, size});
  const int z = steps.result({size, size}), top = steps.result({size});
  steps.builder().step("einsum", {x, y}, {z}, {{"equation", std::string("ij,jk->ik")}});
  steps.builder().step("reduce_max", {z}, {top},
                       {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}});
  return steps.take(top);
}

int serve(const std::string& workload, const Arguments& arguments) {
  const Step step = workload == "gpt"         ? gpt_step(arguments)
                    : workload == "config"    ? config_step(arguments)
                    : workload == "attention" ? attention_step(arguments)
                                              : product_step(arguments);
  step();
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    size_t count = 0;
    if (!(words >> command >> count) || command != "run" || count == 0) {
      fmt::print(stderr, "expected: run STEPS, read: {}\n", line);
      return 2;
    }
    std::vector<double> times;
    for (size_t i = 0; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      step();
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(times.begin(), middle, times.end());
    fmt::print("US {:.1f}\n", *middle);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace meshtrain::test

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "bench_model gpt|config|attention|product SIZES...\n");
    return 2;
  }
  try {
    return meshtrain::test::serve(argv[1], {argv + 2, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
