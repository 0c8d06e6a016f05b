#include "data/draft_model.h"

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace meshtrain {
namespace {

std::string convolutions() {
  return R"(    - Conv2D: {filters: 16, kernel_size: 3, padding: same, activation: relu}
    - MaxPooling2D: {padding: same}
    - Conv2D: {filters: 32, kernel_size: 3, padding: same, activation: relu}
    - MaxPooling2D: {padding: same}
    - Conv2D: {filters: 64, kernel_size: 3, padding: same, activation: relu}
    - GlobalAveragePooling2D
)";
}

std::string shape_text(const Shape& sample) {
  std::vector<std::string> sizes;
  for (const int64_t size : sample) {
    sizes.push_back(std::to_string(size));
  }
  return "[" + join(sizes, ", ") + "]";
}

}  // namespace

std::optional<int64_t> largest_class_of(const RowsPtr& labels) {
  if (labels == nullptr || labels->row_bytes() != dtype_size(labels->dtype())) {
    return std::nullopt;
  }
  bool are_classes = true;
  std::vector<int64_t> counts(1000);
  labels->for_each_block([&](int64_t, const HostTensor& block) {
    for (int64_t i = 0; i < block.size() && are_classes; ++i) {
      const double label = block.at(i);
      are_classes = label >= 0 && label < 1000 && label == static_cast<int64_t>(label);
      if (are_classes) {
        ++counts[static_cast<size_t>(label)];
      }
    }
  });
  if (!are_classes || (is_floating(labels->dtype()) && labels->size() == 0)) {
    return std::nullopt;
  }
  return *std::max_element(counts.begin(), counts.end());
}

DraftTargets draft_targets(const RowsPtr& labels) {
  if (labels == nullptr || labels->shape().size() != 2 || labels->shape()[1] < 2) {
    return DraftTargets::kNumbers;
  }
  bool are_hot = true, has_one_each = true;
  labels->for_each_block([&](int64_t, const HostTensor& block) {
    const int64_t width = block.shape()[1];
    for (int64_t begin = 0; begin < block.size() && are_hot; begin += width) {
      double sum = 0;
      for (int64_t i = begin; i < begin + width; ++i) {
        are_hot = are_hot && (block.at(i) == 0 || block.at(i) == 1);
        sum += block.at(i);
      }
      has_one_each = has_one_each && sum == 1;
    }
  });
  return !are_hot       ? DraftTargets::kNumbers
         : has_one_each ? DraftTargets::kOneHot
                        : DraftTargets::kMultiHot;
}

OutputDraft output_draft(const std::optional<Shape>& label, bool are_classes, const Shape& sample,
                         DraftTargets targets) {
  if (!label) {
    const int64_t size = num_elements(sample);
    return {fmt::format("    - Flatten\n    - Dense: {{name: code, units: 32, activation: relu}}\n"
                        "    - Dense: {{units: {}}}\n    - Reshape: {{target_shape: {}}}\n",
                        size, shape_text(sample)),
            "  loss: mse\n"};
  }
  if (are_classes) {
    return {"    - Dense: {name: class, units: =num_classes(), activation: softmax}\n",
            "  loss: sparse_categorical_crossentropy\n  metrics: [accuracy]\n"};
  }
  if (targets != DraftTargets::kNumbers) {
    const bool is_one = targets == DraftTargets::kOneHot;
    return {fmt::format("    - Dense: {{name: class, units: {}, activation: {}}}\n",
                        num_elements(*label), is_one ? "softmax" : "sigmoid"),
            fmt::format("  loss: {}\n  metrics: [{}]\n",
                        is_one ? "categorical_crossentropy" : "binary_crossentropy",
                        is_one ? "accuracy" : "binary_accuracy")};
  }
  return {fmt::format("    - Dense: {{name: value, units: {}}}\n", num_elements(*label)),
          "  loss: mse\n  metrics: [mae]\n"};
}

std::string model_draft(const Shape& sample, bool is_image, bool is_bytes, const OutputDraft& head,
                        bool is_own_target) {
  std::string layers = fmt::format("    - Input: {{shape: {}}}\n", shape_text(sample));
  const bool is_one_number = sample.empty();
  layers += is_one_number ? "    - Reshape: {target_shape: [1]}\n" : "";
  if (!is_own_target) {
    layers +=
        is_image && sample.size() == 2
            ? fmt::format("    - Reshape: {{target_shape: [{}, {}, 1]}}\n", sample[0], sample[1])
            : "";
    layers += is_bytes             ? "    - Rescaling: {scale: =1/255}\n"
              : sample.size() <= 1 ? "    - Normalization\n"
                                   : "";
    layers += is_image ? convolutions() : sample.size() > 1 ? "    - Flatten\n" : "";
    layers += is_image ? "" : "    - Dense: {units: 64, activation: relu}\n";
  }
  return "\nmodel:\n  layers:\n" + layers + head.layers +
         "\ncompile:\n  optimizer: {Adam: {learning_rate: 0.003}}\n" + head.compile;
}

}  // namespace meshtrain
