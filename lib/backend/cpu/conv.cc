#include "backend/cpu/conv.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "backend/cpu/conv_dnnl.h"
#include "backend/cpu/conv_half.h"
#include "backend/cpu/conv_plan.h"
#include "backend/cpu/conv_product.h"
#include "backend/cpu/lowering.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr double kProductsPerNanosecond = 55;  // of whole vectors, float32

// --- packed kernels ------------------------------------------------------------------------------
//
// Each pass and group has panels of `panel` columns; the last panel has the remaining whole
// vectors. A panel has a line of columns for each cell and source channel. Depthwise: one line of
// all channels for each cell.

template <class Word>
class Pack final : public Kernel {
 public:
  Pack(std::shared_ptr<const ConvPlan> plan, std::vector<const std::byte*> kernels, std::byte* out)
      : plan_(std::move(plan)), kernels_(std::move(kernels)), out_(out) {
    for (const ConvPass& pass : plan_->passes) {
      for (int64_t line = 0; line < pass.num_cells; ++line)
        places_.push_back({&pass, line});
    }
    elements_ = plan_->shape.kernel_elements();
  }

  int64_t units() const override { return static_cast<int64_t>(kernels_.size() * places_.size()); }
  double cost() const override {
    return static_cast<double>(elements_ * static_cast<int64_t>(kernels_.size())) *
           (plan_->transposed ? 1.0 : 0.2);
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const int64_t cells = static_cast<int64_t>(places_.size());
    for (int64_t k = begin / cells; k <= (end - 1) / cells; ++k) {
      out.push_back(
          {kernels_[k], kernels_[k] + elements_ * static_cast<int64_t>(sizeof(Word)), false});
    }
    // Cells of a kernel interleave, but no two units write to the same address.
    for (int64_t unit = begin; unit < end; ++unit) {
      const Place& place = places_[unit % cells];
      std::byte* base = reinterpret_cast<std::byte*>(packed(unit / cells) + place.pass->pack_begin);
      const int64_t width = plan_->groups == 1 ? plan_->packed_columns : 0;
      if (width != 0 && width <= plan_->panel) {
        const int64_t bytes = lines_of_cell() * width * static_cast<int64_t>(sizeof(Word));
        add_access(out, base + place.line * bytes, bytes, true);
      } else {
        const int64_t all = plan_->groups * plan_->lines(*place.pass) * plan_->packed_columns;
        out.push_back({base, base + all * static_cast<int64_t>(sizeof(Word)), true});
      }
    }
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t cells = static_cast<int64_t>(places_.size());
      const Place& place = places_[unit % cells];
      pack_cell(*place.pass, place.line, reinterpret_cast<const Word*>(kernels_[unit / cells]),
                packed(unit / cells));
    }
  }

 private:
  struct Place {
    const ConvPass* pass;
    int64_t line;
  };

  Word* packed(int64_t kernel) const {
    return reinterpret_cast<Word*>(out_) + kernel * plan_->packed_elements;
  }
  int64_t lines_of_cell() const { return plan_->depthwise ? 1 : plan_->source_channels; }

  void pack_cell(const ConvPass& pass, int64_t line, const Word* kernel, Word* out) const {
    const ConvPlan& p = *plan_;
    const int64_t filters = p.shape.filters;
    const int64_t channels = p.shape.channels / p.shape.groups;  // of a group
    const Word* cell = kernel + pass.cells[line] * channels * filters;
    for (int64_t g = 0; g < p.groups; ++g) {
      for (int64_t begin = 0; begin < p.result_channels; begin += p.panel) {
        const int64_t columns = std::min(p.panel, p.result_channels - begin);
        const int64_t width = std::min(p.panel, p.packed_columns - begin);
        Word* to = out + pass.pack_begin + g * p.lines(pass) * p.packed_columns +
                   begin * p.lines(pass) + line * lines_of_cell() * width;
        for (int64_t s = 0; s < lines_of_cell(); ++s, to += width) {
          // Forward, source channels are the kernel's channels and results its filters.
          const Word* from = p.depthwise    ? cell + begin
                             : p.transposed ? cell + begin * filters + g * p.source_channels + s
                                            : cell + s * filters + g * p.result_channels + begin;
          const int64_t step = p.transposed && !p.depthwise ? filters : 1;
          for (int64_t c = 0; c < columns; ++c)
            to[c] = from[c * step];
          std::fill(to + columns, to + width, Word{0});
        }
      }
    }
  }

  std::shared_ptr<const ConvPlan> plan_;
  std::vector<const std::byte*> kernels_;
  std::byte* out_;
  std::vector<Place> places_;
  int64_t elements_ = 0;
};

// --- the convolution -----------------------------------------------------------------------------

class Correlate final : public Kernel {
 public:
  struct Job {
    const std::byte* from;
    const std::byte* packed;
    std::byte* to;
  };

  Correlate(std::shared_ptr<const ConvPlan> plan, std::vector<Job> jobs)
      : plan_(std::move(plan)), jobs_(std::move(jobs)) {
    const PanelKind kind = plan_->depthwise ? PanelKind::kLanes : PanelKind::kSteps;
    loop_ = kernels().panel[static_cast<int>(kind)][type_index(plan_->shape.dtype)];
    for (const ConvPass& pass : plan_->passes) {
      const int64_t results = pass.count[0] * pass.count[1] * pass.count[2];
      products_ += results * plan_->lines(pass) * plan_->groups * plan_->packed_columns;
    }
  }

  int64_t units() const override { return static_cast<int64_t>(jobs_.size()) * plan_->num_chunks; }
  double cost() const override {
    const double all = static_cast<double>(products_) * static_cast<double>(jobs_.size());
    return all / kProductsPerNanosecond * static_cast<double>(plan_->shape.item_size()) / 4;
  }
  size_t scratch_bytes() const override { return plan_->reader.scratch_bytes(plan_->largest); }

  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    if (begin >= end)
      return;
    const ConvShape& s = plan_->shape;
    const int64_t from_bytes = plan_->transposed ? s.output_bytes() : s.input_bytes();
    const int64_t to_bytes = plan_->transposed ? s.input_bytes() : s.output_bytes();
    const int64_t first = begin / plan_->num_chunks, last = (end - 1) / plan_->num_chunks;
    for (int64_t j = first; j <= last; ++j)
      add_access(out, jobs_[j].from, from_bytes, false);
    for (int64_t j = first; j <= last; ++j) {
      if (j == first || jobs_[j].packed != jobs_[j - 1].packed)
        add_access(out, jobs_[j].packed, plan_->packed_elements * s.item_size(), false);
    }
    for (int64_t j = first; j <= last; ++j)
      add_access(out, jobs_[j].to, to_bytes, true);
  }

  void run(int64_t begin, int64_t end, std::byte* scratch) const override {
    for (int64_t unit = begin; unit < end; ++unit) {
      run_box(jobs_[unit / plan_->num_chunks], unit % plan_->num_chunks, scratch);
    }
  }

 private:
  void run_box(const Job& job, int64_t chunk, std::byte* scratch) const {
    const ConvPlan& p = *plan_;
    Index3 low{}, size{}, begin{0, 0, 0};
    begin[p.chunk_dim] = chunk * p.chunk;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t all = p.dims[d].count();
      const int64_t count = d == p.chunk_dim ? std::min(p.chunk, all - begin[d]) : all;
      low[d] = begin[d] * p.dims[d].source_step + p.dims[d].low;
      size[d] = p.dims[d].source_size(count);
    }
    const std::byte* box = p.reader.read(job.from, low, size, p.largest, scratch);
    for (const ConvPass& pass : p.passes) {
      Index3 end = pass.count;
      end[p.chunk_dim] = std::min(end[p.chunk_dim], begin[p.chunk_dim] + p.chunk);
      if (begin[p.chunk_dim] < end[p.chunk_dim])
        run_pass(pass, begin, end, box, job);
    }
  }

  void run_pass(const ConvPass& pass, const Index3& begin, const Index3& end, const std::byte* box,
                const Job& job) const {
    const ConvPlan& p = *plan_;
    const int64_t item = p.shape.item_size();
    const int64_t lines = p.lines(pass);
    const int64_t pixel = p.groups * p.result_channels;
    PanelArgs args;
    args.a_offsets = pass.offsets.data();
    args.num_runs = static_cast<int64_t>(pass.offsets.size());
    args.length = pass.length;
    args.a_row = p.dims[2].source_step * p.reader.pitch;
    args.a_step = 1;
    args.c_row = p.dims[2].result_step * pixel;
    args.rows = end[2] - begin[2];
    const Index3 steps = p.reader.steps(p.largest);
    for (int64_t g = 0; g < p.groups; ++g) {
      for (int64_t column = 0; column < p.result_channels; column += p.panel) {
        args.columns = std::min(p.panel, p.result_channels - column);
        args.b_row = std::min(p.panel, p.packed_columns - column);
        args.b =
            job.packed + (pass.pack_begin + g * lines * p.packed_columns + column * lines) * item;
        args.b_offsets = b_offsets(pass, args.b_row);
        const std::byte* from = box + (p.depthwise ? column : g * p.source_channels) * item;
        std::byte* to = job.to + (g * p.result_channels + column) * item;
        for (int64_t z = begin[0]; z < end[0]; ++z) {
          for (int64_t y = begin[1]; y < end[1]; ++y) {
            args.a = from + ((z - begin[0]) * p.dims[0].source_step * steps[0] +
                             (y - begin[1]) * p.dims[1].source_step * steps[1]) *
                                item;
            args.c = to + result_pixel(pass, z, y, begin[2]) * pixel * item;
            loop_(args);
          }
        }
      }
    }
  }

  // Runs follow each other in the packed kernel, whatever its width: lines times width.
  const int64_t* b_offsets(const ConvPass& pass, int64_t width) const {
    const size_t index = static_cast<size_t>(&pass - plan_->passes.data());
    return (width == plan_->panel ? wide_ : narrow_)[index].data();
  }

  int64_t result_pixel(const ConvPass& pass, int64_t z, int64_t y, int64_t x) const {
    const ConvPlan& p = *plan_;
    return ((pass.first[0] + z * p.dims[0].result_step) * p.result_image[1] + pass.first[1] +
            y * p.dims[1].result_step) *
               p.result_image[2] +
           pass.first[2] + x * p.dims[2].result_step;
  }

  std::vector<std::vector<int64_t>> offsets_of_width(int64_t width) const {
    std::vector<std::vector<int64_t>> out;
    for (const ConvPass& pass : plan_->passes) {
      out.emplace_back();
      for (int64_t line : pass.pack_lines)
        out.back().push_back(line * width);
    }
    return out;
  }

  std::shared_ptr<const ConvPlan> plan_;
  std::vector<Job> jobs_;
  PanelLoop loop_ = nullptr;
  int64_t products_ = 0;
  std::vector<std::vector<int64_t>> wide_ = offsets_of_width(plan_->panel);
  std::vector<std::vector<int64_t>> narrow_ =
      offsets_of_width(plan_->packed_columns % plan_->panel);
};

KernelList make_correlation(const ConvShape& shape, bool transposed,
                            const std::vector<ConvJob>& jobs, ScratchAllocator& scratch) {
  const auto plan =
      std::make_shared<const ConvPlan>(shape, transposed, static_cast<int64_t>(jobs.size()));
  std::map<const std::byte*, int64_t> index_of;
  std::vector<const std::byte*> kernels;
  for (const ConvJob& job : jobs) {
    if (index_of.emplace(job.kernel, static_cast<int64_t>(kernels.size())).second)
      kernels.push_back(job.kernel);
  }
  const int64_t packed_bytes = plan->packed_elements * shape.item_size();
  std::byte* packed = scratch.take(packed_bytes * static_cast<int64_t>(kernels.size()));
  std::vector<Correlate::Job> work;
  for (const ConvJob& job : jobs)
    work.push_back({job.from, packed + index_of.at(job.kernel) * packed_bytes, job.to});
  KernelList list;
  if (shape.item_size() == 4) {
    list.push_back(std::make_unique<Pack<uint32_t>>(plan, std::move(kernels), packed));
  } else {
    list.push_back(std::make_unique<Pack<uint64_t>>(plan, std::move(kernels), packed));
  }
  list.push_back(std::make_unique<Correlate>(plan, std::move(work)));
  return list;
}

}  // namespace

KernelList make_conv(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                     ScratchAllocator& scratch) {
  KernelList list = make_dnnl_conv(shape, ConvKind::kForward, jobs, scratch);
  if (list.empty() && is_half(shape.dtype))
    return make_half_conv(shape, ConvKind::kForward, jobs, scratch);
  return list.empty() ? make_correlation(shape, false, jobs, scratch) : std::move(list);
}

KernelList make_conv_dgrad(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                           ScratchAllocator& scratch) {
  KernelList list = make_dnnl_conv(shape, ConvKind::kDgrad, jobs, scratch);
  if (list.empty() && is_half(shape.dtype))
    return make_half_conv(shape, ConvKind::kDgrad, jobs, scratch);
  return list.empty() ? make_correlation(shape, true, jobs, scratch) : std::move(list);
}

void CpuLowering::make(const ConvSpec& spec) {
  const std::vector<MatmulSpec> products = conv_products(spec);
  if (products.empty())
    add(make_conv(spec.shape, spec.jobs, scratch_));
  for (const MatmulSpec& product : products)
    make(product);
}

void CpuLowering::make(const ConvDgradSpec& spec) {
  const std::vector<MatmulSpec> products = conv_products(spec);
  if (products.empty())
    add(make_conv_dgrad(spec.shape, spec.jobs, scratch_));
  for (const MatmulSpec& product : products)
    make(product);
}

void CpuLowering::make(const ConvWgradSpec& spec) {
  WgradProducts found = wgrad_products(spec, scratch_);
  if (found.products.empty())
    add(make_conv_wgrad(spec.shape, spec.jobs, scratch_));
  if (found.patches != nullptr)
    add(std::move(found.patches));
  for (const MatmulSpec& product : found.products)
    make(product);
}

}  // namespace meshtrain::cpu
