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

}  // namespace meshtrain::fuzz
