// Masks of images: a class for each pixel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "data/image_rows.h"
#include "data/rows.h"

namespace meshtrain {

// Which class the number of a pixel stands for.
struct MaskClasses {
  std::vector<int64_t> values;    // of classes 0, 1, ...; empty: a number is a class
  std::optional<int64_t> others;  // the class of all other numbers; without it they are errors
};
MaskClasses classes_of(const ImageFormat& format);

// The mask of each image of `images`, below `folder`: the file MASKS/NAME.png (or .jpg, .jpeg) for
// FOLDER/NAME.jpg, or `masks` with NAME for its `*`: masks/*_mask.png. "" where there is none.
std::vector<std::string> find_masks(const std::vector<std::string>& images,
                                    const std::string& folder, const std::string& masks);

// The folder of a pattern of masks, "masks" of "masks/*_mask.png"; another text itself.
std::string folder_of_masks(const std::string& masks);

// Reads a mask: int32 (size.height, size.width, 1), the nearest pixels of the file. A PNG gives the
// numbers that it stores, of a palette not the colours. Throws ConfigError E300 and E322 as
// read_image(), and E312 for a number that is no class.
void read_mask(const std::string& path, const ImageSize& size, const MaskClasses& classes,
               int32_t* to);

// int32 (masks, height, width, 1). Masks are decoded when they are read; errors get `loc` and
// `help`.
RowsPtr make_image_masks(ImagePaths masks, const ImageFormat& format, SourceLoc loc,
                         std::string help);

}  // namespace meshtrain
