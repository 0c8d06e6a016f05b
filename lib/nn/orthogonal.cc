#include "nn/orthogonal.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace meshtrain {
namespace {

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// x -= 2 v (v . x) for the unit vector v.
void reflect(const double* v, double* x, int64_t n) {
  const double twice = 2 * dot(v, x, n);
  for (int64_t i = 0; i < n; ++i) {
    x[i] -= twice * v[i];
  }
}

// Makes x[0..n) the unit vector whose reflection maps x to (r, 0, ...); returns r.
double make_reflector(double* x, int64_t n) {
  const double norm = std::sqrt(dot(x, x, n));
  const double r = x[0] > 0 ? -norm : norm;
  x[0] -= r;
  const double length = std::sqrt(dot(x, x, n));
  for (int64_t i = 0; i < n && length > 0; ++i) {
    x[i] /= length;
  }
  return r;
}

}  // namespace

std::vector<double> orthogonal_matrix(std::vector<double> normals, int64_t rows, int64_t cols) {
  const int64_t n = std::max(rows, cols);
  const int64_t k = std::min(rows, cols);
  MESHTRAIN_CHECK(static_cast<int64_t>(normals.size()) == n * k);
  // Column-major copies: column j of the (n, k) matrix is a[j * n ...].
  std::vector<double> a(normals.size());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      a[j * n + i] = normals[i * k + j];
    }
  }
  std::vector<double> sign(static_cast<size_t>(k));
  for (int64_t j = 0; j < k; ++j) {
    double* v = &a[j * n + j];
    sign[j] = make_reflector(v, n - j) < 0 ? -1 : 1;
    for (int64_t c = j + 1; c < k; ++c) {
      reflect(v, &a[c * n + j], n - j);
    }
  }
  // Q = H_0 ... H_{k-1} applied to the first k unit vectors, times the signs of R's diagonal.
  std::vector<double> q(normals.size());
  std::vector<double> column(static_cast<size_t>(n));
  for (int64_t c = 0; c < k; ++c) {
    std::fill(column.begin(), column.end(), 0.0);
    column[c] = sign[c];
    for (int64_t j = k - 1; j >= 0; --j) {
      reflect(&a[j * n + j], &column[j], n - j);
    }
    for (int64_t i = 0; i < n; ++i) {
      q[rows >= cols ? i * k + c : c * n + i] = column[i];
    }
  }
  return q;
}

}  // namespace meshtrain
