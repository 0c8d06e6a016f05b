// What the fake NVRTC makes of a text: the text itself, marked as machine code.
#pragma once

#include <string>

namespace meshtrain::fake_cuda {

constexpr const char* kCubinMark = "fake cubin of ";

inline std::string make_cubin(const std::string& architecture, const std::string& text) {
  return kCubinMark + architecture + "\n" + text;
}
// "" where it is something else.
inline std::string text_of_cubin(const std::string& cubin) {
  const size_t end = cubin.find('\n');
  return cubin.rfind(kCubinMark, 0) == 0 && end != std::string::npos ? cubin.substr(end + 1) : "";
}

}  // namespace meshtrain::fake_cuda
