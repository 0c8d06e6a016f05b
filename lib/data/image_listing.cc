#include "data/image_listing.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtensions[] = {".bmp", ".gif", ".jpeg", ".jpg", ".png"};

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_image_name(const fs::path& path) {
  const std::string name = to_lower(path.filename().native());
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](const char* extension) { return ends_with(name, extension); });
}

[[noreturn]] void cannot_list(const std::string& folder, const std::error_code& error,
                              const SourceLoc& loc) {
  throw ConfigError("E300", loc, fmt::format("cannot list `{}`: {}", folder, error.message()));
}

// Returns the entries of a folder, sorted by name.
std::vector<fs::directory_entry> entries_of(const std::string& folder, const SourceLoc& loc) {
  std::error_code error;
  std::vector<fs::directory_entry> entries;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (!is_hidden(at->path())) {
      entries.push_back(*at);
    }
  }
  if (error) {
    cannot_list(folder, error, loc);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// A folder and those within it, in the order of their whole names as Python sorts what os.walk
// found: "a-b" comes before "a/b".
class Walk {
 public:
  Walk(bool follow_links, const SourceLoc& loc) : follow_links_(follow_links), loc_(loc) {}

  void into(const std::string& folder) {
    std::error_code error;
    const fs::path real = fs::canonical(folder, error);
    if (error) {
      cannot_list(folder, error, loc_);
    }
    if (std::find(around_.begin(), around_.end(), real) != around_.end()) {
      throw ConfigError("E300", loc_,
                        fmt::format("`{}` is a folder around itself: a link leads in a circle "
                                    "(`follow_links: true`)",
                                    folder));
    }
    around_.push_back(real);
    std::vector<std::string> images;
    for (const fs::directory_entry& entry : entries_of(folder, loc_)) {
      if (entry.is_directory(error)) {
        if (follow_links_ || !entry.is_symlink(error)) {
          into(entry.path().native());
        }
      } else if (is_image_name(entry.path())) {
        images.push_back(entry.path().native());
      } else {
        ++ignored_;
      }
    }
    folders_.emplace_back(folder, std::move(images));
    around_.pop_back();
  }

  // Appends the paths of all folders walked and forgets them; the number of paths.
  int64_t take(std::vector<std::string>& paths) {
    const size_t before = paths.size();
    std::sort(folders_.begin(), folders_.end());
    for (auto& [folder, images] : folders_) {
      std::move(images.begin(), images.end(), std::back_inserter(paths));
    }
    folders_.clear();
    return static_cast<int64_t>(paths.size() - before);
  }

  int64_t ignored() const { return ignored_; }

 private:
  bool follow_links_;
  const SourceLoc& loc_;
  std::vector<fs::path> around_;
  std::vector<std::pair<std::string, std::vector<std::string>>> folders_;
  int64_t ignored_ = 0;
};

std::vector<std::string> class_folders(const std::string& folder, const SourceLoc& loc) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : entries_of(folder, loc)) {
    std::error_code error;
    if (entry.is_directory(error)) {
      names.push_back(entry.path().filename().native());
    }
  }
  if (names.empty()) {
    throw ConfigError("E316", loc, fmt::format("`{}` holds no folders, one for each class", folder))
        .help("`label_mode: none` reads images without labels");
  }
  return names;
}

// The classes asked for, each of which must have its folder, once.
void check_class_names(const std::vector<std::string>& wanted,
                       const std::vector<std::string>& folders, const std::string& folder,
                       const SourceLoc& loc) {
  Diagnostics problems;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (std::find(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(i), wanted[i]) !=
        wanted.begin() + static_cast<std::ptrdiff_t>(i)) {
      problems.error("E113", loc, fmt::format("the class `{}` is named twice", wanted[i]));
    } else if (std::find(folders.begin(), folders.end(), wanted[i]) == folders.end()) {
      const auto nearest = nearest_name(wanted[i], folders);
      problems
          .error("E113", loc,
                 fmt::format("`{}` has no folder for the class `{}`", folder, wanted[i]))
          .help(nearest ? fmt::format("did you mean `{}`?", *nearest)
                        : "folders there: " + join(nearest_names(wanted[i], folders, 10), ", "));
    }
  }
  problems.throw_if_errors();
}

}  // namespace

void check_folder(const std::string& folder, bool has_labels, const SourceLoc& loc) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (!fs::exists(status)) {
    ConfigError problem(
        "E300", loc,
        fmt::format(
            "there is no {} `{}`{}", has_labels ? "folder" : "file or folder", folder,
            error && error != std::errc::no_such_file_or_directory ? ": " + error.message() : ""));
    if (const std::vector<std::string> similar = similar_files(folder, 3); !similar.empty()) {
      problem.help("there: " + join(similar, ", "));
    }
    throw problem;
  }
  if (!fs::is_directory(status) && has_labels) {
    throw ConfigError("E300", loc, fmt::format("`{}` is no folder", folder));
  }
}

ImageListing list_images(const std::string& folder, bool has_labels,
                         const std::optional<std::vector<std::string>>& class_names,
                         bool follow_links, const SourceLoc& loc, const SourceLoc& names_loc) {
  check_folder(folder, has_labels, loc);
  ImageListing listing;
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    listing.paths = {folder};
    return listing;
  }
  Walk walk(follow_links, loc);
  if (has_labels) {
    listing.class_names = class_folders(folder, loc);
    if (class_names) {
      check_class_names(*class_names, listing.class_names, folder, names_loc);
      listing.class_names = *class_names;
    }
    for (size_t label = 0; label < listing.class_names.size(); ++label) {
      walk.into((fs::path(folder) / listing.class_names[label]).native());
      const int64_t count = walk.take(listing.paths);
      listing.labels.insert(listing.labels.end(), static_cast<size_t>(count),
                            static_cast<int32_t>(label));
    }
  } else {
    walk.into(folder);
    walk.take(listing.paths);
  }
  listing.ignored = walk.ignored();
  if (listing.paths.empty()) {
    throw ConfigError(
        "E316", loc,
        fmt::format("there are no images (.png, .jpg, .jpeg) in `{}`{}", folder,
                    listing.ignored > 0 ? fmt::format(", only {} other file{}", listing.ignored,
                                                      listing.ignored == 1 ? "" : "s")
                                        : ""));
  }
  return listing;
}

}  // namespace meshtrain
