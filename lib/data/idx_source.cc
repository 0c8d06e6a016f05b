// Source idx: MNIST's files.
#include "data/idx.h"
#include "data/source_files.h"
#include "data/sources.h"

namespace meshtrain {

Dataset read_idx_source(const ConfigObject& source, const std::string& base_dir) {
  Dataset dataset;
  dataset.description = fmt::format("idx {}", source.string("images"));
  Reads reads;
  HostTensor images = reads.array(source.loc_of("images"), [&] {
    HostTensor tensor = read_idx(resolve(base_dir, source.string("images")));
    const Shape shape = tensor.shape();
    if (shape.size() == 1) {
      throw ConfigError("E307", {},
                        fmt::format("`{}` holds {} numbers, no images; are `images` and `labels` "
                                    "exchanged?",
                                    source.string("images"), shape[0]));
    }
    if (shape.size() == 3) {  // Keras' images have their channels last
      tensor.reshape({shape[0], shape[1], shape[2], 1});
    }
    return tensor;
  });
  dataset.inputs.push_back({"x", make_rows(std::move(images))});
  if (source.has("labels")) {
    HostTensor labels = reads.array(source.loc_of("labels"), [&] {
      HostTensor tensor = read_idx(resolve(base_dir, source.string("labels")));
      if (tensor.shape().size() > 2) {
        throw ConfigError(
            "E307", {},
            fmt::format("`{}` holds an array {}, no labels; are `images` and `labels` exchanged?",
                        source.string("labels"), shape_string(tensor.shape())));
      }
      return tensor;
    });
    dataset.targets.push_back({"y", make_rows(std::move(labels))});
  }
  reads.finish();
  return dataset;
}

}  // namespace meshtrain
