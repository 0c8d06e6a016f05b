// Lists the images of a folder with one folder per class, as Keras' image_dataset_from_directory.
//
//   flowers/daisy/1.jpg      class 0
//   flowers/daisy/garden/2.png  also class 0: nested folders are read, too
//   flowers/rose/1.jpg       class 1
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace meshtrain {

struct ImageListing {
  std::vector<std::string> class_names;  // sorted, or in the order asked for; empty without labels
  std::vector<std::string> paths;        // by class, within it by folder and name, bytewise
  std::vector<int32_t> labels;           // of each path; empty without labels
  int64_t ignored = 0;                   // files without an extension of images
};

// Throws ConfigError E300 when there is no such folder; without `has_labels` it may be a file.
void check_folder(const std::string& folder, bool has_labels, const SourceLoc& loc);

// Lists files with the extensions .png, .jpg, .jpeg, .gif or .bmp in any case that do not begin
// with a dot. This is Keras' list; the last two are refused when they are decoded. With
// `has_labels` the folders of `folder` are the classes, or those of `class_names` in that order;
// without, every image below it, and `folder` may be an image itself. Links to folders are followed
// at the first level, below it with `follow_links`. Throws ConfigError with `loc` or the place in
// `names_loc`: E300 for a missing or unreadable folder, E113 for a class without a folder, E316
// without any image.
ImageListing list_images(const std::string& folder, bool has_labels,
                         const std::optional<std::vector<std::string>>& class_names,
                         bool follow_links, const SourceLoc& loc, const SourceLoc& names_loc);

}  // namespace meshtrain
