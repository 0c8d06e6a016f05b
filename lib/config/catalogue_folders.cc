// Folders with a folder for each class: the sources image_folder and text_folder.
#include <algorithm>

#include "base/text.h"
#include "config/catalogue_args.h"
#include "config/source_classes.h"

namespace meshtrain {
namespace {

// What is wrong with arguments that both folders have.
template <class S>
void check_class_folder(const S& source, const ClassScope& scope) {
  const auto wrong = [&](const SourceLoc& loc, std::string message) -> Diagnostic& {
    return scope.diagnostics.error("E113", loc, std::move(message));
  };
  // Also as what was refused already: a default has the place of the class.
  const auto is_given = [&](const auto& member) {
    return member.value.has_value() || member.loc.to_string() != scope.object.loc.to_string();
  };
  const bool has_subset = is_given(source.subset);
  if (is_given(source.validation_split) != has_subset) {
    wrong(has_subset ? source.subset.loc : source.validation_split.loc,
          "`validation_split` and `subset` need each other")
        .help(
            "`{validation_split: 0.2, subset: training, seed: 1}`, and `subset: validation` for "
            "the rest");
  } else if (source.validation_split.value && !source.seed) {
    wrong(source.validation_split.loc, "`validation_split` needs `seed`, the order that is split")
        .note("the files are sorted by class: the last of them would be of the last classes only");
  }
  if (source.class_names.value && source.labels() == LabelMode::kNone) {
    wrong(source.class_names.loc, "there are no classes with `label_mode: none`");
  }
}

void check_masks(const ImageFolderOptions& source, const ClassScope& scope) {
  const auto wrong = [&](const SourceLoc& loc, std::string message) -> Diagnostic& {
    return scope.diagnostics.error("E113", loc, std::move(message));
  };
  const ConfigValue& train = scope.tree.field("data").field("train");
  if (source.masks->empty() && train.is_object() && train.object().args.contains("masks") &&
      train.object().has("masks")) {
    return;  // check_has_masks()
  }
  if (source.masks->empty()) {
    for (const auto& [is_given, name, loc] :
         {std::tuple(source.mask_values->has_value(), "mask_values", source.mask_values.loc),
          std::tuple(source.other_pixels->has_value(), "other_pixels", source.other_pixels.loc)}) {
      if (is_given) {
        wrong(loc, fmt::format("`{}` is of `masks`, which is not given", name));
      }
    }
    return;
  }
  if (source.own_target.value) {
    wrong(source.own_target.loc, "`y: x` and `masks` exclude each other")
        .help("an autoencoder has no masks: leave one of them out");
  }
  if (std::count(source.masks->begin(), source.masks->end(), '*') > 1) {
    wrong(source.masks.loc, "`masks` has more than one `*`, which is the name of an image")
        .help("write a pattern such as `masks/*_mask.png`");
  }
  if (source.labels() != LabelMode::kInt && source.labels() != LabelMode::kNone) {
    wrong(source.label_mode.loc, "`label_mode` is of folders that are classes, and masks are given")
        .help("leave it out: pixels have class ids");
  }
  check_mask_values(source, scope.diagnostics);
}

void check_image_folder(const ImageFolderOptions& source, const ClassScope& scope) {
  check_image_size(source, scope.diagnostics);
  check_class_folder(source, scope);
  check_masks(source, scope);
}

void check_text_folder(const TextFolderOptions& source, const ClassScope& scope) {
  check_class_folder(source, scope);
  const std::vector<const ConfigObject*> transforms = column_transforms(scope.object);
  if (transforms.empty()) {
    scope.diagnostics
        .error("E111", scope.object.loc,
               "`text_folder` needs `preprocessing`: texts are no numbers")
        .help(
            "`preprocessing: [{TextVectorization: {column: text, max_tokens: 10000, "
            "output_sequence_length: 200}}]`");
    return;
  }
  check_preprocessing(source.preprocessing, scope.diagnostics);
  for (const ConfigObject* transform : transforms) {
    const bool takes_texts =
        transform->class_name == "TextVectorization" || transform->class_name == "Tokenizer";
    if (!takes_texts && transforms_columns(*transform)) {
      scope.diagnostics
          .error("E113", transform->loc,
                 fmt::format("`{}` takes no texts of a `text_folder`", transform->class_name))
          .help("`TextVectorization` or `Tokenizer`");
    } else if (takes_texts && transform->string("column") != kTextColumn) {
      scope.diagnostics
          .error("E113", transform->loc_of("column"),
                 fmt::format("`text_folder` has no column `{}`", transform->string("column")))
          .help(fmt::format("its texts are the column `{}`", kTextColumn));
    }
  }
}

// `args` stand behind the arguments that both folders have. `names`: help of `class_names`.
template <class S>
ClassSpec folder_source(const char* name, const char* help, const char* directory,
                        const char* names, std::vector<std::vector<Spec>> args,
                        void (*check)(const S&, const ClassScope&)) {
  std::vector<Spec> all = {
      key("directory", &S::directory, directory).of_kind(ValueKind::kPath).required(),
      key("label_mode", &S::label_mode,
          "class numbers, one-hot rows, 0 or 1 of two classes, or no labels")
          .nullable(),
      key("class_names", &S::class_names, names),
      key("follow_links", &S::follow_links, "links to folders within a class"),
      key("seed", &S::seed, "shuffles the files once; sorted when null").own_samples(),
      key("validation_split", &S::validation_split, "part for validation, with `subset` and `seed`")
          .above(0)
          .below(1)
          .own_samples(),
      key("subset", &S::subset, "of validation_split").own_samples()};
  for (const std::vector<Spec>& more : args) {
    all.insert(all.end(), more.begin(), more.end());
  }
  ClassSpec spec = source_of<S>(name, help, std::move(all), check);
  spec.is_read_like_training = true;
  return spec;
}

}  // namespace

ClassSpec image_folder_source() {
  using S = ImageFolderOptions;
  ClassSpec spec = folder_source<S>(
      "image_folder", "PNG and JPEG images, a folder for each class, or a mask for each image",
      "holds a folder for each class, or images with masks",
      "folders in the order of their numbers; all, sorted, when null; with masks: names of the "
      "classes",
      {image_color_args(),
       image_size_args(),
       {key("on_bad_record", &S::on_bad_record,
            "skip: decodes all images once at the start and leaves damaged ones out"),
        count("max_bad_records", &S::max_bad_records, "so many are skipped at most", 0),
        key("masks", &S::masks,
            "folder of masks with the names of the images, or a pattern with `*` for the name")
            .of_kind(ValueKind::kPath)
            .own_samples()},
       mask_value_args()},
      check_image_folder);
  spec.learns = [](const ConfigObject& source) {
    const S options = read_options<S>(source);
    return options.labels() != LabelMode::kNone &&
           (!options.reads_masks() || options.class_names->has_value());
  };
  return spec;
}

ClassSpec text_folder_source() {
  using S = TextFolderOptions;
  Spec preprocessing = key("preprocessing", &S::preprocessing,
                           "makes numbers of the column `text`: TextVectorization or Tokenizer");
  preprocessing.category = Category::kTransform;
  ClassSpec spec =
      folder_source<S>("text_folder", "texts, a file for each, in a folder for each class",
                       "holds a folder for each class, whose files are texts",
                       "folders in the order of their numbers; all, sorted, when null",
                       {{preprocessing}}, check_text_folder);
  spec.learns = [](const ConfigObject&) { return true; };
  return spec;
}

std::optional<ClassFolder> class_folder_of(const ConfigObject& source) {
  if (const auto images = options_if<ImageFolderOptions>(source)) {
    return ClassFolder{images->labels(), images->seed.has_value(), "images"};
  }
  if (const auto texts = options_if<TextFolderOptions>(source)) {
    return ClassFolder{texts->labels(), texts->seed.has_value(), "texts"};
  }
  return std::nullopt;
}

}  // namespace meshtrain
