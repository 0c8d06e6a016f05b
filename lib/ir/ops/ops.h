// The op families, one file each. A new family is one file here, its declaration below and its line
// in the table of op.cc.
//
// Rules for every op:
//   - Attributes that are global shapes (`shape`, `num_rows`, `num_classes`) exist for shape
//     inference only: a shard is computed from the shapes of its operands and results and, for the
//     few ops that need it, from where the shard starts in the global tensor.
//   - Ops whose shards need that start: iota, random_bits, dropout, gather_rows, scatter_add_rows,
//     one_hot, attention, attention_grad, linear_cross_entropy_parts(_grad). Everything else runs
//     on a shard as it does on a whole tensor.
#pragma once

#include <vector>

#include "ir/op.h"

namespace meshtrain {

std::vector<OpDef> source_ops();                // sources.cc
std::vector<OpDef> elementwise_ops();           // elementwise.cc
std::vector<OpDef> shape_ops();                 // shape_ops.cc
std::vector<OpDef> reduce_ops();                // reduce.cc
std::vector<OpDef> einsum_ops();                // einsum.cc
std::vector<OpDef> gather_ops();                // gather.cc
std::vector<OpDef> conv_ops();                  // conv.cc
std::vector<OpDef> pool_ops();                  // pool.cc
std::vector<OpDef> moments_ops();               // moments.cc
std::vector<OpDef> warp_ops();                  // warp.cc
std::vector<OpDef> dropout_ops();               // dropout.cc
std::vector<OpDef> attention_ops();             // attention.cc
std::vector<OpDef> linear_cross_entropy_ops();  // linear_cross_entropy.cc
std::vector<OpDef> rnn_ops();                   // rnn.cc
std::vector<OpDef> optimizer_ops();             // optimizer.cc
std::vector<OpDef> collective_ops();            // collectives.cc

}  // namespace meshtrain
