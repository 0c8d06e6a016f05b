// The graph of an attention as cuDNN checks it; engines, which need a driver, are for a GPU to try.
#include "backend/cuda/attention.h"

#include <doctest/doctest.h>

#include "backend/cuda/libraries.h"

namespace meshtrain::test {
namespace {

using cuda::AttentionArray;

AttentionShape attention_shape() {
  AttentionShape shape;
  shape.dtype = DType::kBFloat16;
  shape.batch = 6;
  shape.queries = 300;
  shape.keys = 260;
  shape.heads = 8;
  shape.groups = 4;
  shape.head_size = shape.value_size = 40;
  shape.scale = 0.3;
  return shape;
}

TEST_CASE("cuDNN accepts the graphs of attentions and of parts of them") {
  cuda::Core core;
  core.name = "described";
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (const int64_t groups : {4, 8}) {
      for (const bool causal : {false, true}) {
        for (const bool is_grad : {false, true}) {
          AttentionShape shape = attention_shape();
          shape.dtype = dtype;
          shape.groups = groups;
          shape.causal = causal;
          const cuda::AttentionGraph attention(core, shape, {2, groups / 2}, is_grad);
          cuda::CudnnObject graph(core, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
          const auto& operations = attention.operations();
          graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    static_cast<int64_t>(operations.size()), operations.data());
          CHECK(graph.try_finalize() == CUDNN_STATUS_SUCCESS);
          // The scale, minus infinity where keys are masked, and a gradient's 1.
          CHECK(attention.numbers().size() == size_t{1} + causal + is_grad);
        }
      }
    }
  }
}

TEST_CASE("a part of an attention begins at its sample and head") {
  const AttentionShape n = attention_shape();
  const auto offset = [&](AttentionArray array) { return attention_offset(n, array, 5, 3); };
  for (const AttentionArray array :
       {AttentionArray::kQ, AttentionArray::kO, AttentionArray::kDq, AttentionArray::kOCotangent})
    CHECK(offset(array) == 2 * (5 * 300 * 8 + 6) * 40);
  for (const AttentionArray array :
       {AttentionArray::kK, AttentionArray::kV, AttentionArray::kDk, AttentionArray::kDv})
    CHECK(offset(array) == 2 * (5 * 260 * 4 + 3) * 40);
  for (const AttentionArray array : {AttentionArray::kLse, AttentionArray::kSums})
    CHECK(offset(array) == 4 * (5 * 8 + 6) * 300);
}

TEST_CASE("GPUs on which cuDNN's attention was not tried compute it by our kernels") {
  cuda::Core core;
  core.compute = 80;
  cuda::Attentions attentions(core);
  gpu::Attention attention;
  attention.shape = attention_shape();
  CHECK(attentions.find_plan(attention) == nullptr);
}

}  // namespace
}  // namespace meshtrain::test
