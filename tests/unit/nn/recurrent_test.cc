// recurrent_dropout: what it draws, and when.
#include <algorithm>
#include <cmath>

#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

constexpr int kBatch = 64, kUnits = 64;

HostTensor all_of(Shape shape, double value) {
  HostTensor out(DType::kFloat32, std::move(shape));
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, value);
  }
  return out;
}

// A recurrent kernel that hands each unit's state to all gates of that unit alone.
HostTensor identities(int gates) {
  HostTensor out = all_of({kUnits, gates * kUnits}, 0);
  for (int64_t row = 0; row < kUnits; ++row) {
    for (int64_t gate = 0; gate < gates; ++gate) {
      out.set(row * gates * kUnits + gate * kUnits + row, 1);
    }
  }
  return out;
}

// What `output` of the layer is in training, where its inputs are zeros over `steps` steps, its
// first states are ones and all its activations are linear.
std::vector<double> states_of(const std::string& class_name, int gates, const std::string& output,
                              NamedArgs args, int steps = 1, bool training = true) {
  const int num_states = class_name == "LSTM" ? 2 : 1;
  std::vector<LayerConfig> layers = {make_layer_config("Input", "x", {}, {{"shape", {steps, 2}}})};
  std::vector<std::string> inputs = {"x"};
  const HostTensor x = all_of({kBatch, steps, 2}, 0), ones = all_of({kBatch, kUnits}, 1);
  std::vector<const HostTensor*> values = {&x};
  for (int i = 0; i < num_states; ++i) {
    inputs.push_back("state" + std::to_string(i));
    layers.push_back(make_layer_config("Input", inputs.back(), {}, {{"shape", {kUnits}}}));
    values.push_back(&ones);
  }
  args.insert(args.end(), {{"units", kUnits}, {"activation", "linear"}, {"use_bias", false}});
  if (class_name != "SimpleRNN") {
    args.emplace_back("recurrent_activation", "linear");
  }
  layers.push_back(make_layer_config(class_name, "layer", inputs, args));
  Diagnostics diagnostics;
  const Model model(make_model_config(std::move(layers), {output}), DType::kFloat32, diagnostics);
  REQUIRE_MESSAGE(diagnostics.num_errors() == 0, diagnostics.render());
  const std::string cell = model.weights()[0]->path.substr(0, model.weights()[0]->path.rfind('/'));
  std::vector<std::pair<std::string, HostTensor>> weights;
  weights.emplace_back(cell + "/recurrent_kernel", identities(gates));
  return numbers(run_model(model, values, weights, training));
}

double part_of(const std::vector<double>& values, std::initializer_list<double> wanted) {
  const auto is_wanted = [&](double v) {
    return std::find(wanted.begin(), wanted.end(), v) != wanted.end();
  };
  return static_cast<double>(std::count_if(values.begin(), values.end(), is_wanted)) /
         static_cast<double>(values.size());
}

void check_part(const std::vector<double>& values, std::initializer_list<double> wanted,
                double expected) {
  CHECK(std::abs(part_of(values, wanted) - expected) < 0.04);  // 5 deviations of 4096 draws
}

TEST_CASE("recurrent_dropout drops states in training, and scales the others") {
  const std::vector<double> h = states_of("SimpleRNN", 1, "layer", {{"recurrent_dropout", 0.5}});
  CHECK(part_of(h, {0, 2}) == 1);
  check_part(h, {2}, 0.5);  // the expectation is the state
  const std::vector<double> all =
      states_of("SimpleRNN", 1, "layer", {{"recurrent_dropout", 0.5}}, 1, /*training=*/false);
  CHECK(part_of(all, {1}) == 1);
  CHECK(part_of(states_of("SimpleRNN", 1, "layer", {{"recurrent_dropout", 0.0}}), {1}) == 1);
  CHECK(part_of(states_of("SimpleRNN", 1, "layer", {{"recurrent_dropout", 1.0}}), {1}) == 1);
  const NamedArgs other = {{"recurrent_dropout", 0.5}, {"seed", 9}};
  CHECK(states_of("SimpleRNN", 1, "layer", other) != h);
}

TEST_CASE("recurrent_dropout drops the same at each step of a sequence") {
  const std::vector<double> h =
      states_of("SimpleRNN", 1, "layer", {{"recurrent_dropout", 0.5}}, /*steps=*/3);
  CHECK(part_of(h, {0, 8}) == 1);
  check_part(h, {8}, 0.5);
}

TEST_CASE("recurrent_dropout has a mask for each gate") {
  // c' = f c + i g with f, i and g of 0 or 2.
  const std::vector<double> c =
      states_of("LSTM", 4, "layer.state_c", {{"recurrent_dropout", 0.5}, {"return_state", true}});
  CHECK(part_of(c, {0, 2, 4, 6}) == 1);
  check_part(c, {2, 6}, 0.5);
  check_part(c, {4, 6}, 0.25);
  check_part(c, {6}, 0.125);
  // h' = z + (1 - z) g with z, and the r and the state that g is the product of, of 0 or 2.
  for (const bool reset_after : {false, true}) {
    const std::vector<double> h =
        states_of("GRU", 3, "layer", {{"recurrent_dropout", 0.5}, {"reset_after", reset_after}});
    CHECK(part_of(h, {0, 4, 2, -2}) == 1);
    check_part(h, {2, -2}, 0.5);
    check_part(h, {4, -2}, 0.25);
    check_part(h, {-2}, 0.125);
  }
}

}  // namespace
}  // namespace meshtrain::testing
