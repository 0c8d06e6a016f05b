#include "data/column_tokens.h"

#include <fmt/format.h>

#include <optional>

#include "base/utf8.h"
#include "data/csv_columns.h"
#include "data/packed_text.h"
#include "data/source_files.h"

namespace meshtrain {
namespace {

class TokenizedColumn final : public ColumnTransform {
 public:
  TokenizedColumn(const ConfigObject& config, std::string base_dir)
      : ColumnTransform(config),
        options_(packed_text_options(config)),
        base_dir_(std::move(base_dir)) {}

  std::string problem(std::string_view value) const override {
    for (size_t at = 0; at < value.size();) {
      const size_t length = utf8_length(value, at);
      if (length == 0) {
        return fmt::format("is `{}`, which is no UTF-8", shown_text(value));
      }
      at += length;
    }
    return "";
  }
  // The tokenizer's own files, whatever the texts are.
  ColumnTable learn(std::span<const std::string>, std::span<const int64_t>) const override {
    ColumnTable table;
    table.tokenizer = read_tokenizer_text(resolve(base_dir_, options_.folder()));
    table.length = options_.max_length.value.value();
    return table;
  }
  void use(const ColumnTable& table) override {
    packer_.emplace(table.tokenizer, options_.folder(), options_);
  }
  int64_t depth() const override { return packer_.value().tokenizer().size(); }
  bool is_wide() const override { return true; }
  bool is_padded() const override { return true; }
  bool keeps_spaces() const override { return true; }
  int64_t width() const override { return options_.max_length.value.value() + 1; }

 protected:
  // The padded ids, and how many are no padding.
  std::vector<int64_t> ids(std::string_view value, std::string&) const override {
    std::vector<int32_t> packed;
    packer_.value().append(value, fmt::format("the column `{}`", config().string("column")),
                           width() - 1, packed);
    std::vector<int64_t> out(packed.begin(), packed.end());
    out.resize(static_cast<size_t>(width()), packer_->padding());
    out.back() = std::ssize(packed);
    return out;
  }

 private:
  PackedTextOptions options_;
  std::string base_dir_;
  mutable std::optional<TextPacker> packer_;  // caches words
};

}  // namespace

std::unique_ptr<ColumnTransform> make_column_tokens(const ConfigObject& config,
                                                    const std::string& base_dir) {
  return config.class_name == "Tokenizer" ? std::make_unique<TokenizedColumn>(config, base_dir)
                                          : nullptr;
}

}  // namespace meshtrain
