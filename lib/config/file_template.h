// FileTemplate: a path with placeholders, as ModelCheckpoint's `filepath`; Python's str.format with
// numbers: "ckpt-{epoch:02d}-{val_loss:.4f}.keras".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace meshtrain {

class FileTemplate {
 public:
  using Value = std::variant<int64_t, double>;

  // Throws ExprError, with the offset in `text`, for what str.format does not take, and for a
  // format that does not suit its value: `epoch`, `batch` and `step` are integers.
  explicit FileTemplate(std::string_view text);

  // Names of the placeholders, each as often as it stands there.
  std::vector<std::string> names() const;
  // `value` knows all of them.
  std::string fill(const std::function<Value(const std::string& name)>& value) const;
  // What {epoch} stands for in `path`, if the template could have made it.
  std::optional<int64_t> epoch_in(std::string_view path) const;
  // The folder, when it has no placeholder.
  std::optional<std::string> folder() const;

 private:
  struct Part {
    std::string text;  // literal, or the name of a placeholder
    bool is_name = false;
    std::string format;          // "{:02d}"
    bool shows_integer = false;  // the format is one of integers
  };
  static std::string formatted(const Part& part, const Value& value);
  bool matches(size_t part, std::string_view rest, std::optional<int64_t>& epoch) const;

  std::vector<Part> parts_;
};

}  // namespace meshtrain
