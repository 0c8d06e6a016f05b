// Lists the files of a folder with one folder per class, as Keras' image_dataset_from_directory and
// text_dataset_from_directory do.
//
//   flowers/daisy/1.jpg      class 0
//   flowers/daisy/garden/2.png  also class 0: nested folders are read, too
//   flowers/rose/1.jpg       class 1
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.h"
#include "config/source_classes.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

enum class ListedFiles : uint8_t { kImages, kTexts };

struct FolderListing {
  ListedFiles kind;
  std::vector<std::string> class_names;  // sorted, or in the order asked for; empty without labels
  std::vector<std::string> paths;        // by class, within it by folder and name, bytewise
  std::vector<int32_t> labels;           // of each path; empty without labels
  std::vector<std::string> masks;        // of each path; empty where masks are not wanted
  int64_t ignored = 0;                   // files of other kinds

  // Keeps the files `order`, in that order.
  void take(std::span<const int64_t> order);
  // (files,) int32, or (files, 1) or (files, classes) float32; `mode` is not kNone.
  HostTensor label_array(LabelMode mode) const;
};

// Throws ConfigError E300 when there is no such folder; without `has_labels` it may be a file.
void check_folder(const std::string& folder, bool has_labels, const SourceLoc& loc);

// Lists files by their names in any case, but for those that begin with a dot. Images are .png,
// .jpg, .jpeg, .gif and .bmp, Keras' list; the last two are refused when they are decoded. Texts
// are .txt, and names without an extension. With `has_labels` the folders of `folder` are the
// classes, or those of `class_names` in that order; without, every file below it, and `folder` may
// be a file itself. Links to folders are followed at the first level, below it with `follow_links`.
// Throws ConfigError with `loc` or the place in `names_loc`: E300 for a missing or unreadable
// folder, E113 for a class without a folder, E316 without any file.
FolderListing list_files(ListedFiles kind, const std::string& folder, bool has_labels,
                         const std::optional<std::vector<std::string>>& class_names = {},
                         bool follow_links = false, const SourceLoc& loc = {},
                         const SourceLoc& names_loc = {});

// Whether there are folders in a folder, hidden ones aside.
bool has_folders(const std::string& folder);
// Whether one of the files below a folder is of that kind.
bool has_files(ListedFiles kind, const std::string& folder);

// Throws ConfigError E113 where `mode`, at `loc`, is for two classes and there are others.
void check_binary(const FolderListing& listing, LabelMode mode, const SourceLoc& loc,
                  const std::string& folder);

// Keras' seed, validation_split and subset: the order is shuffled once, its last part is for
// validation. Throws ConfigError E316 when that part is empty.
void shuffle_and_split(FolderListing& listing, std::optional<int64_t> seed,
                       const Located<std::optional<double>>& split,
                       std::optional<FolderSubset> subset);

}  // namespace meshtrain
