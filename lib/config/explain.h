// What a config may say, in words: for `meshtrain explain`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/spec.h"

namespace meshtrain {

// A key ("fit.batch_size", or "batch_size": of the first section that has it), a section ("fit"), a
// class ("Dense", "adam") or one of its arguments ("Dense.units"): what it is, takes and is by
// default; lines that end with a line feed. Nothing when there is none such.
std::optional<std::string> explain_word(std::string_view word);

// Every key, and every class with its arguments, as Markdown: configs/REFERENCE.md.
std::string explain_markdown();

// What a key or an argument takes: "a whole number, at least 1"; and its default, or "required".
std::string accepted_values(const Spec& spec);
std::string default_of(const Spec& spec);

// All that explain_word knows but arguments, to suggest from.
std::vector<std::string> explained_words();

}  // namespace meshtrain
