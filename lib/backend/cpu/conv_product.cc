#include "backend/cpu/conv_product.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/conv_region.h"

namespace meshtrain::cpu {
namespace {

constexpr int64_t kFewestChannels = 16;  // and filters
constexpr int64_t kFewPixels = 16;       // of an image whose patches are copied
constexpr size_t kMostRuns = 4;          // of adjacent images

int64_t pixels_of(const ConvShape& shape) {
  return shape.output[0] * shape.output[1] * shape.output[2];
}
int64_t cells_of(const ConvShape& shape) {
  return shape.cells[0] * shape.cells[1] * shape.cells[2];
}

bool has_products(const ConvShape& shape) {
  return shape.dtype == DType::kFloat32 && shape.groups == 1 && shape.channels >= kFewestChannels &&
         shape.filters >= kFewestChannels;
}
// C (m, n) = A (m, k) B (k, n), all row by row.
MatmulSpec product(int64_t m, int64_t n, int64_t k) {
  MatmulSpec spec;
  spec.m = m;
  spec.n = n;
  spec.k = k;
  spec.a_row = k;
  spec.b_row = n;
  spec.c_row = n;
  spec.a_column = spec.b_column = 1;
  spec.batches = {{}};
  return spec;
}

std::vector<MatmulSpec> pixel_products(const ConvShape& shape, const std::vector<ConvJob>& jobs,
                                       bool is_forward) {
  if (!has_products(shape) || !is_pixelwise(shape))
    return {};
  const int64_t from = is_forward ? shape.input_bytes() : shape.output_bytes();
  const int64_t to = is_forward ? shape.output_bytes() : shape.input_bytes();
  const std::vector<Run> runs = find_runs(jobs.size(), [&](size_t i) {
    const ConvJob& last = jobs[i - 1];
    return jobs[i].kernel == last.kernel && jobs[i].from == last.from + from &&
           jobs[i].to == last.to + to;
  });
  std::vector<MatmulSpec> products;
  for (const Run& run : runs) {
    const int64_t rows = static_cast<int64_t>(run.size()) * pixels_of(shape);
    MatmulSpec spec = is_forward ? product(rows, shape.filters, shape.channels)
                                 : product(rows, shape.channels, shape.filters);
    if (!is_forward) {  // the kernel is (channels, filters)
      spec.b_row = 1;
      spec.b_column = shape.filters;
    }
    const ConvJob& job = jobs[run.begin];
    spec.a = job.from;
    spec.b = job.kernel;
    spec.c = job.to;
    products.push_back(spec);
  }
  return products;
}

// Rows of pixels, each with what the kernel's cells see of the image there, zeros outside of it.
class Patches final : public Kernel {
 public:
  struct Image {
    const std::byte* from;
    std::byte* to;
  };

  Patches(const ConvShape& shape, std::vector<Image> images)
      : shape_(shape),
        images_(std::move(images)),
        cell_bytes_(shape.channels * shape.item_size()),
        image_bytes_(pixels_of(shape) * cells_of(shape) * cell_bytes_) {}

  int64_t units() const override { return static_cast<int64_t>(images_.size()); }
  double cost() const override {
    return static_cast<double>(image_bytes_) * static_cast<double>(images_.size()) / 8;
  }
  void run(int64_t begin, int64_t end, std::byte*) const override {
    for (int64_t i = begin; i < end; ++i)
      copy(images_[static_cast<size_t>(i)]);
  }
  void accesses(int64_t begin, int64_t end, std::vector<Access>& out) const override {
    for (int64_t i = begin; i < end; ++i) {
      const Image& image = images_[static_cast<size_t>(i)];
      out.push_back({image.from, image.from + shape_.input_bytes(), false});
      out.push_back({image.to, image.to + image_bytes_, true});
    }
  }

 private:
  // f(index of each of the sizes).
  template <class F>
  static void each(const std::array<int64_t, 3>& sizes, const F& f) {
    for (int64_t z = 0; z < sizes[0]; ++z) {
      for (int64_t y = 0; y < sizes[1]; ++y) {
        for (int64_t x = 0; x < sizes[2]; ++x)
          f(std::array<int64_t, 3>{z, y, x});
      }
    }
  }

  void copy(const Image& image) const {
    std::byte* to = image.to;
    each(shape_.output, [&](const std::array<int64_t, 3>& pixel) {
      each(shape_.cells, [&](const std::array<int64_t, 3>& cell) {
        int64_t at = 0;
        bool is_inside = true;
        for (size_t d = 0; d < 3; ++d) {
          const int64_t i =
              pixel[d] * shape_.strides[d] + cell[d] * shape_.dilations[d] - shape_.pads[d];
          is_inside = is_inside && i >= 0 && i < shape_.input[d];
          at = at * shape_.input[d] + i;
        }
        const auto bytes = static_cast<size_t>(cell_bytes_);
        if (is_inside)
          std::memcpy(to, image.from + at * cell_bytes_, bytes);
        else
          std::memset(to, 0, bytes);
        to += cell_bytes_;
      });
    });
  }

  ConvShape shape_;
  std::vector<Image> images_;
  int64_t cell_bytes_, image_bytes_;
};

// The gradient of a kernel from rows of patches (or pixels) and the gradients of y there.
MatmulSpec kernel_product(const ConvShape& shape, const std::byte* rows, const std::byte* dy,
                          size_t images, std::byte* to) {
  const int64_t columns = cells_of(shape) * shape.channels;
  MatmulSpec spec =
      product(columns, shape.filters, static_cast<int64_t>(images) * pixels_of(shape));
  spec.a = rows;
  spec.a_row = 1;
  spec.a_column = columns;
  spec.b = dy;
  spec.c = to;
  return spec;
}

WgradProducts patch_products(const ConvWgradSpec& spec, ScratchAllocator& scratch) {
  const ConvShape& shape = spec.shape;
  const int64_t bytes =
      pixels_of(shape) * cells_of(shape) * shape.channels * shape.item_size();  // of an image
  const auto is_adjacent = [&](const WgradJob& job) {
    return find_runs(job.images.size(), [&](size_t i) {
             return job.images[i].dy == job.images[i - 1].dy + shape.output_bytes();
           }).size() == 1;
  };
  if (!std::all_of(spec.jobs.begin(), spec.jobs.end(), is_adjacent))
    return {};
  std::vector<Patches::Image> images;
  WgradProducts out;
  for (const WgradJob& job : spec.jobs) {
    const size_t count = job.images.size();
    std::byte* const patches = scratch.take(bytes * static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i)
      images.push_back({job.images[i].x, patches + static_cast<int64_t>(i) * bytes});
    out.products.push_back(kernel_product(shape, patches, job.images[0].dy, count, job.to));
  }
  out.patches = std::make_unique<Patches>(shape, std::move(images));
  return out;
}

}  // namespace

std::vector<MatmulSpec> conv_products(const ConvSpec& spec) {
  return pixel_products(spec.shape, spec.jobs, true);
}
std::vector<MatmulSpec> conv_products(const ConvDgradSpec& spec) {
  return pixel_products(spec.shape, spec.jobs, false);
}

WgradProducts wgrad_products(const ConvWgradSpec& spec, ScratchAllocator& scratch) {
  const ConvShape& shape = spec.shape;
  if (!has_products(shape))
    return {};
  if (!is_pixelwise(shape))
    return pixels_of(shape) <= kFewPixels ? patch_products(spec, scratch) : WgradProducts{};
  WgradProducts out;
  for (const WgradJob& job : spec.jobs) {
    const std::vector<Run> runs = image_runs(shape, job);
    if (runs.size() > kMostRuns)
      return {};
    for (const Run& run : runs) {
      const WgradJob::Images& first = job.images[run.begin];
      out.products.push_back(kernel_product(shape, first.x, first.dy, run.size(), job.to));
      out.products.back().accumulate = run.begin > 0;
    }
  }
  return out;
}

}  // namespace meshtrain::cpu
