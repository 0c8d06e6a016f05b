// Drafts of configs for named arrays and IDX files.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/text.h"
#include "config/flow.h"
#include "data/draft_config.h"
#include "data/draft_model.h"
#include "data/hdf5_rows.h"
#include "data/idx.h"
#include "data/sources.h"
#include "tensor/npz.h"

namespace meshtrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeastImage = 8;  // pixels of a side: smaller arrays are no images

// The first of `likely` among the names, in any case.
std::optional<std::string> find_name(const std::vector<std::string>& names,
                                     std::initializer_list<const char*> likely) {
  for (const char* const one : likely) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
      return to_lower(name.substr(name.rfind('/') + 1)) == one;  // also in a group of HDF5
    });
    if (found != names.end()) {
      return *found;
    }
  }
  return std::nullopt;
}

// Arrays of an archive, or of IDX files: names in the source, and what they are.
struct ArraysDraft {
  std::string source;  // lines of data.train
  std::string parts;   // lines of data.validation and data.test
  bool validates = false;
  RowsPtr x, y;  // y: null for an autoencoder
};

std::string arrays_config(const std::string& path, const ArraysDraft& draft) {
  const Shape sample = without_first(draft.x->shape());
  const bool is_bytes = draft.x->dtype() == DType::kUInt8;
  const bool is_image = (sample.size() == 3 || (sample.size() == 2 && is_bytes)) &&
                        sample[0] >= kLeastImage && sample[1] >= kLeastImage;
  const std::optional<int64_t> largest_class = largest_class_of(draft.y);
  const bool are_classes = largest_class.has_value();
  std::optional<Shape> label;
  if (draft.y != nullptr) {
    label = without_first(draft.y->shape());
  }
  if (label && label->size() > 1) {
    throw ConfigError("E327", {},
                      fmt::format("`{}`: no config is drafted for targets of the shape {}", path,
                                  shape_string(*label)))
        .help("drafts are made for a class, a number or a row of numbers of each sample");
  }
  std::string out = draft_head(
      path,
      fmt::format("{} samples of {}", format_thousands(draft.x->size()), shape_string(sample)));
  out += "\ndata:\n  train:\n" + draft.source;
  const std::string split =
      draft.validates ? "" : draft_split(draft.x->size(), largest_class.value_or(0));
  out += draft.parts + split;
  if (!label && is_bytes) {  // of samples and targets
    out += "  transform: [{Rescaling: {scale: =1/255}}]\n";
  }
  out += model_draft(sample, is_image, is_bytes,
                     output_draft(label, are_classes, sample, draft_targets(draft.y)), !label);
  return out + draft_fit(draft.x->size(), 5, draft.validates || !split.empty());
}

// The names of arrays that belong to a part: "x_test", "test/images".
std::vector<std::string> names_of_part(const std::vector<std::string>& names,
                                       std::initializer_list<const char*> marks) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const std::string lower = to_lower(name);
    if (std::any_of(marks.begin(), marks.end(),
                    [&](const char* mark) { return lower.find(mark) != std::string::npos; })) {
      found.push_back(name);
    }
  }
  return found;
}

std::optional<std::string> find_samples(const std::vector<std::string>& names) {
  return find_name(names, {"x", "x_train", "x_val", "x_valid", "x_test", "images", "image",
                           "train_images", "test_images", "data", "features", "inputs"});
}

std::optional<std::string> find_labels(const std::vector<std::string>& names) {
  return find_name(names, {"y", "y_train", "y_val", "y_valid", "y_test", "labels", "label",
                           "train_labels", "test_labels", "target", "targets"});
}

// An archive of named arrays.
template <class RowsOf>
std::string archive_config(const std::string& path, const char* source,
                           const std::vector<std::string>& names, const std::string& label,
                           RowsOf&& rows_of) {
  const std::vector<std::string> validation = names_of_part(names, {"val"}),
                                 test = names_of_part(names, {"test"});
  std::vector<std::string> own = names;
  std::erase_if(own, [&](const std::string& name) {
    return std::find(validation.begin(), validation.end(), name) != validation.end() ||
           std::find(test.begin(), test.end(), name) != test.end();
  });
  const std::vector<std::string>& trained = find_samples(own) ? own : names;
  const auto x = find_samples(trained);
  const std::optional<std::string> y = label.empty() ? find_labels(trained) : std::optional(label);
  if (!x || (!label.empty() && std::find(names.begin(), names.end(), label) == names.end())) {
    throw ConfigError(
        "E310", {}, fmt::format("`{}` has no array {}", path, x ? "`" + label + "`" : "of samples"))
        .help(fmt::format("its arrays are {}; samples are looked for as x, x_train, images or data",
                          join(names, ", ")));
  }
  ArraysDraft draft;
  draft.source = fmt::format("    source: {}\n    path: {}\n    x: {}\n    y: {}\n", source,
                             yaml_text(path), yaml_text(*x), y ? yaml_text(*y) : yaml_text(*x));
  draft.x = rows_of(*x);
  draft.y = y ? rows_of(*y) : nullptr;
  const std::pair<const char*, const std::vector<std::string>*> parts[] = {
      {"validation", &validation}, {"test", &test}};
  for (const auto& [part, of_part] : parts) {
    const auto part_x = find_samples(*of_part), part_y = find_labels(*of_part);
    if (&trained == &own && label.empty() && y && part_x && part_y) {
      draft.parts += fmt::format("  {}: {{source: {}, path: {}, x: {}, y: {}}}\n", part, source,
                                 yaml_text(path), yaml_text(*part_x), yaml_text(*part_y));
      draft.validates = draft.validates || of_part == &validation;
    }
  }
  return arrays_config(path, draft);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.rfind(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace

std::string draft_npz_config(const std::string& path, const std::string& label) {
  NpzReader archive(path);
  return archive_config(path, "npz", archive.names(), label, [&](const std::string& name) {
    HostTensor array = archive.read(name);
    if (array.shape().empty()) {
      throw ConfigError("E304", {},
                        fmt::format("`{}` of `{}` is a single number, no "
                                    "array of samples",
                                    name, path));
    }
    return make_rows(std::move(array));
  });
}

std::string draft_hdf5_config(const std::string& path, const std::string& label) {
  const Hdf5File opened({path, {}});
  return archive_config(path, "hdf5", opened.names(), label,
                        [&](const std::string& name) { return opened.rows(name); });
}

std::string draft_idx_config(const std::string& path) {
  const std::string labels = replaced(replaced(path, "images", "labels"), "idx3", "idx1");
  std::error_code error;
  ArraysDraft draft;
  IdxOptions source;
  source.images.data = path;
  const bool has_labels = labels != path && fs::exists(labels, error);
  if (has_labels) {
    source.labels.data = labels;
  }
  const Dataset data = read_idx_source(source, {{}, "", nullptr});
  draft.source = fmt::format("    source: idx\n    images: {}\n    {}: {}\n", yaml_text(path),
                             has_labels ? "labels" : "y", has_labels ? yaml_text(labels) : "x");
  draft.x = data.inputs[0].rows;
  draft.y = has_labels ? data.targets[0].rows : nullptr;
  return arrays_config(path, draft);
}

}  // namespace meshtrain
