// The parts of the report that show plan.json: mesh, layouts, memory, traffic.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "record/report/html.h"
#include "record/report/sections.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxDrawn = 256;  // devices

struct PlanAxis {
  std::string name;
  int64_t size = 1;
};

struct Plan {
  Json json;
  std::vector<PlanAxis> axes;
  int64_t devices = 1;

  bool empty() const { return json.empty(); }
};

// plan.json is our own, yet a file that anybody may have changed: a part of another form is no
// part.
Plan read_plan(const RunRecord& record) {
  Plan out{.json = parse_json<Json>(record.plan)};
  if (!out.json.is_object()) {
    out.json = Json();
    return out;
  }
  try {
    for (const Json& axis : out.json.at("mesh").at("axes")) {
      out.axes.push_back({axis.at("name").get<std::string>(), axis.at("size").get<int64_t>()});
    }
    out.devices = out.json.at("mesh").at("devices").get<int64_t>();
  } catch (const Json::exception&) {
    out.json = Json();
  }
  return out;
}

// Runs `draw` on the plan; a plan of another form gives nothing.
template <class Draw>
std::string with_plan(const RunRecord& record, const Draw& draw) {
  const Plan plan = read_plan(record);
  if (plan.empty()) {
    return "";
  }
  try {
    return draw(plan);
  } catch (const Json::exception&) {
    return "";
  }
}

std::vector<int64_t> coordinates(int64_t device, const std::vector<PlanAxis>& axes) {
  std::vector<int64_t> out(axes.size());
  for (size_t a = axes.size(); a-- > 0;) {
    out[a] = device % axes[a].size;
    device /= axes[a].size;
  }
  return out;
}

// Devices with the same colour get the same part of the batch.
std::string cell(const Plan& plan, int64_t device, const std::vector<std::string>& batch_axes) {
  int64_t shard = 0, shards = 1;
  const std::vector<int64_t> at = coordinates(device, plan.axes);
  for (size_t a = 0; a < plan.axes.size(); ++a) {
    if (std::find(batch_axes.begin(), batch_axes.end(), plan.axes[a].name) != batch_axes.end()) {
      shard = shard * plan.axes[a].size + at[a];
      shards *= plan.axes[a].size;
    }
  }
  const auto hue = (210 + 360 * shard / shards) % 360;
  return fmt::format(
      R"html(<td style="background: hsl({} 70% 50% / 0.22)" title="device {}: batch part {} of {}">{}</td>)html",
      hue, device, shard + 1, shards, device);
}

// The last two axes are rows and columns; each place on the others is a grid of its own.
std::string device_grids(const Plan& plan, const std::vector<std::string>& batch_axes) {
  const size_t rank = plan.axes.size();
  const PlanAxis columns = rank > 0 ? plan.axes[rank - 1] : PlanAxis{};
  const PlanAxis rows = rank > 1 ? plan.axes[rank - 2] : PlanAxis{};
  std::string out;
  for (int64_t first = 0; first < plan.devices; first += rows.size * columns.size) {
    const std::vector<int64_t> at = coordinates(first, plan.axes);
    std::string where;
    for (size_t a = 0; a + 2 < rank; ++a) {
      where += fmt::format("{} {} ", html_text(plan.axes[a].name), at[a]);
    }
    out += where.empty() ? "" : fmt::format("<p class=\"note\">{}</p>", where);
    out += "<div class=\"wide\"><table class=\"devices\">";
    if (rank > 0) {
      out += "<tr>" + std::string(rank > 1 ? "<th></th>" : "");
      for (int64_t c = 0; c < columns.size; ++c) {
        out += fmt::format("<th>{} {}</th>", html_text(columns.name), c);
      }
      out += "</tr>";
    }
    for (int64_t r = 0; r < rows.size; ++r) {
      out += "<tr>" + (rank > 1 ? fmt::format("<th>{} {}</th>", html_text(rows.name), r) : "");
      for (int64_t c = 0; c < columns.size; ++c) {
        out += cell(plan, first + r * columns.size + c, batch_axes);
      }
      out += "</tr>";
    }
    out += "</table></div>";
  }
  return out;
}

std::string shape_text(const Json& shape) {
  std::vector<std::string> parts;
  for (const Json& size : shape) {
    parts.push_back(size.is_null() ? "batch" : std::to_string(size.get<int64_t>()));
  }
  return parts.empty() ? "scalar" : join(parts, " \xc3\x97 ");
}

// "[data, null]", or "replicated"
std::string layout_text(const Json& layout) {
  std::vector<std::string> parts;
  bool sharded = false;
  for (const Json& axes : layout) {
    sharded = sharded || !axes.is_null();
    if (axes.is_array()) {
      parts.push_back("[" + join(axes.get<std::vector<std::string>>(), ", ") + "]");
    } else {
      parts.push_back(axes.is_null() ? "null" : axes.get<std::string>());
    }
  }
  return sharded ? "[" + join(parts, ", ") + "]" : "replicated";
}

std::string code(const std::string& text) {
  return "<code>" + html_text(text) + "</code>";
}

std::string rule_text(const Json& rule) {
  return rule.is_null() ? "\xe2\x80\x93"
                        : code(rule.at("key").get<std::string>()) + " " +
                              html_text(rule.at("line").get<std::string>());
}

std::string causes_text(const Json& causes) {
  std::vector<std::string> out;
  for (const Json& cause : causes) {
    out.push_back(html_text(cause.at("kind").get<std::string>()) + " " +
                  code(cause.at("name").get<std::string>()) + " " +
                  html_text(cause.at("line").get<std::string>()));
  }
  return join(out, "<br>");
}

}  // namespace

std::string mesh_section(const RunRecord& record) {
  return with_plan(record, [](const Plan& plan) {
    const Json& batch = plan.json.at("batch");
    std::vector<std::string> axes;
    for (const PlanAxis& axis : plan.axes) {
      axes.push_back(fmt::format("{}={}", axis.name, axis.size));
    }
    const auto names = batch.at("axes").get<std::string>();  // "data, fsdp"
    std::vector<std::string> batch_axes;
    for (const std::string& name : split(names, ',')) {
      batch_axes.emplace_back(trim(name));
    }
    std::string out =
        fmt::format("<p>{} on {}. A batch of {} is {} on each of {} parts{}.</p>",
                    html_text(axes.empty() ? "one device" : join(axes, " \xc3\x97 ")),
                    html_text(plan.json.at("mesh").at("kind").get<std::string>()),
                    batch.at("global").get<int64_t>(), batch.at("per_shard").get<int64_t>(),
                    batch.at("shards").get<int64_t>(),
                    names.empty() ? "" : " along <code>" + html_text(names) + "</code>");
    if (plan.devices <= kMaxDrawn) {
      out += device_grids(plan, batch_axes);
      out += "<p class=\"note\">Devices of one colour get the same part of each batch.</p>";
    }
    return section("Mesh", out);
  });
}

std::string memory_section(const RunRecord& record) {
  return with_plan(record, [](const Plan& plan) {
    const Json& memory = plan.json.at("memory");
    const auto total = std::max<int64_t>(memory.at("total").get<int64_t>(), 1);
    std::string bar, legend;
    int color = 0;
    for (const auto& [key, label] :
         {std::pair("weights", "weights"), std::pair("optimizer", "optimizer state"),
          std::pair("step_arena", "gradients and activations, at most")}) {
      const auto bytes = memory.at(key).get<int64_t>();
      bar += fmt::format(R"(<i class="series-{}" style="width: {:.2f}%" title="{}: {}"></i>)",
                         color, 100.0 * static_cast<double>(bytes) / static_cast<double>(total),
                         label, format_bytes(bytes));
      legend += fmt::format(
          R"(<span class="key series-{}"><i></i>{} <data value="{}"><b>{}</b></data></span>)",
          color, label, bytes, format_bytes(bytes));
      ++color;
    }
    return section(
        fmt::format("Memory of each device: {}", format_bytes(total)),
        fmt::format("<div class=\"bar\">{}</div><div class=\"legend\">{}</div>", bar, legend));
  });
}

std::string layout_section(const RunRecord& record) {
  return with_plan(record, [](const Plan& plan) {
    std::vector<std::vector<std::string>> rows = {
        {"variable", "dtype", "layout", "rule", "shape", "on each device", "bytes"}};
    for (const Json& variable : plan.json.at("variables")) {
      rows.push_back({code(variable.at("path").get<std::string>()),
                      html_text(variable.at("dtype").get<std::string>()),
                      code(layout_text(variable.at("layouts").at("storage"))),
                      rule_text(variable.at("rule")), shape_text(variable.at("shape")),
                      shape_text(variable.at("local_shape")),
                      format_bytes(variable.at("bytes_per_device").get<int64_t>())});
    }
    std::string out = rows.size() > 1 ? html_table(rows, 4) : "<p>The model has no weights.</p>";
    rows = {{"activation", "layout", "rule", "shape"}};
    for (const Json& output : plan.json.at("outputs")) {
      rows.push_back({code(output.at("key").get<std::string>()),
                      code(layout_text(output.at("layout"))), rule_text(output.at("rule")),
                      shape_text(output.at("shape"))});
    }
    out += rows.size() > 1 ? "<p></p>" + html_table(rows, 3) : "";
    return section("Layouts", out);
  });
}

std::string traffic_section(const RunRecord& record) {
  return with_plan(record, [](const Plan& plan) {
    std::vector<std::vector<std::string>> rows = {{"phase", "collective", "over", "of",
                                                   "because of", "tensors", "bytes",
                                                   "sent by a device"}};
    int64_t sent = 0;
    for (const Json& collective : plan.json.at("collectives")) {
      sent += collective.at("bytes_sent").get<int64_t>();
      rows.push_back({html_text(collective.at("phase").get<std::string>()),
                      html_text(collective.at("kind").get<std::string>()),
                      html_text(join(collective.at("axes").get<std::vector<std::string>>(), ", ")),
                      html_text(join(collective.at("of").get<std::vector<std::string>>(), ", ")),
                      causes_text(collective.at("causes")),
                      std::to_string(collective.at("tensors").get<int64_t>()),
                      format_bytes(collective.at("bytes").get<int64_t>()),
                      format_bytes(collective.at("bytes_sent").get<int64_t>())});
    }
    return rows.size() == 1 ? section("Traffic", "<p>No collective in a step.</p>")
                            : section(fmt::format("Traffic: {} sent by each device in a step",
                                                  format_bytes(sent)),
                                      html_table(rows, 5));
  });
}

}  // namespace meshtrain
