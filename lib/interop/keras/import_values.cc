#include "interop/keras/import_values.h"

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "base/text.h"
#include "config/catalogue.h"
#include "config/reader.h"
#include "config/scalars.h"
#include "interop/keras/import_json.h"
#include "mesh/layout_map.h"
#include "nn/arguments.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

// Arguments of one number per dimension, where one number means all.
constexpr std::string_view kPerDimension[] = {"kernel_size", "strides",        "dilation_rate",
                                              "pool_size",   "size",           "output_size",
                                              "padding",     "output_padding", "cropping"};

// Keras' arguments that change nothing here whatever they are: fans of einsum kernels are derived,
// statistics are always those of the global batch, XLA is not there.
constexpr std::string_view kWithoutEffect[] = {"input_axes",
                                               "output_axes",
                                               "synchronized",
                                               "build_config",
                                               "autocast",
                                               "input_length",
                                               "batch_input_shape",
                                               "batch_shape",
                                               "jit_compile",
                                               "is_legacy_optimizer",
                                               "lora_alpha",
                                               "decoder_sequence_shape",
                                               "encoder_sequence_shape"};

bool is_neutral(const std::string& name, const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty()) ||
         is_one_of(name, kWithoutEffect) || (name == "data_format" && value == "channels_last");
}

// Without Keras' wrappings: tuples, arrays, functions by name, seed generators.
const Json& unwrapped(const Json& value, const Spec& spec) {
  if (!value.is_object() || !value.contains("class_name")) {
    return value;
  }
  const Json& name = value.at("class_name");
  const auto config = value.find("config");
  if (name == "__tuple__" && value.contains("items")) {
    return value.at("items");
  }
  if (config == value.end()) {
    return value;
  }
  if ((name == "__numpy__" || name == "__tensor__") && config->contains("value")) {
    return config->at("value");
  }
  if (name == "function" && config->is_string()) {
    return *config;
  }
  if (spec.name == "token_embedding" && config->contains("name")) {
    return config->at("name");  // of a layer that stands for itself
  }
  if (name == "SeedGenerator" && spec.kind == ValueKind::kInt && config->contains("seed")) {
    return config->at("seed");
  }
  return value;
}

// A number of a float32 as people write it: 0.001, not 0.0010000000474974513. One that takes few
// digits is exact: 3291.890625.
std::string number_text(double value) {
  constexpr size_t kFew = 14;
  const auto narrow = static_cast<float>(value);
  std::string exact = format_shortest(value);
  return static_cast<double>(narrow) == value && exact.size() > kFew ? format_shortest(narrow)
                                                                     : exact;
}

YamlNode scalar(std::string text, bool quoted = false) {
  return YamlNode::scalar(std::move(text), {}, quoted);
}

bool same(const ConfigValue& a, const ConfigValue& b);

bool same_object(const ConfigObject& a, const ConfigObject& b) {
  return a.class_name == b.class_name && a.args.size() == b.args.size() &&
         std::equal(a.args.begin(), a.args.end(), b.args.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && same(x.second, y.second);
         });
}

bool same(const ConfigValue& a, const ConfigValue& b) {
  if (a.is_number() && b.is_number()) {
    return static_cast<float>(a.number()) == static_cast<float>(b.number());
  }
  if (a.data.index() != b.data.index()) {
    return false;
  }
  if (a.is_list()) {
    return std::equal(a.list().begin(), a.list().end(), b.list().begin(), b.list().end(), same);
  }
  if (a.is_dict()) {
    return std::equal(a.dict().begin(), a.dict().end(), b.dict().begin(), b.dict().end(),
                      [](const auto& x, const auto& y) {
                        return x.first == y.first && same(x.second, y.second);
                      });
  }
  return a.is_object() ? same_object(a.object(), b.object())
                       : a.is_null() || (a.is_bool() && a.boolean() == b.boolean()) ||
                             (a.is_string() && a.string() == b.string());
}

// Lists of numbers without Keras' wrappings around each list: Keras 2 wraps tuples within tuples.
Json plain_lists(const Json& wrapped, const Spec& spec) {
  const Json& value = unwrapped(wrapped, spec);
  if (!value.is_array()) {
    return value;
  }
  Json out = Json::array();
  for (const Json& entry : value) {
    out.push_back(plain_lists(entry, spec));
  }
  return out;
}

// The number that stands for a list of it alone: 1 for [1, 1] and for [[1, 1], [1, 1]]. Any other
// list is kept whole: [0, 1] is not short for the pairs [[0, 1], [0, 1]].
Json one_for_all(const Json& value) {
  if (!value.is_array() || value.empty() ||
      !std::all_of(value.begin(), value.end(), [&](const Json& v) { return v == value[0]; })) {
    return value;
  }
  Json one = one_for_all(value[0]);
  return one.is_array() ? value : one;
}

// The value in the shortest form that the catalogue reads as the same.
Json shortest(const Json& wrapped, const Spec& spec) {
  const bool is_integers = spec.kind == ValueKind::kInt || spec.kind == ValueKind::kIntOrList;
  const Json value = plain_lists(wrapped, spec);
  if (spec.kind == ValueKind::kIntOrList && is_one_of(spec.name, kPerDimension)) {
    return one_for_all(value);
  }
  if (spec.kind == ValueKind::kIntOrList && value.is_array() && value.empty() && spec.is_nullable &&
      spec.default_text != "null") {
    return nullptr;  // Normalization's axis=None
  }
  // BatchNormalization's axis [3]
  return is_integers && value.is_array() && value.size() == 1 && !value[0].is_array() ? value[0]
                                                                                      : value;
}

// JSON -> the tree that the config's reader takes.
class TreeMaker {
 public:
  // `policy`: the dtype policy of the layer around the value.
  TreeMaker(std::vector<std::string>& problems, std::string owner, std::string policy)
      : problems_(problems), owner_(std::move(owner)), policy_(std::move(policy)) {}

  YamlNode make(const Json& wrapped, const Spec& spec) {
    const Json value = shortest(wrapped, spec);
    const bool is_object = value.is_object() && value.contains("class_name");
    switch (spec.kind) {
      case ValueKind::kActivation:
        return object(value, Category::kActivation);
      case ValueKind::kObject:
        return object(value, spec.category);
      case ValueKind::kFloatOrObject:
        return is_object ? object(value, spec.category) : number(value, spec);
      case ValueKind::kObjectList:
      case ValueKind::kObjectPerOutput:
      case ValueKind::kObjectsPerOutput:
        return objects(value, spec.category);
      case ValueKind::kMap:
        return spec.element == ValueKind::kObject ? objects(value, spec.category) : plain(value);
      default:
        return plain(value);
    }
  }

 private:
  YamlNode problem(const std::string& what) {
    problems_.push_back(fmt::format("{}: {}", owner_, what));
    YamlNode failed;
    failed.failed = true;
    return failed;
  }

  // 1.0 stays one where a whole number is refused.
  YamlNode number(const Json& value, const Spec& spec) {
    YamlNode node = plain(value);
    if (spec.floats_only && value.is_number_float() && try_integer(node.text)) {
      node.text += ".0";
    }
    return node;
  }

  YamlNode plain(const Json& value) {
    if (value.is_null()) {
      YamlNode null;
      null.explicit_null = true;
      return null;
    }
    if (value.is_boolean()) {
      return scalar(value.get<bool>() ? "true" : "false");
    }
    if (value.is_number_float()) {
      return scalar(number_text(value.get<double>()));
    }
    if (value.is_number()) {
      return scalar(value.dump());
    }
    if (value.is_string()) {
      return scalar(value.get<std::string>(), true);
    }
    YamlNode node;
    node.kind = value.is_array() ? YamlNode::Kind::kList : YamlNode::Kind::kMap;
    for (const auto& [key, entry] : value.items()) {
      node.children.push_back(plain(entry));
      node.children.back().key = value.is_array() ? "" : key;
    }
    return node;
  }

  // One object, a list, or a map of outputs to these.
  YamlNode objects(const Json& value, Category category) {
    if (!value.is_array() && (!value.is_object() || value.contains("class_name"))) {
      return object(value, category);
    }
    YamlNode node;
    node.kind = value.is_array() ? YamlNode::Kind::kList : YamlNode::Kind::kMap;
    for (const auto& [key, entry] : value.items()) {
      const Json& item = unwrapped(entry, Spec{});
      if (item.is_null() && value.is_object()) {
        continue;  // an output without
      }
      node.children.push_back(objects(item, category));
      node.children.back().key = value.is_array() ? "" : key;
    }
    return node;
  }

  YamlNode object(const Json& value, Category category) {
    if (!value.is_object()) {
      return value.is_string() ? named(value.get<std::string>(), category) : plain(value);
    }
    const auto name = value.find("class_name");
    const auto config = value.find("config");
    if (name == value.end() || !name->is_string() || config == value.end() ||
        !config->is_object()) {
      return problem(fmt::format("{} is no {}", printable(value.dump()), category_name(category)));
    }
    const std::string class_name = name->get<std::string>();
    const ClassSpec* spec = category == Category::kActivation ? find_activation(class_name)
                                                              : find_class(category, class_name);
    if (spec == nullptr) {
      return unknown(class_name, category);
    }
    if (is_custom_class(value, class_name)) {
      return problem(fmt::format("{} `{}` is a class of your own, not Keras'",
                                 category_name(category), printable(class_name)));
    }
    return object_with(*spec, *config);
  }

  // What can stand for a function of Python, which is not in the file.
  YamlNode unknown(const std::string& name, Category category) {
    const std::string_view instead =
        category == Category::kActivation
            ? "; without it, a `Lambda` behind the layer computes any expression"
        : category == Category::kLoss || category == Category::kMetric
            ? "; write an expression: `=mean(square(y_true - y_pred), axis=-1)`"
            : "";
    return problem(fmt::format("{} `{}` is not in meshtrain{}", category_name(category),
                               printable(name), instead));
  }

  YamlNode named(const std::string& name, Category category) {
    if (category == Category::kActivation && name == "keras_hub>gelu_approximate") {
      return object_with(*find_activation("gelu"), {{"approximate", true}});
    }
    const ClassSpec* spec = find_class(category, name);
    if (spec == nullptr) {
      return unknown(name, category);
    }
    // Keras logs a metric that is a text under this text; here a class has its own name.
    const bool is_class = category == Category::kMetric && name == spec->name && name != "Accuracy";
    return is_class && name != to_snake_case(name) ? object_with(*spec, {{"name", name}})
                                                   : scalar(name);
  }

  // What `dtype` says that is not so anyway: the policy of a layer within another one, float64 of
  // other objects.
  std::string own_policy(const ClassSpec& spec, const Json& dtype) const {
    const std::string policy = policy_name(dtype);
    const bool is_own = spec.category == Category::kLayer ? policy != policy_ : policy == "float64";
    return is_own ? policy : "";
  }

  // Keras has a class for the map of a MultiOptimizer; here its members are arguments.
  static Json with_members(const Json& config) {
    const Json* const map = find_member(config, "optimizer_map");
    const Json* const members = map != nullptr ? find_member(*map, "config") : nullptr;
    if (members == nullptr || !members->is_object()) {
      return config;
    }
    Json out = config;
    out.erase("optimizer_map");
    out.update(*members);
    return out;
  }

  YamlNode object_with(const ClassSpec& spec, const Json& given) {
    const Json config = spec.name == "MultiOptimizer" ? with_members(given) : given;
    YamlNode args;
    args.kind = YamlNode::Kind::kMap;
    for (const auto& [key, entry] : config.items()) {
      const Spec* arg = spec.find(key);
      const bool is_shown = spec.category == Category::kMetric;  // names of losses are not
      if (key == "name" &&
          (entry == to_snake_case(spec.name) || arg == nullptr ||
           spec.category == Category::kLoss || (entry == spec.name && !is_shown))) {
        continue;  // what it is called anyway
      }
      if (key == "trainable" || key == "dtype") {
        const std::string text = key == "dtype" ? own_policy(spec, entry)
                                 : entry == false && spec.category == Category::kLayer ? "false"
                                                                                       : "";
        if (arg != nullptr && !text.empty()) {
          args.children.push_back(scalar(text));
          args.children.back().key = key;
        }
        continue;
      }
      // Keras 3.0 wrote it for optimizers without averages, too.
      if (key == "ema_overwrite_frequency" && config.value("use_ema", Json()) != true) {
        continue;
      }
      if (arg == nullptr || arg->kind == ValueKind::kUnsupported) {
        if (!is_neutral(key, entry)) {
          problem(fmt::format("`{}: {}` of {} is not in meshtrain", printable(key),
                              printable(entry.dump()), spec.name));
        }
        continue;
      }
      if (spec.category == Category::kLoss && key == "reduction" &&
          (entry.is_null() || entry == "none")) {
        problem(fmt::format("`reduction: none` of {}: it leaves no single number to minimise",
                            spec.name));
        continue;
      }
      if (entry.is_array() && entry.empty() && arg->is_nullable) {
        continue;  // names nothing, as null does
      }
      if (!entry.is_null() || arg->is_nullable) {
        args.children.push_back(make(entry, *arg));
        args.children.back().key = key;
      }
    }
    const bool by_function =
        spec.category == Category::kInitializer || spec.category == Category::kRegularizer;
    const std::string spelled = by_function                             ? spelling_of(spec)
                                : spec.category == Category::kOptimizer ? to_lower(spec.name)
                                                                        : spec.name;
    if (args.children.empty()) {
      return scalar(spelled);
    }
    YamlNode node;
    node.kind = YamlNode::Kind::kMap;
    args.key = spelled;
    node.children.push_back(std::move(args));
    return node;
  }

  // he_normal rather than HeNormal, where both are known.
  static std::string spelling_of(const ClassSpec& spec) {
    const std::string snake = to_snake_case(spec.name);
    return find_class(spec.category, snake) == &spec ? snake : spec.name;
  }

  std::vector<std::string>& problems_;
  std::string owner_, policy_;
};

// Marks arguments inside of objects that are their defaults, so that they are not written.
void mark_defaults(ConfigValue& value, Reader& reader) {
  if (value.is_list()) {
    for (ConfigValue& entry : std::get<ConfigValue::List>(value.data)) {
      mark_defaults(entry, reader);
    }
  } else if (value.is_dict()) {
    for (auto& entry : std::get<ConfigValue::Dict>(value.data)) {
      mark_defaults(entry.second, reader);
    }
  } else if (value.is_object()) {
    ConfigObject& object = *std::get<std::shared_ptr<ConfigObject>>(value.data);
    const ClassSpec* const spec = spec_of(object);
    if (spec == nullptr) {
      return;
    }
    for (const Spec& arg : spec->args) {
      ConfigValue& given = object.args.at(arg.name);
      if (!arg.is_required && !given.is_default) {
        mark_defaults(given, reader);
        given.is_default = same(given, reader.default_value(arg, {}));
      }
    }
  }
}

bool is_linear(const ConfigValue& value) {
  return value.is_string() && value.string() == "linear";
}

}  // namespace

const ClassSpec* find_activation(const std::string& class_name) {
  for (const ClassSpec& spec : classes(Category::kActivation)) {
    if (name_key(spec.name) == name_key(class_name)) {
      return &spec;
    }
  }
  return nullptr;
}

std::string policy_name(const Json& dtype, std::string_view layer) {
  if (dtype.is_string()) {
    return dtype.get<std::string>();
  }
  if (!dtype.is_object() || !dtype.contains("config") || !dtype.at("config").is_object()) {
    return "";
  }
  const Json& config = dtype.at("config");
  if (config.contains("policy_map") && config.at("policy_map").is_object()) {
    const Json& map = config.at("policy_map");
    if (const auto exact = map.find(layer); exact != map.end()) {
      return policy_name(*exact, layer);
    }
    for (const auto& [key, policy] : map.items()) {
      if (Pattern(key).full_match(layer)) {
        return policy_name(policy, layer);
      }
    }
    return policy_name(config.value("default_policy", Json()), layer);
  }
  const Json& name = config.value("name", Json());
  return name.is_string() ? name.get<std::string>() : "";
}

void ValueImporter::problem(const std::string& owner, const std::string& what) {
  problems_.push_back(fmt::format("{}: {}", owner, what));
}

ConfigValue ValueImporter::value(const Json& json, const Spec& spec, const std::string& owner) {
  const size_t before = problems_.size();
  const YamlNode node = TreeMaker(problems_, owner, policy_).make(json, spec);
  if (problems_.size() > before) {
    return {};
  }
  Diagnostics diagnostics;
  Reader reader(diagnostics);
  ConfigValue out = reader.value(node, spec, spec.name);
  for (const Diagnostic& d : diagnostics.list()) {
    if (d.severity == Severity::kError) {
      problem(owner, d.message);
    }
  }
  if (diagnostics.has_errors()) {
    return {};
  }
  mark_defaults(out, reader);
  if (!spec.is_required) {
    const ConfigValue otherwise = reader.default_value(spec, {});
    out.is_default = same(out, otherwise) || (otherwise.is_null() && is_linear(out));
  }
  return out;
}

GivenArgs ValueImporter::arguments(const ClassSpec& spec, const Json& config,
                                   const std::string& owner,
                                   const std::vector<std::string>& skipped) {
  const auto is_skipped = [&](const std::string& name) {
    return std::find(skipped.begin(), skipped.end(), name) != skipped.end();
  };
  // A Discretization that was adapted has both; the boundaries say it all.
  const auto bins = config.find("bin_boundaries");
  const bool has_bins = bins != config.end() && !bins->is_null();
  const auto dtype = config.find("dtype");
  policy_ = dtype == config.end() ? "" : policy_name(*dtype);
  GivenArgs out;
  for (const Spec& arg : spec.args) {
    const auto found = config.find(arg.name);
    if (found == config.end() || (has_bins && arg.name == "num_bins") || is_skipped(arg.name) ||
        arg.kind == ValueKind::kUnsupported || (found->is_null() && !arg.is_nullable)) {
      continue;
    }
    ConfigValue given = value(*found, arg, fmt::format("{}, `{}`", owner, arg.name));
    if (!given.is_default) {
      out.emplace_back(arg.name, std::move(given));
    }
  }
  for (const auto& [key, entry] : config.items()) {
    const Spec* arg = spec.find(key);
    if ((arg == nullptr || arg->kind == ValueKind::kUnsupported) && !is_skipped(key) &&
        !is_neutral(key, entry)) {
      problem(owner,
              fmt::format("`{}: {}` is not in meshtrain", printable(key), printable(entry.dump())));
    }
  }
  return out;
}

bool is_custom_class(const Json& object, const std::string& class_name) {
  const Json* const registered = find_member(object, "registered_name");
  if (registered == nullptr || !registered->is_string()) {
    return false;
  }
  const auto name = registered->get<std::string>();
  if (name.find('>') != std::string::npos) {
    return name != "keras_hub>" + class_name;
  }
  // Keras gives names to classes that it does not export, and to those of users.
  const Json* const module = find_member(object, "module");
  return module != nullptr &&
         (!module->is_string() || !starts_with(module->get<std::string>(), "keras"));
}

}  // namespace meshtrain
