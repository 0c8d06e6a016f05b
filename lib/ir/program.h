// Program: what every device executes in one step, decided down to the byte before the first kernel
// runs. lower_program (passes) creates it from a partitioned Graph; exec runs it.
//
// A value that is equal on several devices is stored and computed once per distinct shard. A buffer
// has `num_shards` shards, numbered by MeshPart::shard() over `axes` (the axes it is split or
// partial over). A real mesh would hold one shard on every device; `plan` reports that. Each
// process has a program for its own part of the mesh; the programs differ in nothing else.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"
#include "mesh/mesh_part.h"

namespace meshtrain {

struct Buffer {
  Shape shape;  // of one shard (local shape)
  Shape global_shape;
  DType dtype = DType::kFloat32;
  Sharding sharding;
  AxisMask axes = 0;        // sharding.used_axes()
  int64_t num_shards = 1;   // part.num_shards(axes)
  int64_t shard_bytes = 0;  // exact, no padding: shards over dimension 0 are one array
  int64_t offset = 0;       // of shard 0 in the arena, 64-byte aligned; shards follow one another
  int variable = kNone;     // lives in the variable store instead of the arena
  bool is_input = false;    // filled by the host before the step
  ValueId value = kNone;    // of the graph, for names in messages
};

// One kernel over all its shards. Operand and result indices are buffers. A collective may have
// several operands, each with its own result (a bucket: attrs `dims`, `to_dims` beside them). A
// "pin" step is a copy. Two buffers of one variable (its old and its new value) are one memory.
struct ProgramStep {
  const OpDef* op = nullptr;
  std::vector<int> inputs;
  std::vector<int> outputs;
  Attrs attrs;
  std::string path;
  Phase phase = Phase::kForward;
  AxisMask axes = 0;       // union of the axes of operands and results: shards to compute
  int fused = kNone;       // index in Program::fusions for op "fused"
  int row_fusion = kNone;  // neighbours with one number are one kernel: passes/row_fusion.h
};

// A chain of elementwise ops evaluated block by block in cache: the tape of one "fused" step.
struct FusedTape {
  struct Instruction {
    const OpDef* op;
    std::vector<int> args;  // < num_inputs: step operand; else num_inputs + earlier instruction
    Attrs attrs;
    DType dtype;  // of the result
  };
  int num_inputs = 0;
  std::vector<Instruction> instructions;
  std::vector<int> results;  // instruction indices, beside the step's outputs
};

struct Program {
  MeshPart part;  // of the mesh that this process has
  // Whether each shard is computed apart and terms are added in device order, so that the result
  // does not depend on how the mesh is split over processes. Otherwise the shards of a process are
  // computed together, and their terms added up first.
  bool fixed_reductions = false;
  std::vector<Variable> variables;
  std::vector<Buffer> buffers;
  std::vector<ProgramStep> prologue;  // constants: run once, when the program is made ready
  std::vector<ProgramStep> steps;
  std::vector<FusedTape> fusions;
  int64_t arena_bytes = 0;
  struct NamedBuffer {
    std::string name;
    int buffer;
  };
  std::vector<NamedBuffer> inputs;   // to be filled by the host
  std::vector<NamedBuffer> outputs;  // to be read by the host
};

}  // namespace meshtrain
