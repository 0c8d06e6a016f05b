// Files of arrays, tables and images.
#include "data/csv_table.h"
#include "data/idx.h"
#include "data/image.h"
#include "target.h"
#include "tensor/npy.h"
#include "tensor/npz.h"
#include "tensor/safetensors.h"

namespace meshtrain::fuzz {

void read_npy(Bytes bytes) {
  MemoryReader reader(bytes);
  meshtrain::read_npy(reader, "fuzz.npy");
}

void read_npz(Bytes bytes) {
  NpzReader archive(as_file(bytes));
  for (const std::string& name : archive.names()) {
    archive.read(name);
  }
}

void read_safetensors(Bytes bytes) {
  meshtrain::read_safetensors(as_file(bytes));
}

void read_idx(Bytes bytes) {
  meshtrain::read_idx(as_file(bytes));
}

// As a table of features whose last column is the label, with missing values and categories.
void read_csv(Bytes bytes) {
  CsvSettings settings;
  settings.targets = {{.name = "y", .columns = {{"-1", {}}}, .is_vector = true}};
  settings.categorical = {{"kind", {}}};
  settings.missing = CsvSettings::Missing::kMean;
  parse_csv(as_text(bytes), "fuzz.csv", settings);
}

void read_image(Bytes bytes) {
  decode_image(bytes, "fuzz", 3);
}

uint64_t image_coefficients(Bytes bytes) {
  const auto at = [&](size_t i) { return static_cast<uint64_t>(bytes[i]); };
  constexpr uint64_t kMarker = 0xff, kProgressive = 0xc2, kScan = 0xda;
  for (size_t i = 2; i + 10 <= bytes.size() && at(i) == kMarker && at(i + 1) != kScan;) {
    if (at(i + 1) == kProgressive) {
      const auto padded = [](uint64_t side) { return side / 32 * 32 + 32; };  // to whole units
      return 2 * padded(at(i + 5) << 8 | at(i + 6)) * padded(at(i + 7) << 8 | at(i + 8)) *
             at(i + 9);
    }
    i += at(i + 1) == kMarker ? 1 : 2 + (at(i + 2) << 8 | at(i + 3));
  }
  return 0;
}

}  // namespace meshtrain::fuzz
