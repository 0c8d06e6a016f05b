// Random views: ranks, orders of dimensions, gaps, repeated and reversed dimensions, addresses off
// their alignment. The draws are fixed.
#include <algorithm>

#include "specs.h"
#include "support/splitmix.h"

namespace meshtrain::test {
namespace {

constexpr int kCases = 60;  // of each kind
constexpr int64_t kMostElements = 12000;

// A view of an array: which element comes first, how many there are.
struct Layout {
  Shape shape;
  std::vector<int64_t> strides;
  int64_t first = 0, size = 1;

  View view(std::byte* data, DType dtype) const {
    View out = contiguous_view(data, dtype, shape);
    out.strides = strides;
    out.data += first * out.item_size();
    return out;
  }
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}

  int64_t below(int64_t limit) {
    return splitmix_below(seed_, next_++, static_cast<uint64_t>(limit));
  }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  T any(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(below(static_cast<int64_t>(choices.size())))];
  }

  Shape shape() {
    Shape out;
    int64_t total = 1;
    const int64_t rank = below(6);
    for (int64_t d = 0; d < rank; ++d) {
      const int64_t size = any<int64_t>({1, 2, 3, 4, 5, 7, 8, 12, 16, 32, 33, 40, 64, 100});
      out.push_back(total * size <= kMostElements ? size : 1);
      total *= out.back();
    }
    return out;
  }

  // `is_read`: elements may be repeated.
  Layout layout(const Shape& shape, bool is_read) {
    Layout out{shape, std::vector<int64_t>(shape.size(), 0)};
    std::vector<size_t> order;  // of the dimensions in memory, closest first
    for (size_t d = shape.size(); d-- > 0;)
      order.push_back(d);
    if (one_in(2)) {
      for (size_t d = order.size(); d > 1; --d)
        std::swap(order[d - 1], order[static_cast<size_t>(below(static_cast<int64_t>(d)))]);
    }
    const bool has_gaps = one_in(3), has_repeats = is_read && one_in(2);
    for (size_t d : order) {
      if (has_repeats && one_in(2))
        continue;
      const bool is_reversed = is_read && one_in(8);
      out.strides[d] = is_reversed ? -out.size : out.size;
      out.first += is_reversed ? (shape[d] - 1) * out.size : 0;
      out.size *= shape[d];
      if (has_gaps)
        out.size += below(3) * (one_in(2) ? 4 : 1);
    }
    return out;
  }

  SpecArray array(DType dtype, const Layout& layout) {
    return {dtype, layout.size, Values::kSmallIntegers, false, one_in(3) ? below(8) : 0};
  }

 private:
  uint64_t seed_, next_ = 0;
};

const std::vector<DType> kAll = {DType::kBool,    DType::kUInt8,    DType::kInt32,
                                 DType::kUInt32,  DType::kInt64,    DType::kFloat32,
                                 DType::kFloat64, DType::kBFloat16, DType::kFloat16};
const std::vector<DType> kSigned = {DType::kInt32,   DType::kInt64,    DType::kFloat32,
                                    DType::kFloat64, DType::kBFloat16, DType::kFloat16};

std::string name_of(std::string_view kind, int number, DType dtype, const Shape& shape) {
  return fmt::format("{} {} {} {}", kind, number, dtype_name(dtype), shape_string(shape));
}

void add_copy(SpecList& list, int number) {
  Draws draws(static_cast<uint64_t>(1000 + number));
  const DType dtype = draws.any(kAll);
  const Layout from = draws.layout(draws.shape(), true), to = draws.layout(from.shape, false);
  SpecArray source = draws.array(dtype, from), target = draws.array(dtype, to);
  source.values = target.values = dtype == DType::kBool ? Values::kBool : Values::kSmallIntegers;
  target.is_updated = true;  // gaps stay
  list.add(name_of("view copy", number, dtype, from.shape), {source, target},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(CopySpec{from.view(memory[0], dtype), to.view(memory[1], dtype)});
           });
}

// Sums and maxima of several operands of any type, with two results; in place where it may be.
void add_tape(SpecList& list, int number) {
  Draws draws(static_cast<uint64_t>(2000 + number));
  const DType dtype = draws.any(kSigned);
  const Shape shape = draws.shape();
  const int count = static_cast<int>(1 + draws.below(4));
  std::vector<Layout> layouts;
  std::vector<DType> dtypes;
  std::vector<SpecArray> arrays;
  for (int i = 0; i < count; ++i) {
    layouts.push_back(draws.layout(shape, true));
    dtypes.push_back(draws.one_in(2) ? dtype : draws.any(kAll));
    arrays.push_back(draws.array(dtypes.back(), layouts.back()));
    if (dtypes.back() == DType::kBool)
      arrays.back().values = Values::kBool;
  }
  std::vector<TapeInstruction> tape;
  int last = count;  // as an argument
  tape.push_back({"cast", {0}, dtype});
  for (int i = 1; i < count; ++i) {
    tape.push_back({"cast", {i}, dtype});
    const int value = count + static_cast<int>(tape.size()) - 1;
    tape.push_back({draws.one_in(2) ? "max" : "sub", {last, value}, dtype});
    last = count + static_cast<int>(tape.size()) - 1;
  }
  tape.push_back({"gt", {last, count}, DType::kBool});
  const int result_at = last - count, test_at = static_cast<int>(tape.size()) - 1;
  const bool in_place = dtypes[0] == dtype && draws.one_in(2) &&
                        layouts[0].strides == row_major_strides(shape) &&
                        layouts[0].size == num_elements(shape);
  arrays[0].is_updated = in_place;
  arrays.push_back(result(dtype, shape));
  arrays.push_back(result(DType::kBool, shape));
  for (size_t a = arrays.size() - 2; a < arrays.size(); ++a)
    arrays[a].shift = draws.one_in(3) ? draws.below(8) : 0;
  if (in_place)
    arrays[static_cast<size_t>(count)] = result(dtype, 0);
  list.add(name_of("view tape", number, dtype, shape), arrays,
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             std::vector<View> operands;
             for (size_t i = 0; i < layouts.size(); ++i)
               operands.push_back(layouts[i].view(memory[i], dtypes[i]));
             std::byte* to = memory[in_place ? 0 : static_cast<size_t>(count)];
             std::byte* test = memory[static_cast<size_t>(count) + 1];
             specs.emplace_back(TapeSpec{shape,
                                         operands,
                                         tape,
                                         {{result_at, contiguous_view(to, dtype, shape)},
                                          {test_at, contiguous_view(test, DType::kBool, shape)}}});
           });
}

void add_reduce(SpecList& list, int number) {
  Draws draws(static_cast<uint64_t>(3000 + number));
  const DType dtype = draws.any(kSigned);
  const Layout x = draws.layout(draws.shape(), true);
  std::vector<bool> reduced;
  Shape kept;
  for (int64_t size : x.shape) {
    reduced.push_back(draws.one_in(2));
    if (!reduced.back())
      kept.push_back(size);
  }
  const Reduction reduction =
      draws.any<Reduction>({Reduction::kSum, Reduction::kSum, Reduction::kMax, Reduction::kMin});
  SpecArray out = result(dtype, kept);
  out.shift = draws.one_in(3) ? draws.below(8) : 0;
  list.add(name_of("view reduce", number, dtype, x.shape), {draws.array(dtype, x), out},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             specs.emplace_back(ReduceSpec{reduction, x.view(memory[0], dtype), reduced,
                                           contiguous_view(memory[1], dtype, kept)});
           })
      .scale = 100;
}

// Parts of wider boxes, put behind one another in the result.
void add_combine(SpecList& list, int number) {
  Draws draws(static_cast<uint64_t>(4000 + number));
  const DType dtype = draws.any(kSigned);
  const Shape shape = draws.shape();
  const int64_t regions = 1 + draws.below(4), sources = draws.one_in(2) ? 1 : 2 + draws.below(4);
  const auto box_around = [&] {
    Shape out = shape;
    for (int64_t& size : out)
      size += draws.one_in(3) ? draws.below(5) : 0;
    return out;
  };
  const Shape from_box = box_around(), to_box = box_around();
  const int64_t from_size = num_elements(from_box), to_size = num_elements(to_box);
  SpecArray from{dtype, regions * sources * from_size, Values::kSmallIntegers};
  SpecArray to{dtype, regions * to_size, Values::kSmallIntegers, true};
  from.shift = draws.one_in(3) ? draws.below(8) : 0;
  to.shift = draws.one_in(3) ? draws.below(8) : 0;
  const Reduction reduction =
      draws.any<Reduction>({Reduction::kSum, Reduction::kMax, Reduction::kMin});
  list.add(name_of("view combine", number, dtype, shape), {from, to},
           [=](KernelSpecs& specs, const SpecPointers& memory) {
             const auto item = static_cast<int64_t>(dtype_size(dtype));
             std::vector<Region> out;
             for (int64_t r = 0; r < regions; ++r) {
               Region region;
               region.to = memory[1] + r * to_size * item;
               for (int64_t s = 0; s < sources; ++s)
                 region.sources.push_back(memory[0] + (r * sources + s) * from_size * item);
               region.shape = shape;
               region.to_strides = row_major_strides(to_box);
               region.from_strides = row_major_strides(from_box);
               out.push_back(std::move(region));
             }
             specs.emplace_back(CombineSpec{reduction, dtype, out});
           });
}

}  // namespace

std::vector<KernelCase> view_specs() {
  SpecList list;
  for (int number = 0; number < kCases; ++number) {
    add_copy(list, number);
    add_tape(list, number);
    add_reduce(list, number);
    add_combine(list, number);
  }
  return list.take();
}

}  // namespace meshtrain::test
