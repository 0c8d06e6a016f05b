// YamlPlaces: what is wrong with a text that the parser refused.
#include <algorithm>

#include "base/text.h"
#include "config/yaml_places.h"

namespace meshtrain {
namespace {

struct Translation {
  std::string_view contains;  // in the parser's message
  std::string_view message;
  std::string_view label;
};

constexpr Translation kTranslations[] = {
    {"illegal map value", "`:` is not possible here", "a second `: ` on the line, or indentation?"},
    {"end of map not found", "this line belongs to nothing above", "indentation?"},
    {"end of sequence not found", "this line belongs to nothing above", "indentation?"},
    {"illegal block entry", "a list entry is not possible here", "indentation?"},
    {"illegal map key", "a key is not possible here", "indentation?"},
    {"end of sequence flow not found", "a `[` is not closed", "expected `,` or `]`"},
    {"end of map flow not found", "a `{` is not closed", "expected `,` or `}`"},
    {"unknown token", "a plain value cannot begin like this", "quote it"},
    {"illegal EOF in scalar", "a quote is not closed", ""},
    {"unknown escape character", "unknown escape in double quotes", ""},
    {"multiple anchors", "two anchors for one value", ""},
    {"illegal document indicator", "a document ends inside of a quoted text", ""},
};

}  // namespace

void YamlPlaces::report_syntax_error(int line, int column, std::string_view message,
                                     Diagnostics& diagnostics) const {
  if (message == "bad file") {
    diagnostics.error("E106", place(0, 1), "nested deeper than 64");
    return;
  }
  const SourceLoc loc = alias(line, column);
  if (message.find("anchor is not defined") != std::string_view::npos ||
      message.find("alias") != std::string_view::npos) {
    report_unknown_alias(loc, diagnostics);
  } else if (long_quote_.second > 0 && place(long_quote_.second, 1).line == loc.line) {
    const SourceLoc opened = place(long_quote_.first, 1);
    diagnostics
        .error("E104", opened,
               fmt::format("quote opened at {}:{} is not closed on its line", opened.line,
                           opened.column))
        .with_label("opened here")
        .note(fmt::format("what follows makes no sense at {}:{}", loc.line, loc.column));
  } else if (message.find("illegal flow end") != std::string_view::npos) {
    report_wrong_end(loc, diagnostics);
  } else if (!report_unclosed(loc, message.find("flow") != std::string_view::npos, diagnostics)) {
    report_translated(loc, message, diagnostics);
  }
}

void YamlPlaces::report_unknown_alias(const SourceLoc& loc, Diagnostics& diagnostics) const {
  const std::string_view text = text_at(loc);
  std::string name(trim(text.substr(text.empty() ? 0 : 1)));
  if (ends_with(name, ":")) {
    name.pop_back();
  }
  diagnostics.error("E108", loc, fmt::format("no anchor `&{}` above", name))
      .help(fmt::format("a regular expression that begins with `*` must be quoted; did you mean "
                        "`.*{}`?",
                        starts_with(name, ".") ? name.substr(1) : name));
}

void YamlPlaces::report_wrong_end(const SourceLoc& loc, Diagnostics& diagnostics) const {
  const size_t offset = offset_of(loc);
  const SourceLoc end = place(offset, 1);
  const std::vector<Bracket> open = open_brackets(offset);
  if (open.empty()) {
    Diagnostic& d =
        diagnostics.error("E104", end, fmt::format("`{}` closes nothing", text_at(end)));
    help_with_glued(offset, d);
    return;
  }
  const char kind = open.back().kind;
  const SourceLoc opened = place(open.back().offset, 1);
  diagnostics
      .error("E104", end,
             fmt::format("`{}` closes a `{}`, opened at {}:{}", text_at(end), kind, opened.line,
                         opened.column))
      .with_label(fmt::format("expected `{}`", kind == '[' ? ']' : '}'));
}

// The last "key:{" or "key:[" before `offset` on its line: without a blank that is one text.
void YamlPlaces::help_with_glued(size_t offset, Diagnostic& problem) const {
  for (size_t i = std::min(offset, text_.size() - 1); i > 1 && text_[i] != '\n'; --i) {
    if ((text_[i] == '{' || text_[i] == '[') && text_[i - 1] == ':' && text_[i - 2] != ' ') {
      const SourceLoc colon = place(i - 1, 1);
      problem.help(fmt::format("write a space after `:` at {}:{}", colon.line, colon.column));
      return;
    }
  }
}

bool YamlPlaces::report_unclosed(const SourceLoc& loc, bool wants_close,
                                 Diagnostics& diagnostics) const {
  const size_t offset = offset_of(loc);
  const std::vector<Bracket> open = open_brackets(offset);
  if (open.empty()) {
    return false;
  }
  const char kind = open.back().kind;
  const bool is_quote = kind == '"' || kind == '\'';
  if (!is_quote && !wants_close) {
    return false;
  }
  const SourceLoc opened = place(open.back().offset, 1);
  Diagnostic& d = diagnostics.error(
      "E104", opened,
      fmt::format("{} opened at {}:{} is not closed",
                  is_quote ? "quote" : fmt::format("`{}`", kind), opened.line, opened.column));
  d.with_label("opened here");
  if (offset > 0 && offset < text_.size() && text_[offset - 1] == '$') {
    d.help("inside of `{}` or `[]` a reference must be quoted: \"${...}\"");
  } else if (!is_quote) {
    d.note(fmt::format("noticed at {}:{}", loc.line, loc.column));
    help_with_glued(offset, d);
  }
  return true;
}

void YamlPlaces::report_translated(const SourceLoc& loc, std::string_view message,
                                   Diagnostics& diagnostics) const {
  for (const Translation& known : kTranslations) {
    if (message.find(known.contains) == std::string_view::npos) {
      continue;
    }
    Diagnostic& d = diagnostics.error("E104", loc, std::string(known.message));
    d.with_label(std::string(known.label));
    if (known.contains == "unknown escape character") {
      // The parser's place is behind the escape.
      const size_t offset = offset_of(loc);
      const size_t begin = offset >= 2 ? offset - 2 : 0;
      d.message = fmt::format("unknown escape `{}` in double quotes", text_.substr(begin, 2));
      d.loc = place(begin, 2);
      d.help("use single quotes or none for regular expressions");
    }
    return;
  }
  diagnostics.error("E104", loc, fmt::format("not YAML: {}", message));
}

}  // namespace meshtrain
