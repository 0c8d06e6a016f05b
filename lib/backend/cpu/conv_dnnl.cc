#include "backend/cpu/conv_dnnl.h"

#include <algorithm>
#include <map>

#include "backend/cpu/conv_blocks.h"
#include "backend/cpu/conv_region.h"
#include "backend/cpu/half_arrays.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr double kDnnlProductsPerNanosecond = 65;
constexpr double kHalfProductsPerNanosecond = 250;  // with AMX
constexpr int64_t kMinImages = 4;  // fewer are cut in parts of images by our own loops
constexpr int64_t kChunks = 16;
constexpr double kMinChunkCost = 10e3;  // nanoseconds
// Each chunk writes a gradient of the kernel, which is read again. This bounds their share of the
// work, and so the number of chunks, which is at least two.
constexpr double kSumShare = 0.04;
constexpr double kSumBytesPerNanosecond = 8;
constexpr double kMaxWgradChunks = 16;
constexpr size_t kMaxTerms = 32;  // of scattered images there may be more

double cost_of_image(const ConvShape& s) {
  const double pixels = static_cast<double>(s.output[0] * s.output[1] * s.output[2]);
  return pixels * static_cast<double>(s.kernel_elements()) /
         (s.dtype == DType::kFloat32 ? kDnnlProductsPerNanosecond : kHalfProductsPerNanosecond);
}

bool has_primitives(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16;
}

// `most` images, or somewhat fewer where that leaves no remainder: it would be one more primitive.
int64_t images_of_chunk(const std::vector<Run>& runs, int64_t most) {
  for (int64_t size = most; 2 * size > most; --size) {
    const auto fits = [&](const Run& run) {
      return static_cast<int64_t>(run.end - run.begin) % size == 0;
    };
    if (std::all_of(runs.begin(), runs.end(), fits))
      return size;
  }
  return most;
}

std::vector<Run> cut(const std::vector<Run>& runs, int64_t most) {
  const size_t size = static_cast<size_t>(images_of_chunk(runs, most));
  std::vector<Run> chunks;
  for (const Run& run : runs) {
    for (size_t begin = run.begin; begin < run.end; begin += size)
      chunks.push_back({begin, std::min(begin + size, run.end)});
  }
  return chunks;
}

// A primitive for each size of chunks, all with the same blocks of the kernel. Empty where one
// cannot be made.
std::map<int64_t, ConvPrimitive> make_primitives(const ConvShape& shape, ConvKind kind,
                                                 const std::vector<std::vector<Run>>& chunks) {
  std::map<int64_t, ConvPrimitive> primitives;
  const dnnl::memory::desc* kernel = nullptr;
  for (const std::vector<Run>& list : chunks) {
    for (const Run& chunk : list) {
      const int64_t images = static_cast<int64_t>(chunk.end - chunk.begin);
      if (primitives.count(images) != 0)
        continue;
      auto primitive = make_conv_primitive(shape, kind, images, kernel);
      if (!primitive)
        return {};
      kernel = &primitives.emplace(images, std::move(*primitive)).first->second.kernel;
    }
  }
  return primitives;
}

// oneDNN's own way from one order to the other: it puts pairs of channels side by side.
KernelPtr reorder_kernels(const dnnl::memory::desc& plain, const dnnl::memory::desc& blocks,
                          const std::vector<KernelMove>& moves) {
  const OneThread guard;
  const dnnl::reorder::primitive_desc description(dnnl_engine(), plain, dnnl_engine(), blocks,
                                                  own_scratch());
  const dnnl::reorder reorder(description);
  auto calls = std::make_unique<PrimitiveCalls>(static_cast<double>(blocks.get_size()) *
                                                static_cast<double>(moves.size()));
  for (const KernelMove& move : moves) {
    calls->add(reorder, description.scratchpad_desc(),
               {{DNNL_ARG_FROM, &plain, move.from, false}, {DNNL_ARG_TO, &blocks, move.to, true}});
  }
  return calls;
}

// oneDNN 2.6.3 multiplies pairs of filters here, and the last of an odd number with what follows
// it: on processors with AVX512-BF16 but without AMX.
bool has_odd_pairs(const ConvShape& shape, ConvKind kind) {
  return kind == ConvKind::kDgrad && is_half(shape.dtype) && shape.cells == Index3{1, 1, 1} &&
         shape.filters / shape.groups % 2 != 0;
}

}  // namespace

KernelList make_dnnl_conv(const ConvShape& shape, ConvKind kind, const std::vector<ConvJob>& jobs,
                          ScratchAllocator& scratch) {
  const int64_t images = static_cast<int64_t>(jobs.size());
  if (!has_primitives(shape.dtype) || images < kMinImages || has_odd_pairs(shape, kind))
    return {};
  const bool is_forward = kind == ConvKind::kForward;
  const int64_t from_bytes = is_forward ? shape.input_bytes() : shape.output_bytes();
  const int64_t to_bytes = is_forward ? shape.output_bytes() : shape.input_bytes();
  const std::vector<Run> runs = find_runs(jobs.size(), [&](size_t i) {
    const ConvJob& last = jobs[i - 1];
    return jobs[i].kernel == last.kernel && jobs[i].from == last.from + from_bytes &&
           jobs[i].to == last.to + to_bytes;
  });
  const double cost = cost_of_image(shape);
  const int64_t worthwhile = static_cast<int64_t>(std::min(kMinChunkCost / cost, 1e3)) + 1;
  const int64_t most =
      std::max(ceil_div(images, kChunks), std::min(worthwhile, ceil_div(images, kMinImages)));
  const std::vector<Run> chunks = cut(runs, most);
  const std::map<int64_t, ConvPrimitive> primitives = make_primitives(shape, kind, {chunks});
  if (primitives.empty())
    return {};

  KernelList list;
  std::map<const std::byte*, const std::byte*> blocked;  // of each kernel
  const dnnl::memory::desc plain = plain_kernel(shape, shape.dtype);
  const dnnl::memory::desc& blocks = primitives.begin()->second.kernel;
  std::vector<KernelMove> moves;
  for (const ConvJob& job : jobs) {
    if (blocked.count(job.kernel) != 0)
      continue;
    const std::byte*& place = blocked[job.kernel] = job.kernel;
    if (blocks != plain) {
      std::byte* to = scratch.take(static_cast<int64_t>(blocks.get_size()));
      moves.push_back({job.kernel, to});
      place = to;
    }
  }
  if (!moves.empty() && is_half(shape.dtype)) {
    list.push_back(reorder_kernels(plain, blocks, moves));
  } else if (!moves.empty()) {
    list.push_back(
        make_block_kernels(std::make_shared<const KernelBlocks>(shape, blocks), std::move(moves)));
  }
  auto calls = std::make_unique<PrimitiveCalls>(cost * static_cast<double>(images));
  for (const Run& chunk : chunks) {
    const ConvPrimitive& p = primitives.at(static_cast<int64_t>(chunk.end - chunk.begin));
    const ConvJob& job = jobs[chunk.begin];
    const std::byte* kernel = blocked.at(job.kernel);
    if (is_forward) {
      calls->add(p.primitive, p.scratch,
                 {{DNNL_ARG_SRC, &p.x, job.from, false},
                  {DNNL_ARG_WEIGHTS, &p.kernel, kernel, false},
                  {DNNL_ARG_DST, &p.y, job.to, true}});
    } else {
      calls->add(p.primitive, p.scratch,
                 {{DNNL_ARG_DIFF_DST, &p.y, job.from, false},
                  {DNNL_ARG_WEIGHTS, &p.kernel, kernel, false},
                  {DNNL_ARG_DIFF_SRC, &p.x, job.to, true}});
    }
  }
  list.push_back(std::move(calls));
  return list;
}

namespace {

// Whether parts of the kernel meet nothing but padding: oneDNN 2.6 leaves their gradient unwritten
// in 16 bits.
bool has_idle_cells(const ConvShape& shape) {
  for (size_t d = 0; d < shape.cells.size(); ++d) {
    for (int64_t cell = 0; cell < shape.cells[d]; ++cell) {
      bool is_idle = true;
      for (int64_t o = 0; o < shape.output[d] && is_idle; ++o) {
        const int64_t at = o * shape.strides[d] + cell * shape.dilations[d] - shape.pads[d];
        is_idle = at < 0 || at >= shape.input[d];
      }
      if (is_idle)
        return true;
    }
  }
  return false;
}

// oneDNN 2.6.3 writes behind its memory where a kernel of one cell has strides and 2 to 8 channels,
// seen from images of 80 x 80 on. What fills no whole blocks of 16 channels is left to our loops.
bool has_part_of_block(const ConvShape& shape) {
  return shape.cells == Index3{1, 1, 1} && shape.strides != Index3{1, 1, 1} &&
         shape.channels / shape.groups % 16 != 0;
}

}  // namespace

KernelList make_dnnl_wgrad(const ConvShape& shape, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch) {
  const int64_t num_jobs = static_cast<int64_t>(jobs.size());
  const int64_t images = static_cast<int64_t>(jobs[0].images.size());
  if (!has_primitives(shape.dtype) || images * num_jobs < kMinImages || has_part_of_block(shape))
    return {};
  if (shape.dtype != DType::kFloat32 && has_idle_cells(shape))
    return {};
  // Measured 1.1 to 1.5 times slower than our loops: most of a block of 16 channels, not all.
  const int64_t channels = shape.channels / shape.groups;
  if (shape.dtype == DType::kFloat32 && shape.groups == 1 && channels > 8 && channels < 16)
    return {};
  const double cost = cost_of_image(shape) * static_cast<double>(images * num_jobs);
  const double sum_cost = static_cast<double>(shape.kernel_elements() * 4) / kSumBytesPerNanosecond;
  int64_t wanted = 2;  // a power of two
  while (static_cast<double>(wanted) < std::min(kSumShare * cost / sum_cost, kMaxWgradChunks))
    wanted *= 2;
  const int64_t most = ceil_div(images, ceil_div(wanted, num_jobs));
  std::vector<std::vector<Run>> chunks;
  for (const WgradJob& job : jobs) {
    const std::vector<Run> runs = image_runs(shape, job);
    chunks.push_back(cut(runs, most));
    if (chunks.back().size() > kMaxTerms)
      return {};
  }
  const std::map<int64_t, ConvPrimitive> primitives =
      make_primitives(shape, ConvKind::kWgrad, chunks);
  if (primitives.empty())
    return {};

  const dnnl::memory::desc& blocks = primitives.begin()->second.kernel;
  const int64_t bytes = static_cast<int64_t>(blocks.get_size());
  auto calls = std::make_unique<PrimitiveCalls>(cost);
  std::map<int64_t, std::vector<KernelMove>> sums;  // by the number of terms
  HalfArrays rounded(shape.dtype, shape.kernel_elements());
  for (const WgradJob& job : jobs)
    rounded.add(is_half(shape.dtype) ? job.to : nullptr);
  rounded.take_scratch(scratch);
  for (size_t j = 0; j < jobs.size(); ++j) {
    const int64_t terms = static_cast<int64_t>(chunks[j].size());
    std::byte* const to = is_half(shape.dtype) ? rounded.wide(jobs[j].to) : jobs[j].to;
    std::byte* term = to;
    if (terms > 1 || blocks != plain_kernel(shape, DType::kFloat32)) {
      term = scratch.take(terms * bytes);
      sums[terms].push_back({term, to});
    }
    for (const Run& chunk : chunks[j]) {
      const ConvPrimitive& p = primitives.at(static_cast<int64_t>(chunk.end - chunk.begin));
      const WgradJob::Images& first = jobs[j].images[chunk.begin];
      calls->add(p.primitive, p.scratch,
                 {{DNNL_ARG_SRC, &p.x, first.x, false},
                  {DNNL_ARG_DIFF_DST, &p.y, first.dy, false},
                  {DNNL_ARG_DIFF_WEIGHTS, &p.kernel, term, true}});
      term += bytes;
    }
  }
  KernelList list;
  list.push_back(std::move(calls));
  const auto shared = std::make_shared<const KernelBlocks>(shape, blocks);
  for (auto& [terms, moves] : sums)
    list.push_back(make_sum_kernels(shared, terms, std::move(moves)));
  if (is_half(shape.dtype))
    list.push_back(rounded.narrow());
  return list;
}

}  // namespace meshtrain::cpu
