#include "data/folder_listing.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "data/epoch_order.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExtensions[] = {".bmp", ".gif", ".jpeg", ".jpg", ".png"};

bool is_hidden(const fs::path& path) {
  return path.filename().native().starts_with('.');
}

bool is_named_as(ListedFiles kind, const fs::path& path) {
  const std::string name = to_lower(path.filename().native());
  if (kind == ListedFiles::kTexts) {
    return ends_with(name, ".txt") || name.find('.') == std::string::npos;
  }
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [&](const char* extension) { return ends_with(name, extension); });
}

const char* files_of(ListedFiles kind) {
  return kind == ListedFiles::kImages ? "images" : "texts";
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
  Walk(ListedFiles kind, bool follow_links, const SourceLoc& loc)
      : kind_(kind), follow_links_(follow_links), loc_(loc) {}

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
    std::vector<std::string> files;
    for (const fs::directory_entry& entry : entries_of(folder, loc_)) {
      if (entry.is_directory(error)) {
        if (follow_links_ || !entry.is_symlink(error)) {
          into(entry.path().native());
        }
      } else if (is_named_as(kind_, entry.path())) {
        files.push_back(entry.path().native());
      } else {
        ++ignored_;
      }
    }
    folders_.emplace_back(folder, std::move(files));
    around_.pop_back();
  }

  // Appends the paths of all folders walked and forgets them; the number of paths.
  int64_t take(std::vector<std::string>& paths) {
    const size_t before = paths.size();
    std::sort(folders_.begin(), folders_.end());
    for (auto& [folder, files] : folders_) {
      std::move(files.begin(), files.end(), std::back_inserter(paths));
    }
    folders_.clear();
    return static_cast<int64_t>(paths.size() - before);
  }

  int64_t ignored() const { return ignored_; }

 private:
  ListedFiles kind_;
  bool follow_links_;
  const SourceLoc& loc_;
  std::vector<fs::path> around_;
  std::vector<std::pair<std::string, std::vector<std::string>>> folders_;
  int64_t ignored_ = 0;
};

std::vector<std::string> class_folders(ListedFiles kind, const std::string& folder,
                                       const SourceLoc& loc) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : entries_of(folder, loc)) {
    std::error_code error;
    if (entry.is_directory(error)) {
      names.push_back(entry.path().filename().native());
    }
  }
  if (names.empty()) {
    throw ConfigError("E316", loc, fmt::format("`{}` holds no folders, one for each class", folder))
        .help(fmt::format("`label_mode: none` reads {} without labels", files_of(kind)));
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

FolderListing list_files(ListedFiles kind, const std::string& folder, bool has_labels,
                         const std::optional<std::vector<std::string>>& class_names,
                         bool follow_links, const SourceLoc& loc, const SourceLoc& names_loc) {
  check_folder(folder, has_labels, loc);
  FolderListing listing{kind};
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    if (kind == ListedFiles::kTexts && !is_named_as(kind, folder)) {
      throw ConfigError("E316", loc, fmt::format("`{}` is not named as a text is: .txt", folder))
          .help("give a text, or a folder of texts");
    }
    listing.paths = {folder};
    return listing;
  }
  Walk walk(kind, follow_links, loc);
  if (has_labels) {
    listing.class_names = class_folders(kind, folder, loc);
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
        fmt::format("there are no {} in `{}`{}",
                    kind == ListedFiles::kImages ? "images (.png, .jpg, .jpeg)" : "texts (.txt)",
                    folder,
                    listing.ignored > 0 ? fmt::format(", only {} other file{}", listing.ignored,
                                                      listing.ignored == 1 ? "" : "s")
                                        : ""));
  }
  return listing;
}

bool has_folders(const std::string& folder) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->is_directory(error) && !at->path().filename().native().starts_with('.')) {
      return true;
    }
  }
  return false;
}

bool has_files(ListedFiles kind, const std::string& folder) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (!is_hidden(at->path()) && is_named_as(kind, at->path()) && at->is_regular_file(error)) {
      return true;
    }
  }
  return false;
}

void FolderListing::take(std::span<const int64_t> order) {
  const auto select = [&](auto& all) {
    std::remove_reference_t<decltype(all)> chosen;
    for (const int64_t i : all.empty() ? std::span<const int64_t>() : order) {
      chosen.push_back(std::move(all[static_cast<size_t>(i)]));
    }
    all = std::move(chosen);
  };
  select(paths);
  select(labels);
  select(masks);
}

HostTensor FolderListing::label_array(LabelMode mode) const {
  const auto count = static_cast<int64_t>(labels.size());
  if (mode == LabelMode::kInt) {
    HostTensor array(DType::kInt32, {count});
    std::copy(labels.begin(), labels.end(), array.data<int32_t>());
    return array;
  }
  const int64_t width = mode == LabelMode::kBinary ? 1 : static_cast<int64_t>(class_names.size());
  HostTensor array(DType::kFloat32, {count, width});
  for (int64_t i = 0; i < count; ++i) {
    const int32_t label = labels[static_cast<size_t>(i)];
    array.data<float>()[width == 1 ? i : i * width + label] =
        mode == LabelMode::kBinary ? static_cast<float>(label) : 1.0f;
  }
  return array;
}

void check_binary(const FolderListing& listing, LabelMode mode, const SourceLoc& loc,
                  const std::string& folder) {
  if (mode == LabelMode::kBinary && listing.class_names.size() != 2) {
    throw ConfigError("E113", loc,
                      fmt::format("`label_mode: binary` needs two classes; `{}` has {}", folder,
                                  listing.class_names.size()));
  }
}

void shuffle_and_split(FolderListing& listing, std::optional<int64_t> seed,
                       const Located<std::optional<double>>& split,
                       std::optional<FolderSubset> subset) {
  const auto count = static_cast<int64_t>(listing.paths.size());
  if (!seed) {
    return;
  }
  std::vector<int64_t> order = EpochOrder(count, *seed, 0).rows(0, count);
  if (split.value) {
    const auto validation = static_cast<int64_t>(*split.value * static_cast<double>(count));
    if (validation == 0) {
      throw ConfigError("E316", split.loc,
                        fmt::format("`validation_split: {}` of {} {} leaves none to validate",
                                    format_shortest(*split.value), count, files_of(listing.kind)));
    }
    const auto middle = order.end() - validation;
    subset == FolderSubset::kTraining ? order.erase(middle, order.end())
                                      : order.erase(order.begin(), middle);
  }
  listing.take(order);
}

}  // namespace meshtrain
