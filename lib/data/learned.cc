#include "data/learned.h"

#include "config/catalogue.h"

namespace meshtrain {

bool learns_from_data(const ConfigObject& source) {
  const auto& learns = class_of_object(Category::kSource, source).learns;
  return learns && learns(source);
}

const LearnedData* learned_of(const LearnedPtr& learned, const ConfigObject& source) {
  return learned && learned->source == source.class_name ? learned.get() : nullptr;
}

}  // namespace meshtrain
