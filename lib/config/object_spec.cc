#include "config/object_spec.h"

#include <algorithm>

namespace meshtrain {

const ClassSpec* spec_of(const ConfigObject& object) {
  for (int c = 0; c < kNumCategories; ++c) {
    const ClassSpec* const spec = find_class(static_cast<Category>(c), object.spelled);
    if (spec != nullptr && spec->name == object.class_name &&
        spec->args.size() == object.args.size() &&
        std::all_of(spec->args.begin(), spec->args.end(),
                    [&](const Spec& arg) { return object.args.contains(arg.name); })) {
      return spec;
    }
  }
  return nullptr;
}

}  // namespace meshtrain
