#include "data/column_images.h"

#include <fmt/format.h>

#include <filesystem>

#include "config/source_classes.h"
#include "data/csv_columns.h"
#include "data/image_masks.h"
#include "data/image_rows.h"
#include "data/source_files.h"

namespace meshtrain {
namespace {

class ColumnOfImages final : public ColumnTransform {
 public:
  ColumnOfImages(const ConfigObject& config, const std::string& base_dir)
      : ColumnTransform(config),
        folder_(resolve(base_dir, config.string("directory"))),
        extension_(config.has("extension") ? config.string("extension") : "") {}

  std::string problem(std::string_view value) const override {
    std::error_code error;
    if (value.empty()) {
      return "names no file";
    }
    return std::filesystem::is_regular_file(file(value), error)
               ? ""
               : fmt::format("is `{}`, and there is no file `{}`", shown_text(value),
                             shown_text(file(value)));
  }
  int64_t depth() const override { return 1; }
  bool reads_files() const override { return true; }
  std::string file(std::string_view value) const override {
    return resolve(folder_, std::string(value) + extension_);
  }
  RowsPtr rows_of(ImagePaths paths) const override {
    const ImageFormat format = image_format(config());
    return config().class_name == "Mask"
               ? make_image_masks(std::move(paths), format, config().loc, "")
               : make_image_rows(std::move(paths), format, config().loc, "");
  }

 protected:
  std::vector<int64_t> ids(std::string_view, std::string&) const override { return {0}; }

 private:
  std::string folder_, extension_;
};

}  // namespace

std::unique_ptr<ColumnTransform> make_column_images(const ConfigObject& config,
                                                    const std::string& base_dir) {
  const bool is_one = config.class_name == "Image" || config.class_name == "Mask";
  return is_one ? std::make_unique<ColumnOfImages>(config, base_dir) : nullptr;
}

}  // namespace meshtrain
