// Transforms of columns of tables: Keras 3.16 keras/src/layers/preprocessing.
#include <fmt/format.h>

#include <set>

#include "config/catalogue_args.h"
#include "config/source_classes.h"

namespace meshtrain {
namespace {

constexpr int kMaxTokens = 10000000;

Spec column() {
  return text("column", "", "the column that it changes").required();
}
Spec output_mode(std::vector<std::string> modes, const char* otherwise) {
  return choice("output_mode", std::move(modes), otherwise,
                "ids, or a number for each id: 1 where it is there, how often, or weighted counts");
}
Spec bins(const char* name, const char* help) {
  return integer(name, "", help).required().least(1).most(kMaxTokens);
}

// What all lookups have beside their tokens.
Args lookup_args(Args first, Spec vocabulary, std::vector<std::string> modes) {
  for (Spec& spec :
       Args{integer("max_tokens", "null", "most ids; the rarest tokens have none")
                .least(2)
                .most(kMaxTokens),
            std::move(vocabulary),
            make_spec("idf_weights", ValueKind::kFloatOrList, "null",
                      "of tf_idf: the weight of each token of `vocabulary`"),
            output_mode(std::move(modes), "int"),
            boolean("pad_to_max_tokens", "false",
                    "as many numbers as `max_tokens`, also where there are fewer tokens"),
            unsupported("sparse", "sparse tensors"), unsupported("encoding", "other than UTF-8")}) {
    first.push_back(std::move(spec));
  }
  return first;
}

ClassSpec text_vectorization() {
  Args args = {
      column(),
      choice("standardize", {"lower_and_strip_punctuation", "lower", "strip_punctuation"},
             "lower_and_strip_punctuation", "changes of the text, in ASCII")
          .nullable(),
      choice("split", {"whitespace", "character"}, "whitespace", "what tokens are").nullable(),
      make_spec("ngrams", ValueKind::kIntOrList, "null",
                "runs of so many tokens, or of up to so many, as tokens")
          .least(1)
          .most(64),
      integer("output_sequence_length", "null",
              "ids of each text, cut or padded with 0; the longest training text's when null")
          .least(1)
          .most(1000000),
      unsupported("ragged", "ragged tensors")};
  return make_class("TextVectorization", "ids or counts of the words of texts",
                    lookup_args(std::move(args),
                                make_spec("vocabulary", ValueKind::kTextList, "null",
                                          "tokens, in the order of ids; learned when null"),
                                {"int", "multi_hot", "count", "tf_idf"}));
}

// `things`: what its tokens are. The tokens of missing and unknown ones, and the vocabulary.
ClassSpec lookup(const char* name, const std::string& things, Spec mask, Spec oov,
                 ValueKind vocabulary) {
  Args args = {
      column(),
      integer("num_oov_indices", "1", fmt::format("ids of unknown {}; 0: they are errors", things))
          .least(0)
          .most(kMaxTokens),
      std::move(mask), std::move(oov), unsupported("invert", fmt::format("{} of ids", things))};
  return make_class(
      name, fmt::format("ids of {}", things),
      lookup_args(std::move(args),
                  make_spec("vocabulary", vocabulary, "null",
                            fmt::format("{}, in the order of ids; learned when null", things)),
                  {"int", "one_hot", "multi_hot", "count", "tf_idf"}));
}

ClassSpec tokenizer() {
  Args args = packed_text_args();
  args.insert(args.begin(), column());
  return make_class("Tokenizer", "ids of the tokens of texts, padded to one length",
                    std::move(args));
}

}  // namespace

std::vector<ClassSpec> column_transform_classes() {
  const std::vector<std::string> all_modes = {"int", "one_hot", "multi_hot", "count"};
  return {
      text_vectorization(),
      tokenizer(),
      lookup("StringLookup", "texts",
             text("mask_token", "null", "the text that means missing, with id 0"),
             text("oov_token", "[UNK]", "a text that counts as unknown"), ValueKind::kTextList),
      lookup("IntegerLookup", "integers",
             integer("mask_token", "null", "the integer that means missing, with id 0"),
             integer("oov_token", "-1", "an integer that counts as unknown"),
             ValueKind::kIntOrList),
      make_class("Discretization", "the bin of a number",
                 {column(),
                  make_spec("bin_boundaries", ValueKind::kFloatOrList, "null",
                            "where bins begin, ascending; learned when null"),
                  integer("num_bins", "null", "how many are learned, of equally many values")
                      .least(2)
                      .most(100000),
                  number("epsilon", "0.01", "part of the values that learning may pass over")
                      .above(0)
                      .below(1),
                  output_mode(all_modes, "int"), unsupported("sparse", "sparse tensors")}),
      make_class("Hashing", "a bin of a text by its hash",
                 {column(), bins("num_bins", "number of bins"),
                  text("mask_value", "null", "the text that means missing, with bin 0"),
                  make_spec("salt", ValueKind::kIntOrList, "null",
                            "SipHash with this key, one number or two; FarmHash when null"),
                  output_mode(all_modes, "int"), unsupported("sparse", "sparse tensors")}),
      make_class(
          "HashedCrossing", "a bin of the values of several columns together",
          {make_spec("columns", ValueKind::kTextList, "", "the columns").required(),
           text("name", "", "of the new column").required(), bins("num_bins", "number of bins"),
           output_mode({"int", "one_hot"}, "int"), unsupported("sparse", "sparse tensors")}),
      make_class("CategoryEncoding", "a number for each id",
                 {column(), bins("num_tokens", "number of ids"),
                  output_mode({"one_hot", "multi_hot", "count"}, "multi_hot"),
                  unsupported("sparse", "sparse tensors")}),
  };
}

namespace {

void check_vocabulary(const ConfigObject& transform, Diagnostics& diagnostics) {
  const ConfigValue& vocabulary = transform.arg("vocabulary");
  const ConfigValue& weights = transform.arg("idf_weights");
  const bool has_weights = transform.string("output_mode") == "tf_idf";
  if (!vocabulary.is_null()) {
    const ConfigValue::List tokens =
        vocabulary.is_list() ? vocabulary.list() : ConfigValue::List{vocabulary};
    std::set<std::string> seen;
    for (const ConfigValue& token : tokens) {
      const std::string shown =
          token.is_string() ? token.string() : std::to_string(token.integer());
      if (!seen.insert(shown).second) {
        diagnostics.error("E318", token.loc, fmt::format("`{}` is twice in `vocabulary`", shown))
            .help("write each token once");
      }
    }
    if (has_weights && (weights.is_null() || weights.numbers().size() != tokens.size())) {
      diagnostics
          .error("E113", weights.is_null() ? vocabulary.loc : weights.loc,
                 fmt::format("`output_mode: tf_idf` needs a weight for each of the {} tokens of "
                             "`vocabulary`",
                             tokens.size()))
          .help("write as many `idf_weights`, or leave both out: they are learned");
      return;
    }
  }
  if (!weights.is_null() && (!has_weights || vocabulary.is_null())) {
    diagnostics
        .error("E113", weights.loc, "`idf_weights` are of `vocabulary` and `output_mode: tf_idf`")
        .help("leave them out: they are learned from the training data");
  }
  if (transform.boolean("pad_to_max_tokens") && !transform.has("max_tokens")) {
    diagnostics
        .error("E112", transform.loc_of("pad_to_max_tokens"),
               "`pad_to_max_tokens` needs `max_tokens`")
        .help("write how many numbers each row has");
  }
}

void check_bins(const ConfigObject& transform, Diagnostics& diagnostics) {
  const ConfigValue& given = transform.arg("bin_boundaries");
  if (given.is_null() != transform.has("num_bins")) {
    diagnostics
        .error("E113", given.is_null() ? transform.loc : given.loc,
               "`Discretization` needs one of `bin_boundaries` and `num_bins`")
        .help("`num_bins` learns the boundaries from the training data");
    return;
  }
  if (!given.is_null()) {
    const std::vector<double> boundaries =
        given.is_list() ? given.numbers() : std::vector{given.number()};
    if (std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>()) !=
        boundaries.end()) {
      diagnostics.error("E113", given.loc, "`bin_boundaries` must ascend")
          .help("write each boundary once, the smallest first");
    }
  }
}

void check_transform(const ConfigObject& transform, Diagnostics& diagnostics) {
  if (transform.class_name == "Discretization") {
    check_bins(transform, diagnostics);
  } else if (transform.class_name == "HashedCrossing") {
    if (transform.arg("columns").strings().size() < 2) {
      diagnostics
          .error("E113", transform.loc_of("columns"),
                 "`HashedCrossing` takes two or more `columns`")
          .help("`Hashing` takes one");
    }
  } else if (transform.class_name == "Hashing") {
    const ConfigValue& salt = transform.arg("salt");
    if (salt.is_list() && salt.list().size() != 2) {
      diagnostics.error("E113", salt.loc, "`salt` is one number, or two")
          .help("one number is used twice");
    }
  } else if (transform.class_name == "Tokenizer") {
    check_packed_text(packed_text_options(transform), transform, diagnostics);
  } else if (transform.class_name == "Image" || transform.class_name == "Mask") {
    const ImageFormat format = image_format(transform);
    check_image_size(format, diagnostics);
    check_mask_values(format, diagnostics);
  } else if (transform.class_name != "CategoryEncoding") {
    check_vocabulary(transform, diagnostics);
  }
}

}  // namespace

bool transforms_columns(const ConfigObject& transform) {
  const ClassSpec& spec = class_of_object(Category::kTransform, transform);
  return spec.find("column") != nullptr || spec.find("columns") != nullptr;
}

std::vector<const ConfigObject*> column_transforms(const ConfigObject& source) {
  std::vector<const ConfigObject*> transforms;
  if (source.args.contains("preprocessing") && source.has("preprocessing")) {
    for (const ConfigValue& transform : source.arg("preprocessing").list()) {
      transforms.push_back(&transform.object());
    }
  }
  return transforms;
}

void check_preprocessing(const ConfigValue& transforms, Diagnostics& diagnostics) {
  if (transforms.is_null()) {
    return;
  }
  std::set<std::string> seen;
  for (const ConfigValue& entry : transforms.list()) {
    const ConfigObject& transform = entry.object();
    if (!transforms_columns(transform)) {
      diagnostics
          .error("E113", transform.loc,
                 fmt::format("`{}` changes whole inputs, not a column", transform.class_name))
          .help("write it in `data.transform`");
      continue;
    }
    check_transform(transform, diagnostics);
    const char* key = transform.args.contains("name") ? "name" : "column";
    if (!seen.insert(transform.string(key)).second) {
      diagnostics
          .error("E113", transform.loc_of(key),
                 fmt::format("the column `{}` is changed twice", transform.string(key)))
          .help("a column has one transform");
    }
  }
}

}  // namespace meshtrain
