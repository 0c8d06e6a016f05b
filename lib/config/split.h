// Split strings, the words of TensorFlow Datasets for a part of a data set's splits:
//
//   train   train[:90%]   train[-1000:]   test[100:200]   train[:10%]+train[90%:]
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshtrain {

struct SplitPart {
  std::string split;  // "train"
  std::string slice;  // "[:90%]"; empty: all of it
};

struct SplitString {
  std::vector<SplitPart> parts;  // their samples one after the other
  std::string problem;           // what is wrong; empty when it could be read
};

// `splits` are the names that there are.
SplitString parse_split(std::string_view text, std::span<const std::string> splits);

// "[begin:end]", where both may be missing, whole numbers, negative ones, or whole percentages from
// -100 to 100; blanks are left out. Nothing for other texts.
std::optional<std::string> normal_slice(std::string_view text);

}  // namespace meshtrain
