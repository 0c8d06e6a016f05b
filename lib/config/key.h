// A key of the config, or an argument of a class, that is one member of a struct. One line declares
// it: name, member and help. The type of the member says how the value is written, and its initial
// value is the default.
//
//   key("shuffle", &DataConfig::shuffle, "new order of the samples in each epoch")
//
// A member is a T, or a Located<T>, which keeps the place too. Null is stored as T{}, which is
// nothing for an optional.
#pragma once

#include <fmt/ranges.h>

#include <optional>
#include <type_traits>

#include "base/text.h"
#include "base/words.h"
#include "config/config.h"
#include "config/source.h"
#include "config/spec.h"

namespace meshtrain {

// How a member of type T is written (kKind), its default, and what a value other than null becomes.
template <class T>
struct KeyType {  // an enumeration
  static constexpr ValueKind kKind = ValueKind::kEnum;
  static std::string text(T value) { return std::string(word_of(value)); }
  static T read(const ConfigValue& value) { return find_word_of<T>(value.string()).value(); }
  static std::vector<std::string> allowed() { return words_of<T>(); }
};
template <>
struct KeyType<bool> {
  static constexpr ValueKind kKind = ValueKind::kBool;
  static std::string text(bool value) { return value ? "true" : "false"; }
  static bool read(const ConfigValue& value) { return value.boolean(); }
};
template <>
struct KeyType<int64_t> {
  static constexpr ValueKind kKind = ValueKind::kInt;
  static std::string text(int64_t value) { return std::to_string(value); }
  static int64_t read(const ConfigValue& value) { return value.integer(); }
};
template <>
struct KeyType<double> {
  static constexpr ValueKind kKind = ValueKind::kFloat;
  static std::string text(double value) { return python_float(value); }
  static double read(const ConfigValue& value) { return value.number(); }
};
template <>
struct KeyType<std::string> {
  static constexpr ValueKind kKind = ValueKind::kText;
  static std::string text(const std::string& value) { return value.empty() ? "null" : value; }
  static const std::string& read(const ConfigValue& value) { return value.string(); }
};
template <>
struct KeyType<std::vector<std::string>> {
  static constexpr ValueKind kKind = ValueKind::kTextList;
  static std::string text(const std::vector<std::string>&) { return "null"; }
  static std::vector<std::string> read(const ConfigValue& value) { return value.strings(); }
};
template <>
struct KeyType<std::vector<int64_t>> {
  static constexpr ValueKind kKind = ValueKind::kShape;
  static std::string text(const std::vector<int64_t>& value) {
    return value.empty() ? "null" : fmt::format("{}", fmt::join(value, "x"));
  }
  static std::vector<int64_t> read(const ConfigValue& value) { return value.integers(); }
};
// As it was read.
template <ValueKind kind>
struct Raw : ConfigValue {};
template <ValueKind kind>
struct KeyType<Raw<kind>> {
  static constexpr ValueKind kKind = kind;
  static std::string text(const ConfigValue& value) {
    return value.is_string() ? value.string() : "null";
  }
  static Raw<kind> read(const ConfigValue& value) { return {value}; }
};
template <class T>
struct KeyType<std::optional<T>> : KeyType<T> {
  using Type = KeyType<T>;
  static std::string text(const std::optional<T>& value) {
    return value ? Type::text(*value) : "null";
  }
};

// What a member holds, with its place or without.
template <class T>
struct Stored {
  using Type = T;
  static T& value(T& member) { return member; }
};
template <class T>
struct Stored<Located<T>> {
  using Type = T;
  static T& value(Located<T>& member) { return member.value; }
};

// What Spec::store is given: an S, or a ClassOptions, which may be none.
template <class S>
S* owner_as(void* owner) {
  if constexpr (std::is_base_of_v<ClassOptions, S>) {
    return dynamic_cast<S*>(static_cast<ClassOptions*>(owner));
  } else {
    return static_cast<S*>(owner);
  }
}

// A key that `read(value, scope)` stores in the member, where the value is not null.
template <class S, class M, class Read>
Spec stored_key(Spec spec, M S::*member, Read read) {
  spec.owner = typeid(S);
  spec.store = [member, read](void* owner, const ConfigValue& value, const StoreScope& scope) {
    S* const options = owner_as<S>(owner);
    if (options == nullptr) {
      return false;
    }
    M& out = options->*member;
    using T = typename Stored<M>::Type;
    Stored<M>::value(out) = value.is_null() ? T{} : T(read(value, scope));
    if constexpr (!std::is_same_v<M, T>) {
      out.loc = value.is_default && !scope.is_class ? SourceLoc() : value.loc;
    }
    return true;
  };
  return spec;
}

template <class S, class M>
Spec key(std::string name, M S::*member, std::string help) {
  using T = typename Stored<M>::Type;
  using Type = KeyType<T>;
  S defaults;
  Spec spec = make_spec(std::move(name), Type::kKind,
                        Type::text(Stored<M>::value(defaults.*member)), std::move(help));
  if constexpr (requires { Type::allowed(); }) {
    spec.allowed = Type::allowed();
  }
  return stored_key(std::move(spec), member,
                    [](const ConfigValue& value, const StoreScope&) { return Type::read(value); });
}

// A whole number from `least` up to what kernels can count.
template <class S, class M>
Spec count(std::string name, M S::*member, std::string help, double least = 1) {
  return key(std::move(name), member, std::move(help)).least(least).most(kMaxSize);
}

// The file that the text names (resolve_path()).
template <class S>
Spec path(std::string name, Located<std::string> S::*member, std::string help) {
  return stored_key(make_spec(std::move(name), ValueKind::kPath, "null", std::move(help)), member,
                    [](const ConfigValue& value, const StoreScope& scope) {
                      return resolve_path(value, scope.folder);
                    });
}

// A text that `parse` reads; E112 with `example` where it cannot.
template <class S, class M, class T>
Spec parsed_key(std::string name, M S::*member, std::string default_text,
                std::optional<T> (*parse)(std::string_view), const char* example,
                std::string help) {
  Spec spec = text(name, std::move(default_text), std::move(help));
  return stored_key(
      std::move(spec), member,
      [name = std::move(name), parse, example](const ConfigValue& value, const StoreScope& scope) {
        const std::optional<T> parsed = parse(value.string());
        if (!parsed) {
          scope.diagnostics
              .error("E112", value.loc, fmt::format("`{}` cannot be `{}`", name, value.string()))
              .help(example);
        }
        return parsed.value_or(T{});
      });
}
template <class S>
Spec interval(std::string name, Located<Interval> S::*member, std::string help) {
  return parsed_key(std::move(name), member, interval_text((S().*member).value), parse_interval,
                    "write 200 steps, 2 epochs, 30 min or never", std::move(help));
}
template <class S>
Spec seconds(std::string name, Located<double> S::*member, std::string help) {
  return parsed_key(std::move(name), member, "null", parse_duration, "write 23h30m, 90 min or 45s",
                    std::move(help));
}
template <class S>
Spec bytes(std::string name, Located<int64_t> S::*member, std::string help) {
  return parsed_key(std::move(name), member, "null", parse_bytes, "write 512 MiB or 2 GiB",
                    std::move(help));
}

// The section of a struct. Its keys are members of this struct, or of no struct.
template <class S>
Section section_of(std::string path, std::vector<Spec> fields) {
  for (const Spec& field : fields) {
    MESHTRAIN_CHECK(!field.store || field.owner == typeid(S), "{} of {}", field.name, path);
  }
  return {std::move(path), std::move(fields), typeid(S)};
}

// A section whose struct is a member of the struct around it.
template <class S, class Inner>
Spec section(std::string name, Inner S::*member, const Section& section, std::string help) {
  Spec spec = meshtrain::section(std::move(name), section, std::move(help));
  MESHTRAIN_CHECK(section.owner == typeid(Inner), "{}", section.path);
  spec.owner = typeid(S);
  spec.store = [member, &section](void* owner, const ConfigValue& value, const StoreScope& scope) {
    Inner& inner = static_cast<S*>(owner)->*member;
    if constexpr (requires { inner.loc; }) {
      inner.loc = value.is_default ? SourceLoc() : value.loc;
    }
    section.store(&inner, value, scope);
    return true;
  };
  return spec;
}

}  // namespace meshtrain
