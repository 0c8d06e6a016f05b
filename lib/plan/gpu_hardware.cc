#include "plan/gpu_hardware.h"

#include <algorithm>
#include <string>

namespace meshtrain {

const Hardware* hardware_of_gpu(const std::vector<Hardware>& table, std::string_view driver_name) {
  std::vector<std::string> words(1);
  for (const char c : driver_name) {
    if (c != ' ' && c != '-')
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string both = i + 1 < words.size() ? words[i] + words[i + 1] : words[i];
    for (const std::string& name : {words[i], both}) {
      const Hardware* const found = find_hardware(table, name);
      if (!name.empty() && found != nullptr && !found->is_virtual)
        return found;
    }
  }
  return nullptr;
}

}  // namespace meshtrain
