#include "data/learned.h"

namespace meshtrain {

bool learns_from_data(const ConfigObject& source) {
  if (source.class_name == "text") {
    return source.string("vocabulary") != "bytes" && !source.has("characters");
  }
  if (source.class_name == "image_folder") {
    return source.has("label_mode") && source.string("label_mode") != "none";
  }
  return source.class_name == "csv";
}

const LearnedData* learned_of(const LearnedPtr& learned, const ConfigObject& source) {
  return learned && learned->source == source.class_name ? learned.get() : nullptr;
}

}  // namespace meshtrain
