#include "support/random_steps.h"

#include "support/small_models.h"

namespace meshtrain::testing {
namespace {

// One random layer on a (batch, width) value.
ValueId random_layer(StepBuilder& s, Random& random, ValueId h, int index) {
  Builder& b = s.b;
  const auto scope = b.scope(fmt::format("layer{}", index));
  const int64_t batch = b.shape(h)[0];
  const int64_t width = b.shape(h)[1];
  const std::string name = fmt::format("l{}", index);
  switch (random.below(9)) {
    case 0:
    case 1:
      h = s.dense(name, h, random.pick<int64_t>({4, 6, 8, 12}), random.chance(60));
      h = b.unary(std::string_view(random.pick({"tanh", "relu", "sigmoid"})), h);
      break;
    case 2: {  // a two-layer block with a residual connection
      const ValueId up = b.unary("relu", s.dense(name + "_up", h, 2 * width, random.chance(50)));
      h = b.add(h, s.dense(name + "_down", up, width, random.chance(50)));
      break;
    }
    case 3: {  // softmax over the features
      const ValueId e = b.exp(b.sub(h, b.reduce_max(h, {1}, true)));
      h = b.div(e, b.reduce_sum(e, {1}, true));
      break;
    }
    case 4: {  // normalisation with a scale
      const ValueId centred = b.sub(h, b.reduce_mean(h, {1}, true));
      const ValueId variance = b.reduce_mean(b.square(centred), {1}, true);
      h = b.mul(b.mul(centred, b.unary("rsqrt", b.add(variance, 1e-3))),
                s.weight(name + "/scale", {width}));
      break;
    }
    case 5: {  // split the features in two, mix them, merge again
      const ValueId split = b.reshape(h, {batch, 2, width / 2});
      const ValueId mixed =
          b.einsum("bgi,io->bgo", {split, s.weight(name + "/mix", {width / 2, 4})});
      h = b.reshape(b.transpose(mixed, {0, 2, 1}), {batch, 8});
      break;
    }
    case 6: {  // two branches side by side
      const ValueId left = s.dense(name + "_a", h, 4, false);
      const ValueId right = b.neg(s.dense(name + "_b", h, 8, true));
      h = b.concat({left, right}, 1);
      break;
    }
    case 7: {
      const ValueId step = b.constant(7, DType::kInt64);
      h = b.dropout(h, 0.3, step, 11);
      break;
    }
    default:
      h = b.concat({b.slice(h, 1, 0, width / 2), b.mul(b.slice(h, 1, width / 2, width), 0.5)}, 1);
  }
  if (random.chance(30)) {
    h = b.pin(h, name + "/output");
  }
  return h;
}

// A head with its loss, of weighted tokens; some ids are no class. The weights of its gradient
// depend on the loss itself at times.
ValueId random_head_loss(StepBuilder& s, Random& random, ValueId h) {
  Builder& b = s.b;
  const int64_t classes = 12, width = b.shape(h)[1];
  const bool transposed = random.chance(50);
  const ValueId table =
      s.weight("head/table", transposed ? Shape{width, classes} : Shape{classes, width});
  const ValueId ids = b.input("classes", {8}, DType::kInt32, true);
  const ValueList head =
      b.add_node("linear_cross_entropy", {h, table, ids}, {{"transposed", int64_t{transposed}}});
  ValueId losses = b.mul(head[0], b.reshape(b.slice(s.y, 1, 0, 1), {8}));
  if (random.chance(30)) {
    losses = b.square(losses);
  }
  return b.mul(b.reduce_sum_all(losses), 0.125);
}

}  // namespace

LayoutCase random_graph_step(Random& random) {
  StepBuilder s(8, random.pick<int64_t>({4, 8}), 4);
  ValueId h = s.x;
  if (random.chance(30)) {
    const ValueId ids = s.b.input("ids", {8, 3}, DType::kInt32, true);
    const ValueId rows = s.b.gather_rows(s.weight("tok/embeddings", {16, s.b.shape(h)[1]}), ids);
    h = s.b.add(h, s.b.reduce_sum(rows, {1}));
  }
  const int64_t layers = 1 + random.below(4);
  for (int64_t i = 0; i < layers; ++i) {
    h = random_layer(s, random, h, static_cast<int>(i));
  }
  if (random.chance(25)) {
    return layout_case(s.finish_loss(random_head_loss(s, random, h)));
  }
  return layout_case(s.finish(s.dense("head", h, 4, true)));
}

}  // namespace meshtrain::testing
