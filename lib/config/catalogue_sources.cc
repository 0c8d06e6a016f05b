// Data sources: where samples come from.
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

// A file, several by glob ("train_*.npz") or as a list.
Spec paths(const char* name, const char* help) {
  return make_spec(name, ValueKind::kPaths, "", help).required();
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
             {choice("split", {"train", "test"}, "train", "which part"),
              integer("samples", "null", "how many; all when null").least(1).most(kMaxSize), seed}),
      source("idx", "MNIST's files, plain or gzip",
             {paths("images", "file of the samples"), paths("labels", "file of the labels")}),
      source("npz", "a NumPy archive",
             {paths("path", "the archive"),
              make_spec("x", ValueKind::kNames, "x", "array of the samples, or one per input"),
              make_spec("y", ValueKind::kNames, "y", "array of the labels, or one per output"),
              text("sample_weight", "null", "array of weights")}),
      source("npy", "NumPy files",
             {make_spec("x", ValueKind::kNames, "", "file of the samples, or one per input")
                  .required(),
              make_spec("y", ValueKind::kNames, "null", "file of the labels, or one per output"),
              make_spec("sample_weight", ValueKind::kPath, "null", "file of weights")}),
  };
}

}  // namespace meshtrain
