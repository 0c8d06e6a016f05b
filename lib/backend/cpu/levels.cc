#include <string>

#include "backend/cpu/kernel_table.h"
#include "base/error.h"

namespace meshtrain::cpu {

#define MESHTRAIN_DECLARE_LEVEL(level)                  \
  void fill_elementwise_##level(KernelTable& table);    \
  void fill_transcendental_##level(KernelTable& table); \
  void fill_cast_##level(KernelTable& table);           \
  void fill_reduce_##level(KernelTable& table);         \
  void fill_random_##level(KernelTable& table);         \
  void fill_optimizer_##level(KernelTable& table);      \
  void fill_gemm_##level(KernelTable& table);           \
  void fill_conv_##level(KernelTable& table);           \
  void fill_channels_##level(KernelTable& table);       \
  static KernelTable make_table_##level() {             \
    KernelTable table;                                  \
    fill_elementwise_##level(table);                    \
    fill_transcendental_##level(table);                 \
    fill_cast_##level(table);                           \
    fill_reduce_##level(table);                         \
    fill_random_##level(table);                         \
    fill_optimizer_##level(table);                      \
    fill_gemm_##level(table);                           \
    fill_conv_##level(table);                           \
    fill_channels_##level(table);                       \
    return table;                                       \
  }
MESHTRAIN_DECLARE_LEVEL(v2)
MESHTRAIN_DECLARE_LEVEL(v3)
MESHTRAIN_DECLARE_LEVEL(v4)

namespace {

constexpr const char* kLevelNames[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};

int supported_levels() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return 3;
  if (__builtin_cpu_supports("x86-64-v3"))
    return 2;
  return 1;
}

}  // namespace

int num_kernel_levels() {
  static const int count = supported_levels();
  return count;
}

const KernelTable& kernels_of_level(int level) {
  MESHTRAIN_CHECK(level >= 0 && level < num_kernel_levels(), "kernel level {} of {}", level,
                  num_kernel_levels());
  static const KernelTable v2 = make_table_v2();
  static const KernelTable v3 = make_table_v3();
  static const KernelTable v4 = make_table_v4();
  return level == 0 ? v2 : level == 1 ? v3 : v4;
}

const KernelTable& kernels() {
  static const KernelTable& table = kernels_of_level(num_kernel_levels() - 1);
  return table;
}

const char* kernel_level() {
  return kLevelNames[num_kernel_levels() - 1];
}

}  // namespace meshtrain::cpu
