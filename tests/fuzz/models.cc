// Manifests and states of checkpoints, what runs learned from data, and the JSON of Keras models.
#include "base/checksum.h"
#include "base/diagnostic.h"
#include "checkpoint/format.h"
#include "checkpoint/learned_json.h"
#include "config/load.h"
#include "config/source.h"
#include "interop/keras/import.h"
#include "target.h"

namespace meshtrain::fuzz {

namespace {

// The text with the checksum that it should have, where it ends with one: behind it the fields are
// looked at.
std::string with_own_sum(std::string_view text) {
  constexpr std::string_view kKey = ",\n\"self_xxh3_128\": \"";
  const size_t at = text.rfind(kKey);
  if (at == text.npos) {
    return std::string(text);
  }
  const std::string sum = checksum128(std::as_bytes(std::span(text.substr(0, at))));
  std::string whole;
  whole.reserve(at + kKey.size() + sum.size() + 4);  // its growth would count as the parser's
  whole.append(text.substr(0, at + kKey.size())).append(sum).append("\"\n}\n");
  return whole;
}

}  // namespace

void read_manifest(Bytes bytes) {
  parse_manifest(with_own_sum(as_text(bytes)), "manifest.json");
}

void read_learned(Bytes bytes) {
  parse_learned(with_own_sum(as_text(bytes)), "data.json");
}

void read_state(Bytes bytes) {
  parse_state(as_text(bytes), "state.json");
}

void read_keras(Bytes bytes) {
  LoadOptions options;
  options.source = checked_source(
      "fuzz.yaml", import_keras(std::string(as_text(bytes)), {"model.json", "", ""}).yaml);
  options.require_data = false;
  load_config(options);
}

}  // namespace meshtrain::fuzz
