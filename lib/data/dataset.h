// Datasets: the arrays of the config's data sources, in memory or in their files (rows.h).
//
// Sources and their arguments; relative paths are from DataConfig::base_dir:
//
//   npz     path; x, y, sample_weight: names in the archive (x: "x"; y: "y"; sample_weight: none)
//   hdf5    path; x, y, sample_weight: datasets, by default those of npz; lib/tensor/h5_datasets.h
//   npy     x, y, sample_weight: paths of .npy files
//   idx     images, labels: paths of IDX files, plain or gzip; images (n, h, w) become (n, h, w, 1)
//   csv     path; label, features, sample_weight: columns; missing, vocabulary, ...: csv_table.h
//   text    path; sequence_length; stride; vocabulary: windows of characters and what follows them
//   tokens  path; sequence_length; stride; dtype: the same of raw token ids; windows.h
//   random  samples; shape: of one sample; labels: shape of one target, normal numbers; or classes:
//           uniform int32 labels (n,); seed: 0
//   digits  split: train | test; samples: 10000 | 2000; seed: 0. Drawn digits of MNIST's shape
//
// Paths are one file, a pattern, or (path, images, labels) a list. Splits are split strings:
// config/split.h. Caching of rows: cached_rows.h.
//
// Where a model has several inputs or outputs, x and y of npz and npy are a list, named as the
// arrays are, or a dict by input or output name. Every source takes `slice`, Python's
// "[begin:end]"; an end may be a percentage: "[:90%]".
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/rows.h"

namespace meshtrain {

struct LearnedData;
using LearnedPtr = std::shared_ptr<const LearnedData>;  // data/learned.h

// Samples [begin, end) of a source, or of one of its splits.
struct SourceRange {
  std::string split;  // empty where the source has none
  int64_t begin = 0, end = 0;
};

// The column that tells several series apart, and the number of its text for each sample; of a
// window, that of its rows.
struct SampleGroups {
  std::string column;
  std::vector<std::string> names;
  std::vector<int> ids;
};

// Samples along dimension 0 of every array. `inputs` and `targets` follow the model's Input layers
// and outputs in order; an array named in the source by the layer's name feeds that layer.
struct Dataset {
  struct Array {
    std::string name;  // "x", "y", or the input's or output's own name
    RowsPtr rows;
    std::vector<std::string> columns = {};  // names within a sample, where the source has them
    bool is_optional = false;               // left out for a model without an Input of this name
  };
  std::string description;  // "digits (train, 10000 samples)"
  std::vector<Array> inputs;
  std::vector<Array> targets;  // empty when the source has none (predict)
  RowsPtr sample_weight;       // (samples,) or (samples, steps) floats; null when there is none
  int64_t num_samples = 0;
  std::vector<std::string> class_names;  // of the integer labels, where the source has them
  LearnedPtr learned;  // values used for reading; null when its source learns nothing
  // The file of each sample, where each has one of its own (image_folder); else null.
  std::shared_ptr<const std::vector<std::string>> files;
  std::shared_ptr<const SampleGroups> groups;  // null where the source has a single series
  std::vector<std::string> skipped;            // the problem of each bad record that was left out
  // Where the targets are ids of texts: the bytes of text for each id, 0 where they are unknown.
  std::optional<double> bytes_per_token;
  bool is_sliced = false;  // the source applied its `slice`, which is not one of samples
  // What of the source was read: ranges of its samples, of rows below windows, or of ids.
  std::vector<SourceRange> ranges;
  std::string unused_weights;  // the file with an array `sample_weight` that the config leaves out
  SourceLoc loc;               // of the source in the config
};

// An Input of the model.
struct ModelInput {
  std::string name;
  DType dtype = DType::kFloat32;
};

// How much of a source is read, what is learned from, and for which model.
struct ReadLimits {
  // Only the beginning of large files and arrays is read, and not checked: types and shapes of
  // samples are right, the number of samples and what is learned need not be.
  bool beginning = false;
  // The part at the end that validation_split takes away: nothing is learned from it but texts and
  // characters.
  double held_out = 0;
  // The samples that data.split draws to train; instead of `held_out`.
  const std::vector<int64_t>* trained_rows = nullptr;
  // In the order of the model; empty when it is unknown. A table reads the numbers of an Input of
  // whole numbers without rounding them.
  std::vector<ModelInput> inputs = {};
};

// Loads one source of the config ("data.train", ...) with its slice, data.cache, data.transform and
// label.one_hot. Checks lengths (E313), emptiness (E316) and, unless data.nonfinite is allow,
// finiteness (E315; large arrays when they are read: checks.h). Throws ConfigError E3xx (exit 3)
// with the file, the actual and the expected content. `known` was learned from the training data.
// When it is null, a source that needs these values reads the training data.
Dataset load_dataset(const ConfigObject& source, const DataConfig& data,
                     const LearnedPtr& known = nullptr, const ReadLimits& limits = {});

// Returns the dataset as pass `pass` over it (from 0) sees it; its arrays are those of pass 0.
Dataset in_pass(const Dataset& dataset, int64_t pass);

// Where `y` says x, or names the arrays of x again, the targets become the inputs.
void take_own_targets(const ConfigObject& source, Dataset& dataset);

// Draws the parts of data.split from the training data: samples of 0 train, 1 validation, 2 test,
// in ascending order. A pure function of seed, number of samples and, with `stratify`, labels.
// `seed` is the config's. Throws ConfigError: E316 for an empty part, E113 for labels that are no
// classes.
using SplitRows = std::array<std::vector<int64_t>, 3>;
SplitRows draw_split(const Dataset& dataset, const SplitConfig& split, int64_t seed);
// Returns these samples of every array.
Dataset select_samples(const Dataset& dataset, const std::vector<int64_t>& rows);

// Keras' validation_split: the last n - floor(n (1 - split)) samples, taken before any shuffle.
// Throws ConfigError when either part is empty.
// num_trained(): how many samples are left to train.
int64_t num_trained(int64_t samples, double split);
std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, double split, SourceLoc loc);

// Checks that every integer label of sparse targets is in [0, num_classes) or `ignored`: E312 names
// the sample. Large arrays of labels are checked when they are read.
void check_labels(Dataset& dataset, size_t target, int64_t num_classes,
                  std::optional<int64_t> ignored = {});

// Checks that every label of the target is in [0, 1], as `loss` requires: E312 names the sample.
void check_yes_no(Dataset& dataset, size_t target, const std::string& loss);

// Checks that every id of the input is a row of `layer`, an Embedding: E314 names the sample. Large
// inputs are checked when they are read.
void check_ids(Dataset& dataset, size_t input, int64_t num_rows, const std::string& layer);

}  // namespace meshtrain
