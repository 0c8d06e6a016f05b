// What is fed with files from strangers: each target reads the bytes of one file as the program
// would. Whatever they are, the file is read or refused with an error of the user's, within 2
// seconds, and a file that is refused has taken at most twice its size and 16 MiB of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshtrain::fuzz {

using Bytes = std::span<const std::byte>;

struct Target {
  std::string_view name;  // of its folder of inputs
  void (*read)(Bytes bytes);
  uint64_t memory = uint64_t{16} << 20;     // beyond twice the input
  uint64_t (*more)(Bytes bytes) = nullptr;  // what this input may take besides
};

void read_config(Bytes bytes);
void read_layout(Bytes bytes);
void read_npy(Bytes bytes);
void read_npz(Bytes bytes);
void read_safetensors(Bytes bytes);
void read_idx(Bytes bytes);
void read_csv(Bytes bytes);
void read_image(Bytes bytes);
// The coefficients of a progressive JPEG, all of which libjpeg keeps before it decodes the first
// pixel: two bytes a sample.
uint64_t image_coefficients(Bytes bytes);
void read_manifest(Bytes bytes);
void read_state(Bytes bytes);
void read_learned(Bytes bytes);
void read_keras(Bytes bytes);
void read_control(Bytes bytes);
void read_tokenizer(Bytes bytes);

inline constexpr Target kTargets[] = {
    {"config", read_config, uint64_t{64} << 20},  // of at most 1 MiB
    {"layout", read_layout},
    {"npy", read_npy},
    {"npz", read_npz},
    {"safetensors", read_safetensors},
    {"idx", read_idx},
    {"csv", read_csv},
    {"image", read_image, uint64_t{16} << 20, image_coefficients},
    {"manifest", read_manifest},
    {"state", read_state},
    {"learned", read_learned, uint64_t{64} << 20},  // of at most 1 MiB
    {"keras", read_keras},
    {"control", read_control},
    {"tokenizer", read_tokenizer},
};
const Target* find_target(std::string_view name);  // null when there is none

// The path of a file that holds `bytes`, in memory where possible.
std::string as_file(Bytes bytes);
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Feeds the target; what it did that it must not do, or "".
std::string complaint(const Target& target, Bytes bytes);

}  // namespace meshtrain::fuzz
