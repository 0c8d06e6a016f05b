#include "data/packed_text.h"

#include <algorithm>

#include "data/csv_columns.h"

namespace meshtrain {
namespace {

class PackedRows final : public Rows {
 public:
  PackedRows(PackedTextsPtr texts, int64_t length, int64_t skipped)
      : texts_(std::move(texts)), shape_({texts_->size(), length}), skipped_(skipped) {}

  DType dtype() const override { return DType::kInt32; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return Cost::kMemory; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    auto* out = reinterpret_cast<int32_t*>(to);
    for (const int64_t row : order) {
      check_row(row);
      const auto text = static_cast<size_t>(row);
      const int64_t begin = std::min(texts_->begins[text] + skipped_, texts_->begins[text + 1]);
      const int64_t end = std::min(texts_->begins[text + 1], begin + shape_[1]);
      int32_t* const behind =
          std::copy(texts_->ids.begin() + begin, texts_->ids.begin() + end, out);
      out += shape_[1];
      std::fill(behind, out, texts_->padding);
    }
  }

 private:
  PackedTextsPtr texts_;
  Shape shape_;
  int64_t skipped_;
};

class MaskRows final : public Rows {
 public:
  MaskRows(std::vector<int32_t> counts, int64_t length, DType dtype)
      : counts_(std::move(counts)), shape_({std::ssize(counts_), length}), dtype_(dtype) {}

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Cost cost() const override { return Cost::kMemory; }
  void read(std::span<const int64_t> order, std::byte* to) const override {
    for (const int64_t row : order) {
      check_row(row);
      const int64_t count = std::clamp<int64_t>(counts_[static_cast<size_t>(row)], 0, shape_[1]);
      if (dtype_ == DType::kFloat32) {
        write(count, reinterpret_cast<float*>(to));
      } else {
        write(count, reinterpret_cast<int32_t*>(to));
      }
      to += row_bytes();
    }
  }

 private:
  template <class T>
  void write(int64_t count, T* to) const {
    std::fill_n(to, count, T{1});
    std::fill_n(to + count, shape_[1] - count, T{0});
  }

  std::vector<int32_t> counts_;
  Shape shape_;
  DType dtype_;
};

}  // namespace

TextPacker::TextPacker(const std::string& text, const std::string& path,
                       const PackedTextOptions& options)
    : tokenizer_(text, path),
      start_(find(options.start_token, path)),
      end_(find(options.end_token, path)),
      padding_(find(options.pad_token, path).value_or(0)) {}

std::optional<int32_t> TextPacker::find(const Located<std::string>& token,
                                        const std::string& path) const {
  if (token->empty()) {
    return std::nullopt;
  }
  const std::optional<int32_t> id = tokenizer_.find(token.value);
  if (!id) {
    throw ConfigError("E314", token.loc,
                      fmt::format("`{}` is no token of `{}`", shown_text(token.value), path))
        .help("write it as the tokenizer's file does: \"[CLS]\", \"<|endoftext|>\", \"</s>\"");
  }
  return id;
}

void TextPacker::append_start(std::string_view text, const std::string& name,
                              std::vector<int32_t>& ids) {
  if (start_) {
    ids.push_back(*start_);
  }
  tokenizer_.encode(text, ids, name);
}

int64_t TextPacker::append(std::string_view text, const std::string& name, int64_t length,
                           std::vector<int32_t>& ids) {
  const size_t begin = ids.size();
  append_start(text, name, ids);
  const int64_t tokens = static_cast<int64_t>(ids.size() - begin) - (start_ ? 1 : 0);
  const size_t most = static_cast<size_t>(length - (end_ ? 1 : 0));
  ids.resize(std::min(ids.size(), begin + most));
  if (end_) {
    ids.push_back(*end_);
  }
  return tokens + (end_ ? 1 : 0);
}

RowsPtr packed_rows(PackedTextsPtr texts, int64_t length, int64_t skipped) {
  return std::make_shared<PackedRows>(std::move(texts), length, skipped);
}

void add_padding_inputs(const std::vector<int32_t>& counts, int64_t length, Dataset& dataset) {
  const RowsPtr mask = padding_mask(counts, length, DType::kInt32);
  const RowsPtr segments = padding_mask(std::vector<int32_t>(counts.size()), length, DType::kInt32);
  dataset.inputs.push_back({"padding_mask", mask, {}, true});
  dataset.inputs.push_back({"segment_ids", segments, {}, true});
}

RowsPtr padding_mask(std::vector<int32_t> counts, int64_t length, DType dtype) {
  return std::make_shared<MaskRows>(std::move(counts), length, dtype);
}

}  // namespace meshtrain
