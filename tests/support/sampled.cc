#include "support/sampled.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>

namespace meshtrain::test {
namespace {

std::optional<size_t> number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr || *text == '\0')
    return std::nullopt;
  const std::string digits = text;
  const char* const end = digits.data() + digits.size();
  size_t number = 0;
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end)
    throw std::runtime_error(std::string(variable) + "=" + digits + " is not a number");
  return number;
}

}  // namespace

bool runs_everything() {
  return number_of("MESHTRAIN_TEST_LONG").value_or(0) != 0;
}

size_t test_offset() {
  return number_of("MESHTRAIN_TEST_OFFSET").value_or(0);
}

bool is_sampled(size_t i, size_t stride) {
  if (const char* const part = std::getenv("MESHTRAIN_TEST_PART")) {
    size_t first = 0, parts = 0;
    if (std::sscanf(part, "%zu/%zu", &first, &parts) != 2 || first >= parts)
      throw std::runtime_error(std::string("MESHTRAIN_TEST_PART=") + part + " is not like 1/4");
    return i % parts == first;
  }
  return runs_everything() || i % stride == test_offset() % stride;
}

std::vector<size_t> sampled(size_t n, size_t stride) {
  // Of fewer numbers than the stride one is taken, another one with each commit.
  stride = stride < n ? stride : n;
  std::vector<size_t> out;
  for (size_t i = 0; i < n; ++i) {
    if (is_sampled(i, stride))
      out.push_back(i);
  }
  return out;
}

std::vector<size_t> sampled_seeds(size_t n, size_t stride) {
  const std::optional<size_t> asked = number_of("MESHTRAIN_RANDOM_CASES");
  if (!asked)
    return sampled(n, stride);
  std::vector<size_t> out(*asked);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = i;
  return out;
}

}  // namespace meshtrain::test
