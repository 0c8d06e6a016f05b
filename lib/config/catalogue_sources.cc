// Data sources: the checks of their arguments.
#include <set>

#include "base/text.h"
#include "config/config.h"
#include "config/refused.h"
#include "config/scalars.h"
#include "config/source_classes.h"
#include "config/split.h"

namespace meshtrain {

std::vector<ClassSpec> source_classes() {
  std::vector<ClassSpec> sources = declared_sources();
  for (ClassSpec& source : sources) {
    for (Spec& arg : source.args) {
      if (arg.name == "target") {
        arg.nullable();  // no targets, of MaskedLMMaskGenerator for example
      }
    }
  }
  return sources;
}

namespace {

// `y: x` leaves no place for other targets.
void check_own_target(const SourceOptions& source, const ClassScope& scope,
                      const ConfigValue& labels, const char* key) {
  if (source.own_target.value && !labels.is_null()) {
    scope.diagnostics
        .error(
            "E113", source.own_target.loc,
            fmt::format("`y: x` and `{}` of `{}` exclude each other", key, scope.object.class_name))
        .help(fmt::format("`y: x` makes the samples their own targets; else leave it out"));
  }
}

// Columns whose values the config explains twice.
void check_dates(const CsvOptions& source, const ClassScope& scope) {
  for (const auto& [column, parts] : source.dates.dict()) {
    for (const ConfigValue& part : parts.list()) {
      if (find_word_of<DatePart>(part.string())) {
        continue;
      }
      const std::vector<std::string> allowed = words_of<DatePart>();
      Diagnostic& problem = scope.diagnostics.error(
          "E113", part.loc, fmt::format("`{}` is no part of a date", part.string()));
      if (const auto nearest = nearest_name(part.string(), allowed)) {
        problem.label = fmt::format("did you mean `{}`?", *nearest);
      }
      problem.help(join(allowed, ", "));
    }
    for (const auto* texts : {&source.categorical, &source.one_hot}) {
      for (const std::string& other :
           texts->is_null() ? std::vector<std::string>{} : texts->strings()) {
        if (other == column) {
          scope.diagnostics.error(
              "E113", parts.loc,
              fmt::format("the column `{}` is one of `dates`, and one of texts", column));
        }
      }
    }
  }
  if (source.mask_token.value == source.oov_token.value && !source.mask_token->empty()) {
    scope.diagnostics.error(
        "E318", source.oov_token.loc,
        fmt::format("`mask_token` and `oov_token` are both `{}`", source.oov_token.value));
  }
}

}  // namespace

void check_split(const SplitOptions& source, const ClassScope& scope) {
  const SplitString parsed = parse_split(source.split.value, kSplits);
  if (!parsed.problem.empty()) {
    scope.diagnostics
        .error("E113", source.split.loc,
               fmt::format("cannot read the split `{}`: {}", source.split.value, parsed.problem))
        .help("write `train`, `train[:90%]`, `train[-1000:]`, or several with `+` between");
  }
}

void check_idx(const IdxOptions& source, const ClassScope& scope) {
  if (source.labels.is_null() && !source.own_target.value) {
    scope.diagnostics.error("E112", scope.object.loc, "`idx` needs `labels`: file of the labels")
        .help("`y: x` makes the images their own targets");
  }
  check_own_target(source, scope, source.labels, "labels");
}

void check_random(const RandomOptions& source, const ClassScope& scope) {
  check_own_target(source, scope, scope.object.arg("labels"), "labels");
  check_own_target(source, scope, scope.object.arg("classes"), "classes");
  if (source.labels.value && source.classes.value) {
    scope.diagnostics.error("E113", source.classes.loc, "`labels` and `classes` exclude each other")
        .help("`labels` is the shape of normal labels, `classes` the number of integer labels");
  }
}

int64_t SeriesOptions::span() const {
  return (sequence_length.value_or(1) - 1) * sampling_rate.value.value_or(1) + 1;
}

SeriesOptions series_options(const ConfigObject& source) {
  return has_options<SeriesOptions>(source) ? read_options<SeriesOptions>(source) : SeriesOptions();
}

namespace {

void refuse_without_windows(const char* name, const SourceLoc& loc, const ClassScope& scope) {
  scope.diagnostics
      .error("E113", loc,
             fmt::format("`{}` of `{}` acts on windows, and there are none", name,
                         scope.object.class_name))
      .help("`sequence_length: 24` makes each sample a window of 24 rows");
}

}  // namespace

void check_series(const SeriesOptions& source, const ClassScope& scope) {
  if (source.sequence_length) {
    if (source.target.value && source.target_length.value) {
      scope.diagnostics
          .error("E113", source.target_length.loc,
                 "`target: sequence` and `target_length` exclude each other")
          .help(
              "`target: sequence` gives each step of the window a target, `target_length` makes "
              "the rows from the `horizon` on the target");
    }
    return;
  }
  const auto needs_windows = [&](const char* name, const auto& argument) {
    if (argument.value) {
      refuse_without_windows(name, argument.loc, scope);
    }
  };
  needs_windows("sequence_stride", source.sequence_stride);
  needs_windows("sampling_rate", source.sampling_rate);
  needs_windows("horizon", source.horizon);
  needs_windows("target_length", source.target_length);
  needs_windows("target", source.target);
}

std::vector<Spec> with_series_args(std::vector<Spec> args) {
  using S = SeriesOptions;
  constexpr double kMostRows = 1 << 24;  // products of two have no overflow
  const auto rows = [&](const char* name, auto member, const char* help, double least = 1) {
    args.push_back(count(name, member, help, least).most(kMostRows));
  };
  rows("sequence_length", &S::sequence_length,
       "rows of a sample, a window over rows in the order of time; single rows when null");
  rows("sequence_stride", &S::sequence_stride, "rows from one window to the next; 1 when null");
  rows("sampling_rate", &S::sampling_rate,
       "rows from one step of a window to the next; 1 when null");
  rows("horizon", &S::horizon, "rows from the last one of a window to its target; 1 when null", 0);
  rows("target_length", &S::target_length,
       "steps of a target, as a dimension of its own; a single row when null");
  args.push_back(key("target", &S::target,
                     "sequence: a target for each step of the window, the row `horizon` behind "
                     "the step; null: one for the whole window"));
  return args;
}

void check_csv(const CsvOptions& source, const ClassScope& scope) {
  check_series(source, scope);
  if (!source.group->empty() && !source.sequence_length) {
    refuse_without_windows("group", source.group.loc, scope);
  }
  if (source.decimal.value == source.separator) {
    scope.diagnostics
        .error("E113", source.decimal.loc, "`decimal` and `separator` of `csv` are both a comma")
        .help("a file with decimal commas has another separator: `separator: \";\"`");
  }
  check_own_target(source, scope, source.label, "label");
  check_dates(source, scope);
  check_preprocessing(source.preprocessing, scope.diagnostics);
  const std::string& missing = source.missing.value;
  if (missing != "error" && missing != "mean" && missing != "previous" && !try_number(missing)) {
    Diagnostic& problem = scope.diagnostics.error(
        "E113", source.missing.loc, fmt::format("`missing` of `csv` is `{}`", missing));
    if (missing == "ffill" || missing == "pad") {  // pandas' words
      problem.label = "did you mean `previous`?";
    }
    problem.help("`error`, `mean`, `previous`, or a number that missing features become");
  } else if (missing == "mean" && source.dtype == "int32") {
    scope.diagnostics
        .error("E113", source.missing.loc,
               "`missing: mean` needs fractions, and `dtype` is `int32`")
        .help("`dtype: float32`, or a whole number for `missing`");
  }
  for (const auto& [column, texts] : source.vocabulary.dict()) {
    std::set<std::string> seen;
    for (const ConfigValue& text : texts.list()) {
      if (!seen.insert(text.string()).second) {
        scope.diagnostics.error(
            "E318", text.loc,
            fmt::format("`{}` is twice in the vocabulary of `{}`", text.string(), column));
      }
    }
  }
}

void check_windows(const WindowOptions& source, const ClassScope& scope) {
  if (!source.sequence_length) {
    scope.diagnostics.error(
        "E111", scope.object.loc,
        fmt::format("`{}` needs `sequence_length`: length of a sample", scope.object.class_name));
  }
  if (source.document_separator.value && source.target != WindowTarget::kSequence) {
    scope.diagnostics
        .error("E113", source.document_separator.loc,
               "`document_separator` needs a target for each id of a sample")
        .help("`target: sequence`, which is the default");
  }
}

std::string tokenizer_folder(const ConfigValue& vocabulary) {
  if (vocabulary.is_dict()) {
    for (const auto& [key, folder] : vocabulary.dict()) {
      if (key == "tokenizer" && folder.is_string()) {
        return folder.string();
      }
    }
  }
  return "";
}

void check_text(const TextOptions& source, const ClassScope& scope) {
  check_windows(source, scope);
  const bool has_tokens = source.vocabulary.is_dict();
  const bool is_known = has_tokens
                            ? source.vocabulary.dict().size() == 1 && !source.tokenizer().empty()
                            : source.has_bytes() || (source.vocabulary.is_string() &&
                                                     source.vocabulary.string() == "characters");
  if (!is_known) {
    scope.diagnostics.error(
        "E113", source.vocabulary.loc,
        fmt::format("`vocabulary` of `text` must be characters, bytes or {{tokenizer: FOLDER}}{}",
                    source.vocabulary.is_string()
                        ? fmt::format(", not `{}`", source.vocabulary.string())
                        : ""));
  }
  if (!source.characters->empty() + !source.characters_file.empty() + source.has_bytes() > 1) {
    scope.diagnostics.error("E113", scope.object.loc,
                            "`characters`, `characters_file` and `vocabulary: bytes` of `text` "
                            "exclude each other");
  } else if (has_tokens && (!source.characters->empty() || !source.characters_file.empty())) {
    scope.diagnostics.error("E113", source.vocabulary.loc,
                            "`characters` and the tokenizer of `vocabulary` exclude each other");
  }
}

std::vector<Spec> packed_text_args() {
  using S = PackedTextOptions;
  return {key("vocabulary", &S::vocabulary,
              "{tokenizer: FOLDER}, which holds tokenizer.json, vocab.json and merges.txt, or "
              "vocab.txt"),
          count("max_length", &S::max_length, "ids of a sample: longer texts are cut"),
          key("start_token", &S::start_token, "stands before each text, as \"[CLS]\""),
          key("end_token", &S::end_token, "stands behind each text, as \"[SEP]\""),
          key("pad_token", &S::pad_token, "stands behind shorter texts; id 0 when null")};
}

PackedTextOptions packed_text_options(const ConfigObject& object) {
  PackedTextOptions options;
  Diagnostics diagnostics;
  for (const Spec& arg : packed_text_args()) {
    arg.store(static_cast<ClassOptions*>(&options), object.arg(arg.name), {{}, diagnostics, true});
  }
  diagnostics.throw_if_errors();
  return options;
}

void check_packed_text(const PackedTextOptions& options, const ConfigObject& object,
                       Diagnostics& diagnostics) {
  if (options.folder().empty() || options.vocabulary.dict().size() != 1) {
    const bool is_missing = options.vocabulary.is_null();
    diagnostics
        .error(is_missing ? "E111" : "E113", is_missing ? object.loc : options.vocabulary.loc,
               fmt::format("`vocabulary` of `{}` must be {{tokenizer: FOLDER}}", object.class_name))
        .help("FOLDER holds tokenizer.json, vocab.json and merges.txt, or vocab.txt");
  }
  const int64_t others = !options.start_token->empty() + !options.end_token->empty();
  if (!options.max_length.value) {
    diagnostics.error("E111", object.loc,
                      fmt::format("`{}` needs `max_length`: ids of a sample", object.class_name));
  } else if (*options.max_length.value <= others &&
             !is_refused(diagnostics, object, "max_length")) {
    diagnostics
        .error("E113", options.max_length.loc,
               fmt::format("`max_length` is {}: start and end token leave no place for a text",
                           *options.max_length.value))
        .help(fmt::format("at least {}", others + 1));
  }
}

void check_lines(const LinesOptions& source, const ClassScope& scope) {
  check_packed_text(source, scope.object, scope.diagnostics);
}

}  // namespace meshtrain
