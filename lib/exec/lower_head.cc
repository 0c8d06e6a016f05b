// Head and loss of a classifier of tokens (ir/ops/linear_cross_entropy.cc): for a chunk of tokens
// after the other the product, the rows' losses and gradients in place, and the products back.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "exec/lower.h"
#include "ir/ops/linear_cross_entropy.h"

namespace meshtrain {
namespace {

constexpr int64_t kFewClasses = 64;

// The products and rows of one shard.
class HeadShard {
 public:
  HeadShard(StepContext& context, int64_t shard)
      : context_(context),
        shard_(shard),
        x_(context.input_shard(0, shard)),
        table_(context.input_shard(1, shard)),
        dtype_(context.input(0).dtype),
        item_(static_cast<int64_t>(dtype_size(dtype_))),
        features_(context.input(0).shape.back()),
        tokens_(num_elements(context.input(2).shape)) {
    const Buffer& table = context.input(1);
    const size_t classes = context.attr_int("transposed") != 0 ? 1 : 0;
    classes_ = table.shape[classes];
    class_step_ = classes == 0 ? features_ : 1;
    feature_step_ = classes == 0 ? 1 : classes_;
    // Rows of logits begin at whole accesses.
    const int64_t access = 16 / item_;
    logits_step_ = classes_ <= kFewClasses ? classes_ : (classes_ + access - 1) / access * access;
    product_classes_ = classes_;
    row_.dtype = dtype_;
    row_.row = logits_step_;
    row_.start = context.start(table, shard)[classes];
    row_.global_classes =
        context.has_attr("classes") ? context.attr_int("classes") : table.global_shape[classes];
    chunk_ = head_chunk(tokens_, features_, classes_, context.loss_tokens());
  }

  int64_t tokens() const { return tokens_; }
  int64_t classes() const { return classes_; }
  int64_t chunk() const { return chunk_; }
  int64_t logits_bytes() const { return chunk_ * logits_step_ * item_; }
  int64_t table_elements() const { return classes_ * features_; }
  DType dtype() const { return dtype_; }
  DType loss_dtype() const { return row_.loss_dtype(); }

  // The elements from token `first` on of operand or result `i`, of the loss's type.
  const std::byte* operand(size_t i, int64_t first) const {
    return context_.input_shard(i, shard_) + first * loss_item();
  }
  std::byte* result(size_t i, int64_t at) const {
    return context_.output_shard(i, shard_) + at * loss_item();
  }

  // Of a copy of the table for pad_table(); 0: it needs none.
  int64_t padded_bytes() const {
    const bool is_padded = context_.pads_products() && item_ <= 4 && logits_step_ > classes_;
    return is_padded ? logits_step_ * features_ * item_ : 0;
  }
  // On an H200 products along GPT-2's 50,257 classes took 3.1 ms, one of as many operations across
  // them 0.6. So they read a copy of the table with classes of zeros behind it, up to whole
  // accesses; their logits and gradients are 0.
  void pad_table(std::byte* padded, std::byte* zero) {
    const bool is_turned = class_step_ == 1;  // (features, classes)
    const int64_t class_step = is_turned ? 1 : features_;
    const int64_t feature_step = is_turned ? logits_step_ : 1;
    const auto classes = [&](int64_t first, int64_t count) {
      return View{padded + first * class_step * item_,
                  dtype_,
                  {count, features_},
                  {class_step, feature_step}};
    };
    const View table{const_cast<std::byte*>(table_),
                     dtype_,
                     {classes_, features_},
                     {class_step_, feature_step_}};
    const int64_t missing = logits_step_ - classes_;
    context_.add(CopySpec{table, classes(0, classes_)});
    context_.add(
        CopySpec{{zero, dtype_, {missing, features_}, {0, 0}}, classes(classes_, missing)});
    table_ = padded;
    feature_step_ = feature_step;
    product_classes_ = logits_step_;
  }

  void add_logits(std::byte* logits, int64_t first, int64_t count) const {
    MatmulSpec spec = product(count, product_classes_, features_);
    spec.a = x_at(first);
    spec.a_row = features_;
    spec.a_column = 1;
    spec.b = table_;
    spec.b_row = feature_step_;
    spec.b_column = class_step_;
    spec.c = logits;
    spec.c_row = logits_step_;
    context_.add(spec);
  }
  // Classes of the shard; behind them the table is filled up (the attribute `classes`).
  int64_t true_classes() const {
    return std::clamp<int64_t>(row_.global_classes - row_.start, 0, classes_);
  }
  bool is_filled_up() const { return true_classes() < classes_; }
  // The gradients of logits of what fills up the table.
  void clear_rest(std::byte* logits, int64_t count, const std::byte* zero) const {
    const Shape rest = {count, classes_ - true_classes()};
    context_.add(CopySpec{{const_cast<std::byte*>(zero), dtype_, rest, {0, 0}},
                          {logits + true_classes() * item_, dtype_, rest, {logits_step_, 1}}});
  }
  // Of the classes [begin, begin + size) of the shard; null where there are none.
  std::optional<CrossEntropySpec> rows(std::byte* logits, int64_t first, int64_t count,
                                       int64_t begin, int64_t size) const {
    const int64_t classes = std::min(size, true_classes() - begin);
    if (classes <= 0)
      return std::nullopt;
    CrossEntropySpec spec;
    spec.shape = row_;
    spec.shape.tokens = count;
    spec.shape.classes = classes;
    spec.shape.start += begin;
    spec.logits = logits + begin * item_;
    spec.ids = context_.input_shard(2, shard_) + first * 4;
    return spec;
  }
  void add_dx(const std::byte* gradients, int64_t first, int64_t count, std::byte* dx) const {
    MatmulSpec spec = product(count, features_, product_classes_);
    spec.a = gradients;
    spec.a_row = logits_step_;
    spec.a_column = 1;
    spec.b = table_;
    spec.b_row = class_step_;
    spec.b_column = feature_step_;
    spec.c = dx + first * features_ * item_;
    spec.c_row = features_;
    context_.add(spec);
  }
  void add_dtable(const std::byte* gradients, int64_t first, int64_t count, std::byte* dtable,
                  bool accumulate) const {
    struct Operand {
      const std::byte* data;
      int64_t size, step;  // of a token, and to the next
    };
    Operand a{gradients, classes_, logits_step_}, b{x_at(first), features_, features_};
    if (class_step_ == 1 && features_ != 1)  // a table of (features, classes)
      std::swap(a, b);
    MatmulSpec spec = product(a.size, b.size, count);  // the first operand is read transposed
    spec.a = a.data;
    spec.a_row = 1;
    spec.a_column = a.step;
    spec.b = b.data;
    spec.b_row = b.step;
    spec.b_column = 1;
    spec.c = dtable;
    spec.c_row = b.size;
    spec.accumulate = accumulate;
    context_.add(spec);
  }

 private:
  MatmulSpec product(int64_t m, int64_t n, int64_t k) const {
    MatmulSpec spec;
    spec.dtype = dtype_;
    spec.m = m;
    spec.n = n;
    spec.k = k;
    spec.batches = {{}};
    return spec;
  }
  const std::byte* x_at(int64_t token) const { return x_ + token * features_ * item_; }
  int64_t loss_item() const { return static_cast<int64_t>(dtype_size(loss_dtype())); }

  StepContext& context_;
  int64_t shard_;
  const std::byte *x_, *table_;
  DType dtype_;
  int64_t item_, features_, tokens_;
  int64_t classes_ = 0, class_step_ = 0, feature_step_ = 0, logits_step_ = 0, chunk_ = 0;
  int64_t product_classes_ = 0;  // of logits and their gradients in products
  CrossEntropyShape row_;
};

// The sum of all chunks' gradients of the table. In 16 bits each chunk's is rounded by its product,
// and their sum is of float32.
class TableGradient {
 public:
  TableGradient(StepContext& context, const HeadShard& head, std::byte* result)
      : context_(context), head_(head), result_(result) {
    is_rounded_ = dtype_size(head.dtype()) == 2 && head.chunk() < head.tokens();
    if (is_rounded_) {
      part_ = view(context.scratch(2 * head.table_elements()), head.dtype());
      sum_ = view(context.scratch(4 * head.table_elements()), DType::kFloat32);
    }
    if (head.tokens() == 0)
      context.add(FillSpec{view(result, head.dtype()), 0});
  }

  void add(const std::byte* gradients, int64_t first, int64_t count) {
    if (!is_rounded_) {
      head_.add_dtable(gradients, first, count, result_, first > 0);
      return;
    }
    head_.add_dtable(gradients, first, count, part_.data, false);
    const bool is_last = first + count == head_.tokens();
    const View to = is_last ? view(result_, head_.dtype()) : sum_;
    if (first == 0) {
      context_.add(TapeSpec{sum_.shape, {part_}, {{"cast", {0}, DType::kFloat32}}, {{0, sum_}}});
      return;
    }
    std::vector<TapeInstruction> tape = {{"cast", {0}, DType::kFloat32},
                                         {"add", {1, 2}, DType::kFloat32}};
    if (is_last)
      tape.push_back({"cast", {3}, head_.dtype()});
    const int last = static_cast<int>(tape.size()) - 1;
    context_.add(TapeSpec{sum_.shape, {part_, sum_}, std::move(tape), {{last, to}}});
  }

 private:
  View view(std::byte* data, DType dtype) const {
    return contiguous_view(data, dtype, {head_.table_elements()});
  }

  StepContext& context_;
  const HeadShard& head_;
  std::byte* result_;
  bool is_rounded_ = false;
  View part_, sum_;
};

// Calls use(first token, number) for one chunk after the other, whose logits are there.
template <class Use>
void for_each_chunk(const HeadShard& head, std::byte* logits, Use&& use) {
  for (int64_t first = 0; first < head.tokens(); first += head.chunk()) {
    const int64_t count = std::min(head.chunk(), head.tokens() - first);
    head.add_logits(logits, first, count);
    use(first, count);
  }
}

// All shards use the same memory for their logits and padded tables, one after the other. `zero`:
// of the head's type.
template <class LowerShard>
void for_each_shard(StepContext& context, LowerShard&& lower) {
  const HeadShard any(context, 0);
  std::byte* const logits = context.scratch(any.logits_bytes());
  std::byte* const padded = any.padded_bytes() > 0 ? context.scratch(any.padded_bytes()) : nullptr;
  std::byte* zero = nullptr;
  if (padded != nullptr || context.has_attr("classes")) {
    zero = context.scratch(8);
    context.add(FillSpec{contiguous_view(zero, any.dtype(), {1}), 0});
  }
  for (int64_t p = 0; p < context.num_shards(); ++p) {
    HeadShard head(context, p);
    if (padded != nullptr)
      head.pad_table(padded, zero);
    lower(p, head, logits, zero);
  }
}

void lower_forward(StepContext& context) {
  for_each_shard(context, [&](int64_t, const HeadShard& head, std::byte* logits, std::byte*) {
    for_each_chunk(head, logits, [&](int64_t first, int64_t count) {
      CrossEntropySpec rows = head.rows(logits, first, count, 0, head.classes()).value();
      rows.loss = head.result(0, first);
      rows.hits = head.result(1, first);
      context.add(rows);
    });
  });
}

// Gradients of whole rows give the losses, too; those of parts take the rows' sums of all classes.
void lower_gradient(StepContext& context, bool is_parts) {
  const size_t dx = is_parts ? 0 : 2, dtable = dx + 1;
  for_each_shard(context,
                 [&](int64_t p, const HeadShard& head, std::byte* logits, const std::byte* zero) {
                   TableGradient of_table(context, head, context.output_shard(dtable, p));
                   for_each_chunk(head, logits, [&](int64_t first, int64_t count) {
                     if (auto rows = head.rows(logits, first, count, 0, head.classes())) {
                       rows->weights = head.operand(3, first);
                       rows->lse = is_parts ? head.operand(4, first) : nullptr;
                       rows->loss = is_parts ? nullptr : head.result(0, first);
                       rows->hits = is_parts ? nullptr : head.result(1, first);
                       context.add(*rows);
                     }
                     if (head.is_filled_up())
                       head.clear_rest(logits, count, zero);
                     head.add_dx(logits, first, count, context.output_shard(dx, p));
                     of_table.add(logits, first, count);
                   });
                 });
}

void lower_parts(StepContext& context) {
  const int64_t blocks = context.output(0).shape[0];
  for_each_shard(context, [&](int64_t, const HeadShard& head, std::byte* logits, std::byte*) {
    const int64_t classes = head.classes() / blocks;
    for_each_chunk(head, logits, [&](int64_t first, int64_t count) {
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t at = b * head.tokens() + first;
        if (auto rows = head.rows(logits, first, count, b * classes, classes)) {
          rows->largest = head.result(0, at);
          rows->sum = head.result(1, at);
          rows->picked = head.result(2, at);
          rows->first = head.result(3, at);
          context.add(*rows);
          continue;
        }
        for (size_t r = 0; r < 4; ++r) {
          const View part = contiguous_view(head.result(r, at), head.loss_dtype(), {count});
          context.add(FillSpec{part, r == 0 ? -std::numeric_limits<double>::infinity() : 0});
        }
      }
    });
  });
}

}  // namespace

std::vector<OpLowering> head_lowerings() {
  return {{"linear_cross_entropy", lower_forward},
          {"linear_cross_entropy_grad", [](StepContext& c) { lower_gradient(c, false); }},
          {"linear_cross_entropy_parts", lower_parts},
          {"linear_cross_entropy_parts_grad", [](StepContext& c) { lower_gradient(c, true); }}};
}

}  // namespace meshtrain
