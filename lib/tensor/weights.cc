#include "tensor/weights.h"

#include <filesystem>

#include "base/text.h"
#include "tensor/npz.h"
#include "tensor/read_error.h"
#include "tensor/safetensors.h"

namespace meshtrain {
namespace {

// The findings of the data readers under the codes of weight files.
std::vector<NamedTensor> read_npz_weights(const std::string& path) {
  try {
    return read_npz(path);
  } catch (const ConfigError& error) {
    Diagnostics findings;
    for (const Diagnostic& d : error.diagnostics().list()) {
      findings.error(d.code == "E300" ? "E404" : "E405", d.loc, d.message).notes = d.notes;
    }
    throw ConfigError(std::move(findings));
  }
}

[[noreturn]] void refuse(const char* code, const std::string& path, const std::string& why,
                         const std::string& help) {
  throw ConfigError(code, {}, fmt::format("`{}`: {}", path, why)).help(help);
}

}  // namespace

std::vector<NamedTensor> read_weights(const std::string& path) {
  const std::string name = to_lower(path);
  if (ends_with(name, ".safetensors")) {
    return std::move(read_safetensors(path).tensors);
  }
  if (ends_with(name, ".npz")) {
    return read_npz_weights(path);
  }
  for (const char* end : {".h5", ".hdf5", ".keras"}) {
    if (ends_with(name, end)) {
      refuse("E405", path, "Keras' HDF5 weights have no paths without the model they belong to",
             "convert them: meshtrain export CONFIG --weights FILE -o weights.safetensors");
    }
  }
  for (const char* end : {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt"}) {
    if (ends_with(name, end)) {
      refuse("E415", path, "pickled files can run code and are never read",
             "convert them to .safetensors where they were made");
    }
  }
  const std::string inside = path + "/weights.safetensors";
  std::error_code error;
  refuse("E405", path, "not a kind of weight file that is read",
         std::filesystem::exists(inside, error) ? fmt::format("write `{}`, the run's", inside)
                                                : "use .safetensors, .npz, .weights.h5 or .keras");
}

}  // namespace meshtrain
