#include "tensor/safetensors_header.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/printable.h"
#include "base/text.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

using Entry = SafetensorsReader::Entry;
using Json = nlohmann::json;

constexpr size_t kMaxTensors = 1000000;
constexpr size_t kLeastEntry = 48;  // bytes that a tensor takes in the header
constexpr size_t kMaxMetadata = 10000;
constexpr size_t kMaxName = 512;
constexpr size_t kMaxRank = 8;
constexpr uint64_t kMaxSize = uint64_t{1} << 53;  // beyond it other readers lose digits

struct TypeCode {
  DType dtype;
  std::string_view code;
};
constexpr TypeCode kTypeCodes[] = {
    {DType::kBool, "BOOL"},   {DType::kUInt8, "U8"},      {DType::kInt8, "I8"},
    {DType::kInt16, "I16"},   {DType::kUInt16, "U16"},    {DType::kInt32, "I32"},
    {DType::kUInt32, "U32"},  {DType::kInt64, "I64"},     {DType::kUInt64, "U64"},
    {DType::kFloat16, "F16"}, {DType::kBFloat16, "BF16"}, {DType::kFloat32, "F32"},
    {DType::kFloat64, "F64"}};

// Why a name is refused, or null. Names are keys, never paths, but others may use them as such.
const char* bad_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxName) {
    return name.empty() ? "is empty" : "is longer than 512 bytes";
  }
  if (std::any_of(name.begin(), name.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; })) {
    return "has control characters";
  }
  if (name.front() == '/') {
    return "is an absolute path";
  }
  for (const std::string& part : split(name, '/')) {
    if (part == "..") {
      return "leads out of its folder";
    }
  }
  return nullptr;
}

// Receives the events of nlohmann's parser, which checks syntax and UTF-8. Builds no document: each
// event is either what the format allows at that place or an error.
class HeaderHandler final : public Json::json_sax_t {
 public:
  HeaderHandler(const std::string& path, StringMap* metadata) : path_(path), metadata_(metadata) {}

  std::vector<Entry> entries;  // `begin` and `num_bytes` as the offsets say

  bool start_object(size_t) override {
    if (place_ == Place::kFile) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop && !key_.empty()) {
      place_ = key_ == "__metadata__" ? Place::kMetadata : Place::kTensor;
      if (place_ == Place::kTensor) {
        begin_tensor();
      }
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (int field = 0; field < 3; ++field) {
        if (!seen_[field]) {
          fail("tensor `{}` has no `{}`", printable(entries.back().name), kFields[field]);
        }
      }
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool key(std::string& key) override {
    key_ = key;
    if (place_ == Place::kTensor) {
      const auto field = std::find(std::begin(kFields), std::end(kFields), key);
      if (field == std::end(kFields)) {
        fail("tensor `{}` has an unknown key `{}`", printable(entries.back().name), printable(key));
      }
      field_ = static_cast<int>(field - std::begin(kFields));
      if (seen_[field_]) {
        fail("tensor `{}` has `{}` twice", printable(entries.back().name), key);
      }
      seen_[field_] = true;
    } else if (place_ == Place::kTop && key == "__metadata__") {
      if (metadata_seen_) {
        fail("`__metadata__` twice");
      }
      metadata_seen_ = true;
    } else if (place_ == Place::kTop) {
      if (const char* why = bad_name(key)) {
        read_error("E406", path_, "the name of tensor `{}` {}", printable(key), why);
      }
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      if (metadata_->size() == kMaxMetadata) {
        fail("more than {} entries of `__metadata__`", kMaxMetadata);
      }
      if (!metadata_->emplace(key_, value).second) {
        fail("`__metadata__` has `{}` twice", printable(key_));
      }
      return true;
    }
    if (place_ != Place::kTensor || field_ != 0) {
      unexpected("a text");
    }
    const auto type = std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes),
                                   [&](const TypeCode& code) { return code.code == value; });
    if (type == std::end(kTypeCodes)) {
      fail("tensor `{}` has the dtype `{}`, which this version does not read",
           printable(entries.back().name), printable(value));
    }
    entries.back().dtype = type->dtype;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == 0) {
      unexpected("a list");
    }
    place_ = Place::kList;
    offsets_seen_ = 0;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    if (field_ == 2 && offsets_seen_ != 2) {
      fail("`data_offsets` of tensor `{}` must be two numbers", printable(entries.back().name));
    }
    return true;
  }

  bool number_unsigned(Json::number_unsigned_t value) override {
    if (place_ != Place::kList) {
      unexpected("a number");
    }
    if (value >= kMaxSize) {
      fail("tensor `{}` has the number {} in `{}`; sizes are below 2^53",
           printable(entries.back().name), value, kFields[field_]);
    }
    Entry& entry = entries.back();
    if (field_ == 1) {
      if (entry.shape.size() == kMaxRank) {
        fail("tensor `{}` has more than {} dimensions", printable(entry.name), kMaxRank);
      }
      entry.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (offsets_seen_ == 2) {
        fail("`data_offsets` of tensor `{}` must be two numbers", printable(entry.name));
      }
      (offsets_seen_++ == 0 ? entry.begin : end_) = value;
      if (offsets_seen_ == 2 && end_ < entry.begin) {
        fail("tensor `{}` ends at byte {}, before its begin {}", printable(entry.name), end_,
             entry.begin);
      }
      entry.num_bytes = end_ - entry.begin;
    }
    return true;
  }

  bool number_integer(Json::number_integer_t) override { unexpected("a negative number"); }
  bool number_float(Json::number_float_t, const std::string& text) override {
    unexpected("the number " + printable(text) + ", no plain integer,");
  }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool null() override { unexpected("null"); }
  bool binary(Json::binary_t&) override { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fail("the header is no JSON at its byte {}", position);
  }

 private:
  enum class Place { kFile, kTop, kMetadata, kTensor, kList, kEnd };
  static constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    read_error("E405", path_, format, std::forward<Args>(args)...);
  }
  [[noreturn]] void unexpected(const std::string& what) const {
    switch (place_) {
      case Place::kMetadata:
        fail("`__metadata__` has {} under `{}`; only texts are allowed", what, printable(key_));
      case Place::kTensor:
      case Place::kList:
        fail("tensor `{}` has {} in `{}`", printable(entries.back().name), what,
             key_.empty() ? "its entry" : printable(key_));
      case Place::kTop:
        fail("the entry `{}` is {}; it must be an object", printable(key_), what);
      default:
        fail("the header is {}; it must be an object", what);
    }
  }

  void begin_tensor() {
    if (entries.size() == kMaxTensors) {
      fail("more than {} tensors", kMaxTensors);
    }
    entries.push_back({key_, DType::kFloat32, {}, 0, 0});
    end_ = 0;
    std::fill(std::begin(seen_), std::end(seen_), false);
    key_.clear();
  }

  const std::string& path_;
  StringMap* metadata_;
  Place place_ = Place::kFile;
  std::string key_;
  int field_ = 0;
  bool seen_[3] = {};
  int offsets_seen_ = 0;
  uint64_t end_ = 0;
  bool metadata_seen_ = false;
};

// Names once each, bytes as the shape needs, data without gap or overlap up to the end of the file.
void check_entries(std::vector<Entry>& entries, uint64_t data_size, const std::string& path) {
  std::vector<const Entry*> by_name;
  for (const Entry& entry : entries) {
    by_name.push_back(&entry);
  }
  std::sort(by_name.begin(), by_name.end(),
            [](const Entry* a, const Entry* b) { return a->name < b->name; });
  for (size_t i = 1; i < by_name.size(); ++i) {
    if (by_name[i - 1]->name == by_name[i]->name) {
      read_error("E405", path, "tensor `{}` twice", printable(by_name[i]->name));
    }
  }
  for (const Entry& entry : entries) {
    uint64_t needed = dtype_size(entry.dtype);
    bool empty = false;
    for (const int64_t size : entry.shape) {
      empty = empty || size == 0;
      if (size != 0 && __builtin_mul_overflow(needed, static_cast<uint64_t>(size), &needed)) {
        read_error("E405", path, "tensor `{}` has the shape {}, more than any file holds",
                   printable(entry.name), shape_string(entry.shape));
      }
    }
    needed = empty ? 0 : needed;
    if (needed != entry.num_bytes) {
      read_error("E405", path, "tensor `{}`: {} {} needs {} bytes, its offsets give {}",
                 printable(entry.name), dtype_name(entry.dtype), shape_string(entry.shape), needed,
                 entry.num_bytes);
    }
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.num_bytes < b.num_bytes;
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      read_error("E405", path,
                 "tensor `{}` begins at byte {} of the data, the one before ends at {}",
                 printable(entry.name), entry.begin, end);
    }
    end += entry.num_bytes;
  }
  if (end != data_size) {
    read_error("E405", path, "the tensors need {} bytes of data, the file has {}: {}",
               format_thousands(static_cast<int64_t>(end)),
               format_thousands(static_cast<int64_t>(data_size)),
               data_size < end ? "truncated?" : "something follows them");
  }
}

}  // namespace

std::vector<Entry> parse_safetensors_header(std::string_view text, uint64_t data_size,
                                            const std::string& path, StringMap* metadata) {
  if (text.empty() || text.front() != '{') {
    read_error("E405", path, "the header does not begin with `{{`: not a safetensors file?");
  }
  HeaderHandler handler(path, metadata);
  handler.entries.reserve(std::min(text.size() / kLeastEntry, kMaxTensors));
  Json::sax_parse(text.begin(), text.end(), &handler);
  check_entries(handler.entries, data_size, path);
  return std::move(handler.entries);
}

std::string_view safetensors_dtype(DType dtype) {
  return std::find_if(std::begin(kTypeCodes), std::end(kTypeCodes),
                      [&](const TypeCode& code) { return code.dtype == dtype; })
      ->code;
}

}  // namespace meshtrain
