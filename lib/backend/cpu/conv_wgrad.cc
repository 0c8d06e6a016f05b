// The gradient of a kernel. Images are shared out in a fixed number of shares; each adds up a
// gradient of its own, and their sum in order is the result, whatever the number of workers.
//
// Within an image a block of the kernel, elements of a line by filters, is in registers over all
// pixels: element (j, p) of the kernel's line and filter f sum x[o * stride + j, p] * dy[o, f].
#include <algorithm>
#include <cstring>

#include "backend/cpu/conv_dnnl.h"
#include "backend/cpu/conv_half.h"
#include "backend/cpu/conv_region.h"
#include "backend/cpu/reduce.h"
#include "backend/cpu/types.h"

namespace meshtrain::cpu {
namespace {

constexpr double kWgradProductsPerNanosecond = 50;
constexpr int64_t kWantedUnits = 16;
constexpr int64_t kBoxesBytes = 512 * 1024;  // of the two boxes of a unit

class Wgrad final : public Kernel {
 public:
  struct Job {
    std::vector<WgradJob::Images> images;
    std::byte* to;  // of the shares, one after the other
  };

  // Gradients of `shares` shares of the images of each job.
  Wgrad(const ConvShape& shape, std::vector<Job> jobs, int64_t shares)
      : shape_(shape), jobs_(std::move(jobs)), shares_(shares), item_(shape.item_size()) {
    const TypeIndex type = type_index(shape.dtype);
    lanes_ = kernels().panel_lanes[type];
    panel_ = kernels().panel_columns[type];
    depthwise_ = shape.is_depthwise();
    const PanelKind kind = depthwise_ ? PanelKind::kLanes : PanelKind::kAdjacent;
    loop_ = kernels().panel[static_cast<int>(kind)][type];
    groups_ = depthwise_ ? 1 : shape.groups;
    group_channels_ = shape.channels / groups_;
    group_filters_ = shape.filters / groups_;
    num_panels_ = ceil_div(group_filters_, panel_);
    choose_readers();
    choose_boxes();
    add_lines();
  }

  int64_t units() const override {
    return static_cast<int64_t>(jobs_.size()) * shares_ * num_panels_;
  }
  double cost() const override {
    const int64_t images = static_cast<int64_t>(jobs_.size() * jobs_[0].images.size());
    const int64_t pixels = shape_.output[0] * shape_.output[1] * shape_.output[2];
    const int64_t columns = round_up(group_filters_, lanes_);
    const double products = static_cast<double>(images * pixels * columns) *
                            static_cast<double>(shape_.kernel_elements() / group_filters_);
    return products / kWgradProductsPerNanosecond * static_cast<double>(item_) / 4;
  }
  size_t scratch_bytes() const override {
    // The second box is followed by what a whole vector reads behind its end.
    return x_.scratch_bytes(x_box_) + dy_.scratch_bytes(dy_box_) + 256;
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override;
  void run(int64_t begin, int64_t end, std::byte* scratch) const override;

 private:
  // Adjacent elements of the kernel, whose operands in x are adjacent, too.
  struct Line {
    int64_t offset;  // in the box of x
    int64_t row;     // of the kernel as (cells * channels of a group, filters)
  };

  void choose_readers();
  void choose_boxes();
  void add_lines();
  int64_t first_image(int64_t share) const {
    return static_cast<int64_t>(jobs_[0].images.size()) * share / shares_;
  }
  void add_image(const WgradJob::Images& image, int64_t panel, bool is_first, std::byte* to,
                 std::byte* scratch) const;
  void add_box(const std::byte* x, const std::byte* dy, const Index3& count, int64_t panel,
               bool is_first, std::byte* to) const;

  ConvShape shape_;
  std::vector<Job> jobs_;
  int64_t shares_, item_;
  PanelLoop loop_ = nullptr;
  bool depthwise_ = false;
  int64_t lanes_ = 1, panel_ = 1, groups_ = 1, group_channels_ = 1, group_filters_ = 1;
  int64_t num_panels_ = 1;
  BoxReader x_, dy_;
  // Boxes of outputs: `chunk_` along chunk_dim_, all along the others.
  size_t chunk_dim_ = 2;
  int64_t chunk_ = 1, num_chunks_ = 1;
  Index3 x_box_{1, 1, 1}, dy_box_{1, 1, 1};
  std::vector<Line> lines_;
  int64_t line_rows_ = 1;                        // rows of a line
  int64_t row_step_ = 1;                         // between them in the box of x
  std::vector<int64_t> x_offsets_, dy_offsets_;  // of the rows of pixels in a whole box
};

void Wgrad::choose_readers() {
  x_.image = shape_.input;
  dy_.image = shape_.output;
  x_.item_size = dy_.item_size = item_;
  x_.channels = x_.pitch = shape_.channels;
  dy_.channels = shape_.filters;
  dy_.pitch = round_up(shape_.filters, lanes_);
  if (depthwise_) {
    x_.repeat = shape_.filters / shape_.channels;
    x_.pitch = dy_.pitch;
  }
  x_.in_place = x_.repeat == 1 && x_.pitch == x_.channels;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t reach = (shape_.output[d] - 1) * shape_.strides[d] +
                          (shape_.cells[d] - 1) * shape_.dilations[d] - shape_.pads[d];
    x_.in_place = x_.in_place && shape_.pads[d] == 0 && reach < shape_.input[d];
  }
  // The filters of a group are read in whole vectors: never behind the last pixel.
  dy_.in_place = dy_.pitch == dy_.channels && group_filters_ % lanes_ == 0;
}

void Wgrad::choose_boxes() {
  const Index3& all = shape_.output;
  chunk_dim_ = all[0] > 1 ? 0 : all[1] > 1 ? 1 : 2;
  const auto boxes = [&](int64_t chunk) {
    for (size_t d = 0; d < 3; ++d) {
      dy_box_[d] = d == chunk_dim_ ? chunk : all[d];
      x_box_[d] =
          (dy_box_[d] - 1) * shape_.strides[d] + (shape_.cells[d] - 1) * shape_.dilations[d] + 1;
    }
    return (x_box_[0] * x_box_[1] * x_box_[2] * x_.pitch +
            dy_box_[0] * dy_box_[1] * dy_box_[2] * dy_.pitch) *
           item_;
  };
  const int64_t size = all[chunk_dim_];
  chunk_ = ceil_div(size, std::min(ceil_div(boxes(size), kBoxesBytes), size));
  num_chunks_ = ceil_div(size, chunk_);
  boxes(chunk_);
}

void Wgrad::add_lines() {
  const Index3 steps = x_.steps(x_box_);
  const Index3& cells = shape_.cells;
  const bool joined = !depthwise_ && groups_ == 1 && shape_.dilations[2] == 1;
  line_rows_ = depthwise_ ? cells[2] : joined ? cells[2] * group_channels_ : group_channels_;
  row_step_ = depthwise_ ? shape_.dilations[2] * steps[2] : 1;
  const int64_t rows_of_cell = depthwise_ ? 1 : group_channels_;
  const bool one_line_a_row = depthwise_ || joined;
  for (int64_t z = 0; z < cells[0]; ++z) {
    for (int64_t y = 0; y < cells[1]; ++y) {
      for (int64_t x = 0; x < (one_line_a_row ? 1 : cells[2]); ++x) {
        lines_.push_back({z * shape_.dilations[0] * steps[0] + y * shape_.dilations[1] * steps[1] +
                              x * shape_.dilations[2] * steps[2],
                          ((z * cells[1] + y) * cells[2] + x) * rows_of_cell});
      }
    }
  }
  const Index3 dy_steps = dy_.steps(dy_box_);
  for (int64_t z = 0; z < dy_box_[0]; ++z) {
    for (int64_t y = 0; y < dy_box_[1]; ++y) {
      x_offsets_.push_back(z * shape_.strides[0] * steps[0] + y * shape_.strides[1] * steps[1]);
      dy_offsets_.push_back(z * dy_steps[0] + y * dy_steps[1]);
    }
  }
}

void Wgrad::run(int64_t begin, int64_t end, std::byte* scratch) const {
  const int64_t bytes = shape_.kernel_elements() * item_;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t panel = unit % num_panels_;
    const int64_t share = unit / num_panels_ % shares_;
    const Job& job = jobs_[unit / (num_panels_ * shares_)];
    const int64_t first = first_image(share);
    for (int64_t i = first; i < first_image(share + 1); ++i) {
      add_image(job.images[i], panel, i == first, job.to + share * bytes, scratch);
    }
  }
}

void Wgrad::accesses(int64_t begin, int64_t end, std::vector<Access>& out) const {
  if (begin >= end)
    return;
  const int64_t bytes = shape_.kernel_elements() * item_;
  for (int64_t block = begin / num_panels_; block <= (end - 1) / num_panels_; ++block) {
    const Job& job = jobs_[block / shares_];
    const int64_t share = block % shares_;
    for (int64_t i = first_image(share); i < first_image(share + 1); ++i)
      add_access(out, job.images[i].x, shape_.input_bytes(), false);
    for (int64_t i = first_image(share); i < first_image(share + 1); ++i)
      add_access(out, job.images[i].dy, shape_.output_bytes(), false);
    add_access(out, job.to + share * bytes, bytes, true);
  }
}

void Wgrad::add_image(const WgradJob::Images& image, int64_t panel, bool is_first, std::byte* to,
                      std::byte* scratch) const {
  std::byte* dy_scratch = scratch + x_.scratch_bytes(x_box_);
  for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
    Index3 low{0, 0, 0}, count = shape_.output, x_low{}, x_size{};
    low[chunk_dim_] = chunk * chunk_;
    count[chunk_dim_] = std::min(chunk_, count[chunk_dim_] - low[chunk_dim_]);
    for (size_t d = 0; d < 3; ++d) {
      x_low[d] = low[d] * shape_.strides[d] - shape_.pads[d];
      x_size[d] =
          (count[d] - 1) * shape_.strides[d] + (shape_.cells[d] - 1) * shape_.dilations[d] + 1;
    }
    add_box(x_.read(image.x, x_low, x_size, x_box_, scratch),
            dy_.read(image.dy, low, count, dy_box_, dy_scratch), count, panel,
            is_first && chunk == 0, to);
  }
}

void Wgrad::add_box(const std::byte* x, const std::byte* dy, const Index3& count, int64_t panel,
                    bool is_first, std::byte* to) const {
  PanelArgs args;
  args.a_offsets = x_offsets_.data();
  args.b_offsets = dy_offsets_.data();
  args.num_runs = count[0] * count[1];
  args.length = count[2];
  args.a_row = row_step_;
  args.a_step = shape_.strides[2] * x_.pitch;
  args.b_row = dy_.pitch;
  args.c_row = shape_.filters;
  args.rows = line_rows_;
  args.columns = std::min(panel_, group_filters_ - panel * panel_);
  args.accumulate = !is_first;
  const int64_t column = panel * panel_;
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t filter = g * group_filters_ + column;
    args.b = dy + filter * item_;
    for (const Line& line : lines_) {
      args.a = x + (line.offset + (depthwise_ ? column : g * group_channels_)) * item_;
      args.c = to + (line.row * shape_.filters + filter) * item_;
      loop_(args);
    }
  }
}

}  // namespace

KernelList make_conv_wgrad(const ConvShape& conv, const std::vector<WgradJob>& jobs,
                           ScratchAllocator& scratch) {
  const ConvShape shape = flattened(conv);
  const int64_t images = static_cast<int64_t>(jobs[0].images.size());
  MESHTRAIN_CHECK(images > 0, "the gradient of a kernel over no images");
  if (KernelList list = make_dnnl_wgrad(conv, jobs, scratch); !list.empty())
    return list;
  if (is_half(conv.dtype))
    return make_half_wgrad(conv, jobs, scratch);
  const int64_t panels = ceil_div(shape.filters / (shape.is_depthwise() ? 1 : shape.groups),
                                  kernels().panel_columns[type_index(shape.dtype)]);
  const int64_t wanted = ceil_div(kWantedUnits, static_cast<int64_t>(jobs.size()) * panels);
  const int64_t shares = std::clamp<int64_t>(wanted, 1, images);
  const int64_t elements = shape.kernel_elements();
  std::vector<Wgrad::Job> work;
  KernelList sums;
  for (const WgradJob& job : jobs) {
    MESHTRAIN_CHECK(static_cast<int64_t>(job.images.size()) == images);
    std::byte* to = job.to;
    if (shares > 1) {
      to = scratch.take(shares * elements * shape.item_size());
      const View parts = contiguous_view(to, shape.dtype, {shares, elements});
      const View whole = contiguous_view(job.to, shape.dtype, {elements});
      for (KernelPtr& sum : make_reduce(Reduction::kSum, parts, {true, false}, whole, scratch))
        sums.push_back(std::move(sum));
    }
    work.push_back({job.images, to});
  }
  KernelList list;
  list.push_back(std::make_unique<Wgrad>(shape, std::move(work), shares));
  for (KernelPtr& sum : sums)
    list.push_back(std::move(sum));
  return list;
}

}  // namespace meshtrain::cpu
