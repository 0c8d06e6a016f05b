#include "data/source_files.h"

#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/text.h"

namespace meshtrain {

std::vector<Wanted> wanted_arrays(const ConfigValue& value, const std::string& name) {
  std::vector<Wanted> wanted;
  if (value.is_list()) {
    for (const ConfigValue& entry : value.list()) {
      wanted.push_back({entry.string(), entry.string(), entry.loc});
    }
  } else if (value.is_dict()) {
    for (const auto& [key, entry] : value.dict()) {
      wanted.push_back({key, entry.string(), entry.loc});
    }
  } else if (!value.is_null()) {
    wanted.push_back({name, value.string(), value.loc, value.is_default});
  }
  return wanted;
}

bool are_own_targets(const ConfigValue& x, const ConfigValue& y) {
  const std::vector<Wanted> samples = wanted_arrays(x, "x"), targets = wanted_arrays(y, "y");
  const bool is_word = y.is_string() && y.string() == "x";
  const auto are_equal = [](const Wanted& a, const Wanted& b) { return a.text == b.text; };
  return is_word || (!targets.empty() && std::equal(samples.begin(), samples.end(), targets.begin(),
                                                    targets.end(), are_equal));
}

std::vector<Wanted> wanted_targets(const ConfigValue& x, const ConfigValue& y) {
  return are_own_targets(x, y) ? std::vector<Wanted>() : wanted_arrays(y, "y");
}

std::string resolve(const std::string& base_dir, const std::string& path) {
  if (base_dir.empty() || path.starts_with('/')) {
    return path;
  }
  return base_dir.ends_with('/') ? base_dir + path : base_dir + "/" + path;
}

namespace {

// Files that are read batch by batch stay open; systems allow a program 1024 until it asks for
// more.
void allow_many_files(size_t count) {
  rlimit limit = {};
  if (count > 100 && ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace

std::vector<NamedFile> find_files(const std::string& path, const SourceLoc& loc,
                                  const std::string& base_dir) {
  const std::string resolved = resolve(base_dir, path);
  struct stat status;
  if (path.find_first_of("*?[") == std::string::npos || ::stat(resolved.c_str(), &status) == 0) {
    return {{resolved, loc}};
  }
  std::vector<NamedFile> files;
  glob_t matches = {};
  const int result = ::glob(resolved.c_str(), GLOB_NOSORT, nullptr, &matches);
  for (size_t i = 0; result == 0 && i < matches.gl_pathc; ++i) {
    files.push_back({matches.gl_pathv[i], loc});
  }
  ::globfree(&matches);
  if (files.empty()) {
    ConfigError problem("E300", loc, fmt::format("no file matches `{}`", path));
    const std::vector<std::string> names = similar_files(resolved, 3);
    problem.help(names.empty()
                     ? "there is no such folder, or it is empty"
                     : fmt::format("nearest files in that folder: {}", join(names, ", ")));
    throw problem;
  }
  allow_many_files(files.size());
  // By bytes, not by the locale: the same order everywhere.
  std::sort(files.begin(), files.end(),
            [](const NamedFile& a, const NamedFile& b) { return a.path < b.path; });
  return files;
}

std::vector<NamedFile> find_files(const ConfigValue& paths, const std::string& base_dir) {
  if (!paths.is_list()) {
    return find_files(paths.string(), paths.loc, base_dir);
  }
  std::vector<NamedFile> files;
  for (const ConfigValue& entry : paths.list()) {
    std::vector<NamedFile> found = find_files(entry.string(), entry.loc, base_dir);
    files.insert(files.end(), found.begin(), found.end());
  }
  allow_many_files(files.size());
  return files;
}

std::string shown_paths(const ConfigValue& paths) {
  if (!paths.is_list()) {
    return paths.string();
  }
  const std::string& first = paths.list().front().string();
  const size_t more = paths.list().size() - 1;
  return more == 0 ? first : fmt::format("{} (and {} more)", first, more);
}

RowsPtr join_files(std::vector<FileArray> files, const SourceLoc& loc) {
  std::vector<RowsPtr> parts;
  const Rows& first = *files.front().rows;
  const Shape sample = without_first(first.shape());
  for (FileArray& file : files) {
    const Rows& rows = *file.rows;
    const Shape own = without_first(rows.shape());
    if (own != sample) {
      throw ConfigError("E304", loc,
                        fmt::format("`{}`: samples of shape {}; those of `{}` are {}", file.path,
                                    shape_string(own), files.front().path, shape_string(sample)));
    }
    if (rows.dtype() != first.dtype()) {
      throw ConfigError("E303", loc,
                        fmt::format("`{}`: {}; `{}` is {}", file.path, dtype_name(rows.dtype()),
                                    files.front().path, dtype_name(first.dtype())));
    }
    parts.push_back(std::move(file.rows));
  }
  return concat_rows(std::move(parts));
}

}  // namespace meshtrain
