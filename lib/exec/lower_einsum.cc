// Sums of products over named dimensions, lowered to matrix products.
#include <algorithm>

#include "exec/lower.h"

namespace meshtrain {
namespace {

using Labels = std::vector<int>;

int64_t position(const LabelledView& x, int label) {
  const auto found = std::find(x.labels.begin(), x.labels.end(), label);
  return found == x.labels.end() ? -1 : found - x.labels.begin();
}
bool has(const LabelledView& x, int label) {
  return position(x, label) >= 0;
}
int64_t size_of(const LabelledView& x, int label) {
  return x.view.shape[position(x, label)];
}
int64_t stride_of(const LabelledView& x, int label) {
  const int64_t p = position(x, label);
  return p < 0 ? 0 : x.view.strides[p];
}

// The dimensions in this order; a label that x lacks repeats it.
View reordered(const LabelledView& x, const Labels& labels, const std::vector<int64_t>& sizes) {
  View view{x.view.data, x.view.dtype, {}, {}};
  for (size_t i = 0; i < labels.size(); ++i) {
    view.shape.push_back(sizes[i]);
    view.strides.push_back(stride_of(x, labels[i]));
  }
  return view;
}

LabelledView scratch_view(KernelSpecs& specs, DType dtype, const Labels& labels,
                          const Shape& shape) {
  const int64_t bytes = num_elements(shape) * static_cast<int64_t>(dtype_size(dtype));
  return {contiguous_view(add_scratch(specs, bytes), dtype, shape), labels};
}

// Sums x over the labels that are not in `keep`; `out` has the others.
void add_sum(const LabelledView& x, const LabelledView& out, KernelSpecs& specs) {
  Labels order = out.labels;
  std::vector<bool> reduced(order.size(), false);
  for (int label : x.labels) {
    if (!has(out, label)) {
      order.push_back(label);
      reduced.push_back(true);
    }
  }
  std::vector<int64_t> sizes;
  for (int label : order)
    sizes.push_back(size_of(x, label));
  specs.emplace_back(ReduceSpec{Reduction::kSum, reordered(x, order, sizes), reduced, out.view});
}

// x without the labels that nothing else has.
LabelledView without_lonely(const LabelledView& x, const LabelledView& other,
                            const LabelledView& out, KernelSpecs& specs) {
  Labels kept;
  Shape shape;
  for (size_t i = 0; i < x.labels.size(); ++i) {
    if (has(other, x.labels[i]) || has(out, x.labels[i])) {
      kept.push_back(x.labels[i]);
      shape.push_back(x.view.shape[i]);
    }
  }
  if (kept.size() == x.labels.size())
    return x;
  LabelledView sum = scratch_view(specs, x.view.dtype, kept, shape);
  add_sum(x, sum, specs);
  return sum;
}

// No label is summed: the product of all elements, broadcast.
void add_products(const LabelledView& a, const LabelledView& b, const LabelledView& out,
                  KernelSpecs& specs) {
  specs.emplace_back(
      TapeSpec{out.view.shape,
               {reordered(a, out.labels, out.view.shape), reordered(b, out.labels, out.view.shape)},
               {{"mul", {0, 1}, out.view.dtype, 0, 0}},
               {{0, out.view}}});
}

// Whether x steps through these labels, major to minor, as through one dimension.
bool is_one_dimension(const LabelledView& x, const Labels& labels,
                      const std::vector<int64_t>& sizes) {
  for (size_t i = 0; i + 1 < labels.size(); ++i) {
    if (stride_of(x, labels[i]) != stride_of(x, labels[i + 1]) * sizes[i + 1])
      return false;
  }
  return true;
}

// Copied so that the labels of `inner` are the last dimensions, in that order.
LabelledView with_inner(const LabelledView& x, const Labels& inner, KernelSpecs& specs) {
  Labels order;
  for (int label : x.labels) {
    if (std::find(inner.begin(), inner.end(), label) == inner.end())
      order.push_back(label);
  }
  order.insert(order.end(), inner.begin(), inner.end());
  Shape shape;
  for (int label : order)
    shape.push_back(size_of(x, label));
  LabelledView copy = scratch_view(specs, x.view.dtype, order, shape);
  specs.emplace_back(CopySpec{reordered(x, order, shape), copy.view});
  return copy;
}

class Lowering {
 public:
  Lowering(LabelledView a, LabelledView b, LabelledView c, KernelSpecs& specs)
      : a_(std::move(a)), b_(std::move(b)), c_(std::move(c)), specs_(specs) {}

  void run() {
    const int last = innermost_of_result();
    if (last >= 0 && has(a_, last) && !has(b_, last))
      std::swap(a_, b_);
    classify();
    if (last >= 0 && has(a_, last) && has(b_, last)) {
      if (rows_.empty() && columns_.empty()) {
        run_by_products();
      } else {
        run_with_batch_outside();
      }
      return;
    }
    merge_summed();
    MatmulSpec spec;
    spec.dtype = c_.view.dtype;
    spec.a = a_.view.data;
    spec.b = b_.view.data;
    spec.c = c_.view.data;
    take_rows(spec);
    take_columns(spec);
    spec.k = 1;
    for (int label : summed_)
      spec.k *= size_of(a_, label);
    if (!summed_.empty()) {
      spec.a_column = stride_of(a_, summed_.back());
      spec.b_row = stride_of(b_, summed_.back());
    }
    spec.batches = batches();
    specs_.emplace_back(spec);
  }

 private:
  int innermost_of_result() const {
    for (size_t i = c_.labels.size(); i-- > 0;) {
      if (c_.view.shape[i] > 1)
        return c_.labels[i];
    }
    return -1;
  }

  // Labels of size 1 change nothing and are left out.
  void classify() {
    for (int label : c_.labels) {
      if (size_of(c_, label) == 1)
        continue;
      const bool in_a = has(a_, label), in_b = has(b_, label);
      (in_a && in_b ? batch_ : in_a ? rows_ : columns_).push_back(label);
    }
    for (int label : a_.labels) {
      if (has(b_, label) && !has(c_, label) && size_of(a_, label) > 1)
        summed_.push_back(label);
    }
  }

  // The innermost dimension of the result belongs to both operands: products, then their sum.
  void run_by_products() {
    Labels labels = c_.labels;
    Shape shape = c_.view.shape;
    for (int label : summed_) {
      labels.push_back(label);
      shape.push_back(size_of(a_, label));
    }
    const LabelledView products = scratch_view(specs_, c_.view.dtype, labels, shape);
    add_products(a_, b_, products, specs_);
    add_sum(products, c_, specs_);
  }

  // The same, but there are matrices behind the innermost dimension: they are computed with the
  // batch outside and copied into their place.
  void run_with_batch_outside() {
    Labels order = batch_;
    order.insert(order.end(), rows_.begin(), rows_.end());
    order.insert(order.end(), columns_.begin(), columns_.end());
    const std::vector<int64_t> shape = sizes(c_, order);
    const LabelledView result = scratch_view(specs_, c_.view.dtype, order, shape);
    Lowering(a_, b_, result, specs_).run();
    specs_.emplace_back(CopySpec{result.view, reordered(c_, order, shape)});
  }

  std::vector<int64_t> sizes(const LabelledView& x, const Labels& labels) const {
    std::vector<int64_t> out;
    for (int label : labels)
      out.push_back(size_of(x, label));
    return out;
  }

  // An order of the summed labels in which both operands step through them as one dimension.
  void merge_summed() {
    const auto fits = [&](const Labels& order) {
      return is_one_dimension(a_, order, sizes(a_, order)) &&
             is_one_dimension(b_, order, sizes(a_, order));
    };
    if (fits(summed_))
      return;
    Labels order_of_b;
    for (int label : b_.labels) {
      if (std::find(summed_.begin(), summed_.end(), label) != summed_.end()) {
        order_of_b.push_back(label);
      }
    }
    if (fits(order_of_b)) {
      summed_ = order_of_b;
      return;
    }
    if (is_one_dimension(b_, order_of_b, sizes(b_, order_of_b))) {
      summed_ = order_of_b;
    } else if (!is_one_dimension(a_, summed_, sizes(a_, summed_))) {
      b_ = with_inner(b_, summed_, specs_);
    }
    if (!is_one_dimension(a_, summed_, sizes(a_, summed_))) {
      a_ = with_inner(a_, summed_, specs_);
    }
    if (!is_one_dimension(b_, summed_, sizes(b_, summed_))) {
      b_ = with_inner(b_, summed_, specs_);
    }
  }

  // The longest run of labels, as the result has them, that is one dimension of x and the result.
  // The others become batches. `from_end`: the run must contain the last one.
  Labels take_run(const LabelledView& x, Labels& labels, bool from_end) {
    size_t best_begin = labels.size(), best_end = labels.size();
    int64_t best = 0;
    for (size_t end = labels.size(); end > 0; --end) {
      for (size_t begin = end; begin-- > 0;) {
        const Labels run(labels.begin() + static_cast<std::ptrdiff_t>(begin),
                         labels.begin() + static_cast<std::ptrdiff_t>(end));
        const std::vector<int64_t> run_sizes = sizes(c_, run);
        if (!is_one_dimension(x, run, run_sizes) || !is_one_dimension(c_, run, run_sizes))
          break;
        const int64_t size = num_elements(run_sizes);
        if (size > best) {
          best = size;
          best_begin = begin;
          best_end = end;
        }
      }
      if (from_end)
        break;
    }
    const auto first = labels.begin() + static_cast<std::ptrdiff_t>(best_begin);
    const auto last = labels.begin() + static_cast<std::ptrdiff_t>(best_end);
    const Labels run(first, last);
    labels.erase(first, last);
    batch_.insert(batch_.begin(), labels.begin(), labels.end());
    return run;
  }

  void take_rows(MatmulSpec& spec) {
    const Labels run = take_run(a_, rows_, false);
    spec.m = num_elements(sizes(c_, run));
    if (run.empty())
      return;
    spec.a_row = stride_of(a_, run.back());
    spec.c_row = stride_of(c_, run.back());
  }

  void take_columns(MatmulSpec& spec) {
    const Labels run = take_run(b_, columns_, true);
    spec.n = num_elements(sizes(c_, run));
    if (!run.empty())
      spec.b_column = stride_of(b_, run.back());
  }

  std::vector<MatmulSpec::Batch> batches() const {
    std::vector<MatmulSpec::Batch> out = {{}};
    for (int label : in_order_of_result()) {
      std::vector<MatmulSpec::Batch> next;
      for (const MatmulSpec::Batch& batch : out) {
        for (int64_t i = 0; i < size_of(c_, label); ++i) {
          next.push_back({batch.a + i * stride_of(a_, label), batch.b + i * stride_of(b_, label),
                          batch.c + i * stride_of(c_, label)});
        }
      }
      out = std::move(next);
    }
    return out;
  }

  Labels in_order_of_result() const {
    Labels out;
    for (int label : c_.labels) {
      if (std::find(batch_.begin(), batch_.end(), label) != batch_.end())
        out.push_back(label);
    }
    return out;
  }

  LabelledView a_, b_, c_;
  KernelSpecs& specs_;
  Labels batch_, rows_, columns_, summed_;
};

}  // namespace

void lower_products(const std::vector<LabelledView>& operands, const LabelledView& out,
                    KernelSpecs& specs) {
  if (operands.size() == 1) {
    add_sum(operands[0], out, specs);
    return;
  }
  const LabelledView a = without_lonely(operands[0], operands[1], out, specs);
  const LabelledView b = without_lonely(operands[1], operands[0], out, specs);
  const bool sums = std::any_of(a.labels.begin(), a.labels.end(),
                                [&](int label) { return has(b, label) && !has(out, label); });
  if (!sums) {
    add_products(a, b, out, specs);
  } else {
    Lowering(a, b, out, specs).run();
  }
}

}  // namespace meshtrain
