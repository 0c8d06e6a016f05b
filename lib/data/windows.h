// Windows over a long sequence of ids (characters, tokens): samples that may overlap. A window is
// copied only when it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/source_classes.h"
#include "data/dataset.h"

namespace meshtrain {

// A sequence of ids. Thread-safe.
class Ids {
 public:
  virtual ~Ids() = default;
  virtual int64_t size() const = 0;
  // Copies ids [begin, begin + to.size()) to `to`; the range must be within size(). Throws
  // ConfigError E314 for an id that is too large, E321 for a file that has changed.
  virtual void read(int64_t begin, std::span<int32_t> to) const = 0;
};
using IdsPtr = std::shared_ptr<const Ids>;

// Ids of a tensor of uint8, uint16 or int32 with one dimension.
IdsPtr ids_in_memory(HostTensor tensor);

// Ids in consecutive little-endian files of uint8, uint16 or uint32, read on demand. `dtype` is
// that of files without llm.c's header, which kAuto reads. `vocabulary` is the number of ids that
// there may be, 0 when unknown. Throws ConfigError E300, and as token_layout() (token_file.h).
IdsPtr ids_in_files(const std::vector<std::string>& paths, DType dtype, TokenHeader header,
                    int64_t vocabulary, const SourceLoc& loc);

struct WindowSettings {
  int64_t length = 0;  // ids of a window
  int64_t stride = 0;  // from the beginning of one window to that of the next
  // kSequence: the id behind each of the window's, (windows, length); kLast: the id behind the
  // window, (windows,); nothing: no targets.
  std::optional<WindowTarget> target = WindowTarget::kSequence;
  // The id that ends a document. Adds the optional inputs "segments" and "positions", and weights.
  std::optional<int64_t> separator;
};

// "x", int32 (windows, length), and "y" of ids [begin, end): as many whole windows as there are.
// With a separator, which needs kSequence: "segments" numbers the documents of a window from 1,
// "positions" counts from 0 within each, both int32 (windows, length); sample_weight, float32
// (windows, length), is 0 where the target is the first id of the next document, else 1.
// Throws ConfigError E316 at `loc` when there is none.
void add_windows(const IdsPtr& ids, int64_t begin, int64_t end, const WindowSettings& settings,
                 const SourceLoc& loc, Dataset& dataset);

}  // namespace meshtrain
