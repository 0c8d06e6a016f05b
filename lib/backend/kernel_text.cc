// The text of a spec: the kind, then its members as "name=value"; empty lists are left out.
#include <fmt/format.h>

#include <algorithm>

#include "backend/kernel_spec.h"

namespace meshtrain {
namespace {

// Elements of longer lists are left out but the first and the last: those of batches are alike.
constexpr size_t kMostElements = 4;

class SpecText {
 public:
  explicit SpecText(const AddressName& name_of) : name_of_(name_of) {}

  template <HasFields T>
  std::string members(const T& value) const {
    std::string text;
    std::string_view names = T::kFields;
    const auto add = [&](const auto& member) {
      const size_t end = std::min(names.find(", "), names.size());
      if (!is_empty(member)) {
        text +=
            fmt::format("{}{}={}", text.empty() ? "" : " ", names.substr(0, end), text_of(member));
      }
      names.remove_prefix(std::min(end + 2, names.size()));
    };
    std::apply([&](const auto&... each) { (add(each), ...); }, value.fields());
    return text;
  }

 private:
  template <class T>
  static bool is_empty(const T& value) {
    if constexpr (requires { value.empty(); })
      return value.empty();
    return false;
  }

  template <class T>
  std::string text_of(const T& value) const {
    if constexpr (std::is_pointer_v<T>)
      return address(static_cast<const std::byte*>(static_cast<const void*>(value)));
    else if constexpr (std::is_same_v<T, DType>)
      return std::string(dtype_name(value));
    else if constexpr (std::is_same_v<T, Reduction>)
      return value == Reduction::kSum ? "sum" : value == Reduction::kMax ? "max" : "min";
    else if constexpr (std::is_enum_v<T>)
      return fmt::format("{}", static_cast<int>(value));
    else if constexpr (std::is_same_v<T, View>)
      return fmt::format("{}:{}{}/{}", address(value.data), dtype_name(value.dtype),
                         list(value.shape), list(value.strides));
    else if constexpr (std::is_same_v<T, Access>)
      return fmt::format("{}..{}", address(value.begin), value.end - value.begin);
    else if constexpr (HasFields<T>)
      return "{" + members(value) + "}";
    else if constexpr (std::is_convertible_v<T, std::string_view>)
      return std::string(value);
    else if constexpr (requires { value[0]; })
      return list(value);
    else
      return fmt::format("{}", value);
  }

  template <class List>
  std::string list(const List& values) const {
    const size_t count = std::size(values);
    std::string text;
    for (size_t i = 0; i < count; ++i) {
      using Element = std::remove_cvref_t<decltype(values[0])>;
      const bool is_long = HasFields<Element> && count > kMostElements;
      if (is_long && i > 0 && i + 1 < count) {
        text += i == 1 ? fmt::format(", {} more", count - 2) : "";
        continue;
      }
      const Element element = values[i];
      text += (i == 0 ? "" : ", ") + text_of(element);
    }
    return "[" + text + "]";
  }

  std::string address(const std::byte* at) const {
    if (at == nullptr)
      return "none";
    const auto number = reinterpret_cast<uintptr_t>(at);
    if (is_scratch_name(at))
      return fmt::format("scratch+{:#x}", number & 0xffffffffffffu);
    return name_of_ ? name_of_(at) : fmt::format("{:#x}", number);
  }

  const AddressName& name_of_;
};

}  // namespace

std::string to_string(const KernelSpec& spec, const AddressName& name_of) {
  static constexpr std::string_view kKinds[] = {
#define MESHTRAIN_KIND(Spec) , #Spec
      "StepSpec" MESHTRAIN_KERNEL_SPECS(MESHTRAIN_KIND)
#undef MESHTRAIN_KIND
  };
  std::string_view kind = kKinds[spec.index()];
  if (kind.ends_with("Spec"))
    kind.remove_suffix(4);
  const std::string members =
      std::visit([&](const auto& one) { return SpecText(name_of).members(one); }, spec);
  return members.empty() ? std::string(kind) : fmt::format("{} {}", kind, members);
}

}  // namespace meshtrain
