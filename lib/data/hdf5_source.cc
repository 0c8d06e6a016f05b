// The source hdf5.
#include "data/archive_source.h"
#include "data/hdf5_rows.h"

namespace meshtrain {

Dataset read_hdf5_source(const ConfigObject& source, const std::string& base_dir) {
  return read_archives(source, base_dir, [](const NamedFile& file) { return Hdf5File(file); });
}

}  // namespace meshtrain
