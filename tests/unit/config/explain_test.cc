// What `meshtrain explain` says of keys and classes.
#include "config/explain.h"

#include <doctest/doctest.h>

#include "config/catalogue.h"
#include "config/other_names.h"

namespace meshtrain {
namespace {

bool has(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != std::string::npos;
}

TEST_CASE("a key says what it takes and its default") {
  CHECK(explain_word("fit.epochs").value_or("") ==
        "fit.epochs: index of the last epoch, as in Keras\n"
        "\n"
        "  takes    a whole number, at least 1\n"
        "  default  1\n");
  CHECK(explain_word("batch_size") == explain_word("fit.batch_size"));
  CHECK(has(explain_word("distribution.type"), "one of DataParallel, ModelParallel"));
}

TEST_CASE("a section and a class list what they hold") {
  CHECK(has(explain_word("distribution.device_mesh"), "  axis_names  null  one name per axis"));
  const auto dense = explain_word("Dense");
  CHECK(has(dense, "Dense (layer)"));
  CHECK(has(dense, "  units"));
  CHECK(has(explain_word("Dense.units"), "Dense.units: "));
  CHECK(explain_word("adam") == explain_word("Adam"));
  // A layer and an activation have this name.
  CHECK(has(explain_word("relu"), "(activation)"));
}

TEST_CASE("a class of Keras that is not here is said so") {
  CHECK(has(explain_word("Pipeline"), "Pipeline (layer): not supported"));
  CHECK(has(explain_word("BatchNorm2d"), "write `BatchNormalization`"));
  CHECK(has(explain_word("nn.Linear"), "write `Dense: {units: N}`"));
  CHECK(has(explain_word("torch.optim.AdamW"), "weight_decay"));
  CHECK(!explain_word("Dense.linear"));
  CHECK(explain_word("Pipeline.layers") == explain_word("Pipeline"));
  CHECK(has(explain_word("MixUp.alpha"), "MixUp.alpha: "));  // a transform
  CHECK(has(explain_word("parquet"), "parquet (data source): not supported"));
  CHECK(has(explain_word("LambdaCallback"), "LambdaCallback (callback): not here; functions of"));
  CHECK_FALSE(has(explain_word("Normalization"), "not supported"));  // a transform, too
  CHECK_FALSE(explain_word("Normalization.units").has_value());
}

// Else the advice is given for a spelling of the class itself, as torch's MultiheadAttention.
TEST_CASE("names of other frameworks are no classes of this program") {
  for (int i = 0; i < kNumCategories; ++i) {
    const auto category = static_cast<Category>(i);
    for (const std::string& name : class_names(category)) {
      const std::string advice = instead_of(category, name);
      CHECK_MESSAGE((advice.empty() || advice.rfind("write `Activation: ", 0) == 0 ||
                     advice.find(name) != std::string::npos),
                    name);
    }
  }
  CHECK(instead_of(Category::kLayer, "MultiheadAttention").empty());
  CHECK(has(explain_word("multiheadattention"), "MultiHeadAttention (layer)"));
}

TEST_CASE("words of other frameworks that name no class lead to what to write") {
  CHECK(explain_word("drop_last").value_or("") == "drop_last: write `data: {remainder: drop}`\n");
  CHECK(has(explain_word("torch.utils.data.DataLoader"), "data: {train: {source: ...}}"));
  CHECK(has(explain_word("FSDP"), "zero: 3"));
  CHECK(has(explain_word("nn.Module"), "model: {layers: [...]}"));
  CHECK(has(explain_word("nn.utils.clip_grad_norm_"), "global_clipnorm"));
  CHECK(has(explain_word("eps"), "write `epsilon`"));
  CHECK(has(explain_word("GAN"), "one loss"));
  CHECK(has(explain_word("torch.compile"), "nothing"));
  CHECK(has(explain_word("lr_scheduler.OneCycleLR"), "OneCycleLR (schedule): "));
  CHECK(has(explain_word("log_loss"), "binary_crossentropy"));
  CHECK(has(explain_word("AdaptiveAvgPool2d"), "AdaptiveAveragePooling2D: {output_size: [H, W]}"));
  CHECK(has(explain_word("amp"), "amp (dtype policy): not here by that name; write `mixed_bf"));
  for (const char* word : {"torch", "nn", "keras", "nn.nn", "tf.keras"}) {
    CHECK_FALSE(explain_word(word).has_value());
  }
}

TEST_CASE("an argument lists the classes that have it") {
  CHECK(
      has(explain_word("nesterov"), "nesterov: an argument of SGD, Muon (meshtrain explain SGD."));
  CHECK(has(explain_word("momentum"), "BatchNormalization, SGD, RMSprop, "));
  CHECK(has(explain_word("weight_decay"), "Adadelta, ... (meshtrain explain SGD.weight_decay)"));
  CHECK(has(explain_word("SGD.momentum"), "SGD.momentum: "));
}

TEST_CASE("a kind of class is explained as the list of its classes") {
  for (const char* word : {"layers", "layer", "losses", "optimizers", "sources", "activations"}) {
    CAPTURE(word);
    REQUIRE(explain_word(word).has_value());
  }
  CHECK(has(explain_word("losses"), "  Huber  "));
  CHECK(has(explain_word("data.train"), "  image_folder "));
  CHECK(has(explain_word("image_folder"), "(int, categorical, binary, none)"));
  CHECK(has(explain_word("profiles"), "--profile debug"));
}

TEST_CASE("every word is explained and others are not") {
  const auto words = explained_words();
  CHECK(words.size() > 250);
  for (const std::string& word : words) {
    CHECK_MESSAGE(explain_word(word).has_value(), word);
  }
  for (const char* word : {"", ".", "fit.", ".fit", "Dense.", "fit.epochs.more", "no_such"}) {
    CHECK_FALSE(explain_word(word).has_value());
  }
}

}  // namespace
}  // namespace meshtrain
