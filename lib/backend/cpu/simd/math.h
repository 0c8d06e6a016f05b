// Shared by the sources in simd/. They are compiled several times with different instruction sets.
// So nothing here or there may have external linkage except the fill functions. The linker could
// keep an inline function of the standard library that was compiled for AVX-512, for all levels.
// Hence no <cmath>, no <algorithm>, no <vector>.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernel_table.h"
#include "backend/formulas/elementwise.h"

#ifndef MESHTRAIN_ISA
#error "MESHTRAIN_ISA names the instruction set level, e.g. v3"
#endif
#define MESHTRAIN_JOIN_(a, b) a##_##b
#define MESHTRAIN_JOIN(a, b) MESHTRAIN_JOIN_(a, b)
#define MESHTRAIN_FILL(name) MESHTRAIN_JOIN(name, MESHTRAIN_ISA)

namespace meshtrain::cpu {

// Functions that the three compilations export, one per source.
void MESHTRAIN_FILL(fill_elementwise)(KernelTable& table);
void MESHTRAIN_FILL(fill_transcendental)(KernelTable& table);
void MESHTRAIN_FILL(fill_cast)(KernelTable& table);
void MESHTRAIN_FILL(fill_reduce)(KernelTable& table);
void MESHTRAIN_FILL(fill_random)(KernelTable& table);
void MESHTRAIN_FILL(fill_optimizer)(KernelTable& table);
void MESHTRAIN_FILL(fill_gemm)(KernelTable& table);
void MESHTRAIN_FILL(fill_conv)(KernelTable& table);
void MESHTRAIN_FILL(fill_channels)(KernelTable& table);

namespace {

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

template <class T>
constexpr int kIndexOf = -1;
template <>
constexpr int kIndexOf<uint8_t> = kTypeU8;
template <>
constexpr int kIndexOf<int32_t> = kTypeI32;
template <>
constexpr int kIndexOf<uint32_t> = kTypeU32;
template <>
constexpr int kIndexOf<int64_t> = kTypeI64;
template <>
constexpr int kIndexOf<float> = kTypeF32;
template <>
constexpr int kIndexOf<double> = kTypeF64;

}  // namespace
}  // namespace meshtrain::cpu
