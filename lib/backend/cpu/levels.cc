#include <algorithm>
#include <string>

#include "backend/cpu/cross_entropy_loops.h"
#include "backend/cpu/kernel_table.h"
#include "backend/cpu/rnn_loops.h"
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
  void fill_attention_##level(KernelTable& table);      \
  void fill_conv_##level(KernelTable& table);           \
  void fill_channels_##level(KernelTable& table);       \
  void fill_cross_entropy_##level(CrossEntropyLoops&);  \
  void fill_rnn_##level(RnnLoops&);                     \
  static KernelTable make_table_##level() {             \
    KernelTable table;                                  \
    fill_elementwise_##level(table);                    \
    fill_transcendental_##level(table);                 \
    fill_cast_##level(table);                           \
    fill_reduce_##level(table);                         \
    fill_random_##level(table);                         \
    fill_optimizer_##level(table);                      \
    fill_gemm_##level(table);                           \
    fill_attention_##level(table);                      \
    fill_conv_##level(table);                           \
    fill_channels_##level(table);                       \
    return table;                                       \
  }
// MESHTRAIN_LEVELS: how many levels this build has. One suffices for sanitizers: the source is the
// same.
MESHTRAIN_DECLARE_LEVEL(v2)
#if MESHTRAIN_LEVELS > 1
MESHTRAIN_DECLARE_LEVEL(v3)
#endif
#if MESHTRAIN_LEVELS > 2
MESHTRAIN_DECLARE_LEVEL(v4)
void fill_attention_bf16(KernelTable& table);

// With what this processor has beside the level. Intel's multiply bfloat16 slower than float32
// without AMX (tests/bench/README.md).
static KernelTable make_table_v4_here() {
  KernelTable table = make_table_v4();
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd"))
    fill_attention_bf16(table);
  return table;
}
#endif

namespace {

constexpr const char* kLevelNames[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};

int supported_levels() {
  __builtin_cpu_init();
  const int cpu = __builtin_cpu_supports("x86-64-v4")   ? 3
                  : __builtin_cpu_supports("x86-64-v3") ? 2
                                                        : 1;
  return std::min(cpu, MESHTRAIN_LEVELS);
}

}  // namespace

int num_kernel_levels() {
  static const int count = supported_levels();
  return count;
}

const KernelTable& kernels_of_level(int level) {
  MESHTRAIN_CHECK(level >= 0 && level < num_kernel_levels(), "kernel level {} of {}", level,
                  num_kernel_levels());
  static const KernelTable tables[] = {
    make_table_v2(),
#if MESHTRAIN_LEVELS > 1
    make_table_v3(),
#endif
#if MESHTRAIN_LEVELS > 2
    make_table_v4_here(),
#endif
  };
  return tables[level];
}

const KernelTable& kernels() {
  static const KernelTable& table = kernels_of_level(num_kernel_levels() - 1);
  return table;
}

#if MESHTRAIN_LEVELS > 2
#define MESHTRAIN_LEVELS_OF(fill) \
  { fill##_v2, fill##_v3, fill##_v4 }
#elif MESHTRAIN_LEVELS > 1
#define MESHTRAIN_LEVELS_OF(fill) \
  { fill##_v2, fill##_v3 }
#else
#define MESHTRAIN_LEVELS_OF(fill) \
  { fill##_v2 }
#endif

// Filled for the highest level that this processor can run.
template <class Loops>
static Loops filled(void (*const (&levels)[MESHTRAIN_LEVELS])(Loops&)) {
  Loops out;
  levels[num_kernel_levels() - 1](out);
  return out;
}

const CrossEntropyLoops& cross_entropy_loops() {
  static const CrossEntropyLoops loops =
      filled<CrossEntropyLoops>(MESHTRAIN_LEVELS_OF(fill_cross_entropy));
  return loops;
}

const RnnLoops& rnn_loops() {
  static const RnnLoops loops = filled<RnnLoops>(MESHTRAIN_LEVELS_OF(fill_rnn));
  return loops;
}

const char* kernel_level() {
  return kLevelNames[num_kernel_levels() - 1];
}

}  // namespace meshtrain::cpu
