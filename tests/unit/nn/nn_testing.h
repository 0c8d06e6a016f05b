// What the nn tests share: config objects as the loader makes them, and running small graphs.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/catalogue.h"
#include "config/config.h"
#include "ir/builder.h"
#include "nn/compile.h"
#include "nn/model.h"
#include "tensor/host_tensor.h"

namespace meshtrain::testing {

// A ConfigValue from what stands in the test.
struct Arg : ConfigValue {
  Arg(bool v) { data = v; }                                                     // NOLINT
  Arg(int v) { data = int64_t{v}; }                                             // NOLINT
  Arg(double v) { data = v; }                                                   // NOLINT
  Arg(const char* v) { data = std::string(v); }                                 // NOLINT
  Arg(std::nullptr_t) {}                                                        // NOLINT
  Arg(ConfigObject v) { data = std::make_shared<ConfigObject>(std::move(v)); }  // NOLINT
  Arg(std::initializer_list<Arg> v) { data = List(v.begin(), v.end()); }        // NOLINT
};
using NamedArgs = std::vector<std::pair<std::string, Arg>>;

// The class of the catalogue by any spelling, with defaults filled in; fails the test when there is
// no such class or argument.
ConfigObject make_object(Category category, const std::string& spelled, const NamedArgs& args = {});

// All classes of the catalogue but those of `without`.
std::set<std::string> names_of(Category category, const std::set<std::string>& without = {});

// One entry of model.layers.
LayerConfig make_layer_config(const std::string& class_name, const std::string& name,
                              std::vector<std::string> inputs, const NamedArgs& args = {});
// A model of entries, each fed by the one before unless it says otherwise.
ModelConfig make_model_config(std::vector<LayerConfig> layers,
                              std::vector<std::string> outputs = {});

HostTensor floats(Shape shape, const std::vector<double>& values);  // float32
HostTensor ints(Shape shape, const std::vector<double>& values);    // int32
std::vector<double> numbers(const HostTensor& tensor);

// What `make` builds from the inputs, as tensors. A Builder, and the graph's values of the inputs.
std::vector<HostTensor> run(
    const std::vector<const HostTensor*>& inputs,
    const std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>&)>& make);
std::vector<double> run_one(
    const std::vector<const HostTensor*>& inputs,
    const std::function<ValueId(Builder&, const std::vector<ValueId>&)>& make);

// The model's first output for its inputs; weights by path, others by their initializer (seed 1).
HostTensor run_model(const Model& model, const std::vector<const HostTensor*>& inputs,
                     const std::vector<std::pair<std::string, HostTensor>>& weights = {},
                     bool training = false);

void check_near(const std::vector<double>& found, const std::vector<double>& expected,
                double tolerance = 1e-6);

}  // namespace meshtrain::testing
