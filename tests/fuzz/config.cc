// Configs with their expressions and blocks, and the patterns of layout maps.
#include "config/load.h"
#include "config/source.h"
#include "mesh/layout_map.h"
#include "target.h"

namespace meshtrain::fuzz {

void read_config(Bytes bytes) {
  LoadOptions options;
  options.source = checked_source("fuzz.yaml", std::string(as_text(bytes)));
  show_config(options, true);
  options.require_data = false;
  load_config(options);
}

// The first line is a pattern, each further one a path.
void read_layout(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  const size_t end = text.find('\n');
  const Pattern pattern(text.substr(0, end));
  for (size_t at = end; at < text.size();) {
    const size_t next = text.find('\n', at + 1);
    const std::string_view path = text.substr(at + 1, next == text.npos ? next : next - at - 1);
    pattern.full_match(path);
    pattern.search(path);
    at = next;
  }
}

}  // namespace meshtrain::fuzz
