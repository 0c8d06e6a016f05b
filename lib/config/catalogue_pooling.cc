// Pooling layers: Keras 3.16 keras/src/layers/pooling.
#include <fmt/format.h>

#include "config/catalogue_layer_args.h"

namespace meshtrain {
namespace {

ClassSpec pooling(const char* kind, int rank, const char* help) {
  return layer_class(
      fmt::format("{}Pooling{}D", kind, rank), help,
      {per_dimension("pool_size", "2", "size of the window"),
       per_dimension("strides", "null", "step of the window; null = pool_size"),
       choice("padding", {"valid", "same"}, "valid", "same: windows may stand over the edge"),
       data_format_arg()});
}

ClassSpec global_pooling(const char* kind, int rank, const char* help) {
  return layer_class(
      fmt::format("Global{}Pooling{}D", kind, rank), help,
      {data_format_arg(), boolean("keepdims", "false", "keep the dimensions, of size 1")});
}

ClassSpec adaptive_pooling(const char* kind, int rank, const char* help) {
  return layer_class(
      fmt::format("Adaptive{}Pooling{}D", kind, rank), help,
      {per_dimension("output_size", "", "windows per dimension"), data_format_arg()});
}

}  // namespace

std::vector<ClassSpec> pooling_layer_classes() {
  std::vector<ClassSpec> out;
  for (int rank = 1; rank <= 3; ++rank) {
    out.push_back(pooling("Max", rank, "the largest of each window"));
    out.push_back(pooling("Average", rank, "the mean of each window's real cells"));
    out.push_back(global_pooling("Average", rank, "the mean of each channel"));
    out.push_back(global_pooling("Max", rank, "the largest of each channel"));
    out.push_back(adaptive_pooling("Average", rank, "means over a given number of windows"));
    out.push_back(adaptive_pooling("Max", rank, "the largest of a given number of windows"));
  }
  return out;
}

}  // namespace meshtrain
