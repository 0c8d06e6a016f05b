#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <span>
#include <sstream>
#include <unordered_map>

#include "base/text.h"
#include "config/scalars.h"
#include "config/yaml_places.h"

namespace meshtrain {

const YamlNode* YamlNode::find(std::string_view name) const {
  const auto it = std::find_if(children.begin(), children.end(),
                               [&](const YamlNode& child) { return child.key == name; });
  return is_map() && it != children.end() ? &*it : nullptr;
}

YamlNode* YamlNode::find(std::string_view name) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->find(name));
}

bool YamlNode::erase(std::string_view name) {
  const YamlNode* found = find(name);
  if (found == nullptr) {
    return false;
  }
  children.erase(children.begin() + (found - children.data()));
  return true;
}

YamlNode& YamlNode::at_or_add(std::string_view name, const SourceLoc& at) {
  if (YamlNode* found = find(name)) {
    return *found;
  }
  if (!is_map()) {
    *this = YamlNode{.kind = Kind::kMap, .loc = at, .key = key, .key_loc = key_loc};
  }
  children.push_back(YamlNode{.loc = at, .key = std::string(name), .key_loc = at});
  return children.back();
}

YamlNode YamlNode::scalar(std::string text, const SourceLoc& loc, bool quoted) {
  return YamlNode{.kind = Kind::kScalar, .quoted = quoted, .text = std::move(text), .loc = loc};
}

namespace {

// Ends the parse after a problem that leaves nothing to read; it is in the diagnostics.
struct GiveUp {};

// A node as the events give it. Aliases stay references until the whole document is known, so that
// nothing is copied before the copies have been counted.
struct RawNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap, kAlias } kind = Kind::kNull;
  bool quoted = false;
  bool explicit_null = false;
  std::string text;  // of a scalar
  SourceLoc loc;
  size_t target = 0;             // of an alias: index of the node
  std::vector<size_t> children;  // of a map: key, value, key, value, ...
};

class Builder : public YAML::EventHandler {
 public:
  Builder(const YamlPlaces& places, Diagnostics& diagnostics)
      : places_(places), diagnostics_(diagnostics) {}

  std::vector<RawNode>& nodes() { return nodes_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    SourceLoc loc = places_.scalar(mark.line, mark.column, false);
    const std::string_view text = places_.text_at(loc);
    const bool is_written = !text.empty() && (text[0] == '~' || text[0] == 'n' || text[0] == 'N');
    if (!is_written) {
      loc = previous_;
    }
    RawNode& node = add(RawNode::Kind::kNull, loc, anchor);
    node.explicit_null = is_written;
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const bool quoted = tag == "!";
    check_tag(mark, tag);
    const SourceLoc loc = places_.scalar(mark.line, mark.column, quoted);
    // yaml-cpp 0.7 takes the rest of the file as the text when the closing quote is missing.
    if (quoted && !places_.quote_is_closed(loc)) {
      diagnostics_
          .error("E104", loc,
                 fmt::format("quote opened at {}:{} is not closed", loc.line, loc.column))
          .with_label("opened here");
      throw GiveUp();
    }
    RawNode& node = add(RawNode::Kind::kScalar, loc, anchor);
    node.text = value;
    node.quoted = quoted;
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const SourceLoc loc = places_.alias(mark.line, mark.column);
    const size_t target = anchors_.at(anchor);
    if (std::find(open_.begin(), open_.end(), target) != open_.end()) {
      diagnostics_.error("E107", loc,
                         fmt::format("alias `{}` contains itself", places_.text_at(loc).substr(1)));
      throw GiveUp();
    }
    add(RawNode::Kind::kAlias, loc, 0).target = target;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(RawNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(RawNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  RawNode& add(RawNode::Kind kind, const SourceLoc& loc, YAML::anchor_t anchor) {
    if (nodes_.size() >= static_cast<size_t>(kMaxYamlNodes)) {
      diagnostics_.error("E102", loc,
                         fmt::format("configuration has more than {} values (data belongs in data "
                                     "files)",
                                     kMaxYamlNodes));
      throw GiveUp();
    }
    const size_t index = nodes_.size();
    nodes_.push_back(RawNode{.kind = kind, .loc = loc});
    if (!open_.empty()) {
      nodes_[open_.back()].children.push_back(index);
    }
    if (anchor != 0) {
      anchors_[anchor] = index;
    }
    previous_ = loc;
    return nodes_.back();
  }

  void open(RawNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    check_tag(mark, tag);
    const SourceLoc loc = places_.collection(mark.line, mark.column);
    if (open_.size() >= static_cast<size_t>(kMaxYamlDepth)) {
      diagnostics_.error(
          "E106", loc,
          fmt::format("nested deeper than {} at {}:{}", kMaxYamlDepth, loc.line, loc.column));
      throw GiveUp();
    }
    add(kind, loc, anchor);
    open_.push_back(nodes_.size() - 1);
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") {
      return;
    }
    const SourceLoc loc = places_.alias(mark.line, mark.column);
    diagnostics_
        .error("E110", loc, fmt::format("tags are not allowed; found `{}`", places_.text_at(loc)))
        .help("write the value alone; its type follows from its key");
  }

  const YamlPlaces& places_;
  Diagnostics& diagnostics_;
  std::vector<RawNode> nodes_;
  std::vector<size_t> open_;                  // containers not yet ended, outermost first
  std::map<YAML::anchor_t, size_t> anchors_;  // to nodes_
  SourceLoc previous_;                        // of the last value: where a missing one is shown
};

// Turns raw nodes into the final tree: aliases are copied (counted), merge keys are applied,
// repeated keys are refused.
class Expander {
 public:
  Expander(const std::vector<RawNode>& nodes, Diagnostics& diagnostics)
      : nodes_(nodes), diagnostics_(diagnostics) {}

  YamlNode expand(size_t index, int depth, const SourceLoc& alias) {
    const RawNode& raw = nodes_[index];
    if (raw.kind == RawNode::Kind::kAlias) {
      return expand(raw.target, depth, raw.loc);
    }
    if (alias && (++num_copied_ > kMaxYamlNodes || depth > kMaxYamlDepth)) {
      diagnostics_.error("E107", alias,
                         depth > kMaxYamlDepth
                             ? fmt::format("aliases expand to more than {} levels", kMaxYamlDepth)
                             : fmt::format("aliases expand to more than {} nodes", kMaxYamlNodes));
      throw GiveUp();
    }
    YamlNode node;
    node.loc = raw.loc;
    node.alias_loc = alias;
    switch (raw.kind) {
      case RawNode::Kind::kScalar:
        node.kind = YamlNode::Kind::kScalar;
        node.text = raw.text;
        node.quoted = raw.quoted;
        break;
      case RawNode::Kind::kList:
        node.kind = YamlNode::Kind::kList;
        node.children.reserve(raw.children.size());
        for (size_t i = 0; i < raw.children.size(); ++i) {
          const std::span parts = std::span(raw.children).subspan(i);
          const size_t count = tuple_size(parts);
          node.children.push_back(count > 0 ? refused_tuple(parts.first(count))
                                            : expand(raw.children[i], depth + 1, alias));
          i += count > 0 ? count - 1 : 0;
        }
        break;
      case RawNode::Kind::kMap:
        node.kind = YamlNode::Kind::kMap;
        expand_map(raw, depth, alias, node);
        break;
      default:
        node.explicit_null = raw.explicit_null;
    }
    return node;
  }

 private:
  void expand_map(const RawNode& raw, int depth, const SourceLoc& alias, YamlNode& node) {
    std::unordered_map<std::string, size_t> seen;  // key -> position; looked up only
    std::vector<YamlNode> merges;
    node.children.reserve(raw.children.size() / 2);
    for (size_t i = 0; i + 1 < raw.children.size(); i += 2) {
      const YamlNode key = expand(raw.children[i], depth + 1, alias);
      if (!key.is_scalar()) {
        diagnostics_.error("E104", key.loc, "a key must be text");
        continue;
      }
      const std::vector<size_t> parts = lone_keys_from(raw, i + 1);
      const size_t count = tuple_size(parts);
      YamlNode value = count > 0 ? refused_tuple(std::span(parts).first(count))
                                 : expand(raw.children[i + 1], depth + 1, alias);
      i += count > 0 ? 2 * (count - 1) : 0;
      value.key = key.text;
      value.key_loc = key.loc;
      const auto [it, is_new] = seen.emplace(key.text, node.children.size());
      if (!is_new) {
        report_repeated(key, first_place(node, merges, it->second, key.text));
      } else if (key.is_plain("<<")) {
        merges.push_back(std::move(value));
      } else {
        node.children.push_back(std::move(value));
      }
    }
    for (const YamlNode& merge : merges) {
      apply_merge(merge, seen, node);
    }
  }

  // Python's "(28, 28, 1)" within brackets comes in parts: `(28`, `28` and `1)`. How many from the
  // first are one tuple; 0 when they are none.
  size_t tuple_size(std::span<const size_t> parts) const {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
      const RawNode& part = nodes_[parts[i]];
      if (part.kind != RawNode::Kind::kScalar || part.quoted ||
          starts_with(part.text, "(") != (i == 0)) {
        return 0;
      }
      text += (i == 0 ? "" : ",") + part.text;
      if (ends_with(part.text, ")")) {
        return i > 0 && list_of_tuple(text) ? i + 1 : 0;
      }
    }
    return 0;
  }

  // A value of the map `raw` and, where it may begin a tuple, the keys without a value after it.
  std::vector<size_t> lone_keys_from(const RawNode& raw, size_t value) const {
    std::vector<size_t> out = {raw.children[value]};
    if (!starts_with(nodes_[out[0]].text, "(")) {
      return out;
    }
    for (size_t i = value + 1; i + 1 < raw.children.size(); i += 2) {
      const RawNode& after = nodes_[raw.children[i + 1]];
      if (after.kind != RawNode::Kind::kNull || after.explicit_null) {
        break;
      }
      out.push_back(raw.children[i]);
    }
    return out;
  }

  YamlNode refused_tuple(std::span<const size_t> parts) {
    std::vector<std::string> texts;
    for (const size_t part : parts) {
      texts.push_back(nodes_[part].text);
    }
    const std::string text = join(texts, ", ");
    SourceLoc loc = nodes_[parts.front()].loc;
    const SourceLoc& last = nodes_[parts.back()].loc;
    loc.length = last.line == loc.line ? last.column + last.length - loc.column : loc.length;
    diagnostics_.error("E112", loc, fmt::format("`{}` is no list", text))
        .with_label("write " + *list_of_tuple(text));
    return YamlNode{.kind = YamlNode::Kind::kScalar, .failed = true, .loc = loc};
  }

  static SourceLoc first_place(const YamlNode& node, const std::vector<YamlNode>& merges,
                               size_t position, const std::string& key) {
    return key == "<<" && !merges.empty() ? merges[0].key_loc : node.children[position].key_loc;
  }

  void report_repeated(const YamlNode& key, const SourceLoc& first) {
    diagnostics_
        .error(
            "E109", key.loc,
            fmt::format("key `{}` is repeated; first at {}:{}", key.text, first.line, first.column))
        .help("keep one of the two");
  }

  // `<<: *base` or `<<: [*a, *b]`: keys that the map has itself win, then the earlier in the list.
  void apply_merge(const YamlNode& merge, std::unordered_map<std::string, size_t>& seen,
                   YamlNode& node) {
    const bool is_list = merge.is_list();
    const size_t count = is_list ? merge.children.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      const YamlNode& source = is_list ? merge.children[i] : merge;
      if (!source.is_map()) {
        diagnostics_.error("E112", source.loc, "the merge key `<<` needs a map or a list of maps")
            .help("write `<<: *name` with the anchor `&name` at a map");
        continue;
      }
      for (const YamlNode& child : source.children) {
        if (seen.emplace(child.key, node.children.size()).second) {
          node.children.push_back(child);
        }
      }
    }
  }

  const std::vector<RawNode>& nodes_;
  Diagnostics& diagnostics_;
  int num_copied_ = 0;
};

// Refuses what follows the first document.
void check_end(YAML::Parser& parser, const YamlPlaces& places, Diagnostics& diagnostics) {
  struct FirstEvent : YAML::EventHandler {
    YAML::Mark mark;
    void OnDocumentStart(const YAML::Mark& m) override {
      mark = m;
      throw *this;
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
    void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
    void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  const std::string&) override {}
    void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                         YAML::EmitterStyle::value) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                    YAML::EmitterStyle::value) override {}
    void OnMapEnd() override {}
  } handler;
  try {
    parser.HandleNextDocument(handler);
  } catch (const FirstEvent& event) {
    const SourceLoc loc = places.scalar(event.mark.line, event.mark.column, false);
    if (places.starts_document(loc)) {
      diagnostics
          .error("E105", loc,
                 fmt::format("second document at {}:{}; one per file", loc.line, loc.column))
          .help("put it in a file of its own; files given together are merged");
    } else {
      diagnostics.error("E104", loc, "this belongs to nothing above")
          .with_label("indentation, or a list beside a map?");
    }
    throw GiveUp();
  }
}

std::optional<YamlNode> parse(const YamlPlaces& places, const std::string& text,
                              Diagnostics& diagnostics) {
  if (!places.check_indentation(diagnostics) || !places.check_brackets(diagnostics)) {
    return std::nullopt;
  }
  std::istringstream stream(text);
  try {
    Builder builder(places, diagnostics);
    try {
      YAML::Parser parser(stream);
      if (!parser.HandleNextDocument(builder)) {
        return YamlNode{};
      }
      check_end(parser, places, diagnostics);
    } catch (const YAML::Exception& e) {
      places.report_syntax_error(e.mark.line, e.mark.column, e.msg, diagnostics);
      return std::nullopt;
    }
    return Expander(builder.nodes(), diagnostics).expand(0, 1, {});
  } catch (const GiveUp&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<YamlNode> parse_yaml(const std::shared_ptr<const SourceFile>& source,
                                   Diagnostics& diagnostics) {
  return parse(YamlPlaces(source, source->text, 1, 1), source->text, diagnostics);
}

std::optional<YamlNode> parse_yaml_at(std::string_view text, const SourceLoc& at,
                                      Diagnostics& diagnostics) {
  const std::string copy(text);
  return parse(YamlPlaces(at.file, copy, at.line, at.column), copy, diagnostics);
}

}  // namespace meshtrain
