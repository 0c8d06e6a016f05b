// Ops have a lowering, specs a text, and scratch a place.
#include "exec/lower.h"

#include <doctest/doctest.h>

#include "ir/op.h"

namespace meshtrain {
namespace {

std::byte* at(int64_t address) {
  return reinterpret_cast<std::byte*>(address);
}

// Inputs and parameters are buffers of a program and no steps.
TEST_CASE("every op has a lowering") {
  for (const OpDef* op : all_ops()) {
    if (op->name == "input" || op->name == "parameter")
      continue;
    CAPTURE(op->name);
    const bool is_lowered = lowering_of(*op) != nullptr;
    CHECK(is_lowered);
  }
}

TEST_CASE("a spec is one line with its members and the names of addresses") {
  const auto name = [](const std::byte* address) { return address == at(64) ? "x" : "other"; };
  CHECK(to_string(CumsumSpec{{4, 6, 1, DType::kFloat64}, at(64), at(128)}, name) ==
        "Cumsum shape={outer=4 size=6 inner=1 dtype=float64} x=x out=other");
  CHECK(to_string(CumsumSpec{{}, at(64), nullptr}) ==
        "Cumsum shape={outer=1 size=1 inner=1 dtype=float32} x=0x40 out=none");
  CHECK(to_string(ReduceSpec{Reduction::kMax,
                             contiguous_view(at(64), DType::kFloat32, {2, 3}),
                             {true, false},
                             contiguous_view(at(128), DType::kFloat32, {3})},
                  name) ==
        "Reduce reduction=max x=x:float32[2, 3]/[3, 1] reduced=[true, false] "
        "out=other:float32[3]/[1]");
  CHECK(to_string(BeginGroup{}) == "BeginGroup");
  std::vector<Message> messages(5, {1, at(64), 8});
  CHECK(to_string(ExchangeSpec{messages, {}}, name) ==
        "Exchange sends=[{peer=1 data=x bytes=8}, 3 more, {peer=1 data=x bytes=8}]");
}

TEST_CASE("scratch of a step has names that do not touch, and memory in their place") {
  KernelSpecs specs = {StepSpec{"a"}};
  std::byte* const first = add_scratch(specs, 1000);
  std::byte* const second = add_scratch(specs, 8);
  CHECK(second > first + 1000);
  CHECK(to_string(specs.back()) == "Scratch name=scratch+0x500 bytes=8");
  specs.emplace_back(StepSpec{"b"});
  CHECK(add_scratch(specs, 8) == first);

  ScratchNames names;
  names.add({first, 1000}, at(4096));
  names.add({second, 8}, at(8192));
  // Behind the last byte of the first, and in the middle of a list of jobs.
  KernelSpec exchange =
      ExchangeSpec{{{1, first + 1000, 0}, {2, second + 4, 4}, {3, at(77), 1}}, {}};
  names.resolve(exchange);
  const std::vector<Message>& sends = std::get<ExchangeSpec>(exchange).sends;
  CHECK(sends[0].data == at(4096 + 1000));
  CHECK(sends[1].data == at(8192 + 4));
  CHECK(sends[2].data == at(77));
  KernelSpec copy = CopySpec{contiguous_view(first, DType::kFloat32, {2}),
                             contiguous_view(at(64), DType::kFloat32, {2})};
  names.resolve(copy);
  CHECK(std::get<CopySpec>(copy).from.data == at(4096));
  names.clear();
  KernelSpec other = FillSpec{contiguous_view(first, DType::kFloat32, {2}), 0};
  names.add({second, 8}, at(8192));
  CHECK_THROWS_AS(names.resolve(other), InternalError);
}

}  // namespace
}  // namespace meshtrain
