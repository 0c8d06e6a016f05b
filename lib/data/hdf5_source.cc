// The source hdf5.
#include "data/archive_source.h"
#include "data/hdf5_rows.h"

namespace meshtrain {

Dataset read_hdf5_source(const ArchiveOptions& source, const SourceContext& context) {
  return read_archives(source, context, [](const NamedFile& file) { return Hdf5File(file); });
}

}  // namespace meshtrain
