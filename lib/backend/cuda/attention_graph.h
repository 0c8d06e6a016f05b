// Attention and its gradient as a graph of cuDNN's operations, which an engine of cuDNN computes as
// a few kernels without storing the scores.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backend/cuda/core.h"
#include "backend/cuda/cudnn.h"
#include "backend/gpu/command.h"

namespace meshtrain::cuda {

// Names of the arrays in a graph.
enum class AttentionArray : int64_t { kQ = 1, kK, kV, kO, kLse, kOCotangent, kDq, kDk, kDv, kSums };

// The samples and key heads that one graph computes, of arrays of a whole attention.
struct AttentionPart {
  int64_t samples = 0, groups = 0;
};

// Bytes from an array's begin to that of a sample and a key head, where an AttentionGraph's begins.
int64_t attention_offset(const AttentionShape& shape, AttentionArray name, int64_t sample,
                         int64_t group);

// Builds the operations in the order and form in which engines of cuDNN 9 know an attention.
class AttentionGraph {
 public:
  AttentionGraph(const Core& core, const AttentionShape& shape, AttentionPart part, bool is_grad);

  // The operations, to be made a graph.
  const std::vector<cudnnBackendDescriptor_t>& operations() const { return operations_; }
  // Numbers that engines read from the host at each run, by name.
  const std::map<int64_t, float>& numbers() const { return numbers_; }

 private:
  struct Tensor {
    const CudnnObject* object;
    std::vector<int64_t> sizes, strides;
  };
  void add_forward();
  void add_grad();

  Tensor array(AttentionArray name, bool is_turned = false);  // (features, rows) where turned
  Tensor number(float value);
  Tensor scores(cudnnDataType_t type, bool is_turned = false);
  Tensor rows();  // a number of each query
  Tensor tensor(std::vector<int64_t> sizes, std::vector<int64_t> strides, cudnnDataType_t type,
                int64_t name);
  // Values of the same sizes, which engines do not store.
  Tensor like(const Tensor& x, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  void add_product(const Tensor& a, const Tensor& b, const Tensor& c);
  void add_reduction(cudnnReduceTensorOp_t reduction, const Tensor& x, const Tensor& y);
  void add_turn(const Tensor& x, const Tensor& y);
  // Operands of one size, or of size 1 where they are repeated; `chosen`: of a selection.
  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t axis = -1;
  };
  void add_pointwise(const Pointwise& what, const Tensor& x, const Tensor* other,
                     const Tensor* chosen, const Tensor& y);
  Tensor pointwise(cudnnPointwiseMode_t mode, const Tensor& x, const Tensor* other = nullptr);
  Tensor causal(const Tensor& scores);
  Tensor turned(const Tensor& scores);
  // The product of turned scores and an array of queries, summed over the heads of a key head.
  void add_key_product(const Tensor& turned, const Tensor& of_queries, const Tensor& to);

  CudnnObject& own(cudnnBackendDescriptorType_t type);
  void add_operation(CudnnObject& operation);

  const Core& core_;
  AttentionShape shape_;
  AttentionPart part_;
  cudnnDataType_t type_;
  std::vector<std::unique_ptr<CudnnObject>> objects_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::map<int64_t, float> numbers_;
  int64_t next_name_ = 100;
};

}  // namespace meshtrain::cuda
