// Random orthogonal matrices (Saxe, McClelland and Ganguli, 2014), as Keras' Orthogonal draws them.
#pragma once

#include <cstdint>
#include <vector>

namespace meshtrain {

// Row-major (rows, cols) with orthonormal columns (rows >= cols) or rows (rows < cols): the Q
// factor of the QR factorisation of the normal matrix (max, min). Its columns are multiplied by the
// signs of R's diagonal; it is transposed when rows < cols. `normals` holds rows * cols draws.
// Householder reflections in double, a fixed order of operations.
std::vector<double> orthogonal_matrix(std::vector<double> normals, int64_t rows, int64_t cols);

}  // namespace meshtrain
