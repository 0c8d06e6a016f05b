#include "comm/mpi/reduce.h"

#include <algorithm>

#include "base/error.h"
#include "comm/mpi/calls.h"
#include "tensor/half.h"

namespace meshtrain::mpi {
namespace {

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
      return MPI_UINT8_T;
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kInt16:
      return MPI_INT16_T;
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return MPI_UINT16_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kUInt32:
      return MPI_UINT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUInt64:
      return MPI_UINT64_T;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
  }
  throw InternalError("no type of MPI for a dtype");
}

struct Float16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return half_to_float(bits); }
  static uint16_t store(float value) { return float_to_half(value); }
};
struct BFloat16 {
  using Stored = uint16_t;
  static float load(uint16_t bits) { return bfloat16_to_float(bits); }
  static uint16_t store(float value) { return float_to_bfloat16(value); }
};
template <class T>
struct Plain {
  using Stored = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

template <Reduction kReduction, class T>
T combine(T a, T b) {
  if constexpr (kReduction == Reduction::kSum) {
    return a + b;
  } else if constexpr (kReduction == Reduction::kMax) {
    return a >= b || a != a ? a : b;
  } else {
    return a <= b || a != a ? a : b;
  }
}

// A function as MPI_Op_create takes it.
template <Reduction kReduction, class Format>
void combine_all(void* in, void* in_out, int* count, MPI_Datatype*) {
  using Stored = typename Format::Stored;
  const Stored* a = static_cast<const Stored*>(in);
  Stored* b = static_cast<Stored*>(in_out);
  for (int i = 0; i < *count; ++i) {
    b[i] = Format::store(combine<kReduction>(Format::load(a[i]), Format::load(b[i])));
  }
}

template <Reduction kReduction>
MPI_User_function* function_for(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return combine_all<kReduction, Float16>;
    case DType::kBFloat16:
      return combine_all<kReduction, BFloat16>;
    case DType::kFloat32:
      return combine_all<kReduction, Plain<float>>;
    case DType::kFloat64:
      return combine_all<kReduction, Plain<double>>;
    default:
      throw InternalError("an operation of MPI does for integers");
  }
}

class AllReduce final : public Transfer {
 public:
  AllReduce(MPI_Comm comm, MPI_Op op, DType dtype, std::byte* data, int64_t elements)
      : comm_(comm),
        op_(op),
        type_(type_of(dtype)),
        item_(static_cast<int64_t>(dtype_size(dtype))),
        data_(data),
        elements_(elements) {}

  void run() override {
    for (int64_t at = 0; at < elements_; at += kMostElements) {
      const int count = static_cast<int>(std::min(kMostElements, elements_ - at));
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Iallreduce(MPI_IN_PLACE, data_ + at * item_, count, type_, op_, comm_, &request),
            "MPI_Iallreduce");
      wait(request, "MPI_Iallreduce");
    }
  }

 private:
  static constexpr int64_t kMostElements = int64_t{1} << 24;

  MPI_Comm comm_;
  MPI_Op op_;
  MPI_Datatype type_;
  int64_t item_;
  std::byte* data_;
  int64_t elements_;
};

}  // namespace

Operations::~Operations() {
  for (auto& [key, op] : own_) {
    MPI_Op_free(&op);
  }
}

MPI_Op Operations::of(Reduction reduction, DType dtype) {
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool is_sum = reduction == Reduction::kSum;
  if (!is_floating(dtype) || (is_sum && !is_half)) {
    return is_sum ? MPI_SUM : reduction == Reduction::kMax ? MPI_MAX : MPI_MIN;
  }
  MPI_Op& op = own_.try_emplace({reduction, dtype}, MPI_OP_NULL).first->second;
  if (op == MPI_OP_NULL) {
    MPI_User_function* const function = is_sum ? function_for<Reduction::kSum>(dtype)
                                        : reduction == Reduction::kMax
                                            ? function_for<Reduction::kMax>(dtype)
                                            : function_for<Reduction::kMin>(dtype);
    check(MPI_Op_create(function, 1, &op), "MPI_Op_create");
  }
  return op;
}

std::unique_ptr<Transfer> make_all_reduce(MPI_Comm comm, MPI_Op op, DType dtype, std::byte* data,
                                          int64_t elements) {
  return std::make_unique<AllReduce>(comm, op, dtype, data, elements);
}

}  // namespace meshtrain::mpi
