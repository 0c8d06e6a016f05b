// Arrays in NumPy files as rows that are read from the files.
#pragma once

#include <memory>
#include <string>

#include "base/diagnostic.h"
#include "data/rows.h"

namespace meshtrain {

class NpzReader;
class WatchedFile;

// Returns the array of a .npy file. An array in Fortran order is read into memory and transposed.
// Throws ConfigError (exit 3) E300 to E305 as read_npy, E304 for one without dimensions.
RowsPtr npy_rows(const std::string& path, const SourceLoc& loc);

// An open .npz archive.
class NpzFile {
 public:
  NpzFile(const std::string& path, const SourceLoc& loc);  // throws E300, E306
  ~NpzFile();
  NpzFile(NpzFile&&) noexcept;

  const std::string& path() const { return path_; }
  bool has(const std::string& name) const;
  // Throws ConfigError E306 for an unknown name or damaged member, E301 to E305 as npy_rows. Of a
  // stored member, the checksum is compared when all rows are read at once; of a deflated one, at
  // its end.
  RowsPtr rows(const std::string& name) const;

 private:
  std::string path_;
  std::shared_ptr<const WatchedFile> file_;
  std::unique_ptr<NpzReader> reader_;
};

}  // namespace meshtrain
