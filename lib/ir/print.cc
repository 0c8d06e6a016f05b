// The text form of a Graph; parse.cc reads it. A line for each variable, node, output and update:
//
//   variable "d1/kernel": f32[6,4] weight trainable storage [data, null] compute [null, null]
//   variable "sgd/velocity": f32[6,4] slot follows 0
//   %0: f32[8,6] = input() {batch=1, dtype="float32", name="x", shape=[8,6]} @input forward
//   %3: f32[8,4] = einsum(%0, %2) {equation="bi,io->bo"} @d1/einsum forward [data, null]
//   %9: f32[8,4] = mul(%7, %8) @d1/relu/grad/mul backward [data, null] from "batch" d(%3)
//   %4: f32[2,1], %5: i32[2,1] = top_k(%3) {k=1} @top_k forward [data, null] ; [data, null]
//   output "loss" = %6
//   update 0 = %19
//
// After the phase, for each result (separated by " ;"): its sharding, where that came from, and the
// value whose gradient it is. Shardings are left out when the mesh has no axes.
#include <cmath>

#include "base/text.h"
#include "ir/graph.h"
#include "ir/name_list.h"
#include "ir/op.h"
#include "ir/text_form.h"

namespace meshtrain {
namespace {

class Printer {
 public:
  Printer(const Graph& graph, const DeviceMesh& mesh) : graph_(graph), mesh_(mesh) {}

  std::string print() {
    for (const Variable& variable : graph_.variables) {
      print_variable(variable);
    }
    for (const Node& node : graph_.nodes) {
      print_node(node);
    }
    for (const Output& output : graph_.outputs) {
      add("output {} = %{}\n", in_quotes(output.name), output.value);
    }
    for (const Update& update : graph_.updates) {
      add("update {} = %{}\n", update.variable, update.value);
    }
    return std::move(out_);
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  static std::string type(const Shape& shape, DType dtype) {
    return fmt::format("{}[{}]", short_dtype(dtype), fmt::join(shape, ","));
  }

  void print_variable(const Variable& variable) {
    add("variable {}: {} {}", in_quotes(variable.path), type(variable.shape, variable.dtype),
        role_name(variable.role));
    if (variable.trainable) {
      add(" trainable");
    }
    if (variable.follows != kNone) {
      add(" follows {}", variable.follows);
    }
    for (const auto& [name, member] : kLayouts) {
      const Sharding& sharding = variable.layout.*member;
      if (mesh_.num_axes() > 0 && sharding.dims.size() == variable.shape.size()) {
        add(" {} {}", name, sharding_string(sharding, mesh_));
      }
    }
    add("\n");
  }

  static std::string shown(const std::string& text) {
    return text.find(kNameSeparator) == std::string::npos ? text : join(split_names(text), ", ");
  }

  void print_attr(const AttrValue& value) {
    if (const auto* integer = std::get_if<int64_t>(&value)) {
      add("{}", *integer);
    } else if (const auto* number = std::get_if<double>(&value)) {
      const std::string text = format_shortest(*number);
      const bool looks_integer = text.find_first_not_of("-0123456789") == std::string::npos;
      add("{}{}", text, looks_integer ? ".0" : "");
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      add("{}", in_quotes(shown(*text)));
    } else {
      add("[{}]", fmt::join(std::get<std::vector<int64_t>>(value), ","));
    }
  }

  void print_node(const Node& node) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Value& value = graph_.values[node.outputs[i]];
      add("{}%{}: {}", i == 0 ? "" : ", ", node.outputs[i], type(value.shape, value.dtype));
    }
    add(" = {}(", node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      add("{}%{}", i == 0 ? "" : ", ", node.inputs[i]);
    }
    add(")");
    const char* separator = " {";
    for (const auto& [name, value] : node.attrs) {
      add("{}{}=", separator, name);
      print_attr(value);
      separator = ", ";
    }
    add("{} @{} {}", node.attrs.empty() ? "" : "}",
        is_plain_path(node.path) ? node.path : in_quotes(node.path), phase_name(node.phase));
    print_results(node);
    add("\n");
  }

  void print_results(const Node& node) {
    std::string line;
    size_t written = 0;  // up to the last result with something to say
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      line += i == 0 ? "" : " ;";
      const size_t before = line.size();
      const Value& value = graph_.values[node.outputs[i]];
      if (value.sharding && mesh_.num_axes() > 0) {
        line += " " + sharding_string(*value.sharding, mesh_);
      }
      if (!value.sharding_origin.empty()) {
        line += " from " + in_quotes(shown(value.sharding_origin));
      }
      if (value.cotangent_of != kNone) {
        line += fmt::format(" d(%{})", value.cotangent_of);
      }
      written = line.size() > before ? line.size() : written;
    }
    out_ += line.substr(0, written);
  }

  const Graph& graph_;
  const DeviceMesh& mesh_;
  std::string out_;
};

}  // namespace

std::string print(const Graph& graph, const DeviceMesh& mesh) {
  return Printer(graph, mesh).print();
}

}  // namespace meshtrain
