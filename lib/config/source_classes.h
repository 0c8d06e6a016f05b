// The data sources: the arguments of each are a struct, which its reader takes, and one line each.
//
// To add one: a struct and its declaration here, with a line in declared_sources(); its reader in a
// file of data/; the reader's line in data/sources.h. A check of several arguments is a function of
// catalogue_sources.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/class_options.h"

namespace meshtrain {

// Arguments of every source.
enum class OwnTarget : uint8_t { kX };
constexpr auto words(OwnTarget) {
  return word_list("x");
}
struct SourceOptions : ClassOptions {
  static constexpr Category kCategory = Category::kSource;
  Located<std::optional<std::string>> slice;
  Located<std::optional<OwnTarget>> own_target;  // `y: x`; not of sources with an own `y`
};

inline Spec own_target_arg() {
  return key("y", &SourceOptions::own_target,
             "x: the targets are the samples, after data.transform (an autoencoder)");
}

template <class S, class Check = std::nullptr_t>
ClassSpec source_of(std::string name, std::string help, std::vector<Spec> args, Check check = {}) {
  args.push_back(key("slice", &SourceOptions::slice, "part of the samples: \"[a:b]\"")
                     .of_kind(ValueKind::kSlice)
                     .own_samples());
  const auto has = [&](std::string_view key) {
    return std::any_of(args.begin(), args.end(), [&](const Spec& arg) { return arg.name == key; });
  };
  if (!has("y") && !has("target")) {
    args.push_back(own_target_arg());
  }
  return class_of<S>(std::move(name), std::move(help), std::move(args), check);
}

using Paths = Raw<ValueKind::kPaths>;  // a file, several by glob ("train_*.npz") or as a list
using Names = Raw<ValueKind::kNames>;  // one, a list, or a map by input or output

// Which samples: a split, or parts of several (split.h).
struct SplitOptions : SourceOptions {
  Located<std::string> split{"train", {}};
};
void check_split(const SplitOptions& source, const ClassScope& scope);
inline const std::vector<std::string> kSplits = {"train", "test"};
inline Spec split_arg() {
  return key("split", &SplitOptions::split,
             "which part: train, test, train[:90%], train[10%:20%]+test, ...");
}

struct RandomOptions : SourceOptions {
  int64_t samples = 0;
  Located<std::vector<int64_t>> shape;
  Located<std::optional<std::vector<int64_t>>> labels;
  Located<std::optional<int64_t>> classes;
  int64_t seed = 0;
};
void check_random(const RandomOptions& source, const ClassScope& scope);
inline ClassSpec random_source() {
  using S = RandomOptions;
  ClassSpec spec = source_of<S>("random", "normal samples, for trying a model",
                                {count("samples", &S::samples, "how many").required(),
                                 key("shape", &S::shape, "of a sample").required().empty_ok(),
                                 key("labels", &S::labels, "shape of normal labels").empty_ok(),
                                 count("classes", &S::classes, "uniform integer labels below this"),
                                 key("seed", &S::seed, "of the random numbers")},
                                check_random);
  spec.is_generated = true;
  return spec;
}

struct DigitsOptions : SplitOptions {
  std::optional<int64_t> samples;
  int64_t seed = 0;
};
inline ClassSpec digits_source() {
  using S = DigitsOptions;
  ClassSpec spec =
      source_of<S>("digits", "built-in 28x28x1 images of digits, 0 to 255",
                   {split_arg(), count("samples", &S::samples, "how many; all when null"),
                    key("seed", &S::seed, "of the random numbers")},
                   check_split);
  spec.is_generated = true;
  return spec;
}

struct IdxOptions : SourceOptions {
  Paths images, labels;
};
void check_idx(const IdxOptions& source, const ClassScope& scope);
inline ClassSpec idx_source() {
  return source_of<IdxOptions>(
      "idx", "MNIST's files, plain or gzip",
      {key("images", &IdxOptions::images, "file of the samples").required(),
       key("labels", &IdxOptions::labels, "file of the labels; none with `y: x`")},
      check_idx);
}

// Samples that are windows over rows in the order of time; without `sequence_length`, single rows.
// Source: Keras' keras.utils.timeseries_dataset_from_array, which has no horizon.
enum class SeriesTarget : uint8_t { kSequence };
constexpr auto words(SeriesTarget) {
  return word_list("sequence");
}
struct SeriesOptions : SourceOptions {
  std::optional<int64_t> sequence_length;
  Located<std::optional<int64_t>> sequence_stride, sampling_rate, horizon, target_length;
  Located<std::optional<SeriesTarget>> target;

  // Rows from the first one of a window to its last one.
  int64_t span() const;
};
// Those of the source; without `sequence_length` for one that has no windows over rows.
SeriesOptions series_options(const ConfigObject& source);
// Reports what acts on windows alone where there are none.
void check_series(const SeriesOptions& source, const ClassScope& scope);
// `args` and those of windows.
std::vector<Spec> with_series_args(std::vector<Spec> args);

// Files of named arrays; x and y are the name of one, a list, or a map by input or output.
struct ArchiveOptions : SeriesOptions {
  Paths path;
  Names x{{std::string("x"), {}, true}}, y{{std::string("y"), {}, true}};
  Raw<ValueKind::kText> sample_weight;
};
inline ClassSpec archive_source(const char* name, const char* help, const char* file,
                                const std::string& array) {
  using S = ArchiveOptions;
  return source_of<S>(
      name, help,
      with_series_args(
          {key("path", &S::path, file).required(),
           key("x", &S::x, array + " of the samples, or one per input"),
           key("y", &S::y, array + " of the labels, or one per output; x: the samples"),
           key("sample_weight", &S::sample_weight, array + " of weights")}),
      check_series);
}

struct NpyOptions : SeriesOptions {
  Names x, y;
  Raw<ValueKind::kPath> sample_weight;
};
inline ClassSpec npy_source() {
  using S = NpyOptions;
  return source_of<S>(
      "npy", "NumPy files",
      with_series_args(
          {key("x", &S::x, "file of the samples, or one per input").files().required(),
           key("y", &S::y, "file of the labels, or one per output; x: the samples").files(),
           key("sample_weight", &S::sample_weight, "file of weights")}),
      check_series);
}

enum class CsvHeaderMode : uint8_t { kAuto, kYes, kNo };
constexpr auto words(CsvHeaderMode) {
  return word_list("auto", "true", "false");
}
// Numbers that a date gives, with pandas' names; days and timestamp count from 1970-01-01, UTC.
enum class DatePart : uint8_t {
  kYear,
  kMonth,
  kDay,
  kWeekday,  // 0 is Monday
  kDayOfYear,
  kHour,
  kMinute,
  kSecond,
  kDays,
  kTimestamp
};
constexpr auto words(DatePart) {
  return word_list("year", "month", "day", "weekday", "dayofyear", "hour", "minute", "second",
                   "days", "timestamp");
}
// Columns are one array, or several by name: {wide: [age, height], deep: city}.
struct CsvOptions : SeriesOptions {
  Paths path;
  Names label, features;
  Located<std::string> sample_weight;
  Raw<ValueKind::kTextList> categorical;
  Raw<ValueKind::kMap> vocabulary{{ConfigValue::Dict{}}};
  Raw<ValueKind::kTextList> one_hot;
  Located<std::string> mask_token, oov_token;
  Raw<ValueKind::kMap> dates{{ConfigValue::Dict{}}};
  std::string date_format;
  Raw<ValueKind::kObjectList> preprocessing;  // of Category::kTransform
  CsvHeaderMode header = CsvHeaderMode::kAuto;
  std::string separator = ",";
  Located<std::string> decimal{".", {}};
  std::string dtype = "float32";
  Located<std::string> missing{"error", {}};
  std::optional<std::vector<std::string>> missing_texts;
  Located<std::string> group;
};
void check_csv(const CsvOptions& source, const ClassScope& scope);
// Whether a transform is one of columns, else of whole inputs.
bool transforms_columns(const ConfigObject& transform);
// Whether a transform changes batches within the training step, and nothing else: MixUp, CutMix,
// and layers that move pixels.
bool changes_batches(const ConfigObject& transform);
// Whether it mixes the samples of a batch: MixUp, CutMix.
bool is_mixing(const ConfigObject& transform);
// Reports what is wrong with the values of `preprocessing`.
void check_preprocessing(const ConfigValue& transforms, Diagnostics& diagnostics);
// The transforms in `preprocessing` of a source; none where it has no such argument.
std::vector<const ConfigObject*> column_transforms(const ConfigObject& source);
inline ClassSpec csv_source() {
  using S = CsvOptions;
  Spec preprocessing =
      key("preprocessing", &S::preprocessing,
          "transforms of columns: TextVectorization, StringLookup, Discretization, ...");
  preprocessing.category = Category::kTransform;
  ClassSpec spec = source_of<S>(
      "csv", "tables as text",
      with_series_args(
          {key("path", &S::path, "the file, whose rows are samples").required().own_samples(),
           key("label", &S::label, "column of the labels, or those of each output").nested_ok(),
           key("features", &S::features,
               "columns of the samples, or those of each input; all others when null")
               .nested_ok(),
           key("sample_weight", &S::sample_weight, "column of weights"),
           key("categorical", &S::categorical, "columns of texts, which become ids"),
           key("vocabulary", &S::vocabulary, "column -> its texts, in the order of their ids")
               .map_of(ValueKind::kTextList),
           key("one_hot", &S::one_hot, "columns of texts, which become a 0 or 1 for each text"),
           key("mask_token", &S::mask_token,
               "name of an id for missing texts of features, the first one; E311 when null"),
           key("oov_token", &S::oov_token,
               "name of an id for texts that the training data lack; E312 when null"),
           key("dates", &S::dates,
               "column of dates -> its numbers: year, month, day, weekday (0 is Monday), "
               "dayofyear, "
               "hour, minute, second, days and timestamp (since 1970)")
               .map_of(ValueKind::kTextList),
           key("date_format", &S::date_format,
               "of dates, as in C's strptime: %d.%m.%Y; 2024-03-01 with or without a time when "
               "null"),
           preprocessing,
           key("header", &S::header,
               "whether the first row names the columns; auto: if it holds no number, or names and "
               "numbers that count on, as region,2019,2020 do"),
           key("separator", &S::separator, "what separates columns")
               .one_of({",", ";", "|", " ", "tab"}),
           key("decimal", &S::decimal, "what stands before the fraction of numbers: 3.14 or 3,14")
               .one_of({".", ","}),
           key("dtype", &S::dtype, "of the numbers; float64 where that is the `dtype_policy`")
               .one_of({"float32", "float64", "int32"}),
           key("missing", &S::missing,
               "what missing features become: error, mean, previous (the value before in the "
               "column), or a number")
               .takes("error, mean, previous or a number"),
           key("missing_texts", &S::missing_texts,
               "what means missing, besides an empty field; NA, nan, null, ? and the like when "
               "null"),
           key("group", &S::group,
               "column that tells several series apart: windows, and `missing: previous`, stay "
               "within the rows of one value"),
           own_target_arg()}),
      check_csv);
  spec.is_read_like_training = true;
  spec.learns = [](const ConfigObject&) { return true; };
  return spec;
}

// Samples are windows over what is read; `slice` is a part of it, in characters or tokens.
enum class WindowTarget : uint8_t { kSequence, kLast };
constexpr auto words(WindowTarget) {
  return word_list("sequence", "last");
}
struct WindowOptions : SourceOptions {
  Paths path;
  std::optional<int64_t> sequence_length, stride;
  std::optional<WindowTarget> target = WindowTarget::kSequence;  // nothing: no targets
  Located<std::optional<int64_t>> document_separator;
};
void check_windows(const WindowOptions& source, const ClassScope& scope);
inline std::vector<Spec> window_args(const char* path_help, std::vector<Spec> more) {
  using S = WindowOptions;
  std::vector<Spec> args = {
      key("path", &S::path, path_help).required().own_samples(),
      count("sequence_length", &S::sequence_length, "length of a sample"),
      count("stride", &S::stride, "from one sample to the next; sequence_length when null"),
      key("target", &S::target, "what follows each place of the sample, or its last one"),
      key("document_separator", &S::document_separator,
          "id that ends a document: gives the inputs `segments` and `positions`, where the model "
          "has them, and no weight to the target behind it")
          .least(0)};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// The folder in `vocabulary: {tokenizer: FOLDER}`; empty where it is anything else.
std::string tokenizer_folder(const ConfigValue& vocabulary);

struct TextOptions : WindowOptions {
  Names vocabulary{{std::string("characters"), {}, true}};

  bool has_bytes() const { return vocabulary.is_string() && vocabulary.string() == "bytes"; }
  // The folder of the tokenizer's files; empty without one.
  std::string tokenizer() const { return tokenizer_folder(vocabulary); }
  Located<std::string> characters;  // empty: those of the training text
  std::string characters_file;
};
void check_text(const TextOptions& source, const ClassScope& scope);
inline ClassSpec text_source() {
  using S = TextOptions;
  ClassSpec spec = source_of<S>(
      "text", "characters, and which ones follow",
      window_args(
          "the text, in UTF-8",
          {key("vocabulary", &S::vocabulary,
               "what has an id: `characters`, `bytes`, or the tokens of {tokenizer: FOLDER}, "
               "which holds tokenizer.json, or vocab.json and merges.txt"),
           key("characters", &S::characters,
               "those that have ids, in their order; those of the training text, sorted, when "
               "null"),
           key("characters_file", &S::characters_file,
               "file of such characters, line ends among them")
               .of_kind(ValueKind::kPath)}),
      check_text);
  spec.is_read_like_training = true;
  spec.learns = [](const ConfigObject& source) {
    const S options = read_options<S>(source);
    return !options.has_bytes() && options.characters->empty();
  };
  return spec;
}

// Texts of unequal length, as rows of ids of one length (data/packed_text.h).
struct PackedTextOptions : SourceOptions {
  Names vocabulary;
  Located<std::optional<int64_t>> max_length;
  Located<std::string> start_token, end_token, pad_token;  // as in the tokenizer's files

  std::string folder() const { return tokenizer_folder(vocabulary); }
};
// Reports a `vocabulary` without a folder, and a `max_length` that leaves no place for a token.
void check_packed_text(const PackedTextOptions& options, const ConfigObject& object,
                       Diagnostics& diagnostics);
// These arguments as those of a class that is no source.
std::vector<Spec> packed_text_args();
PackedTextOptions packed_text_options(const ConfigObject& object);

enum class LineTarget : uint8_t { kSequence };
constexpr auto words(LineTarget) {
  return word_list("sequence");
}
struct LinesOptions : PackedTextOptions {
  Paths path;
  std::optional<LineTarget> target = LineTarget::kSequence;  // nothing: no targets
};
void check_lines(const LinesOptions& source, const ClassScope& scope);
inline ClassSpec lines_source() {
  using S = LinesOptions;
  std::vector<Spec> args = {
      key("path", &S::path, "the text, in UTF-8; empty lines are left out")
          .required()
          .own_samples(),
      key("target", &S::target, "the id that follows each place; null: no targets")};
  for (Spec& arg : packed_text_args()) {
    args.push_back(std::move(arg));
  }
  ClassSpec spec = source_of<S>("lines", "a text a line as tokens, padded to one length",
                                std::move(args), check_lines);
  spec.is_read_like_training = true;
  spec.learns = [](const ConfigObject&) { return true; };
  return spec;
}

enum class TokenHeader : uint8_t { kAuto, kNone };
constexpr auto words(TokenHeader) {
  return word_list("auto", "none");
}
struct TokensOptions : WindowOptions {
  std::string dtype = "uint16";
  TokenHeader header = TokenHeader::kAuto;
  std::optional<int64_t> vocabulary;
};
inline ClassSpec tokens_source() {
  using S = TokensOptions;
  ClassSpec spec = source_of<S>(
      "tokens", "ids of tokens, and which ones follow",
      window_args("little-endian ids",
                  {key("dtype", &S::dtype, "of an id in a file without a header")
                       .one_of({"uint16", "uint32"}),
                   key("header", &S::header,
                       "auto: llm.c's 1024 bytes where a file begins with them, which say the "
                       "type; none: ids from the first byte"),
                   count("vocabulary", &S::vocabulary, "every id must be below")}),
      check_windows);
  spec.is_read_like_training = true;
  return spec;
}

enum class ColorMode : uint8_t { kGrayscale, kRgb, kRgba };
constexpr auto words(ColorMode) {
  return word_list("grayscale", "rgb", "rgba");
}
// How images, and masks of them, become arrays.
struct ImageFormat : SourceOptions {
  Located<std::vector<int64_t>> image_size{{256, 256}, {}};
  bool crop_to_aspect_ratio = false;
  Located<bool> pad_to_aspect_ratio;
  ColorMode color_mode = ColorMode::kRgb;
  std::string interpolation = "bilinear";
  Located<std::optional<std::vector<int64_t>>> mask_values;
  Located<std::optional<int64_t>> other_pixels;
};
std::vector<Spec> image_size_args();
std::vector<Spec> image_color_args();
std::vector<Spec> mask_value_args();
void check_image_size(const ImageFormat& format, Diagnostics& diagnostics);
void check_mask_values(const ImageFormat& format, Diagnostics& diagnostics);
// The arguments of the column transforms Image and Mask that are those of every image.
ImageFormat image_format(const ConfigObject& transform);

enum class LabelMode : uint8_t { kInt, kCategorical, kBinary, kNone };
constexpr auto words(LabelMode) {
  return word_list("int", "categorical", "binary", "none");
}
enum class FolderSubset : uint8_t { kTraining, kValidation };
constexpr auto words(FolderSubset) {
  return word_list("training", "validation");
}
// A folder for each class: what image_folder and text_folder share.
template <class Base>
struct ClassFolderOptions : Base {
  Located<std::string> directory;
  Located<std::optional<LabelMode>> label_mode{LabelMode::kInt, {}};
  Located<std::optional<std::vector<std::string>>> class_names;
  bool follow_links = false;
  std::optional<int64_t> seed;
  Located<std::optional<double>> validation_split;
  Located<std::optional<FolderSubset>> subset;

  LabelMode labels() const { return label_mode->value_or(LabelMode::kNone); }
};

enum class BadRecord : uint8_t { kError, kSkip };
constexpr auto words(BadRecord) {
  return word_list("error", "skip");
}
// Keras' image_dataset_from_directory; decoded as they are read.
struct ImageFolderOptions : ClassFolderOptions<ImageFormat> {
  Located<BadRecord> on_bad_record;
  int64_t max_bad_records = 10;
  Located<std::string> masks;  // empty: the folders are classes

  bool reads_masks() const { return !masks->empty() && labels() != LabelMode::kNone; }
};
// Keras' text_dataset_from_directory: the texts are the column `text` of `preprocessing`.
constexpr const char* kTextColumn = "text";
struct TextFolderOptions : ClassFolderOptions<SourceOptions> {
  Raw<ValueKind::kObjectList> preprocessing;
};
// Of a source of either kind; nothing for others.
struct ClassFolder {
  LabelMode labels;
  bool is_shuffled;
  const char* files;  // "images"
};
std::optional<ClassFolder> class_folder_of(const ConfigObject& source);
// The numbers of pixels for classes 0, 1, ... of the only masks of a source; else empty.
std::vector<int64_t> mask_values_of(const ConfigObject& source);
// Reports data for validation or testing without masks, where those that train have some.
void check_has_masks(const ConfigObject& train, const ConfigObject& other,
                     Diagnostics& diagnostics);
ClassSpec image_folder_source();
ClassSpec text_folder_source();

// Keras' keras.datasets, as `meshtrain data fetch` gets them.
inline ClassSpec named_set(const char* name, const char* help) {
  return source_of<SplitOptions>(name, help, {split_arg()}, check_split);
}

enum class CifarLabels : uint8_t { kFine, kCoarse };
constexpr auto words(CifarLabels) {
  return word_list("fine", "coarse");
}
struct Cifar100Options : SplitOptions {
  CifarLabels label_mode = CifarLabels::kFine;
};
inline ClassSpec cifar100_source() {
  return source_of<Cifar100Options>(
      "cifar100", "50,000 and 10,000 images 32x32x3 of 100 classes",
      {split_arg(), key("label_mode", &Cifar100Options::label_mode, "100 classes, or 20")},
      check_split);
}

inline std::vector<ClassSpec> declared_sources() {
  return {random_source(),
          digits_source(),
          idx_source(),
          archive_source("npz", "a NumPy archive", "the archive", "array"),
          archive_source("hdf5", "an HDF5 file", "the file", "dataset"),
          npy_source(),
          csv_source(),
          text_source(),
          tokens_source(),
          lines_source(),
          image_folder_source(),
          text_folder_source(),
          named_set("mnist", "60,000 and 10,000 images 28x28x1 of digits"),
          named_set("fashion_mnist", "60,000 and 10,000 images 28x28x1 of clothes"),
          named_set("cifar10", "50,000 and 10,000 images 32x32x3 of ten classes"),
          cifar100_source()};
}

}  // namespace meshtrain
