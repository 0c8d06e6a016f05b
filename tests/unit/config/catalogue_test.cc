#include "config/catalogue.h"

#include <set>

#include "config/callback_classes.h"
#include "config/reader.h"
#include "config/source_classes.h"
#include "doctest/doctest.h"
#include "unit/config/temp_config.h"

namespace meshtrain {
namespace {

constexpr Category kAll[] = {Category::kLayer,      Category::kLoss,     Category::kMetric,
                             Category::kOptimizer,  Category::kSchedule, Category::kInitializer,
                             Category::kActivation, Category::kSource,   Category::kTransform,
                             Category::kCallback};

std::string resolved(Category category, std::string_view spelled) {
  const ClassSpec* found = find_class(category, spelled);
  return found == nullptr ? "" : found->name;
}

}  // namespace

TEST_CASE("Catalogue: every class can be made from its required arguments") {
  for (const Category category : kAll) {
    for (const ClassSpec& spec : classes(category)) {
      CAPTURE(spec.name);
      CHECK_FALSE(spec.help.empty());
      std::set<std::string> names;
      YamlNode args{.kind = YamlNode::Kind::kMap};
      for (const Spec& arg : spec.args) {
        CAPTURE(arg.name);
        CHECK(names.insert(arg.name).second);
        CHECK_FALSE(arg.help.empty());
        if (arg.is_required) {
          const bool is_text = arg.kind == ValueKind::kText || arg.kind == ValueKind::kPath;
          const bool is_object = arg.kind == ValueKind::kObject;
          args.children.push_back(YamlNode::scalar(arg.kind == ValueKind::kActivation ? "relu"
                                                   : arg.category == Category::kLayer && is_object
                                                       ? "Flatten"
                                                   : is_object ? class_names(arg.category)[0]
                                                   : is_text   ? "a"
                                                   : arg.below_maximum ? "0.5"
                                                                       : "1",
                                                   {}));
          if (arg.kind == ValueKind::kObjectList) {
            args.children.back() = {.kind = YamlNode::Kind::kList};
          }
          args.children.back().key = arg.name;
        }
      }
      args.key = spec.name;
      YamlNode node{.kind = YamlNode::Kind::kMap};
      node.children.push_back(args);
      Diagnostics diagnostics;
      Spec holder = object("x", ValueKind::kObject, category, "null", "");
      const ConfigValue made = Reader(diagnostics).value(node, holder, "`test`");
      CHECK(diagnostics.render() == "");
      REQUIRE(made.is_object());
      CHECK(made.object().class_name == spec.name);
      CHECK(made.object().args.size() == spec.args.size());
    }
  }
}

TEST_CASE("find_class: the spellings of Keras and no others") {
  CHECK(resolved(Category::kLoss, "mse") == "MeanSquaredError");
  CHECK(resolved(Category::kLoss, "MSE") == "MeanSquaredError");
  CHECK(resolved(Category::kLoss, "mean_squared_error") == "MeanSquaredError");
  CHECK(resolved(Category::kLoss, "sparse_categorical_crossentropy") ==
        "SparseCategoricalCrossentropy");
  CHECK(resolved(Category::kLoss, "huber") == "Huber");
  CHECK(resolved(Category::kLoss, "huber_loss") == "");
  CHECK(resolved(Category::kMetric, "acc") == "accuracy");
  CHECK(resolved(Category::kMetric, "ACC") == "accuracy");
  CHECK(resolved(Category::kMetric, "Accuracy") == "Accuracy");
  CHECK(resolved(Category::kLoss, "ce") == "crossentropy");
  CHECK(resolved(Category::kLoss, "CrossEntropy") == "crossentropy");
  CHECK(resolved(Category::kLoss, "accuracy") == "");
  CHECK(resolved(Category::kLoss, "Mse") == "");
  CHECK(resolved(Category::kMetric, "root_mean_squared_error") == "RootMeanSquaredError");
  CHECK(resolved(Category::kMetric, "rmse") == "");
  CHECK(resolved(Category::kOptimizer, "adam") == "Adam");
  CHECK(resolved(Category::kOptimizer, "ADAMW") == "AdamW");
  CHECK(resolved(Category::kOptimizer, "RmsProp") == "RMSprop");
  CHECK(resolved(Category::kInitializer, "glorot_uniform") == "GlorotUniform");
  CHECK(resolved(Category::kInitializer, "zero") == "Zeros");
  CHECK(resolved(Category::kInitializer, "uniform") == "RandomUniform");
  CHECK(resolved(Category::kLayer, "Dense") == "Dense");
  CHECK(resolved(Category::kLayer, "dense") == "");
  CHECK(resolved(Category::kActivation, "swish") == "silu");
  CHECK(is_unsupported_class(Category::kLayer, "Hashing"));
  CHECK_FALSE(is_unsupported_class(Category::kLayer, "Conv"));
}

TEST_CASE("Catalogue: defaults are those of Keras") {
  const Config config = load_text(
      "model:\n  layers:\n    - Input: {shape: [4]}\n    - Dense: 3\n    - LeakyReLU\n"
      "    - Softmax\n    - ReLU\ncompile: {loss: huber, optimizer: AdamW}\ndata: {train: "
      "digits}\n");
  const ConfigObject& dense = config.model.layers[1].object;
  CHECK(dense.integer("units") == 3);
  CHECK(dense.boolean("use_bias"));
  CHECK_FALSE(dense.has("activation"));
  CHECK(dense.arg("kernel_initializer").object().class_name == "GlorotUniform");
  CHECK(dense.arg("bias_initializer").object().class_name == "Zeros");
  CHECK(dense.arg("bias_initializer").is_default);
  CHECK_FALSE(dense.arg("units").is_default);
  CHECK(config.model.layers[2].object.number("negative_slope") == 0.3);
  CHECK(config.model.layers[3].object.integer("axis") == -1);
  CHECK_FALSE(config.model.layers[4].object.has("max_value"));
  CHECK(config.compile.optimizer.class_name == "AdamW");
  CHECK(config.compile.optimizer.number("weight_decay") == 0.004);
  CHECK(config.compile.optimizer.number("learning_rate") == 0.001);
  CHECK(config.compile.loss[0].object.number("delta") == 1);
  CHECK(config.compile.loss[0].object.string("reduction") == "sum_over_batch_size");
  CHECK(load_text(kSmall).compile.optimizer.class_name == "RMSprop");
}

TEST_CASE("Objects: each way to write them means the same") {
  const std::string head = "model:\n  layers:\n    - Input: [4]\n    - ";
  const std::string tail = "\ncompile: {loss: mse}\ndata: {train: digits}\n";
  for (const char* written :
       {"Dense: 200", "Dense: {units: 200}", "{Dense: {units: 200}}", "{type: Dense, units: 200}",
        "{class_name: Dense, config: {units: 200}}",
        "{module: keras.layers, class_name: Dense, config: {units: 200}, registered_name: null}",
        "{class_name: Dense, config: {units: 200, name: d}, name: d, inbound_nodes: []}"}) {
    CAPTURE(written);
    const Config config = load_text(head + written + tail);
    CHECK(config.model.layers[1].object.class_name == "Dense");
    CHECK(config.model.layers[1].object.integer("units") == 200);
    CHECK(config.model.layers[0].object.arg("shape").integers() == std::vector<int64_t>{4});
  }
  const Config activation =
      load_text(head + "Dense: {units: 2, activation: {relu: {negative_slope: 0.1}}}\n" +
                "    - Activation: {leaky_relu: 0.3}\n    - Activation: swish" + tail);
  CHECK(activation.model.layers[1].object.arg("activation").object().class_name == "relu");
  CHECK(activation.model.layers[1].object.arg("activation").object().number("negative_slope") ==
        0.1);
  CHECK(activation.model.layers[2].object.arg("activation").object().class_name == "leaky_relu");
  CHECK(activation.model.layers[3].object.string("activation") == "silu");
}

TEST_CASE("read_options: arguments become members") {
  const Config config = load_text(
      "model: {layers: [{Input: [4]}, {Dense: 2}]}\ncompile: {loss: mse}\n"
      "data:\n  train: {source: text, path: [a, b], sequence_length: 8, target: last,\n"
      "          slice: '[:5]'}\n"
      "  validation: {source: image_folder, directory: d, label_mode: null, image_size: 4x8}\n"
      "callbacks: [{EarlyStopping: {mode: max}}, {TensorBoard: {update_freq: 20}}]\n");
  const auto text = read_options<TextOptions>(*config.data.train);
  CHECK(text.path.strings() == std::vector<std::string>{"a", "b"});
  CHECK(text.sequence_length == 8);
  CHECK_FALSE(text.stride.has_value());
  CHECK(text.target == WindowTarget::kLast);
  CHECK(text.vocabulary.string() == "characters");
  CHECK(!text.has_bytes());
  CHECK(text.slice.value == "[:5]");
  CHECK(text.slice.loc.line == 5);
  CHECK(text.characters.loc.line == 4);  // of the class
  CHECK(read_options<SourceOptions>(*config.data.train).slice.value == "[:5]");
  const auto images = read_options<ImageFolderOptions>(*config.data.validation);
  CHECK(images.labels() == LabelMode::kNone);
  CHECK(images.image_size.value == std::vector<int64_t>{4, 8});
  CHECK_FALSE(options_if<CsvOptions>(*config.data.validation).has_value());
  CHECK_FALSE(has_options<SplitOptions>(*config.data.validation));
  const ConfigObject& stopping = *find_callback<EarlyStoppingOptions>(config);
  CHECK(has_options<MonitorOptions>(stopping));
  CHECK(read_options<EarlyStoppingOptions>(stopping).mode == MonitorMode::kMax);
  CHECK(read_options<EarlyStoppingOptions>(stopping).monitor.value == "val_loss");
  CHECK(read_options<TensorBoardOptions>(config.callbacks[1]).update_freq == 20);
}

TEST_CASE("read_options: defaults that are texts are those of the members") {
  const auto defaults = []<class S>(const char* name, S) {
    return read_options<S>(default_object(S::kCategory, name));
  };
  CHECK(defaults("ModelCheckpoint", ModelCheckpointOptions()).save_freq ==
        ModelCheckpointOptions().save_freq);
  CHECK(defaults("BackupAndRestore", BackupOptions()).save_freq == BackupOptions().save_freq);
  CHECK(defaults("TensorBoard", TensorBoardOptions()).update_freq ==
        TensorBoardOptions().update_freq);
}

}  // namespace meshtrain
