#include "config/default_object.h"

#include "config/reader.h"

namespace meshtrain {

ConfigObject default_object(Category category, std::string_view class_name) {
  const ClassSpec* const spec = find_class(category, class_name);
  MESHTRAIN_CHECK(spec != nullptr, "no class {}", class_name);
  Diagnostics diagnostics;
  Reader reader(diagnostics);
  ConfigObject object;
  object.class_name = object.spelled = spec->name;
  for (const Spec& arg : spec->args) {
    object.args[arg.name] = reader.default_value(arg, {});
  }
  return object;
}

}  // namespace meshtrain
