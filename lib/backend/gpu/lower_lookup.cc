// Rows looked up by ids, and the sums of rows by ids.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr int64_t kIdBytes = 4;
constexpr int64_t kChunk = 2048;         // ids that a block of scatter_add_rows looks at together
constexpr int64_t kScatterBlocks = 528;  // each looks at all ids
constexpr int64_t kFewestColumns = 32;
constexpr int kReadAhead = 8;

// "for (U i...; i < total; ...) {": one element a thread and turn.
std::string element_loop(int64_t total, uint64_t blocks) {
  const int64_t step = static_cast<int64_t>(blocks) * kThreads;
  return index_types(total + step) +
         fmt::format("for (U i = (U)block * kThreads + threadIdx.x; i < {}u; i += {}u) {{\n", total,
                     step);
}

// A block owns a range of rows and of columns. It looks through all ids in chunks, keeps those of
// its rows in order, and adds up in one go all updates of a chunk that have the same row: whoever
// is first in the chunk sums for all. Nobody else writes there, so that the order is that of the
// ids. The number of blocks is bounded, hence also the number of times that an id is looked at.
class ScatterText {
 public:
  static constexpr unsigned kShared = (3 * kChunk + kThreads) * 4;

  explicit ScatterText(const LookupShape& shape)
      : shape_(shape),
        range_(parts(shape.rows, std::min(shape.rows, kScatterBlocks / 2))),
        strip_(parts(shape.row_elements,
                     std::clamp<int64_t>(kScatterBlocks / parts(shape.rows, range_), 1,
                                         parts(shape.row_elements, kFewestColumns)))) {}

  uint64_t blocks() const {
    return static_cast<uint64_t>(parts(shape_.rows, range_) * parts(shape_.row_elements, strip_));
  }
  // Sums are kept in the result between chunks; 16 bits would lose what 32 bits hold.
  bool has_sums() const { return dtype_size(shape_.dtype) == 2 && shape_.num_ids > kChunk; }

  std::string text() const {
    std::string text = declarations() + zeros();
    text +=
        fmt::format("for (int chunk = 0; chunk < {}; chunk += {}) {{\n", shape_.num_ids, kChunk);
    text += keep() + find_firsts() + add_up() + "__syncthreads();\n}\n";
    return has_sums() ? text + store_sums() : text;
  }

 private:
  static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

  // rows: of the ids kept, from first_row on; places: of these ids; firsts: the first of each row
  // among them.
  std::string declarations() const {
    std::string text = fmt::format(
        "typedef {0} T;\n"
        "typedef {1} S;\n"
        "const T* updates = (const T*)arg[0];\n"
        "const int* ids = (const int*)arg[1];\n"
        "S* sums = (S*)arg[{2}];\n"
        "int* rows = (int*)shared;\n"
        "int* places = rows + {3};\n"
        "unsigned* firsts = (unsigned*)(places + {3});\n"
        "unsigned* parts = firsts + {3};\n",
        type_name(shape_.dtype), has_sums() ? "float" : type_name(shape_.dtype), has_sums() ? 4 : 3,
        kChunk);
    return text + fmt::format(
                      "const long long first_row = (long long)(block / {0}u) * {1};\n"
                      "const long long left_rows = {2} - first_row;\n"
                      "const int num_rows = (int)(left_rows < {1} ? left_rows : {1});\n"
                      "const unsigned first_column = block % {0}u * {3}u;\n"
                      "const unsigned left_columns = {4}u - first_column;\n"
                      "const unsigned num_columns = left_columns < {3}u ? left_columns : {3}u;\n",
                      parts(shape_.row_elements, strip_), range_, shape_.rows, strip_,
                      shape_.row_elements);
  }

  // A loop over the block's part of the result.
  std::string own_elements() const {
    return fmt::format(
        "for (unsigned i = threadIdx.x; i < num_rows * num_columns; i += kThreads) {{\n"
        "const long long own = (first_row + i / num_columns) * {} + first_column + i % "
        "num_columns;\n",
        shape_.row_elements);
  }
  std::string zeros() const {
    return own_elements() + "mt::store(sums + own, mt::Compute<S>(0));\n}\n";
  }
  std::string store_sums() const {
    return own_elements() + "mt::store((T*)arg[3] + own, sums[own]);\n}\n";
  }

  // The ids of a thread are neighbours, so that those kept are in order.
  std::string keep() const {
    return fmt::format(
        "const int begin = chunk + (int)threadIdx.x * {0};\n"
        "const int end = begin + {0} < {1} ? begin + {0} : {1};\n"
        "unsigned found = 0, all;\n"
        "for (int i = begin; i < end; ++i) {{\n"
        "const long long row = ids[i] - (long long)arg[2] - first_row;\n"
        "found += row >= 0 && row < num_rows;\n"
        "}}\n"
        "unsigned at = mt::block_scan(found, all, parts);\n"
        "if (all == 0) continue;\n"
        "for (int i = begin; i < end; ++i) {{\n"
        "const long long row = ids[i] - (long long)arg[2] - first_row;\n"
        "if (row >= 0 && row < num_rows) {{ rows[at] = (int)row; places[at] = i; ++at; }}\n"
        "}}\n"
        "__syncthreads();\n",
        kChunk / kThreads, shape_.num_ids);
  }

  static std::string find_firsts() {
    return fmt::format(
        "const unsigned from = threadIdx.x * {0}u;\n"
        "const unsigned to = from + {0}u < all ? from + {0}u : all;\n"
        "unsigned is_first = 0, count = 0, num_firsts;\n"
        "for (unsigned i = from; i < to; ++i) {{\n"
        "unsigned other = 0;\n"
        "while (rows[other] != rows[i]) ++other;\n"
        "if (other == i) {{ is_first |= 1u << (i - from); ++count; }}\n"
        "}}\n"
        "at = mt::block_scan(count, num_firsts, parts);\n"
        "for (unsigned i = from; i < to; ++i) if (is_first >> (i - from) & 1u) firsts[at++] = i;\n"
        "__syncthreads();\n",
        kChunk / kThreads);
  }

  // Several updates are read before the first is added: memory answers late.
  std::string add_up() const {
    return fmt::format(
        "for (unsigned k = threadIdx.x; k < num_firsts * num_columns; k += kThreads) {{\n"
        "const unsigned first = firsts[k / num_columns];\n"
        "const unsigned column = first_column + k % num_columns;\n"
        "const int row = rows[first];\n"
        "S* place = sums + (first_row + row) * {0} + column;\n"
        "mt::Compute<S> sum = mt::load(place);\n"
        "for (unsigned i = first; i < all; i += {1}u) {{\n"
        "mt::Compute<T> x[{1}];\n"
        "bool is_own[{1}];\n"
        "#pragma unroll\n"
        "for (int e = 0; e < {1}; ++e) {{\n"
        "is_own[e] = i + e < all && rows[i + e] == row;\n"
        "x[e] = is_own[e] ? mt::load(updates + (long long)places[i + e] * {0} + column) : "
        "mt::Compute<T>(0);\n"
        "}}\n"
        "#pragma unroll\n"
        "for (int e = 0; e < {1}; ++e) if (is_own[e]) sum = mt::add(sum, (mt::Compute<S>)x[e]);\n"
        "}}\n"
        "mt::store(place, sum);\n"
        "}}\n",
        shape_.row_elements, kReadAhead);
  }

  const LookupShape& shape_;
  int64_t range_, strip_;  // rows and columns of a block
};

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

void GpuLowering::make(const ScatterAddRowsSpec& spec) {
  const auto& [shape, updates, ids, out] = spec;
  const auto item = static_cast<int64_t>(dtype_size(shape.dtype));
  if (shape.rows * shape.row_elements == 0)
    return;
  const ScatterText scatter(shape);
  const int64_t out_bytes = shape.rows * shape.row_elements * item;
  Launch launch;
  launch.blocks = scatter.blocks();
  launch.work = (shape.num_ids + shape.rows) * shape.row_elements;
  launch.args = {address(updates), address(ids), static_cast<uint64_t>(shape.start), address(out)};
  std::vector<Use> uses = {{updates, shape.num_ids * shape.row_elements * item, false},
                           {ids, shape.num_ids * kIdBytes, false},
                           {out, out_bytes, true}};
  if (scatter.has_sums()) {
    std::byte* sums = scratch(2 * out_bytes);
    launch.args.push_back(address(sums));
    uses.push_back({sums, 2 * out_bytes, true});
  }
  launch.body = make_body("scatter_add_rows", scatter.text(), ScatterText::kShared, true);
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
  std::string text = fmt::format("const int* ids = (const int*)arg[0];\n{0}* to = ({0}*)arg[1];\n",
                                 type_name(shape.dtype));
  text += element_loop(total / pack, launch.blocks);  // U holds all packs, not all elements
  text += fmt::format(
      "const long long id = (long long)ids[i / {0}u] - (long long)arg[2];\n"
      "const long long first = (long long)(i % {0}u) * {1};\n"
      "mt::Pack<{2}, {1}> x;\n"
      "#pragma unroll\n"
      "for (int e = 0; e < {1}; ++e) x.v[e] = mt::put<{2}>(({3})(id == first + e ? 1 : 0));\n"
      "*(mt::Pack<{2}, {1}>*)(to + (unsigned long long)i * {1}u) = x;\n"
      "}}\n",
      shape.rows / pack, pack, type_name(shape.dtype), compute_type(shape.dtype));
  launch.body = make_body("one_hot", std::move(text), 0, false);
  add(std::move(launch),
      std::vector<Use>{{ids, shape.num_ids * kIdBytes, false}, {out, total * item, true}});
}

}  // namespace meshtrain::gpu
