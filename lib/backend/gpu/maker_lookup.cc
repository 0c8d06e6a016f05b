// Rows looked up by ids, and the sums of rows by ids.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/maker.h"
#include "backend/gpu/preamble.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kIdBytes = 4;
constexpr int64_t kChunk = 2048;         // ids that a block of scatter_add_rows looks at together
constexpr int64_t kScatterBlocks = 528;  // each looks at all ids
constexpr int64_t kFewestColumns = 32;

uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// "for (U i...; i < total; ...) {": one element a thread and turn, where U counts up to `total`.
std::string element_loop(int64_t total, uint64_t blocks) {
  const Indices indices({{total}, {}});
  return fmt::format("for ({0} i = ({0})block * kThreads + threadIdx.x; i < {1}; i += {2}) {{\n",
                     indices.type(), indices.number(total),
                     indices.number(static_cast<int64_t>(blocks) * kThreads));
}

}  // namespace

void GpuMaker::gather_rows(const LookupShape& shape, const std::byte* table, const std::byte* ids,
                           std::byte* out) {
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
  std::string text = fmt::format(
      "const {0}* table = (const {0}*)arg[0];\n"
      "const int* ids = (const int*)arg[1];\n"
      "{0}* to = ({0}*)arg[2];\n",
      word_type(word));
  text += element_loop(total, launch.blocks);
  text += fmt::format(
      "long long id = ids[i / {0}u];\n"
      "id = (id < 0 ? 0 : id >= {1} ? {1} - 1 : id) - (long long)arg[3];\n"
      "{2} x = {{}};\n"
      "if (id >= 0 && id < {3}) x = table[id * {0} + i % {0}u];\n"
      "to[i] = x;\n"
      "}}\n",
      words, shape.global_rows, word_type(word), shape.rows);
  launch.body = make_body("gather_rows", std::move(text), 0, false);
  add(std::move(launch), std::vector<Use>{{table, shape.rows * row_bytes, false},
                                          {ids, shape.num_ids * kIdBytes, false},
                                          {out, shape.num_ids * row_bytes, true}});
}

// A block owns a range of rows and of columns. It looks through all ids in chunks, keeps those of
// its rows in order, and adds up in one go all updates of a chunk that have the same row: whoever
// is first in the chunk sums for all. Nobody else writes there, so that the order is that of the
// ids. The number of blocks is bounded, hence also the number of times that an id is looked at.
void GpuMaker::scatter_add_rows(const LookupShape& shape, const std::byte* updates,
                                const std::byte* ids, std::byte* out) {
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  const int64_t columns = shape.row_elements;
  if (shape.rows * columns == 0)
    return;
  const int64_t ranges = std::min(shape.rows, kScatterBlocks / 2);
  const int64_t range = (shape.rows + ranges - 1) / ranges;
  const int64_t most_strips = (columns + kFewestColumns - 1) / kFewestColumns;
  const int64_t strips = std::clamp<int64_t>(kScatterBlocks / ranges, 1, most_strips);
  const int64_t strip = (columns + strips - 1) / strips;
  Launch launch;
  launch.blocks =
      static_cast<uint64_t>((shape.rows + range - 1) / range * ((columns + strip - 1) / strip));
  launch.work = (shape.num_ids + shape.rows) * columns;
  launch.args = {address(updates), address(ids), address(out), static_cast<uint64_t>(shape.start)};
  // Sums are kept in the result between chunks: 16 bits would lose what 32 bits hold.
  const bool is_half = shape.dtype == DType::kFloat16 || shape.dtype == DType::kBFloat16;
  std::byte* sums = out;
  if (is_half && shape.num_ids > kChunk) {
    sums = scratch(shape.rows * columns * 4);
    launch.args.push_back(address(sums));
  }
  const bool has_sums = sums != out;
  std::string text = fmt::format(
      "typedef {0} T;\n"
      "typedef {1} S;\n"
      "const T* updates = (const T*)arg[0];\n"
      "const int* ids = (const int*)arg[1];\n"
      "T* out = (T*)arg[2];\n"
      "S* sums = (S*)arg[{2}];\n"
      "int* rows = (int*)shared;\n"                      // of the ids kept, from first_row on
      "int* places = rows + {3};\n"                      // of these ids
      "unsigned* firsts = (unsigned*)(places + {3});\n"  // the first of each row among them
      "unsigned* parts = firsts + {3};\n",
      type_name(shape.dtype), has_sums ? "float" : type_name(shape.dtype), has_sums ? 4 : 2,
      kChunk);
  text += fmt::format(
      "const long long first_row = (long long)(block / {0}u) * {1};\n"
      "const long long left_rows = {2} - first_row;\n"
      "const int num_rows = (int)(left_rows < {1} ? left_rows : {1});\n"
      "const unsigned first_column = block % {0}u * {3}u;\n"
      "const unsigned left_columns = {4}u - first_column;\n"
      "const unsigned num_columns = left_columns < {3}u ? left_columns : {3}u;\n"
      "for (unsigned i = threadIdx.x; i < num_rows * num_columns; i += kThreads)\n"
      "mt_store(sums + (first_row + i / num_columns) * {4} + first_column + i % num_columns, "
      "mt_compute<S>(0));\n",
      (columns + strip - 1) / strip, range, shape.rows, strip, columns);
  text += fmt::format(
      "for (int chunk = 0; chunk < {0}; chunk += {1}) {{\n"
      // The ids of a thread are neighbours, so that the kept ones stay in order.
      "const int begin = chunk + (int)threadIdx.x * {2};\n"
      "const int end = begin + {2} < {0} ? begin + {2} : {0};\n"
      "unsigned found = 0, all;\n"
      "for (int i = begin; i < end; ++i) {{\n"
      "const long long row = ids[i] - (long long)arg[3] - first_row;\n"
      "found += row >= 0 && row < num_rows;\n"
      "}}\n"
      "unsigned at = mt_block_scan(found, all, parts);\n"
      "if (all == 0) continue;\n"
      "for (int i = begin; i < end; ++i) {{\n"
      "const long long row = ids[i] - (long long)arg[3] - first_row;\n"
      "if (row >= 0 && row < num_rows) {{ rows[at] = (int)row; places[at] = i; ++at; }}\n"
      "}}\n"
      "__syncthreads();\n",
      shape.num_ids, kChunk, kChunk / kThreads);
  text += fmt::format(
      "const unsigned from = threadIdx.x * {0}u;\n"
      "const unsigned to = from + {0}u < all ? from + {0}u : all;\n"
      "unsigned is_first = 0, num_firsts;\n"  // a bit for each
      "for (unsigned i = from; i < to; ++i) {{\n"
      "unsigned other = 0;\n"
      "while (rows[other] != rows[i]) ++other;\n"
      "if (other == i) is_first |= 1u << (i - from);\n"
      "}}\n"
      "unsigned count = 0;\n"
      "for (unsigned i = from; i < to; ++i) count += is_first >> (i - from) & 1u;\n"
      "at = mt_block_scan(count, num_firsts, parts);\n"
      "for (unsigned i = from; i < to; ++i) if (is_first >> (i - from) & 1u) firsts[at++] = i;\n"
      "__syncthreads();\n"
      "for (unsigned k = threadIdx.x; k < num_firsts * num_columns; k += kThreads) {{\n"
      "const unsigned first = firsts[k / num_columns];\n"
      "const unsigned column = first_column + k % num_columns;\n"
      "const int row = rows[first];\n"
      "S* place = sums + (first_row + row) * {1} + column;\n"
      "mt_compute<S> sum = mt_load(place);\n"
      "for (unsigned i = first; i < all; ++i)\n"
      "if (rows[i] == row) sum = mt_add(sum, (mt_compute<S>)mt_load(updates + (long long)places[i] "
      "* "
      "{1} + column));\n"
      "mt_store(place, sum);\n"
      "}}\n"
      "__syncthreads();\n"
      "}}\n",
      kChunk / kThreads, columns);
  if (has_sums) {
    text += fmt::format(
        "__syncthreads();\n"
        "for (unsigned i = threadIdx.x; i < num_rows * num_columns; i += kThreads) {{\n"
        "const long long place = (first_row + i / num_columns) * {} + first_column + i % "
        "num_columns;\n"
        "mt_store(out + place, sums[place]);\n"
        "}}\n",
        columns);
  }
  const auto shared = static_cast<unsigned>((3 * kChunk + kThreads) * 4);
  launch.body = make_body("scatter_add_rows", std::move(text), shared, true);
  std::vector<Use> uses = {{updates, shape.num_ids * columns * item, false},
                           {ids, shape.num_ids * kIdBytes, false},
                           {out, shape.rows * columns * item, true}};
  if (has_sums)
    uses.push_back({sums, shape.rows * columns * 4, true});
  add(std::move(launch), uses);
}

void GpuMaker::one_hot(const LookupShape& shape, const std::byte* ids, std::byte* out) {
  const int64_t total = shape.num_ids * shape.rows;
  if (total == 0)
    return;
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  int pack = largest_pack(item);
  while (shape.rows % pack != 0 || !is_aligned(out, pack * item))
    pack /= 2;
  Launch launch;
  launch.blocks = blocks_for(total, pack);
  launch.work = total;
  launch.args = {address(ids), address(out), static_cast<uint64_t>(shape.start)};
  std::string text = fmt::format("const int* ids = (const int*)arg[0];\n{0}* to = ({0}*)arg[1];\n",
                                 type_name(shape.dtype));
  text += element_loop(total / pack, launch.blocks);
  text += fmt::format(
      "const long long id = (long long)ids[i / {0}u] - (long long)arg[2];\n"
      "const long long first = (long long)(i % {0}u) * {1};\n"
      "mt_pack<{2}, {1}> x;\n"
      "#pragma unroll\n"
      "for (int e = 0; e < {1}; ++e) x.v[e] = mt_put<{2}>(({3})(id == first + e ? 1 : 0));\n"
      "*(mt_pack<{2}, {1}>*)(to + i * {1}u) = x;\n"
      "}}\n",
      shape.rows / pack, pack, type_name(shape.dtype), compute_type(shape.dtype));
  launch.body = make_body("one_hot", std::move(text), 0, false);
  add(std::move(launch),
      std::vector<Use>{{ids, shape.num_ids * kIdBytes, false}, {out, total * item, true}});
}

}  // namespace meshtrain::gpu
