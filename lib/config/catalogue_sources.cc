// Data sources: where samples come from.
#include "base/text.h"
#include "config/catalogue.h"

namespace meshtrain {
namespace {

using Args = std::vector<Spec>;

ClassSpec source(std::string name, std::string help, Args args) {
  args.push_back(make_spec("slice", ValueKind::kSlice, "null", "part of the samples: \"[a:b]\""));
  ClassSpec spec;
  spec.name = std::move(name);
  spec.help = std::move(help);
  spec.args = std::move(args);
  return spec;
}

// Which samples: a split of `names`, or parts of them (split.h).
Spec split_arg(std::vector<std::string> names) {
  Spec spec = text("split", "train",
                   "which part: " + join(names, ", ") + ", train[:90%], train[10%:20%]+test, ...");
  spec.allowed = std::move(names);
  return spec;
}

// A file, several by glob ("train_*.npz") or as a list.
Spec paths(const char* name, const char* help) {
  return make_spec(name, ValueKind::kPaths, "", help).required();
}

// A file of named arrays.
ClassSpec archive(const char* name, const char* help, const char* file, const std::string& array) {
  return source(
      name, help,
      {paths("path", file),
       make_spec("x", ValueKind::kNames, "x", array + " of the samples, or one per input"),
       make_spec("y", ValueKind::kNames, "y", array + " of the labels, or one per output"),
       text("sample_weight", "null", array + " of weights")});
}

// Keras' image_dataset_from_directory; decoded as they are read.
ClassSpec image_folder() {
  return source(
      "image_folder", "PNG and JPEG images, a folder for each class",
      {make_spec("directory", ValueKind::kPath, "", "holds a folder for each class").required(),
       choice("label_mode", {"int", "categorical", "binary", "none"}, "int",
              "class numbers, one-hot rows, 0 or 1 of two classes, or no labels")
           .nullable(),
       make_spec("class_names", ValueKind::kTextList, "null",
                 "folders in the order of their numbers; all, sorted, when null"),
       choice("color_mode", {"grayscale", "rgb", "rgba"}, "rgb", "1, 3 or 4 channels"),
       make_spec("image_size", ValueKind::kShape, "256x256", "height and width"),
       choice("interpolation", {"bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"},
              "bilinear", "between pixels, without antialiasing"),
       boolean("crop_to_aspect_ratio", "false", "the largest middle part of that shape"),
       boolean("pad_to_aspect_ratio", "false", "black bars up to that shape"),
       boolean("follow_links", "false", "links to folders within a class"),
       integer("seed", "null", "shuffles the files once; sorted when null"),
       number("validation_split", "null", "part for validation, with `subset` and `seed`")
           .above(0)
           .below(1),
       choice("subset", {"training", "validation"}, "null", "of validation_split"),
       choice("on_bad_record", {"error", "skip"}, "error",
              "skip: decodes all images once at the start and leaves damaged ones out"),
       integer("max_bad_records", "10", "so many are skipped at most").least(0).most(kMaxSize)});
}

// Keras' keras.datasets, as `meshtrain data fetch` gets them.
ClassSpec named_set(const char* name, const char* help) {
  return source(name, help, {split_arg({"train", "test"})});
}

// Columns of one array, or of several by name: {wide: [age, height], deep: city}.
Spec columns(const char* name, const char* help) {
  return make_spec(name, ValueKind::kNames, "null", help).nested_ok();
}

ClassSpec csv_class() {
  Spec vocabulary = make_spec("vocabulary", ValueKind::kMap, "",
                              "column -> its texts, in the order of their ids");
  vocabulary.element = ValueKind::kTextList;
  return source(
      "csv", "tables as text",
      {paths("path", "the file, whose rows are samples"),
       columns("label", "column of the labels, or those of each output"),
       columns("features", "columns of the samples, or those of each input; all others when null"),
       text("sample_weight", "null", "column of weights"),
       make_spec("categorical", ValueKind::kTextList, "null", "columns of texts, which become ids"),
       vocabulary,
       choice("header", {"auto", "true", "false"}, "auto",
              "whether the first row names the columns; auto: if it holds no number"),
       choice("separator", {",", ";", "|", " ", "tab"}, ",", "what separates columns"),
       choice("dtype", {"float32", "float64", "int32"}, "float32", "of the numbers"),
       text("missing", "error", "what missing features become: error, mean, or a number"),
       make_spec("missing_texts", ValueKind::kTextList, "null",
                 "what means missing, beside an empty field; NA, nan, null, ? and the like when "
                 "null")});
}

ClassSpec cifar100() {
  ClassSpec spec = named_set("cifar100", "50,000 and 10,000 images 32x32x3 of 100 classes");
  spec.args.insert(spec.args.end() - 1,
                   choice("label_mode", {"fine", "coarse"}, "fine", "100 classes, or 20"));
  return spec;
}

// Samples are windows over what is read; `slice` is a part of it, in characters or tokens.
std::vector<Spec> window_args() {
  return {integer("sequence_length", "null", "length of a sample").least(1).most(kMaxSize),
          integer("stride", "null", "from one sample to the next; sequence_length when null")
              .least(1)
              .most(kMaxSize),
          choice("target", {"sequence", "last"}, "sequence",
                 "what follows each place of the sample, or its last one")};
}

ClassSpec text_class() {
  std::vector<Spec> args = window_args();
  args.insert(args.begin(), paths("path", "the text, in UTF-8"));
  args.push_back(choice("vocabulary", {"characters", "bytes"}, "characters", "what has an id"));
  args.push_back(text("characters", "null",
                      "those that have ids, in their order; those of the training text, sorted, "
                      "when null"));
  args.push_back(make_spec("characters_file", ValueKind::kPath, "null",
                           "file of such characters, line ends among them"));
  return source("text", "characters, and which ones follow", std::move(args));
}

ClassSpec tokens_class() {
  std::vector<Spec> args = window_args();
  args.insert(args.begin(), paths("path", "raw little-endian ids"));
  args.push_back(choice("dtype", {"uint16", "uint32"}, "uint16", "of an id in the file"));
  args.push_back(integer("vocabulary", "null", "every id must be below").least(1).most(kMaxSize));
  return source("tokens", "ids of tokens, and which ones follow", std::move(args));
}

}  // namespace

std::vector<ClassSpec> source_classes() {
  const Spec seed = integer("seed", "0", "of the random numbers");
  return {
      source(
          "random", "normal samples, for trying a model",
          {integer("samples", "", "how many").required().least(1).most(kMaxSize),
           make_spec("shape", ValueKind::kShape, "", "of a sample").required().empty_ok(),
           make_spec("labels", ValueKind::kShape, "null", "shape of normal labels").empty_ok(),
           integer("classes", "null", "uniform integer labels below this").least(1).most(kMaxSize),
           seed}),
      source("digits", "built-in 28x28x1 images of digits, 0 to 255",
             {split_arg({"train", "test"}),
              integer("samples", "null", "how many; all when null").least(1).most(kMaxSize), seed}),
      source("idx", "MNIST's files, plain or gzip",
             {paths("images", "file of the samples"), paths("labels", "file of the labels")}),
      archive("npz", "a NumPy archive", "the archive", "array"),
      archive("hdf5", "an HDF5 file", "the file", "dataset"),
      source("npy", "NumPy files",
             {make_spec("x", ValueKind::kNames, "", "file of the samples, or one per input")
                  .required(),
              make_spec("y", ValueKind::kNames, "null", "file of the labels, or one per output"),
              make_spec("sample_weight", ValueKind::kPath, "null", "file of weights")}),
      csv_class(),
      text_class(),
      tokens_class(),
      image_folder(),
      named_set("mnist", "60,000 and 10,000 images 28x28x1 of digits"),
      named_set("fashion_mnist", "60,000 and 10,000 images 28x28x1 of clothes"),
      named_set("cifar10", "50,000 and 10,000 images 32x32x3 of ten classes"),
      cifar100(),
  };
}

}  // namespace meshtrain
