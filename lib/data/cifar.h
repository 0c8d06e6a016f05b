// CIFAR-10 and CIFAR-100 in their binary form (www.cs.toronto.edu/~kriz/cifar.html): a gzipped tar
// of files of records, each a label (CIFAR-100: coarse and fine) and 3 planes of 32 x 32 bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor/host_tensor.h"

namespace meshtrain {

struct CifarImages {
  HostTensor images;  // uint8 (n, 32, 32, 3)
  HostTensor labels;  // uint8 (n, 1), as Keras has them
};

// Records of the archive's members of these names ("cifar-10-batches-bin/data_batch_1.bin"), in
// this order. `label_bytes` at the start of each record, of which number `label` is taken. Throws
// ConfigError: E300 not there, E306 damaged, or without these members.
CifarImages read_cifar(const std::string& path, const std::vector<std::string>& members,
                       int64_t label_bytes, int64_t label);

}  // namespace meshtrain
