// What happens to arrays between the file and the model, on the host, once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "config/object.h"
#include "tensor/host_tensor.h"

namespace meshtrain {

// Begin and end of Python's slice "[begin:end]" over `size` samples, clamped as Python does; an end
// may be negative or a percentage ("[:90%]"). Throws ConfigError E113 for anything else.
std::pair<int64_t, int64_t> parse_slice(const std::string& text, int64_t size,
                                        const SourceLoc& loc);

// Rows [begin, end) of dimension 0.
HostTensor take_rows(const HostTensor& tensor, int64_t begin, int64_t end);

// Rescaling: x scale + offset in float32, float64 stays float64. Reshape: another shape of a
// sample. Throws ConfigError E304 where the shape does not fit.
HostTensor apply_transform(const ConfigObject& transform, HostTensor tensor,
                           const std::string& name);

// Labels (n,) or (n, 1) to float32 (n, num_classes). Labels out of range are E312.
HostTensor one_hot(const HostTensor& labels, int64_t num_classes, const std::string& name,
                   const SourceLoc& loc);

// Throws ConfigError E312 for the first label that is no class, with the number of all such.
void check_label_range(const HostTensor& labels, int64_t num_classes, const std::string& name,
                       const SourceLoc& loc);

// Index of the first NaN or infinity, -1 when all are finite. About memory speed.
int64_t first_nonfinite(const HostTensor& tensor);

}  // namespace meshtrain
