// Manifests and states of checkpoints, and the JSON of Keras models.
#include "base/checksum.h"
#include "base/diagnostic.h"
#include "config/load.h"
#include "config/source.h"
#include "nn/keras/import.h"
#include "target.h"
#include "train/checkpoint/format.h"

namespace meshtrain::fuzz {

// With the checksum that the text should have: behind it the fields are looked at.
void read_manifest(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  constexpr std::string_view kKey = ",\n\"self_xxh3_128\": \"";
  const size_t at = text.rfind(kKey);
  if (at == text.npos) {
    parse_manifest(text, "manifest.json");
    return;
  }
  const std::string sum = checksum128(std::as_bytes(std::span(text.substr(0, at))));
  std::string whole;
  whole.reserve(at + kKey.size() + sum.size() + 4);  // its growth would count as the parser's
  whole.append(text.substr(0, at + kKey.size())).append(sum).append("\"\n}\n");
  parse_manifest(whole, "manifest.json");
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
