// Drafts of configs for folders.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace meshtrain {

// The first of these folders that is in `path`.
std::optional<std::string> subfolder(const std::string& path,
                                     std::initializer_list<const char*> names);

// Folders with a folder for each class: FOLDER/train with FOLDER/val and FOLDER/test where these
// are there, else FOLDER itself.
struct ClassParts {
  std::string train;
  std::optional<std::string> validation, test;
};

// The lines of `data` beside those of `train`: of the other parts, or a split of the labels'
// samples.
std::string draft_parts(const char* source, const ClassParts& parts,
                        const std::vector<int32_t>& labels);

std::string draft_class_images(const std::string& path, const ClassParts& parts);
std::string draft_class_texts(const std::string& path, const ClassParts& parts);
// Images with masks; nothing where there are no masks. Throws ConfigError E327 for images without.
std::optional<std::string> draft_masks(const std::string& path);

}  // namespace meshtrain
