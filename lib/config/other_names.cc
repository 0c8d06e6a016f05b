#include "config/other_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "config/catalogue.h"
#include "config/scalars.h"

namespace meshtrain {
namespace {

struct OtherName {
  Category category;
  std::string_view names;  // in lower case without underscores, separated by spaces
  std::string_view instead;
};

constexpr OtherName kOtherNames[] = {
    {Category::kLayer, "linear fc fullyconnected lazylinear", "write `Dense: {units: N}`"},
    {Category::kLayer, "batchnorm batchnorm1d batchnorm2d batchnorm3d syncbatchnorm",
     "write `BatchNormalization`"},
    {Category::kLayer, "layernorm", "write `LayerNormalization`"},
    {Category::kLayer, "moe mixtureofexperts mixtralsparsemoeblock sparsemoeblock",
     "write `SparseMoE: {num_experts: N, intermediate_dim: M}`"},
    {Category::kLayer, "groupnorm", "write `GroupNormalization: {groups: N}`"},
    {Category::kLayer, "instancenorm instancenorm1d instancenorm2d instancenorm3d",
     "write `GroupNormalization: {groups: -1}`"},
    {Category::kLayer, "rmsnorm", "write `RMSNormalization`"},
    {Category::kLayer, "maxpool1d maxpool2d maxpool3d maxpool",
     "write `MaxPooling2D`, or 1D and 3D of it"},
    {Category::kLayer, "avgpool1d avgpool2d avgpool3d avgpool",
     "write `AveragePooling2D`, or 1D and 3D of it"},
    {Category::kLayer, "adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d globalavgpool",
     "write `GlobalAveragePooling2D`, or 1D and 3D of it"},
    {Category::kLayer, "adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d",
     "write `GlobalMaxPooling2D`, or 1D and 3D of it"},
    {Category::kLayer, "convtranspose1d convtranspose2d convtranspose3d deconv deconv2d",
     "write `Conv2DTranspose`, or 1D and 3D of it"},
    {Category::kLayer, "dropout1d dropout2d dropout3d",
     "write `SpatialDropout2D`, or 1D and 3D of it"},
    {Category::kLayer, "zeropad1d zeropad2d zeropad3d constantpad2d",
     "write `ZeroPadding2D`, or 1D and 3D of it"},
    {Category::kLayer, "upsample", "write `UpSampling2D: {size: 2}`"},
    {Category::kLayer, "unflatten view", "write `Reshape: {target_shape: [...]}`"},
    {Category::kLayer, "cat concat", "write `Concatenate: {inputs: [a, b]}`"},
    {Category::kLayer, "sequential modulelist functional",
     "layers stand in `model.layers`; a part with a name is one of `blocks`"},
    {Category::kLayer, "transformer transformerencoderlayer transformerdecoderlayer",
     "write `TransformerEncoder` or `TransformerDecoder`, in a `Repeat` for several"},
    {Category::kLayer, "pipeline", "write its layers one after the other"},
    {Category::kLayer, "mixup cutmix",
     "it mixes targets, too, which a layer does not have; `RandomErasing` changes images alone"},
    {Category::kLayer, "textvectorization stringlookup integerlookup hashing hashedcrossing",
     "texts are no tensors here; `preprocessing` of the source `csv` takes it: "
     "`preprocessing: [{TextVectorization: {column: review}}]`"},
    {Category::kTransform, "normalization normalize",
     "put `Normalization` after the Input: it learns from the training data"},
    {Category::kTransform, "resizing resize",
     "an `image_folder` has `image_size`; as a layer, `Resizing` works in the model"},
    {Category::kTransform, "randomflip randomcrop centercrop",
     "as a layer of the model it works, before the first layer with weights"},
    {Category::kLoss, "nllloss nll",
     "write `sparse_categorical_crossentropy` after `activation: softmax`"},
    {Category::kLoss, "crossentropyloss softmaxcrossentropy crossentropywithlogits",
     "write `SparseCategoricalCrossentropy: {from_logits: true}`"},
    {Category::kLoss, "bceloss bce", "write `binary_crossentropy`"},
    {Category::kLoss, "bcewithlogitsloss bcewithlogits sigmoidcrossentropy",
     "write `BinaryCrossentropy: {from_logits: true}`"},
    {Category::kLoss, "mseloss l2loss l2", "write `mean_squared_error`"},
    {Category::kLoss, "l1loss l1", "write `mean_absolute_error`"},
    {Category::kLoss, "smoothl1loss smoothl1 huberloss", "write `huber`"},
    {Category::kLoss, "kldivloss kldiv", "write `kl_divergence`"},
    {Category::kLoss, "poissonnllloss", "write `poisson`"},
    {Category::kLoss, "cosineembeddingloss", "write `cosine_similarity`"},
    {Category::kLoss, "ctcloss", "write `ctc`"},
    {Category::kMetric, "rmse", "write `RootMeanSquaredError`"},
    {Category::kMetric, "f1 fscore", "write `F1Score`"},
    {Category::kMetric, "r2", "write `R2Score`"},
    {Category::kMetric, "rocauc aucroc auroc", "write `AUC`"},
    {Category::kMetric, "top5accuracy topk topkaccuracy",
     "write `SparseTopKCategoricalAccuracy: {k: 5}`"},
    {Category::kSchedule, "cosineannealinglr cosineannealing", "write `CosineDecay`"},
    {Category::kSchedule, "cosineannealingwarmrestarts", "write `CosineDecayRestarts`"},
    {Category::kSchedule, "steplr exponentiallr",
     "write `ExponentialDecay`, with `staircase: true` for steps"},
    {Category::kSchedule, "multisteplr", "write `PiecewiseConstantDecay`"},
    {Category::kInitializer, "xavieruniform xavier", "write `glorot_uniform`"},
    {Category::kInitializer, "xaviernormal", "write `glorot_normal`"},
    {Category::kInitializer, "kaiminguniform kaiming", "write `he_uniform`"},
    {Category::kInitializer, "kaimingnormal", "write `he_normal`"},
    {Category::kRegularizer, "weightdecay", "write `L2: 0.01`, or `weight_decay` of the optimizer"},
    {Category::kSource, "parquet", "write the table as csv"},
    {Category::kSource, "imagefolder images", "write `{source: image_folder, directory: ...}`"},
    {Category::kSource, "safetensors", "write the arrays as npz or hdf5"},
};

// "BatchNorm_2d" is "batchnorm2d".
std::string bare(std::string_view name) {
  std::string out = to_lower(name);
  std::erase(out, '_');
  return out;
}

}  // namespace

std::string instead_of(Category category, std::string_view spelled) {
  const std::string name = bare(spelled);
  if (category == Category::kRegularizer && try_number(spelled)) {
    return fmt::format("write `L2: {0}` (or `L1: {0}`)", spelled);
  }
  for (const OtherName& entry : kOtherNames) {
    const std::vector<std::string> names = split(std::string(entry.names), ' ');
    if (entry.category == category && std::find(names.begin(), names.end(), name) != names.end()) {
      return std::string(entry.instead);
    }
  }
  if (category == Category::kLayer) {
    for (const ClassSpec& activation : classes(Category::kActivation)) {
      const bool is_alias =
          std::any_of(activation.aliases.begin(), activation.aliases.end(),
                      [&](const std::string& alias) { return bare(alias) == name; });
      if (bare(activation.name) == name || is_alias) {
        return fmt::format("write `Activation: {}`", activation.name);
      }
    }
  }
  return "";
}

std::string instead_of_policy(std::string_view spelled) {
  const std::string name = bare(spelled);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return is({"fp16", "half", "16", "f16"})
             ? "write `mixed_float16` (float32 weights), or `float16` for all"
         : is({"bf16", "bfloat"})
             ? "write `mixed_bfloat16` (float32 weights), or `bfloat16` for all"
         : is({"fp32", "float", "single", "f32", "32", "tf32"}) ? "write `float32`"
         : is({"fp64", "double", "f64", "64"})                  ? "write `float64`"
                                                                : "";
}

}  // namespace meshtrain
