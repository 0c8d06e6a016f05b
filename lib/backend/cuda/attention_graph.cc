#include "backend/cuda/attention_graph.h"

#include <limits>
#include <utility>

namespace meshtrain::cuda {
namespace {

bool is_of_keys(AttentionArray name) {
  return name == AttentionArray::kK || name == AttentionArray::kV || name == AttentionArray::kDk ||
         name == AttentionArray::kDv;
}

bool is_of_rows(AttentionArray name) {  // a float32 of each query
  return name == AttentionArray::kLse || name == AttentionArray::kSums;
}

}  // namespace

int64_t attention_offset(const AttentionShape& n, AttentionArray name, int64_t sample,
                         int64_t group) {
  if (is_of_rows(name))
    return (sample * n.heads + group * n.readers()) * n.queries * 4;
  const int64_t item = static_cast<int64_t>(dtype_size(n.dtype));
  if (is_of_keys(name))
    return (sample * n.keys * n.groups + group) * n.head_size * item;
  return (sample * n.queries * n.heads + group * n.readers()) * n.head_size * item;
}

AttentionGraph::AttentionGraph(const Core& core, const AttentionShape& shape, AttentionPart part,
                               bool is_grad)
    : core_(core),
      shape_(shape),
      part_(part),
      type_(shape.dtype == DType::kFloat16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16) {
  if (is_grad)
    add_grad();
  else
    add_forward();
}

// o = softmax(mask(scale q k^T)) v, and the logarithms of the sums of exponentials.
void AttentionGraph::add_forward() {
  const Tensor q = array(AttentionArray::kQ), k = array(AttentionArray::kK, true);
  const Tensor s = scores(CUDNN_DATA_FLOAT), scale = number(static_cast<float>(shape_.scale));
  add_product(q, k, s);
  Tensor x = pointwise(CUDNN_POINTWISE_MUL, s, &scale);
  if (shape_.causal)
    x = causal(x);
  const Tensor largest = rows(), sum = rows(), lse = array(AttentionArray::kLse);
  add_reduction(CUDNN_REDUCE_TENSOR_MAX, x, largest);
  const Tensor less = pointwise(CUDNN_POINTWISE_SUB, x, &largest);
  const Tensor e = pointwise(CUDNN_POINTWISE_EXP, less);
  add_reduction(CUDNN_REDUCE_TENSOR_ADD, e, sum);
  const Tensor log = pointwise(CUDNN_POINTWISE_LOG, sum);
  add_pointwise({CUDNN_POINTWISE_ADD}, largest, &log, nullptr, lse);
  const Tensor p = like(s, type_);
  add_pointwise({CUDNN_POINTWISE_DIV}, e, &sum, nullptr, p);
  add_product(p, array(AttentionArray::kV), array(AttentionArray::kO));
}

// With p = exp(scores - lse) and ds = p (do v^T - sum(do o)) scale: dv = p^T do, dk = ds^T q, and
// dq = ds k. That dq is one product, with no sum of float32 beside it, gives each run the same
// bits: cuDNN then keeps ds in its workspace.
void AttentionGraph::add_grad() {
  const Tensor q = array(AttentionArray::kQ), k = array(AttentionArray::kK, true);
  const Tensor v = array(AttentionArray::kV, true), o = array(AttentionArray::kO);
  const Tensor o_cotangent = array(AttentionArray::kOCotangent), one = number(1);
  const Tensor scale = number(static_cast<float>(shape_.scale));

  const Tensor products = like(o);
  add_pointwise({CUDNN_POINTWISE_MUL}, o_cotangent, &o, nullptr, products);
  const Tensor sum = rows(), sums = array(AttentionArray::kSums);
  add_reduction(CUDNN_REDUCE_TENSOR_ADD, products, sum);
  add_pointwise({CUDNN_POINTWISE_MUL}, sum, &one, nullptr, sums);

  const Tensor s = scores(CUDNN_DATA_FLOAT), lse = array(AttentionArray::kLse);
  add_product(q, k, s);
  const Tensor scaled = pointwise(CUDNN_POINTWISE_MUL, s, &scale);
  Tensor x = pointwise(CUDNN_POINTWISE_SUB, scaled, &lse);
  if (shape_.causal)
    x = causal(x);
  const Tensor p = pointwise(CUDNN_POINTWISE_EXP, x);
  add_key_product(turned(p), o_cotangent, array(AttentionArray::kDv));

  const Tensor dp = scores(CUDNN_DATA_FLOAT);
  add_product(o_cotangent, v, dp);
  const Tensor centered = pointwise(CUDNN_POINTWISE_SUB, dp, &sums);
  const Tensor weighted = pointwise(CUDNN_POINTWISE_MUL, centered, &p);
  const Tensor ds = pointwise(CUDNN_POINTWISE_MUL, weighted, &scale);
  add_key_product(turned(ds), q, array(AttentionArray::kDk));
  const Tensor rows_of_k =
      tensor({k.sizes[0], k.sizes[1], k.sizes[3], k.sizes[2]},
             {k.strides[0], k.strides[1], k.strides[3], k.strides[2]}, type_, 0);
  add_turn(k, rows_of_k);
  add_product(ds, rows_of_k, array(AttentionArray::kDq));
}

AttentionGraph::Tensor AttentionGraph::array(AttentionArray name, bool is_turned) {
  const AttentionShape& n = shape_;
  const int64_t heads = part_.groups * n.readers();
  const auto place = static_cast<int64_t>(name);
  if (is_of_rows(name)) {
    return tensor({part_.samples, heads, n.queries, 1}, {n.heads * n.queries, n.queries, 1, 1},
                  CUDNN_DATA_FLOAT, place);
  }
  const int64_t rows = is_of_keys(name) ? n.keys : n.queries;
  const int64_t all_heads = is_of_keys(name) ? n.groups : n.heads, size = n.head_size;
  std::vector<int64_t> sizes = {part_.samples, is_of_keys(name) ? part_.groups : heads, rows, size};
  std::vector<int64_t> strides = {rows * all_heads * size, size, all_heads * size, 1};
  if (is_turned) {
    std::swap(sizes[2], sizes[3]);
    std::swap(strides[2], strides[3]);
  }
  return tensor(std::move(sizes), std::move(strides), type_, place);
}

AttentionGraph::Tensor AttentionGraph::number(float value) {
  CudnnObject& object = own(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t name = next_name_++;
  const bool is_by_value = true;
  const std::vector<int64_t> ones(4, 1);
  object.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, name);
  object.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  object.set(CUDNN_ATTR_TENSOR_DIMENSIONS, ones);
  object.set(CUDNN_ATTR_TENSOR_STRIDES, ones);
  object.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{4});
  object.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
  object.finalize();
  numbers_[name] = value;
  return {&object, ones, ones};
}

AttentionGraph::Tensor AttentionGraph::scores(cudnnDataType_t type, bool is_turned) {
  const int64_t heads = part_.groups * shape_.readers(), q = shape_.queries, k = shape_.keys;
  if (is_turned)
    return tensor({part_.samples, heads, k, q}, {heads * q * k, q * k, 1, k}, type, 0);
  return tensor({part_.samples, heads, q, k}, {heads * q * k, q * k, k, 1}, type, 0);
}

AttentionGraph::Tensor AttentionGraph::rows() {
  const int64_t heads = part_.groups * shape_.readers(), q = shape_.queries;
  return tensor({part_.samples, heads, q, 1}, {heads * q, q, 1, 1}, CUDNN_DATA_FLOAT, 0);
}

// `name`: of an array; 0: engines do not store it.
AttentionGraph::Tensor AttentionGraph::tensor(std::vector<int64_t> sizes,
                                              std::vector<int64_t> strides, cudnnDataType_t type,
                                              int64_t name) {
  CudnnObject& object = own(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const bool is_virtual = name == 0;
  object.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, is_virtual ? next_name_++ : name);
  object.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  object.set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes);
  object.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
  object.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  object.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  object.finalize();
  return {&object, std::move(sizes), std::move(strides)};
}

AttentionGraph::Tensor AttentionGraph::like(const Tensor& x, cudnnDataType_t type) {
  return tensor(x.sizes, x.strides, type, 0);
}

void AttentionGraph::add_product(const Tensor& a, const Tensor& b, const Tensor& c) {
  CudnnObject& product = own(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  product.finalize();
  CudnnObject& operation = own(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *a.object);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *b.object);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *c.object);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  add_operation(operation);
}

void AttentionGraph::add_reduction(cudnnReduceTensorOp_t reduction, const Tensor& x,
                                   const Tensor& y) {
  CudnnObject& kind = own(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &reduction);
  kind.finalize();
  CudnnObject& operation = own(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.object);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *y.object);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  add_operation(operation);
}

void AttentionGraph::add_turn(const Tensor& x, const Tensor& y) {
  CudnnObject& operation = own(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.object);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *y.object);
  add_operation(operation);
}

void AttentionGraph::add_pointwise(const Pointwise& what, const Tensor& x, const Tensor* other,
                                   const Tensor* chosen, const Tensor& y) {
  CudnnObject& kind = own(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &what.mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, what.type);
  if (what.axis >= 0)
    kind.set(CUDNN_ATTR_POINTWISE_AXIS, what.axis);
  kind.finalize();
  CudnnObject& operation = own(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *x.object);
  if (other != nullptr)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *other->object);
  if (chosen != nullptr)
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *chosen->object);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y.object);
  add_operation(operation);
}

AttentionGraph::Tensor AttentionGraph::pointwise(cudnnPointwiseMode_t mode, const Tensor& x,
                                                 const Tensor* other) {
  const Tensor y = like(x);
  add_pointwise({mode}, x, other, nullptr, y);
  return y;
}

// Minus infinity where the key is behind the query.
AttentionGraph::Tensor AttentionGraph::causal(const Tensor& scores) {
  const Tensor query = like(scores, CUDNN_DATA_INT32), key = like(scores, CUDNN_DATA_INT32);
  const Tensor is_seen = like(scores, CUDNN_DATA_BOOLEAN), masked = like(scores);
  add_pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2}, scores, nullptr, nullptr, query);
  add_pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3}, scores, nullptr, nullptr, key);
  add_pointwise({CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN}, query, &key, nullptr, is_seen);
  const Tensor behind = number(-std::numeric_limits<float>::infinity());
  add_pointwise({CUDNN_POINTWISE_BINARY_SELECT}, scores, &behind, &is_seen, masked);
  return masked;
}

AttentionGraph::Tensor AttentionGraph::turned(const Tensor& x) {
  const Tensor y = scores(type_, true);
  add_turn(x, y);
  return y;
}

void AttentionGraph::add_key_product(const Tensor& turned, const Tensor& of_queries,
                                     const Tensor& to) {
  if (shape_.readers() == 1)
    return add_product(turned, of_queries, to);
  const int64_t heads = part_.groups * shape_.readers(), k = shape_.keys, size = shape_.head_size;
  const Tensor of_heads =
      tensor({part_.samples, heads, k, size}, {heads * k * size, k * size, size, 1}, type_, 0);
  add_product(turned, of_queries, of_heads);
  add_reduction(CUDNN_REDUCE_TENSOR_ADD, of_heads, to);
}

CudnnObject& AttentionGraph::own(cudnnBackendDescriptorType_t type) {
  return *objects_.emplace_back(std::make_unique<CudnnObject>(core_, type));
}

void AttentionGraph::add_operation(CudnnObject& operation) {
  operation.finalize();
  operations_.push_back(operation.get());
}

}  // namespace meshtrain::cuda
