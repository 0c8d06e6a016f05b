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
    {Category::kLayer, "globalavgpool", "write `GlobalAveragePooling2D`, or 1D and 3D of it"},
    {Category::kLayer, "adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d",
     "write `AdaptiveAveragePooling2D: {output_size: [H, W]}`, or `GlobalAveragePooling2D` for "
     "size 1; there are 1D and 3D of both"},
    {Category::kLayer, "adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d",
     "write `AdaptiveMaxPooling2D: {output_size: [H, W]}`, or `GlobalMaxPooling2D` for size 1; "
     "there are 1D and 3D of both"},
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
    {Category::kLayer, "embeddingbag",
     "write `Embedding`, then `GlobalAveragePooling1D`, or `Lambda: \"=sum(x, axis=1)\"`"},
    {Category::kLayer, "pixelshuffle",
     "write `Reshape` and `Permute`; `depth_to_space` of a `Lambda` has another order of channels"},
    {Category::kLayer, "spectralnorm", "write `SpectralNormalization: {layer: {Dense: N}}`"},
    {Category::kLayer, "weightnorm",
     "no layer has this form of its kernel; `SpectralNormalization: {layer: {Dense: N}}` divides a "
     "kernel by its largest singular value"},
    {Category::kLayer, "mixup cutmix",
     "it mixes targets, too, which a layer does not have; `RandomErasing` changes images alone"},
    {Category::kLayer, "textvectorization stringlookup integerlookup hashing hashedcrossing",
     "texts are no tensors here; `preprocessing` of the source `csv` takes it: "
     "`preprocessing: [{TextVectorization: {column: review}}]`"},
    {Category::kTransform, "normalization normalize",
     "put `Normalization` after the Input: it learns from the training data"},
    {Category::kTransform, "resizing resize",
     "an `image_folder` has `image_size`; as a layer, `Resizing` works in the model"},
    {Category::kTransform,
     "randomcrop centercrop randombrightness randomcontrast randomsaturation randomhue "
     "randomcolorjitter randomcolordegeneration randomgrayscale randominvert randomposterization "
     "randomsharpness randomgaussianblur randomerasing randaugment augmix autocontrast "
     "equalization "
     "solarization",
     "as a layer of the model it works, before the first layer with weights"},
    {Category::kLoss, "nllloss nll",
     "write `sparse_categorical_crossentropy` after `activation: softmax`"},
    {Category::kLoss, "crossentropyloss softmaxcrossentropy crossentropywithlogits",
     "write `SparseCategoricalCrossentropy: {from_logits: true}`"},
    {Category::kLoss, "bceloss bce", "write `binary_crossentropy`"},
    {Category::kLoss, "logloss",
     "write `binary_crossentropy`, or `sparse_categorical_crossentropy` for several classes"},
    {Category::kLoss, "bcewithlogitsloss bcewithlogits sigmoidcrossentropy",
     "write `BinaryCrossentropy: {from_logits: true}`"},
    {Category::kLoss, "mseloss l2loss l2", "write `mean_squared_error`"},
    {Category::kLoss, "l1loss l1", "write `mean_absolute_error`"},
    {Category::kLoss, "smoothl1loss smoothl1 huberloss", "write `huber`"},
    {Category::kLoss, "kldivloss kldiv", "write `kl_divergence`"},
    {Category::kLoss, "poissonnllloss", "write `poisson`"},
    {Category::kLoss, "cosineembeddingloss",
     "write an expression of two outputs and targets of 1 and -1; `cosine_similarity` compares an "
     "output with its target"},
    {Category::kLoss, "ctcloss", "write `ctc`"},
    {Category::kMetric, "logloss",
     "write `binary_crossentropy`, or `sparse_categorical_crossentropy` for several classes"},
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
    {Category::kSchedule, "onecyclelr",
     "write `CosineDecay` with `warmup_target` and `warmup_steps`"},
    {Category::kSchedule, "linearlr",
     "write `PolynomialDecay`, or for a warm-up `CosineDecay` with `warmup_steps`"},
    {Category::kSchedule, "lambdalr",
     "write the callback `LearningRateScheduler` with an expression of `epoch` and `lr`"},
    {Category::kCallback, "lambdalr",
     "write `LearningRateScheduler` with an expression of `epoch` and `lr`"},
    {Category::kCallback,
     "steplr multisteplr exponentiallr cosineannealinglr cosineannealingwarmrestarts onecyclelr "
     "linearlr",
     "write a schedule as the `learning_rate` of the optimizer"},
    {Category::kOptimizer, "lbfgs", "an update has one gradient of one batch; write `Adam`"},
    {Category::kInitializer, "xavieruniform xavier", "write `glorot_uniform`"},
    {Category::kInitializer, "xaviernormal", "write `glorot_normal`"},
    {Category::kInitializer, "kaiminguniform kaiming", "write `he_uniform`"},
    {Category::kInitializer, "kaimingnormal", "write `he_normal`"},
    {Category::kRegularizer, "weightdecay", "write `L2: 0.01`, or `weight_decay` of the optimizer"},
    {Category::kSource, "parquet", "write the table as csv"},
    {Category::kSource, "imagefolder images imagedatasetfromdirectory flowfromdirectory",
     "write `{source: image_folder, directory: ...}`"},
    {Category::kSource, "textfolder texts textdatasetfromdirectory",
     "write `{source: text_folder, directory: ..., preprocessing: [{TextVectorization: {column: "
     "text}}]}`"},
    {Category::kSource, "timeseries timeseriesdatasetfromarray",
     "write `{source: npy, x: ..., sequence_length: 24}`; csv, npz and hdf5 make windows, too"},
    {Category::kSource, "tfrecord tfrecords webdataset arrow feather",
     "write the arrays as npz or hdf5, or the images as folders"},
    {Category::kSource, "safetensors", "write the arrays as npz or hdf5"},
};

// Words that name no class.
struct OtherWord {
  std::string_view words;  // spelled as OtherName::names
  std::string_view instead;
};

constexpr OtherWord kOtherWords[] = {
    {"module lightningmodule", "write a list of layers: `model: {layers: [...]}`"},
    {"model.parameters parameters", "`meshtrain summary CONFIG` lists the weights"},
    {"requiresgrad", "write `trainable: false` of a layer, or `model: {frozen: [PATTERN]}`"},
    {"paramgroups parametergroups",
     "write `MultiOptimizer: {default_optimizer: {...}, optimizer_map: {\"backbone/.*\": {SGD: "
     "{...}}}}`; a pattern matches whole paths of weights"},
    {"embeddim",
     "write `key_dim` of `MultiHeadAttention`, the size of one head: embed_dim / num_heads"},
    {"initialstate lstm.call gru.call simplernn.call rnn.call bidirectional.call convlstm1d.call "
     "convlstm2d.call convlstm3d.call",
     "initial states are further inputs: `inputs: [sequence, h]`, of LSTM `[sequence, h, c]`"},
    {"hiddensize", "write `units` of the layer"},
    {"numlayers",
     "write one layer after the other; all but the last have `return_sequences: true`"},
    {"paddingidx",
     "write `mask_zero: true` of `Embedding`: id 0 is padding, which later layers leave out"},
    {"eps", "write `epsilon` of the optimizer or the layer"},
    {"betas", "write `beta_1` and `beta_2` of the optimizer"},
    {"clipgradnorm", "write `global_clipnorm: 1.0` of the optimizer"},
    {"clipgradvalue", "write `clipvalue: 1.0` of the optimizer"},
    {"accumulation accumulategradbatches", "write `gradient_accumulation_steps` of the optimizer"},
    {"ema averagedmodel",
     "write `use_ema: true` of the optimizer; the callback `SwapEMAWeights` evaluates the "
     "averages"},
    {"ignoreindex", "write `ignore_class` of `SparseCategoricalCrossentropy`"},
    {"posweight", "write `fit: {class_weight: {0: 1, 1: W}}`, for one label per sample"},
    {"inputshape inputdim batchinputshape",
     "the shape of a sample is an entry of its own, the first: `- Input: {shape: [...]}`"},
    {"inputlength", "write nothing: the Input says how many steps there are"},
    {"gan discriminator generator",
     "a step has one loss and one update: networks cannot take turns"},
    {"vae variationalautoencoder",
     "write its layers: `GaussianNoise` of zeros is the noise in `Lambda: \"=m + exp(v / 2) * "
     "e\"`; "
     "the divergence is a loss, an expression of the outputs"},
    {"tocategorical",
     "write `sparse_categorical_crossentropy`, which takes class numbers as they are"},
    {"loadmodel savemodel model.save",
     "`meshtrain import m.keras -o DIR` reads a model, `meshtrain export RUN -o m.keras` writes "
     "one"},
    {"loadweights saveweights model.loadweights model.saveweights",
     "`fit.initial_weights` reads weights; `meshtrain export RUN -o m.weights.h5` writes them"},
    {"model.fit", "`meshtrain train CONFIG`; its arguments are the keys of `fit` and `data`"},
    {"model.compile", "its arguments are the keys of `compile`"},
    {"model.evaluate model.predict model.summary",
     "`meshtrain evaluate RUN`, `meshtrain predict RUN`, `meshtrain summary CONFIG`"},
    {"plotmodel", "`meshtrain summary CONFIG` has a table of the layers"},
    {"confusionmatrix classificationreport", "`meshtrain evaluate RUN --details` has both"},
    {"gridsearch gridsearchcv kerastuner tuner optuna raytune",
     "`meshtrain sweep` trains a config with many values"},
    {"finetuning finetune transferlearning freeze",
     "write `fit: {initial_weights: FILE}` and `model: {frozen: [PATTERN]}`; with `--partial` a "
     "head begins anew"},
    {"pretrained pretrainedembeddings glove word2vec fasttext",
     "`fit.initial_weights` reads an npz with the table as `embedding/embeddings`; with "
     "`--partial` all other weights begin anew"},
    {"mirroredstrategy multiworkermirroredstrategy strategy.scope tf.distribute",
     "write `distribution: {type: DataParallel}`; `meshtrain launch` starts several hosts"},
    {"layoutmap tensorlayout",
     "write `distribution: {layout_map: {PATTERN: [null, model]}}`: one axis of the mesh, or null, "
     "for each dimension"},
    {"setdistribution distribution.setdistribution",
     "write `distribution: {type: ModelParallel, device_mesh: {...}, layout_map: {...}}`"},
    {"deviceput jax.deviceput distributetensor", "write nothing: arrays lie as their layouts say"},
    {"listdevices jax.devices", "`meshtrain devices` lists them"},
    {"tpu tpustrategy", "devices are NVIDIA GPUs and virtual CPU devices"},
    {"hook registerforwardhook registerhook",
     "no Python runs here; `meshtrain explain callbacks` lists what acts on training"},
    {"nograd inferencemode eval",
     "write nothing: `meshtrain evaluate` and `predict` keep no gradients"},
    {"detach", "write `stop_gradient(x)` in the expression of a `Lambda`"},
    {"backward zerograd", "write nothing: `meshtrain train` computes gradients and updates"},
    {"torch.compile torch.jit", "write nothing: every model is compiled"},
    {"dataloader dataset tensordataset",
     "write `data: {train: {source: ...}}`; `fit.batch_size` and `data.shuffle` say how it is "
     "read"},
    {"numworkers pinmemory prefetchfactor",
     "write nothing: a thread reads ahead; `data.prefetch` says how many batches"},
    {"droplast", "write `data: {remainder: drop}`"},
    {"randomsplit traintestsplit", "write `data: {split: {validation: 0.2, seed: 1}}`"},
    {"manualseed setrandomseed seedeverything", "write `seed: 1`"},
    {"save load statedict loadstatedict",
     "`checkpoint` saves a run, `--resume` continues it, and `fit.initial_weights` reads weights"},
    {"torch.export torch.onnx onnx", "`meshtrain export RUN -o m.onnx` writes the model"},
    {"gradscaler", "write nothing: `dtype_policy: mixed_float16` scales the loss by itself"},
    {"activationcheckpointing gradientcheckpointing", "write `model: {remat: {PATTERN: block}}`"},
    {"device cuda", "write `--devices gpu:0`, or `devices` of `distribution.device_mesh`"},
    {"initdevicemesh devicemesh",
     "write `distribution: {device_mesh: {shape: [2, 4], axis_names: [data, model]}}`"},
    {"distributeddataparallel ddp dataparallel", "write `distribution: {type: DataParallel}`"},
    {"fsdp fullyshardeddataparallel fullyshard", "write `distribution: {zero: 3}`"},
    {"distribution.strategy",
     "write `type: DataParallel`, or `type: ModelParallel` with a `layout_map`"},
    {"distribution.zerostage zerostage", "write `zero` of `distribution`: 0, 1, 2 or 3"},
    {"distribution.tensorparallel tensorparallel tensorparallelsize tensormodelparallelsize tpsize",
     "write `distribution: {device_mesh: {shape: [2, 4], axis_names: [data, model]}, layout_map: "
     "megatron}`"},
    {"distribution.pipeline pipelineparallel pipelineparallelsize pipelinemodelparallelsize",
     "there are no pipeline stages: `layout_map: megatron` splits layers, and `zero: 3` splits "
     "weights"},
    {"zeroredundancyoptimizer", "write `distribution: {zero: 1}`"},
    {"colwiseparallel", "write `distribution: {layout_map: {NAME/kernel: [null, model]}}`"},
    {"rowwiseparallel", "write `distribution: {layout_map: {NAME/kernel: [model, null]}}`"},
    {"partitionspec namedsharding",
     "write a layout: `P(None, \"model\")` is `layout_map: {NAME/kernel: [null, model]}`"},
    {"shardmap pjit",
     "write nothing: the program of each device follows from `distribution: {layout_map: {...}}`"},
    {"withshardingconstraint",
     "write a layout of the layer's output: `layout_map: {NAME/output: [data, null]}`"},
    {"jax.checkpoint jax.remat nn.remat", "write `model: {remat: {PATTERN: block}}`"},
    {"jit donateargnums jax.jit pmap vmap",
     "write nothing: every model is compiled, and memory of old values is used again"},
    {"optax", "write the optimizer of Keras: `compile: {optimizer: {AdamW: {...}}}`"},
    {"wandb mlflow", "write the callback `RunCommand`, whose program receives the logs as JSON"},
    {"tf.data tfdata", "write `data: {train: {source: ...}}`"},
    {"savedmodel tflite litert tfserving",
     "`meshtrain export RUN -o m.onnx` or `m.keras`; onnxruntime serves the first, Keras converts "
     "the second"},
    {"cudavisibledevices",
     "set it as elsewhere; `--devices gpu:0,2` chooses among the GPUs that it leaves"},
    {"imagedatagenerator",
     "write `{source: image_folder, directory: ...}`, and `data: {transform: [...]}` to augment"},
    {"distributedsampler",
     "write nothing: the batch is global, and its order does not depend on the mesh"},
    {"torchrun initprocessgroup",
     "write nothing: `meshtrain train` starts one process per GPU; `meshtrain launch` starts "
     "several "
     "hosts"},
};

bool is_listed(std::string_view names, const std::string& name) {
  const std::vector<std::string> list = split(std::string(names), ' ');
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::string bare(std::string_view name) {
  std::string out = to_lower(name);
  std::erase(out, '_');
  return out;
}

std::string instead_of(Category category, std::string_view spelled) {
  const std::string name = bare(spelled);
  if (category == Category::kRegularizer && try_number(spelled)) {
    return fmt::format("write `L2: {0}` (or `L1: {0}`)", spelled);
  }
  for (const OtherName& entry : kOtherNames) {
    if (entry.category == category && is_listed(entry.names, name)) {
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

std::string instead_of_key(std::string_view section, std::string_view key) {
  const std::string here = instead_of_word(fmt::format("{}.{}", section, key));
  return here.empty() ? instead_of_word(key) : here;
}

std::string instead_of_section(std::string_view section, std::string_view text) {
  const bool has_sizes = text.find_first_of("0123456789") == 0;
  if (section == "distribution" && has_sizes) {
    return fmt::format("write `distribution: {{device_mesh: {{shape: {}}}}}`", text);
  }
  if (section == "distribution") {
    return fmt::format("write `distribution: {{type: {}}}`",
                       bare(text) == "modelparallel" ? "ModelParallel" : "DataParallel");
  }
  if (section == "distribution.device_mesh") {
    return fmt::format("write `device_mesh: {{shape: {}}}`", has_sizes ? text : "2x2");
  }
  if (section == "model.lora" && has_sizes) {
    return fmt::format("write `{{rank: {}}}`", text);
  }
  return "";
}

std::string instead_of_word(std::string_view spelled) {
  const std::string word = bare(spelled);
  for (const OtherWord& entry : kOtherWords) {
    if (is_listed(entry.words, word)) {
      return std::string(entry.instead);
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
         : is({"amp", "autocast", "mixed"})
             ? "write `mixed_bfloat16`, or `mixed_float16` (both with float32 weights)"
         : is({"fp32", "float", "single", "f32", "32", "tf32"}) ? "write `float32`"
         : is({"fp64", "double", "f64", "64"})                  ? "write `float64`"
                                                                : "";
}

}  // namespace meshtrain
