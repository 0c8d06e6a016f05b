// Kernels over rows: their text, what they write, and which calls are none.
#include <fmt/format.h>

#include <set>

#include "backend/gpu/lowering.h"
#include "backend/gpu/merge_launches.h"
#include "support/golden.h"

namespace meshtrain::test {
namespace {

using gpu::Command;
using gpu::GpuLowering;
using gpu::Launch;

constexpr DType kF32 = DType::kFloat32;

// Arrays of `rows` x `columns` and of one number a row, on memory that nobody follows.
class Rows {
 public:
  Rows(int64_t rows, int64_t columns, DType dtype = kF32)
      : rows_(rows),
        columns_(columns),
        dtype_(dtype),
        lowering_([this](int64_t bytes) { return take(bytes); }) {
    lowering_.lower(StepSpec{"layer/first"});
    lowering_.lower(BeginRowFusion{});
  }

  View whole() { return view({rows_, columns_}); }
  View of_rows() { return view({rows_, 1}); }
  GpuLowering& lowering() { return lowering_; }

  View reduce(Reduction reduction, const View& x) {
    const View out = of_rows();
    lowering_.lower(ReduceSpec{reduction, x, {false, true}, out});
    return out;
  }
  // On whole arrays.
  View tape(std::vector<View> operands, const std::vector<TapeInstruction>& tape) {
    const View out = whole();
    for (View& operand : operands) {
      for (size_t d = 0; d < 2; ++d)
        operand.strides[d] = operand.shape[d] == 1 ? 0 : operand.strides[d];
    }
    lowering_.lower(
        TapeSpec{out.shape, operands, tape, {{static_cast<int>(tape.size()) - 1, out}}});
    return out;
  }
  std::vector<Command> end(const std::vector<View>& read_later) {
    std::vector<const std::byte*> places;
    for (const View& view : read_later)
      places.push_back(view.data);
    lowering_.lower(EndRowFusion{places});
    return lowering_.take();
  }

 private:
  std::byte* take(int64_t bytes) {
    next_ += 256;
    std::byte* const out = next_;
    next_ += bytes / 256 * 256 + 256;
    return out;
  }
  View view(Shape shape) {
    const int64_t bytes = num_elements(shape) * static_cast<int64_t>(dtype_size(dtype_));
    return contiguous_view(take(bytes), dtype_, std::move(shape));
  }

  int64_t rows_, columns_;
  DType dtype_;
  std::byte* next_ = reinterpret_cast<std::byte*>(uint64_t{0x7f0000000000});
  GpuLowering lowering_;
};

std::vector<Command> softmax(Rows& rows) {
  const View x = rows.whole();
  const View largest = rows.reduce(Reduction::kMax, x);
  const View e = rows.tape({x, largest}, {{"sub", {0, 1}, x.dtype}, {"exp", {2}, x.dtype}});
  const View sum = rows.reduce(Reduction::kSum, e);
  return rows.end({rows.tape({e, sum}, {{"div", {0, 1}, x.dtype}})});
}

const Launch& launch_of(const Command& command) {
  return std::get<Launch>(command.what);
}

std::string text_of(std::string_view what, const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands) {
    const Launch& launch = launch_of(command);
    out += fmt::format(
        "// {}: {} blocks, {} arguments, {} bytes of shared memory{}\n{} {{\n{}}}\n\n", what,
        launch.blocks, launch.args.size(), launch.body->shared_bytes,
        launch.body->has_barriers ? ", barriers" : "", launch.body->name, launch.body->text);
  }
  return out;
}

TEST_CASE("a softmax has this text") {
  Rows many(8192, 768, DType::kBFloat16), long_rows(1024, 50257);
  check_golden("gpu/row_fusion.txt", text_of("8192 rows of 768 bfloat16", softmax(many)) +
                                         text_of("1024 rows of 50257 float32", softmax(long_rows)));
}

TEST_CASE("what only the rows themselves read is not written") {
  Rows rows(512, 100);
  const std::vector<Command> commands = softmax(rows);
  REQUIRE(commands.size() == 1);
  CHECK(commands[0].path == "layer/first");
  const std::vector<Access>& accesses = commands[0].accesses;
  REQUIRE(accesses.size() == 2);
  CHECK(!accesses[0].is_write);
  CHECK(accesses[1].is_write);
  for (const Access& access : accesses)
    CHECK(access.end - access.begin == 512 * 100 * 4);
}

TEST_CASE("what is small enough for a chain of tiny kernels stays so") {
  Rows small(40, 100), large(1024, 100);
  const std::vector<Command> commands = softmax(small);
  CHECK(launch_of(commands[0]).blocks <= gpu::kTinyBlocks);
  CHECK(launch_of(commands[0]).work <= gpu::kTinyWork);
  CHECK(launch_of(softmax(large)[0]).blocks > gpu::kTinyBlocks);
}

// Calls that are no kernel over rows are those that they would be by themselves.
void check_apart(Rows& rows, const std::vector<View>& read_later, size_t commands) {
  const std::vector<Command> made = rows.end(read_later);
  CHECK(made.size() == commands);
  for (const Command& command : made)
    CHECK(launch_of(command).body->name.rfind("rows_", 0) == std::string::npos);
}

TEST_CASE("reductions over other dimensions or other shapes are apart") {
  Rows rows(512, 100);
  const View x = rows.whole(), sum = rows.of_rows();
  rows.lowering().lower(ReduceSpec{Reduction::kSum, x, {true, false}, rows.of_rows()});
  rows.lowering().lower(ReduceSpec{Reduction::kSum, x, {false, true}, sum});
  check_apart(rows, {sum}, 3);  // two of them for the columns
}

TEST_CASE("rows of which a value is read in another order are apart") {
  Rows rows(100, 100);
  const View x = rows.whole();
  const View e = rows.tape({x}, {{"exp", {0}, kF32}});
  View turned = e;
  std::swap(turned.strides[0], turned.strides[1]);
  const View sum = rows.reduce(Reduction::kSum, e);
  const View out = rows.tape({turned, sum}, {{"div", {0, 1}, kF32}});
  check_apart(rows, {out}, 3);
}

TEST_CASE("rows whose result lies elsewhere over an operand are apart") {
  Rows rows(512, 100);
  const View x = rows.whole();
  View sum = rows.of_rows();
  sum.data = x.data + 400;  // in rows that other blocks read
  rows.lowering().lower(ReduceSpec{Reduction::kSum, x, {false, true}, sum});
  const View y = rows.tape({x}, {{"exp", {0}, kF32}});
  check_apart(rows, {sum, y}, 2);
}

TEST_CASE("a result may lie where an operand lay") {
  Rows rows(512, 100);
  const View x = rows.whole();
  const View sum = rows.reduce(Reduction::kSum, x);
  View spread = sum;
  spread.strides = {1, 0};
  rows.lowering().lower(TapeSpec{x.shape, {x, spread}, {{"div", {0, 1}, kF32}}, {{0, x}}});
  CHECK(rows.end({x}).size() == 1);
}

TEST_CASE("few rows of many columns are left to kernels of many blocks") {
  Rows few(2, 200000), many(600, 20000);
  const View x = few.whole();
  const View sum = few.reduce(Reduction::kSum, x);
  check_apart(few, {sum, few.tape({x, sum}, {{"div", {0, 1}, kF32}})}, 3);
  // Of what is not read later nobody said that it has memory.
  Rows without(2, 200000);
  const View inner = without.tape({without.whole()}, {{"exp", {0}, kF32}});
  const View largest = without.reduce(Reduction::kMax, inner);
  for (const Command& command : without.end({largest})) {
    for (const Access& access : command.accesses)
      CHECK(access.begin != inner.data);
  }
  CHECK(softmax(many).size() == 1);
}

// Alone, a reduction of more than 131,072 columns is cut in parts, however many rows there are.
TEST_CASE("many rows of a large vocabulary are one kernel without memory of its own") {
  for (const int64_t rows : {264, 32768}) {
    for (const int64_t classes : {131072, 151936, 256000}) {
      CAPTURE(rows);
      CAPTURE(classes);
      Rows many(rows, classes), few(16, classes);
      const std::vector<Command> commands = softmax(many);
      REQUIRE(commands.size() == 1);
      CHECK(commands[0].accesses.size() == 2);  // of the logits and of the result
      CHECK(launch_of(commands[0]).blocks == static_cast<uint64_t>(rows));
      CHECK(softmax(few).size() > 1);
    }
  }
  Rows endless(264, 2000000);  // its sums would lose digits
  CHECK(softmax(endless).size() > 1);
}

TEST_CASE("memory that no call reads any more is given again where rows are apart") {
  constexpr int64_t kBytes = int64_t{2} * 200000 * 4;
  Rows rows(2, 200000);
  View x = rows.whole();
  for (int i = 0; i < 6; ++i)
    x = rows.tape({x, rows.reduce(Reduction::kSum, x)}, {{"div", {0, 1}, kF32}});
  std::set<const std::byte*> written;
  for (const Command& command : rows.end({x})) {
    for (const Access& access : command.accesses) {
      if (access.is_write && access.end - access.begin == kBytes)
        written.insert(access.begin);
      for (const Access& other : command.accesses)
        CHECK((&access == &other || !overlaps(access, other)));
    }
  }
  CHECK(written.size() == 3);  // the result, and what is read beside what is written
}

TEST_CASE("a one hot of ids is part of its rows where all classes are there") {
  for (const int64_t classes : {100, 99}) {
    Rows rows(512, 100);
    const View x = rows.whole(), hot = rows.whole(), ids = rows.of_rows();
    LookupShape lookup;
    lookup.num_ids = 256;  // of each of two shards
    lookup.rows = lookup.global_rows = classes;
    for (const int64_t shard : {0, 1}) {
      rows.lowering().lower(
          OneHotSpec{lookup, ids.data + shard * 256 * 4, hot.data + shard * 256 * classes * 4});
    }
    const View sum = rows.reduce(Reduction::kSum, rows.tape({x, hot}, {{"mul", {0, 1}, kF32}}));
    CHECK(rows.end({sum}).size() == (classes == 100 ? 1 : 3));
  }
}

}  // namespace
}  // namespace meshtrain::test
