#include "passes/lower.h"

#include <algorithm>

#include "passes/fuse.h"
#include "passes/memory.h"

namespace meshtrain {
namespace {

class Lowering {
 public:
  Lowering(const Graph& graph, const MeshPart& part)
      : graph_(graph),
        groups_(fuse_groups(graph)),
        buffer_of_(graph.values.size(), kNone),
        place_(graph.values.size(), kNone) {
    program_.part = part;
    program_.buffers.reserve(graph.values.size());
    program_.steps.reserve(graph.nodes.size());
    program_.variables = graph.variables;
  }

  Program run() {
    find_group_ends();
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      lower_node(n);
    }
    for (const Output& output : graph_.outputs) {
      program_.outputs.push_back({output.name, buffer(output.value)});
    }
    place_updates();
    plan_memory(program_);
    return std::move(program_);
  }

 private:
  const Value& value(ValueId v) const { return graph_.values[v]; }

  int add_buffer(ValueId v) {
    const Value& val = value(v);
    Buffer b;
    b.global_shape = val.shape;
    b.shape = local_shape(val.shape, *val.sharding, program_.part.mesh());
    b.dtype = val.dtype;
    b.sharding = *val.sharding;
    b.axes = val.sharding->used_axes();
    b.num_shards = program_.part.num_shards(b.axes);
    b.shard_bytes = num_elements(b.shape) * static_cast<int64_t>(dtype_size(b.dtype));
    b.value = v;
    program_.buffers.push_back(std::move(b));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  int buffer(ValueId v) {
    if (buffer_of_[v] == kNone) {
      buffer_of_[v] = add_buffer(v);
    }
    return buffer_of_[v];
  }

  void find_group_ends() {
    for (NodeId n = 0; n < static_cast<NodeId>(groups_.size()); ++n) {
      if (groups_[n] != kNone) {
        members_.resize(std::max(members_.size(), static_cast<size_t>(groups_[n]) + 1));
        members_[groups_[n]].push_back(n);
      }
    }
  }

  void lower_node(NodeId n) {
    const Node& node = graph_.nodes[n];
    const OpKind op = node.op->kind;
    if (op == OpKind::kParameter) {
      program_.buffers[buffer(node.outputs[0])].variable =
          static_cast<int>(node.attr_int("variable"));
    } else if (op == OpKind::kInput) {
      program_.buffers[buffer(node.outputs[0])].is_input = true;
      program_.inputs.push_back({node.attr_string("name"), buffer(node.outputs[0])});
    } else if (op == OpKind::kPin || node.op->is_layout_boundary) {
      buffer_of_[node.outputs[0]] = buffer(node.inputs[0]);  // same bytes under another name
    } else if (groups_[n] == kNone) {
      emit(node);
    } else if (n == members_[groups_[n]].back()) {
      emit_fused(members_[groups_[n]]);
    }
  }

  void emit(const Node& node) {
    ProgramStep step = begin(node);
    for (const ValueId input : node.inputs) {
      step.inputs.push_back(buffer(input));
    }
    for (const ValueId output : node.outputs) {
      step.outputs.push_back(buffer(output));
    }
    finish(std::move(step), node.inputs.empty());
  }

  static ProgramStep begin(const Node& node) {
    ProgramStep step;
    step.op = node.op;
    step.attrs = node.attrs;
    step.path = node.path;
    step.phase = node.phase;
    return step;
  }

  void finish(ProgramStep step, bool once) {
    for (const std::vector<int>* list : {&step.inputs, &step.outputs}) {
      for (const int b : *list) {
        step.axes |= program_.buffers[b].axes;
      }
    }
    (once ? program_.prologue : program_.steps).push_back(std::move(step));
  }

  // A group becomes one step with a tape. Operands are read once; scalar constants are
  // instructions.
  void emit_fused(const std::vector<NodeId>& members) {
    const Node& last = graph_.nodes[members.back()];
    ProgramStep step = begin(last);
    step.attrs.clear();
    FusedTape tape;
    const std::vector<ValueId> operands = operands_of(members);
    for (const ValueId v : operands) {
      step.inputs.push_back(buffer(v));
    }
    tape.num_inputs = static_cast<int>(operands.size());
    std::vector<ValueId> placed = operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      place_[operands[i]] = static_cast<int>(i);
    }
    const auto record = [&](const Node& node) {
      FusedTape::Instruction instruction{node.op, {}, node.attrs, value(node.outputs[0]).dtype};
      instruction.args.reserve(node.inputs.size());
      for (const ValueId input : node.inputs) {
        instruction.args.push_back(place_[input]);
      }
      place_[node.outputs[0]] = tape.num_inputs + static_cast<int>(tape.instructions.size());
      placed.push_back(node.outputs[0]);
      tape.instructions.push_back(std::move(instruction));
    };
    for (const NodeId n : members) {
      for (const ValueId input : graph_.nodes[n].inputs) {
        if (is_scalar_constant(graph_, input) && place_[input] == kNone) {
          record(graph_.producer(input));
        }
      }
      record(graph_.nodes[n]);
      const ValueId result = graph_.nodes[n].outputs[0];
      if (is_read_outside(result, members)) {
        tape.results.push_back(place_[result] - tape.num_inputs);
        step.outputs.push_back(buffer(result));
      }
    }
    for (const ValueId v : placed) {
      place_[v] = kNone;
    }
    step.fused = static_cast<int>(program_.fusions.size());
    program_.fusions.push_back(std::move(tape));
    finish(std::move(step), false);
  }

  std::vector<ValueId> operands_of(const std::vector<NodeId>& members) const {
    std::vector<ValueId> out;
    for (const NodeId n : members) {
      for (const ValueId input : graph_.nodes[n].inputs) {
        const bool inside = groups_[value(input).producer] == groups_[members[0]];
        if (!inside && !is_scalar_constant(graph_, input) &&
            std::find(out.begin(), out.end(), input) == out.end()) {
          out.push_back(input);
        }
      }
    }
    return out;
  }

  // Whether anything but the group's own nodes reads the result of one of them.
  bool is_read_outside(ValueId v, const std::vector<NodeId>& members) {
    if (reader_group_.empty()) {
      find_reader_groups();
    }
    return reader_group_[v] != kNobody && reader_group_[v] != groups_[members[0]];
  }

  void find_reader_groups() {
    reader_group_.assign(graph_.values.size(), kNobody);
    const auto add = [&](ValueId v, int group) {
      const bool same = reader_group_[v] == kNobody || reader_group_[v] == group;
      reader_group_[v] = same ? group : kNone;
    };
    for (NodeId n = 0; n < static_cast<NodeId>(graph_.nodes.size()); ++n) {
      for (const ValueId input : graph_.nodes[n].inputs) {
        add(input, groups_[n]);
      }
    }
    for (const Output& output : graph_.outputs) {
      add(output.value, kNone);
    }
    for (const Update& update : graph_.updates) {
      add(update.value, kNone);
    }
  }

  // New values of variables: in place where the old one is not read afterwards, else copied at the
  // end.
  void place_updates() {
    // The buffer of each variable that is read.
    std::vector<int> old_buffer(program_.variables.size(), kNone);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (program_.buffers[b].variable != kNone) {
        old_buffer[program_.buffers[b].variable] = static_cast<int>(b);
      }
    }
    find_accesses();
    for (const Update& update : graph_.updates) {
      const int fresh = buffer(update.value);
      const int old_id = old_buffer[update.variable];
      if (fresh == old_id) {
        continue;
      }
      if (can_write_in_place(fresh, old_id)) {
        program_.buffers[fresh].variable = update.variable;
      } else {
        copy_to_variable(update, fresh);
      }
    }
  }

  // The step that writes each buffer and the last one that reads it.
  void find_accesses() {
    writer_.assign(program_.buffers.size(), kNone);
    last_read_.assign(program_.buffers.size(), kNone);
    for (int s = 0; s < static_cast<int>(program_.steps.size()); ++s) {
      for (const int b : program_.steps[s].outputs) {
        writer_[b] = s;
      }
      for (const int b : program_.steps[s].inputs) {
        last_read_[b] = s;
      }
    }
  }

  bool can_write_in_place(int fresh, int old_id) const {
    const Buffer& buffer = program_.buffers[fresh];
    const bool is_output =
        std::any_of(program_.outputs.begin(), program_.outputs.end(),
                    [&](const Program::NamedBuffer& o) { return o.buffer == fresh; });
    if (buffer.variable != kNone || buffer.is_input || is_output) {
      return false;
    }
    const int written = writer_[fresh];
    if (written == kNone) {
      return false;  // made by the prologue
    }
    const int last_read = old_id == kNone ? kNone : last_read_[old_id];
    return last_read < written ||
           (last_read == written && may_overwrite_operand(program_.steps[written]));
  }

  void copy_to_variable(const Update& update, int fresh) {
    const int target = add_buffer(update.value);
    program_.buffers[target].variable = update.variable;
    ProgramStep step;
    step.op = &find_op("pin");
    step.inputs = {fresh};
    step.outputs = {target};
    step.path = program_.variables[update.variable].path + "/copy";
    step.phase = Phase::kUpdate;
    finish(std::move(step), false);
  }

  const Graph& graph_;
  Program program_;
  std::vector<int> groups_;
  std::vector<int> buffer_of_;
  std::vector<std::vector<NodeId>> members_;  // of each group
  std::vector<int> writer_, last_read_;       // steps, beside the buffers
  std::vector<int> place_;                    // of values on the tape of the group in the making
  // The group that all readers of a value are in; kNone: several, or a reader outside of groups.
  static constexpr int kNobody = -2;
  std::vector<int> reader_group_;
};

}  // namespace

Program lower_program(const Graph& graph, const MeshPart& part) {
  return Lowering(graph, part).run();
}

}  // namespace meshtrain
