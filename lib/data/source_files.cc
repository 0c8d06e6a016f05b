#include "data/source_files.h"

namespace meshtrain {

std::vector<Wanted> wanted_arrays(const ConfigObject& source, const std::string& arg) {
  if (source.args.count(arg) == 0 || source.arg(arg).is_null()) {
    return {};
  }
  const ConfigValue& value = source.arg(arg);
  std::vector<Wanted> wanted;
  if (value.is_list()) {
    for (const ConfigValue& entry : value.list()) {
      wanted.push_back({entry.string(), entry.string(), entry.loc});
    }
  } else if (value.is_dict()) {
    for (const auto& [name, entry] : value.dict()) {
      wanted.push_back({name, entry.string(), entry.loc});
    }
  } else {
    wanted.push_back({arg, value.string(), value.loc, value.is_default});
  }
  return wanted;
}

std::string resolve(const std::string& base_dir, const std::string& path) {
  return base_dir.empty() || path.starts_with('/') ? path : base_dir + "/" + path;
}

HostTensor as_weights(HostTensor tensor) {
  return tensor.dtype() == DType::kFloat32 ? std::move(tensor) : tensor.cast(DType::kFloat32);
}

}  // namespace meshtrain
