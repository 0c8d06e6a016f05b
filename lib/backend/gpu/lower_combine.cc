// Collectives between virtual devices of one GPU: boxes copied, or summed in the order of their
// sources.
#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr size_t kMostRegionArgs = 400;  // of a launch; the words of longer regions are in memory
constexpr size_t kHeadArgs = 3;          // at most, before the regions

// The common properties of the regions of one launch.
struct Form {
  StridedLoop loop;  // over accesses, which are `pack` elements or one word; strides in elements
  size_t num_sources = 1;
  bool is_stepped = false;  // sources are one step apart, as shards are: two words describe them
  int64_t unit = 1;         // bytes of an element, or of a word where elements are only copied
  int pack = 1;             // elements of one access
  int64_t count = 0;        // > 0: side by side, so many elements

  bool operator==(const Form& other) const {
    return loop.sizes == other.loop.sizes && loop.strides == other.loop.strides &&
           num_sources == other.num_sources && is_stepped == other.is_stepped &&
           unit == other.unit && pack == other.pack && count == other.count;
  }
  // Arguments of a region.
  size_t words() const { return is_stepped ? 3 : 1 + num_sources; }
  bool in_memory() const { return words() > kMostRegionArgs - kHeadArgs; }
};

uint64_t step_of(const Region& region) {
  return address(region.sources[1]) - address(region.sources[0]);
}

bool is_stepped(const Region& region) {
  for (size_t s = 2; s < region.sources.size(); ++s) {
    if (address(region.sources[s]) - address(region.sources[s - 1]) != step_of(region))
      return false;
  }
  return region.sources.size() > 2 && region.sources[1] > region.sources[0];
}

Form form_of(const Region& region, int64_t item) {
  Form form;
  form.loop = {region.shape, {region.to_strides, region.from_strides}};
  coalesce(form.loop);
  form.num_sources = region.sources.size();
  form.is_stepped = is_stepped(region);
  const bool side_by_side =
      (form.loop.strides[0].back() == 1 && form.loop.strides[1].back() == 1) ||
      form.loop.sizes.back() == 1;
  const bool is_flat = form.loop.rank() == 1 && side_by_side;
  const bool is_copy = form.num_sources == 1;
  // As wide as addresses and rows allow.
  std::vector<int64_t> bytes = {static_cast<int64_t>(address(region.to) % 16)};
  for (const std::byte* source : region.sources)
    bytes.push_back(static_cast<int64_t>(address(source) % 16));
  for (const std::vector<int64_t>& strides : form.loop.strides) {
    for (size_t d = 0; d + 1 < form.loop.rank(); ++d)
      bytes.push_back(strides[d] * item);
  }
  // Sums of what is side by side may end within an access.
  if (is_copy || !is_flat)
    bytes.push_back(form.loop.sizes.back() * item);
  const int64_t width = side_by_side ? std::max(common_word(std::move(bytes)), item) : item;
  form.unit = is_copy ? width : item;
  form.pack = is_copy ? 1 : static_cast<int>(std::min<int64_t>(width / item, 8));
  const int64_t of_access = is_copy ? width / item : form.pack;
  if (is_flat) {
    form.count = form.loop.sizes[0] * item / form.unit;
    form.loop = {{(form.count + form.pack - 1) / form.pack}, {{form.pack}, {form.pack}}};
    return form;
  }
  form.loop.sizes.back() /= of_access;
  for (std::vector<int64_t>& strides : form.loop.strides) {
    if (of_access > 1)
      strides.back() = of_access;
    for (int64_t& stride : strides)
      stride = stride * item / form.unit;
  }
  return form;
}

std::string combine_text(const Form& form, Reduction reduction, DType dtype, uint64_t blocks) {
  const std::string combining =
      struct_text("Combining", {{"num_sources", static_cast<int64_t>(form.num_sources)},
                                {"is_stepped", form.is_stepped ? "true" : "false"},
                                {"in_memory", form.in_memory() ? "true" : "false"},
                                {"pack", int64_t{form.pack}}});
  const std::string type =
      form.num_sources == 1 ? word_type(form.unit) : std::string(type_name(dtype));
  const std::string op(reduction_name(reduction));
  if (form.count > 0)
    return call_text("combine_flat", {combining, type, op}, false);
  const int64_t step = static_cast<int64_t>(blocks) * kThreads;
  return call_text("combine",
                   {combining, index_type(loop_reach(form.loop, step)), type, op,
                    loop_text(form.loop.sizes, form.loop.strides[0]),
                    loop_text(form.loop.sizes, form.loop.strides[1]),
                    std::to_string(num_elements(form.loop.sizes)), std::to_string(step)},
                   false);
}

// As device/combine.cuh reads them.
std::vector<LaunchArg> words_of(const Region& region, const Form& form) {
  std::vector<LaunchArg> words = {address(region.to)};
  if (form.is_stepped) {
    words.push_back(address(region.sources[0]));
    words.push_back(step_of(region));
  } else {
    for (const std::byte* source : region.sources)
      words.push_back(address(source));
  }
  return words;
}

}  // namespace

std::byte* GpuLowering::store(const std::vector<LaunchArg>& words) {
  constexpr int64_t kBytes = sizeof(uint64_t);
  std::byte* const memory = scratch(static_cast<int64_t>(words.size()) * kBytes);
  for (size_t begin = 0; begin < words.size(); begin += kMostRegionArgs) {
    const size_t end = std::min(begin + kMostRegionArgs, words.size());
    std::byte* const to = memory + static_cast<int64_t>(begin) * kBytes;
    Launch launch;
    launch.work = static_cast<int64_t>(end - begin);
    launch.args = {address(to)};
    launch.args.insert(launch.args.end(), words.begin() + static_cast<std::ptrdiff_t>(begin),
                       words.begin() + static_cast<std::ptrdiff_t>(end));
    launch.body = make_body("words", call_text("store_words", {std::to_string(end - begin)}, false),
                            0, false, "combine");
    const int64_t bytes = launch.work * kBytes;
    add(std::move(launch), std::vector<Use>{{to, bytes, true}});
  }
  return memory;
}

void GpuLowering::make(const CombineSpec& spec) {
  const auto& [reduction, dtype, regions] = spec;
  const auto item = static_cast<int64_t>(dtype_size(dtype));
  std::vector<std::pair<Form, std::vector<const Region*>>> groups;
  for (const Region& region : regions) {
    if (num_elements(region.shape) == 0)
      continue;
    MESHTRAIN_CHECK(!region.sources.empty());
    Form form = form_of(region, item);
    const size_t most = std::max<size_t>((kMostRegionArgs - kHeadArgs) / form.words(), 1);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& candidate) {
      return candidate.first == form && candidate.second.size() < most;
    });
    if (group == groups.end())
      group = groups.insert(groups.end(), {std::move(form), {}});
    group->second.push_back(&region);
  }
  for (const auto& [form, members] : groups) {
    const auto count = static_cast<int64_t>(members.size());
    const int64_t accesses_of_region = num_elements(form.loop.sizes);
    const uint64_t blocks =
        std::min<uint64_t>(blocks_for(accesses_of_region, 1),
                           static_cast<uint64_t>(std::max<int64_t>(kMaxBlocks / count, 1)));
    Launch launch;
    launch.blocks = blocks * static_cast<uint64_t>(count);
    launch.work =
        count * num_elements(members[0]->shape) * static_cast<int64_t>(form.num_sources + 1);
    launch.args.push_back(blocks);
    if (form.count > 0) {
      launch.args.push_back(static_cast<uint64_t>(form.count));
      launch.args.push_back(blocks * kThreads * static_cast<uint64_t>(form.pack));
    }
    std::vector<Access> accesses;
    for (const Region* region : members) {
      const std::vector<LaunchArg> words = words_of(*region, form);
      if (form.in_memory()) {
        const std::byte* const memory = store(words);
        launch.args.push_back(address(memory));
        accesses.push_back({memory, memory + words.size() * sizeof(uint64_t), false});
      } else {
        launch.args.insert(launch.args.end(), words.begin(), words.end());
      }
      accesses.push_back(
          whole_access({region->to, dtype, region->shape, region->to_strides}, true));
      for (const std::byte* source : region->sources) {
        View view{const_cast<std::byte*>(source), dtype, region->shape, region->from_strides};
        accesses.push_back(whole_access(view, false));
      }
    }
    launch.body =
        make_body("combine", combine_text(form, reduction, dtype, blocks), 0, false, "combine");
    add(std::move(launch), std::move(accesses));
  }
}

}  // namespace meshtrain::gpu
