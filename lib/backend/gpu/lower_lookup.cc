// Rows looked up by ids, and the sums of rows by ids.
#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kIdBytes = 4;
constexpr int64_t kScatterBlocks = 528;  // at most; each looks at all ids
constexpr int64_t kFewestColumns = 32;
// As in device/lookup.cuh.
constexpr int64_t kChunk = 2048;
constexpr unsigned kScatterShared = (3 * kChunk + kThreads) * 4;

int64_t parts_of(int64_t whole, int64_t part) {
  return (whole + part - 1) / part;
}

// Of a loop over so many elements, one a thread and turn.
std::string element_index(int64_t total, int64_t step) {
  return index_type(total + step);
}

}  // namespace

void GpuLowering::make(const GatherRowsSpec& spec) {
  const auto& [shape, table, ids, out] = spec;
  const int64_t row_bytes = shape.row_elements * static_cast<int64_t>(dtype_size(shape.dtype));
  if (shape.num_ids * row_bytes == 0)
    return;
  const int64_t word = common_word({static_cast<int64_t>(address(table) % 16),
                                    static_cast<int64_t>(address(out) % 16), row_bytes});
  const int64_t words = row_bytes / word, total = shape.num_ids * words;
  Launch launch;
  launch.blocks = blocks_for(total, 1);
  launch.work = 2 * shape.num_ids * shape.row_elements;
  launch.args = {address(table), address(ids), address(out), static_cast<uint64_t>(shape.start)};
  const int64_t step = static_cast<int64_t>(launch.blocks) * kThreads;
  launch.body = make_body("gather_rows",
                          call_text("gather_rows",
                                    {struct_text("Gathering", {{"total", total},
                                                               {"step", step},
                                                               {"words", words},
                                                               {"rows", shape.rows},
                                                               {"global_rows", shape.global_rows}}),
                                     element_index(total, step), word_type(word)},
                                    false),
                          0, false, "lookup");
  add(std::move(launch), std::vector<Use>{{table, shape.rows * row_bytes, false},
                                          {ids, shape.num_ids * kIdBytes, false},
                                          {out, shape.num_ids * row_bytes, true}});
}

void GpuLowering::make(const ScatterAddRowsSpec& spec) {
  const auto& [shape, updates, ids, out] = spec;
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  if (shape.rows * shape.row_elements == 0)
    return;
  // Narrow strips first: ids of texts are not spread evenly, and all of a range are one block's.
  const int64_t strips = std::min(parts_of(shape.row_elements, kFewestColumns), kScatterBlocks);
  const int64_t strip = parts_of(shape.row_elements, strips);
  const int64_t range = parts_of(shape.rows, std::min(shape.rows, kScatterBlocks / strips));
  const int64_t ranges = parts_of(shape.rows, range);
  // Sums are kept in the result between chunks; 16 bits would lose what 32 bits hold.
  const bool has_sums = dtype_size(shape.dtype) == 2 && shape.num_ids > kChunk;
  const int64_t out_bytes = shape.rows * shape.row_elements * item;
  Launch launch;
  launch.blocks = static_cast<uint64_t>(ranges * parts_of(shape.row_elements, strip));
  launch.work = (shape.num_ids + shape.rows) * shape.row_elements;
  launch.args = {address(updates), address(ids), static_cast<uint64_t>(shape.start), address(out)};
  std::vector<Use> uses = {{updates, shape.num_ids * shape.row_elements * item, false},
                           {ids, shape.num_ids * kIdBytes, false},
                           {out, out_bytes, true}};
  if (has_sums) {
    std::byte* sums = scratch(2 * out_bytes);
    launch.args.push_back(address(sums));
    uses.push_back({sums, 2 * out_bytes, true});
  }
  launch.body =
      make_body("scatter_add_rows",
                call_text("scatter_add_rows",
                          {struct_text("Scattering", {{"num_ids", shape.num_ids},
                                                      {"rows", shape.rows},
                                                      {"columns", shape.row_elements},
                                                      {"range", range},
                                                      {"strip", strip}}),
                           std::string(type_name(shape.dtype)), has_sums ? "true" : "false"},
                          true),
                kScatterShared, true, "lookup");
  add(std::move(launch), uses);
}

void GpuLowering::make(const OneHotSpec& spec) {
  const auto& [shape, ids, out] = spec;
  const int64_t total = shape.num_ids * shape.rows;
  if (total == 0)
    return;
  if (row_calls_) {
    add_row_one_hot(spec);
    return;
  }
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  int pack = largest_pack(item);
  while (shape.rows % pack != 0 || !is_aligned(out, pack * item))
    pack /= 2;
  Launch launch;
  launch.blocks = blocks_for(total, pack);
  launch.work = total;
  launch.args = {address(ids), address(out), static_cast<uint64_t>(shape.start)};
  const int64_t accesses = total / pack, step = static_cast<int64_t>(launch.blocks) * kThreads;
  launch.body =
      make_body("one_hot",
                call_text("one_hot",
                          {std::to_string(accesses), std::to_string(step),
                           std::to_string(shape.rows), std::to_string(pack),
                           element_index(accesses, step), std::string(type_name(shape.dtype))},
                          false),
                0, false, "lookup");
  add(std::move(launch),
      std::vector<Use>{{ids, shape.num_ids * kIdBytes, false}, {out, total * item, true}});
}

}  // namespace meshtrain::gpu
