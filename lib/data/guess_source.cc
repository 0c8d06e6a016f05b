#include "data/guess_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "data/folder_listing.h"
#include "data/gunzip.h"
#include "data/hdf5_rows.h"
#include "data/idx.h"
#include "data/image.h"
#include "data/sources.h"
#include "data/token_file.h"
#include "data/windows.h"
#include "tensor/npy.h"
#include "tensor/npz.h"
#include "tensor/safetensors.h"

namespace meshtrain {
namespace {

using Visit = std::function<void(const std::string&, const Rows&, bool)>;

// One number of each sample may be a label.
void visit_array(const std::string& name, const Rows& rows, const Visit& visit) {
  visit(name, rows, rows.row_bytes() == dtype_size(rows.dtype()));
}

// A single number is an array of one.
RowsPtr as_rows(HostTensor tensor) {
  if (tensor.shape().empty()) {
    tensor.reshape({1});
  }
  return make_rows(std::move(tensor));
}

void visit_dataset(const Dataset& data, const Visit& visit) {
  for (const std::vector<Dataset::Array>* arrays : {&data.inputs, &data.targets}) {
    for (const Dataset::Array& array : *arrays) {
      visit_array(array.name, *array.rows, visit);
    }
  }
}

// Height and width of each image.
std::pair<RowsPtr, RowsPtr> image_sizes(const std::vector<std::string>& paths) {
  const auto count = static_cast<int64_t>(paths.size());
  HostTensor heights(DType::kInt32, {count}), widths(DType::kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    const Image image = read_image(paths[static_cast<size_t>(i)], 3);
    heights.set(i, static_cast<double>(image.height));
    widths.set(i, static_cast<double>(image.width));
  }
  return {make_rows(std::move(heights)), make_rows(std::move(widths))};
}

// The number of characters of each text, and the labels.
Guessed visit_texts(const std::string& path, const Visit& visit) {
  const FolderListing listing = list_files(ListedFiles::kTexts, path, has_folders(path));
  HostTensor characters(DType::kInt32, {std::ssize(listing.paths)});
  for (size_t i = 0; i < listing.paths.size(); ++i) {
    const std::string text = read_file(listing.paths[i], uint64_t{1} << 30);
    characters.set(static_cast<int64_t>(i),
                   static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
                     return (static_cast<uint8_t>(c) & 0xC0) != 0x80;  // UTF-8
                   })));
  }
  visit("characters", *make_rows(std::move(characters)), false);
  const size_t classes = listing.class_names.size();
  if (classes > 0) {
    visit("y", *make_rows(listing.label_array(LabelMode::kInt)), true);
  }
  return {fmt::format("text_folder {}{}", path,
                      classes == 0 ? "" : fmt::format(": {} classes", classes)),
          listing.class_names};
}

Guessed visit_images(const std::string& path, const Visit& visit) {
  const bool has_labels = has_folders(path);
  const auto [heights, widths] =
      image_sizes(list_files(ListedFiles::kImages, path, has_labels).paths);
  visit("height", *heights, false);
  visit("width", *widths, false);
  ImageFolderOptions source;
  source.directory.value = path;
  source.label_mode.value = has_labels ? LabelMode::kInt : LabelMode::kNone;
  Dataset data = read_image_folder_source(source, {{}, "", nullptr});
  visit_dataset(data, visit);
  return {data.description, data.class_names};
}

// True for a second line: one line with separators is no table.
bool has_rows(std::string_view beginning) {
  const size_t end = beginning.find('\n');
  return end != std::string_view::npos && end + 1 < beginning.size();
}

// A table where the first lines have the same columns, or by its name; else a text.
Guessed profile_file(const std::string& path, const InputFile& file) {
  const std::string beginning = unpacked_beginning(file, size_t{1} << 16, "E310");
  const std::string name = to_lower(path);
  if (ends_with(name, ".csv") || ends_with(name, ".tsv") || ends_with(name, ".gz") ||
      (has_rows(beginning) && guess_separator(beginning))) {
    Guessed table{"csv " + path};
    table.table = profile_table({path}, {});
    return table;
  }
  Guessed text{"text " + path};
  text.text = profile_text(path);
  return text;
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<uint8_t>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

}  // namespace

void refuse_foreign_table(std::string_view beginning, const std::string& path) {
  const bool is_parquet = beginning.starts_with("PAR1");
  const bool is_excel = beginning.starts_with("PK\x03\x04") && ends_with(to_lower(path), ".xlsx");
  const std::string lower = to_lower(path);
  const bool is_lines = ends_with(lower, ".jsonl") || ends_with(lower, ".ndjson");
  const bool is_json = is_lines || ends_with(lower, ".json");
  if (!is_parquet && !is_excel && !is_json) {
    return;
  }
  const char* const kind = is_parquet ? "a Parquet" : is_excel ? "an Excel" : "a JSON";
  throw ConfigError("E327", {}, fmt::format("`{}` is {} file, which is not read", path, kind))
      .help(fmt::format("convert it: python3 -c \"import pandas; pandas.read_{}('{}'{})"
                        ".to_csv('table.csv', index=False)\"",
                        is_parquet ? "parquet"
                        : is_excel ? "excel"
                                   : "json",
                        path, is_lines ? ", lines=True" : ""));
}

namespace {

// The ids of a file of tokens: each is a row.
class TokenRows final : public Rows {
 public:
  explicit TokenRows(IdsPtr ids) : ids_(std::move(ids)), shape_{ids_->size()} {}

  DType dtype() const override { return DType::kInt32; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return Cost::kFile; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    std::vector<int32_t> run;
    for (size_t i = 0; i < order.size(); i += run.size()) {
      size_t count = 1;
      while (i + count < order.size() &&
             order[i + count] == order[i] + static_cast<int64_t>(count)) {
        ++count;
      }
      run.resize(count);
      ids_->read(order[i], run);
      std::memcpy(to + i * sizeof(int32_t), run.data(), count * sizeof(int32_t));
    }
  }

 private:
  IdsPtr ids_;
  Shape shape_;
};

// Of either byte order: token_layout() refuses the other one.
bool begins_as_tokens(std::string_view bytes) {
  const auto begins = [&](DType dtype) {
    std::string magic = token_header(dtype, 0).substr(0, 4);
    const std::string turned(magic.rbegin(), magic.rend());
    return bytes.starts_with(magic) || bytes.starts_with(turned);
  };
  return begins(DType::kUInt16) || begins(DType::kUInt32);
}

}  // namespace

bool is_packed_table(const std::string& path, std::string_view beginning) {
  const std::string name = to_lower(path);
  return beginning.starts_with("\x1f\x8b") &&
         (ends_with(name, ".csv.gz") || ends_with(name, ".tsv.gz"));
}

Guessed read_guessed(const std::string& path, const Visit& visit) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const bool are_texts =
        !has_files(ListedFiles::kImages, path) && has_files(ListedFiles::kTexts, path);
    return are_texts ? visit_texts(path, visit) : visit_images(path, visit);
  }
  char buffer[512] = {};
  const InputFile file = open_input(path, "E300", "E300");
  const auto count = static_cast<size_t>(std::min<uint64_t>(file.size(), sizeof(buffer)));
  file.read_at(0, reinterpret_cast<std::byte*>(buffer), count);
  const std::string_view begin(buffer, count);
  refuse_foreign_table(begin, path);
  if (begin.starts_with("\x93NUMPY")) {
    visit_array("array", *as_rows(read_npy(path)), visit);
    return {"npy " + path, {}};
  }
  if (begin.starts_with("PK\x03\x04")) {
    NpzReader archive(path);
    for (const std::string& name : archive.names()) {
      visit_array(name, *as_rows(archive.read(name)), visit);
    }
    return {"npz " + path, {}};
  }
  if (begin.starts_with("\x89HDF\r\n\x1a\n")) {
    const Hdf5File opened({path, {}});
    for (const std::string& name : opened.names()) {
      visit_array(name, *opened.rows(name), visit);
    }
    return {"HDF5 " + path, {}};
  }
  if (is_packed_table(path, begin)) {
    return profile_file(path, file);
  }
  if (begin.starts_with("\x1f\x8b") || begin.starts_with(std::string_view("\0\0", 2))) {
    visit_array("array", *as_rows(read_idx(path)), visit);
    return {"idx " + path, {}};
  }
  if (begin.starts_with("\x89PNG") || begin.starts_with("\xff\xd8\xff")) {
    return visit_images(path, visit);
  }
  if (begins_as_tokens(begin)) {
    visit_array("ids", TokenRows(ids_in_files({path}, DType::kUInt16, TokenHeader::kAuto, 0, {})),
                visit);
    return {"tokens " + path, {}};
  }
  if (count > 8 && begin[8] == '{') {
    const SafetensorsReader reader(path);
    for (const SafetensorsReader::Entry& entry : reader.entries()) {
      visit_array(entry.name, *as_rows(reader.read(entry)), visit);
    }
    return {"safetensors " + path, {}};
  }
  if (count > 0 && is_text(begin)) {
    return profile_file(path, file);
  }
  if (count == 0) {
    read_error("E327", path, "the file is empty");
  }
  read_error("E327", path, "no kind of file that is known here (it begins with {})",
             hex_bytes(std::as_bytes(std::span(begin.substr(0, 8)))));
}

}  // namespace meshtrain
