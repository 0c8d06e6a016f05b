// The text of a config file, read within limits: a config is a small, regular UTF-8 file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/diagnostic.h"
#include "config/object.h"

namespace meshtrain {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Reads `path` ("-" is standard input). `named_at` is the place that named it, for an included
// file. Throws ConfigError: E100 not a readable regular file (with similar names beside it), E102
// larger than kMaxConfigBytes, E103 not UTF-8, or a NUL byte. A byte order mark is dropped.
std::shared_ptr<const SourceFile> read_source(const std::string& path, const SourceLoc& named_at);

// Checks text that came from elsewhere as read_source does (E102, E103).
std::shared_ptr<const SourceFile> checked_source(std::string name, std::string text);

// The place that a line of a run's config.resolved.yaml names behind `#`: where the user wrote its
// value. "" for a line of another file, or without such a place.
std::string_view noted_origin(const SourceFile& file, int line);
// Whether a value in a run's resolved config may be there because nobody wrote another: its origin
// says so, or there is none, as in a checkpoint's copy.
bool may_be_default(const SourceLoc& loc);
// The file's text without these places.
std::string without_origins(const SourceFile& file);
// The place that is noted, else loc.to_string().
std::string written_place(const SourceLoc& loc);

// A path written in a config, from here: relative to the folder of the file it stands in; one from
// the command line is taken from the current folder if it exists there, else from `folder`.
std::string resolve_path(const ConfigValue& path, const std::string& folder);
std::string folder_of(const std::string& file);

}  // namespace meshtrain
