#include "plan/hardware_file.h"

#include <algorithm>

#include "base/suggest.h"
#include "base/text.h"
#include "config/bind.h"
#include "config/devices.h"
#include "config/interval.h"
#include "config/reader.h"
#include "config/source.h"
#include "plan/cost_model.h"

namespace meshtrain {
namespace {

Spec rate(const char* name, const char* help) {
  return number(name, "null", help).above(0);
}
Spec protocols(const char* name, const char* help) {
  return make_spec(name, ValueKind::kFloatOrList, "null", help).least(0);
}

const Section& products_section() {
  static const Section kSection = [] {
    Section out{"hardware.matmul", {}};
    for (size_t t = 0; t < kNumMatmulTypes; ++t) {
      const auto name = std::string(matmul_type_name(static_cast<MatmulType>(t)));
      out.fields.push_back(rate(name.c_str(), "FLOP/s"));
    }
    return out;
  }();
  return kSection;
}

const Section& call_section() {
  static const Section kSection{
      "hardware.calls.one",
      {number("start", "null", "seconds of a call").least(0),
       rate("rate", "bytes/s that a device sends; null: no time grew with them")}};
  return kSection;
}

const Section& calls_section() {
  static const Section kSection = [] {
    Section out{"hardware.calls", {}};
    for (const std::string& name : call_names()) {
      out.fields.push_back(section(name, call_section(), "as measured"));
    }
    return out;
  }();
  return kSection;
}

const Section& link_section() {
  static const Section kSection{"hardware.link",
                                {rate("rate", "bytes/s of a device, one direction"),
                                 protocols("hop", "seconds of a step of a ring"),
                                 protocols("tree_hop", "seconds of a step of a tree"),
                                 section("calls", calls_section(), "measured, for the formulas")}};
  return kSection;
}

const Section& network_section() {
  static const Section kSection = [] {
    Section out = link_section();
    out.path = "hardware.network";
    out.fields.push_back(number("post", "null", "seconds to post a message").least(0));
    return out;
  }();
  return kSection;
}

const Section& switch_section() {
  static const Section kSection{"hardware.switch",
                                {number("rate", "null", "bus rate; 0: none").least(0),
                                 number("start", "null", "seconds of a call").least(0)}};
  return kSection;
}

const Section& hardware_section() {
  static const Section kSection{
      "hardware",
      {text("like", "null", "the entry whose values it has otherwise"),
       text("memory", "null", "80 GB, 94 GiB"), rate("memory_rate", "bytes/s, read and written"),
       text("cache", "null", "size below which cache_rate holds"),
       rate("cache_rate", "bytes/s within the cache"),
       section("peak", products_section(), "what the data sheet says"),
       section("matmul", products_section(), "what large products reach"),
       number("kernel", "null", "seconds of begin and end of a kernel").least(0),
       integer("per_host", "null", "devices of a host").least(1).most(1 << 20),
       boolean("virtual", "null", "devices share one processor"),
       section("link", link_section(), "to devices of the same host"),
       section("switch", switch_section(), "all_reduce in the switch"),
       section("network", network_section(), "to other hosts"),
       protocols("start", "seconds of a call by ring"),
       protocols("tree_start", "seconds of a call by tree"),
       make_spec("share", ValueKind::kFloatOrList, "null", "part of the rate that is data")
           .above(0)
           .most(1),
       protocols("ll_rate", "most that LL reaches on 1, 2 and more hosts"),
       number("tree_share", "null", "of a ring's rate that a tree reaches").above(0).most(1),
       number("jitter", "null", "of the step, each doubling beyond 8 devices").least(0)}};
  return kSection;
}

std::vector<std::string> names_of(const std::vector<Hardware>& table) {
  std::vector<std::string> out;
  for (const Hardware& hardware : table) {
    out.push_back(hardware.name);
  }
  return out;
}

class HardwareReader {
 public:
  HardwareReader(std::vector<Hardware> table, Diagnostics& diagnostics)
      : table_(std::move(table)), diagnostics_(diagnostics) {}

  std::vector<Hardware> read(const YamlNode& root) {
    if (!root.is_map()) {
      diagnostics_.error("E112", root.loc, "a file of hardware is a map of names")
          .help("write `H100: {network: {rate: 23e9}}`");
      return {};
    }
    for (const YamlNode& child : root.children) {
      add(child);
    }
    return std::move(table_);
  }

 private:
  void add(const YamlNode& node) {
    if (node.key.empty() || std::isalpha(static_cast<unsigned char>(node.key[0])) == 0) {
      diagnostics_.error(
          "E113", node.key_loc,
          fmt::format("`{}` cannot name hardware: a name begins with a letter", node.key));
      return;
    }
    Section own = hardware_section();
    own.path = node.key;
    const int before = diagnostics_.num_errors();
    values_ = Reader(diagnostics_).section(&node, own, node.key_loc);
    if (diagnostics_.num_errors() > before) {
      return;
    }
    const ConfigValue& like = field("like");
    const std::string base = like.is_null() ? node.key : like.string();
    const Hardware* known = find_hardware(table_, base);
    if (known == nullptr && !like.is_null()) {
      Diagnostic& d = diagnostics_.error("E113", like.loc,
                                         fmt::format("there is no hardware `{}` to be like", base));
      suggest(d, base, names_of(table_));
      return;
    }
    Hardware out = known == nullptr ? Hardware{} : *known;
    out.name = known != nullptr && like.is_null() ? known->name : node.key;
    fill(out);
    if (known == nullptr && !is_complete(out)) {
      diagnostics_
          .error("E113", node.key_loc,
                 fmt::format("`{}` needs `memory_rate`, `matmul` and, without `virtual: true`, the "
                             "rates of `link` and `network`",
                             node.key))
          .help(fmt::format("write `like: H100` to begin with a known one ({})",
                            join(names_of(table_), ", ")));
      return;
    }
    const Hardware* same = find_hardware(table_, out.name);
    same == nullptr ? table_.push_back(out)
                    : static_cast<void>(table_[static_cast<size_t>(same - table_.data())] = out);
  }

  static bool is_complete(const Hardware& hardware) {
    const bool multiplies = std::all_of(hardware.matmul.begin(), hardware.matmul.end(),
                                        [](double rate) { return rate > 0; });
    return multiplies && hardware.memory_rate > 0 &&
           (hardware.is_virtual || (hardware.link_rate > 0 && hardware.network_rate > 0));
  }

  ConfigValue& field(std::string_view name) { return values_.field(name); }
  ConfigValue& field(std::string_view section, std::string_view name) {
    return values_.field(section).field(name);
  }

  static void set(const ConfigValue& value, double& out) {
    out = value.is_null() ? out : value.number();
  }
  static void set(const ConfigValue& value, bool& out) {
    out = value.is_null() ? out : value.boolean();
  }
  // A call with a start was measured.
  void set(ConfigValue& calls, CallLines& out) {
    for (const std::string& name : call_names()) {
      ConfigValue& call = calls.field(name);
      if (const ConfigValue& start = call.field("start"); !start.is_null()) {
        CallLine line{start.number(), 0};
        set(call.field("rate"), line.rate);
        out[name] = line;
      } else if (const ConfigValue& rate = call.field("rate"); !rate.is_null()) {
        diagnostics_.error("E113", rate.loc, fmt::format("`{}` has a `rate`, but no `start`", name))
            .help("the seconds of a small call, as `meshtrain bench comm` measures them");
      }
    }
  }
  void set_bytes(const ConfigValue& value, int64_t& out) {
    if (value.is_null()) {
      return;
    }
    const std::optional<int64_t> bytes = parse_bytes(value.string());
    if (!bytes) {
      diagnostics_.error("E112", value.loc, fmt::format("`{}` is no size", value.string()))
          .help("write 80 GB or 94 GiB");
    }
    out = bytes.value_or(out);
  }
  // One number is that of all three.
  void set(const ConfigValue& value, std::array<double, 3>& out) {
    if (value.is_number()) {
      out.fill(value.number());
    } else if (!value.is_null()) {
      const ConfigValue::List& list = value.list();
      const bool fits = list.size() == out.size() &&
                        std::all_of(list.begin(), list.end(),
                                    [](const ConfigValue& entry) { return entry.is_number(); });
      if (!fits) {
        diagnostics_.error("E112", value.loc, "this takes one number or three")
            .help("three are those of NCCL's protocols LL, LL128 and Simple");
        return;
      }
      std::transform(list.begin(), list.end(), out.begin(),
                     [](const ConfigValue& entry) { return entry.number(); });
    }
  }

  void fill(Hardware& out) {
    set_bytes(field("memory"), out.memory);
    set(field("memory_rate"), out.memory_rate);
    set_bytes(field("cache"), out.cache_bytes);
    set(field("cache_rate"), out.cache_rate);
    for (size_t t = 0; t < kNumMatmulTypes; ++t) {
      const std::string_view name = matmul_type_name(static_cast<MatmulType>(t));
      set(field("peak", name), out.peak[t]);
      set(field("matmul", name), out.matmul[t]);
    }
    set(field("kernel"), out.kernel);
    const ConfigValue& per_host = field("per_host");
    out.per_host = per_host.is_null() ? out.per_host : per_host.integer();
    set(field("virtual"), out.is_virtual);
    set(field("link", "rate"), out.link_rate);
    set(field("link", "hop"), out.link_hop);
    set(field("link", "tree_hop"), out.link_tree_hop);
    set(field("switch", "rate"), out.switch_rate);
    set(field("switch", "start"), out.switch_start);
    set(field("network", "rate"), out.network_rate);
    set(field("network", "hop"), out.network_hop);
    set(field("network", "tree_hop"), out.network_tree_hop);
    set(field("network", "post"), out.network_post);
    set(field("link", "calls"), out.link_calls);
    set(field("network", "calls"), out.network_calls);
    set(field("start"), out.ring_start);
    set(field("tree_start"), out.tree_start);
    set(field("share"), out.share);
    set(field("ll_rate"), out.ll_rate);
    set(field("tree_share"), out.tree_share);
    set(field("jitter"), out.jitter);
  }

  std::vector<Hardware> table_;
  Diagnostics& diagnostics_;
  ConfigValue values_;  // of the entry in the making
};

}  // namespace

std::vector<Hardware> load_hardware(const Located<std::string>& path) {
  if (path->empty()) {
    return known_hardware();
  }
  Diagnostics diagnostics;
  const std::shared_ptr<const SourceFile> source = read_source(path.value, path.loc);
  const std::optional<YamlNode> root = parse_yaml(source, diagnostics);
  std::vector<Hardware> table =
      root ? HardwareReader(known_hardware(), diagnostics).read(*root) : known_hardware();
  diagnostics.throw_if_errors();
  return table;
}

const Hardware* requested_hardware(const DeviceRequest& request,
                                   const std::vector<Hardware>& table) {
  if (request.is_gpu) {
    return nullptr;
  }
  const std::string name = request.hardware.empty() ? "cpu" : request.hardware;
  const Hardware* found = find_hardware(table, name);
  if (found != nullptr) {
    return found;
  }
  const std::vector<std::string> names = names_of(table);
  Diagnostics diagnostics;
  Diagnostic& d = diagnostics.error(
      "E113", request.text.loc, fmt::format("`{}` names no known hardware", request.text.value));
  suggest(d, name, names);
  d.note(fmt::format("known: {}", join(names, ", ")));
  const std::string lower = to_lower(name);
  if (starts_with(lower, "mi") || starts_with(lower, "tpu") || starts_with(lower, "gaudi")) {
    d.note("meshtrain runs on CPUs and NVIDIA GPUs: nothing can run what such a plan says");
  }
  d.help("describe others in a YAML file and give it as `--hardware FILE`");
  throw ConfigError(std::move(diagnostics));
}

}  // namespace meshtrain
