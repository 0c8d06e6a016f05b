#include "config/mesh_axes.h"

#include <algorithm>

#include "base/text.h"
#include "config/path.h"
#include "config/scalars.h"
#include "config/source.h"

namespace meshtrain {
namespace {

bool is_override(const SourceLoc& loc) {
  return loc.file != nullptr && loc.file->name == "command line";
}

// The sizes in `2x4` or [2, 4]; 0 where the text is an expression or names the axes.
size_t count_axes(const YamlNode& shape) {
  if (!shape.is_scalar())
    return shape.children.size();
  if (shape.text.empty() || shape.text.find_first_of("=$") != std::string::npos)
    return 0;
  return static_cast<size_t>(std::count(shape.text.begin(), shape.text.end(), 'x')) + 1;
}

// Names that a run's resolved config has by default.
bool are_default_names(const YamlNode& names) {
  if (!may_be_default(names.loc) || !names.is_list() || names.children.empty() ||
      names.children.size() > 2)
    return false;
  return names.children[0].text == "batch" &&
         (names.children.size() == 1 || names.children[1].text == "model");
}

}  // namespace

void drop_default_axis_names(YamlNode& root) {
  YamlNode* distribution = root.find("distribution");
  YamlNode* mesh = distribution == nullptr ? nullptr : distribution->find("device_mesh");
  const YamlNode* shape = mesh == nullptr ? nullptr : mesh->find("shape");
  const YamlNode* names = mesh == nullptr ? nullptr : mesh->find("axis_names");
  if (shape == nullptr || names == nullptr || !is_override(shape->loc) ||
      !are_default_names(*names))
    return;
  const size_t axes = count_axes(*shape);
  if (axes != 0 && axes != names->children.size())
    mesh->erase("axis_names");
}

void split_mesh_shape(YamlNode& root, Diagnostics& diagnostics) {
  YamlNode* distribution = root.find("distribution");
  YamlNode* mesh = distribution == nullptr ? nullptr : distribution->find("device_mesh");
  YamlNode* shape = mesh == nullptr ? nullptr : mesh->find("shape");
  if (shape == nullptr || !shape->is_scalar() || starts_with(shape->text, "=") ||
      shape->text.find('=') == std::string::npos) {
    return;
  }
  const SourceLoc loc = shape->loc;
  YamlNode sizes{.kind = YamlNode::Kind::kList, .loc = loc};
  YamlNode names{.kind = YamlNode::Kind::kList, .loc = loc};
  SourceLoc part_loc = loc;
  part_loc.column += shape->quoted ? 1 : 0;
  for (const std::string& part : split(shape->text, ',')) {
    const size_t equals = part.find('=');
    const std::string name(trim(part.substr(0, equals)));
    const std::string size(equals == std::string::npos ? "" : trim(part.substr(equals + 1)));
    part_loc.length = std::max(1, static_cast<int>(part.size()));
    if (name.empty() || !try_integer(size)) {
      diagnostics
          .error("E112", loc,
                 equals == std::string::npos ? fmt::format("`{}` has no size", part)
                                             : fmt::format("`{}` is no axis and size", part))
          .help("write 4x2 or data=4,model=2");
      shape->failed = true;
      return;
    }
    names.children.push_back(YamlNode::scalar(name, part_loc));
    sizes.children.push_back(YamlNode::scalar(size, part_loc));
    part_loc.column += static_cast<int>(part.size()) + 1;
  }
  sizes.key = shape->key;
  sizes.key_loc = shape->key_loc;
  *shape = std::move(sizes);
  YamlNode& axis_names = mesh->at_or_add("axis_names", loc);
  if (is_override(axis_names.loc) && !is_override(loc)) {
    return;  // the file names them here, the command line elsewhere
  }
  names.key = "axis_names";
  names.key_loc = axis_names.key_loc;
  axis_names = std::move(names);
}

namespace {

const YamlNode* find_mesh(const YamlNode& root, const char* key) {
  return find_path(root, {"distribution", "device_mesh", key});
}

}  // namespace

DefaultBatchAxes default_batch_axes(const YamlNode& root) {
  DefaultBatchAxes out;
  const YamlNode* batch = find_path(root, {"distribution", "batch_dim_name"});
  const YamlNode* names = find_mesh(root, "axis_names");
  const YamlNode* shape = find_mesh(root, "shape");
  if (batch != nullptr && !batch->is_null()) {
    return out;
  }
  if (shape != nullptr && shape->is_scalar() && shape->text.find('=') != std::string::npos) {
    out.is_named = true;
    for (const std::string& part : split(shape->text, ',')) {
      const std::string_view name = trim(std::string_view(part).substr(0, part.find('=')));
      out.names.push_back(YamlNode::scalar(std::string(name), shape->loc));
    }
  } else if (names != nullptr && !names->is_null()) {
    out.is_named = true;
    out.names = names->is_list() ? names->children : std::vector<YamlNode>{*names};
  } else {
    out.names.push_back(YamlNode::scalar("batch", {}));
  }
  const bool is_known = std::all_of(out.names.begin(), out.names.end(), [](const YamlNode& name) {
    return name.is_scalar() && name.text.find_first_of("=$") == std::string::npos;
  });
  return is_known ? out : DefaultBatchAxes{};
}

void keep_batch_axis(YamlNode& root, const DefaultBatchAxes& in_files, Diagnostics& diagnostics) {
  const DefaultBatchAxes now = default_batch_axes(root);
  if (in_files.names.empty() || now.names.empty() || !now.is_named ||
      now.names[0].text == in_files.names[0].text) {
    return;
  }
  const YamlNode& axis = in_files.names[0];
  const bool is_there = std::any_of(now.names.begin(), now.names.end(),
                                    [&](const YamlNode& name) { return name.text == axis.text; });
  if (is_there) {
    const SourceLoc place = axis.loc ? axis.loc : now.names[0].loc;
    YamlNode& distribution = root.at_or_add("distribution", place);
    YamlNode kept = YamlNode::scalar(axis.text, place, true);
    kept.key = "batch_dim_name";
    kept.key_loc = place;
    distribution.at_or_add("batch_dim_name", place) = std::move(kept);
  } else if (in_files.is_named) {
    diagnostics
        .warning("W211", now.names[0].loc,
                 fmt::format("this mesh has no axis `{}`, over which the config splits the batch",
                             axis.text))
        .with_label(fmt::format("`{}` splits it now", now.names[0].text))
        .help(fmt::format("keep the name `{}`, or choose with distribution.batch_dim_name=NAME",
                          axis.text));
  }
}

}  // namespace meshtrain
