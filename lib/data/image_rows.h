// Arrays of images that are decoded when they are read.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/source_classes.h"
#include "data/image_resize.h"
#include "data/rows.h"

namespace meshtrain {

using ImagePaths = std::shared_ptr<const std::vector<std::string>>;

ImageSize size_of(const ImageFormat& format);
int channels_of(ColorMode mode);

// An array with a row for each file, decoded when it is read: `decode` writes the elements of one.
// Its errors get `loc` and `help`, which may be empty; E321 for a file that is no longer there.
RowsPtr make_decoded_rows(ImagePaths paths, DType dtype, const Shape& row_shape,
                          std::function<void(const std::string& path, std::byte* to)> decode,
                          SourceLoc loc, std::string help);

// float32 (images, height, width, channels) from 0 to 255. Errors of a file (E321, E322) get `loc`
// and `help`.
RowsPtr make_image_rows(ImagePaths paths, const ImageFormat& format, SourceLoc loc,
                        std::string help);

}  // namespace meshtrain
