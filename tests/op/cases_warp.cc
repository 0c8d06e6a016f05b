#include "op/op_case.h"

namespace meshtrain {

std::vector<OpCase> warp_cases() {
  std::vector<OpCase> cases;
  for (const char* op : {"affine_warp", "affine_warp_transpose"}) {
    for (const char* fill : {"constant", "nearest", "wrap", "reflect", "mirror"}) {
      for (const char* interpolation : {"bilinear", "nearest"}) {
        OpCase warp{fmt::format("{} with {} fill, {}", op, fill, interpolation), op, {}};
        warp.operands = {{{4, 3, 6, 2}}, {{4, 6}, DType::kFloat64, -2.3, 2.9}};
        warp.attrs = {{"interpolation", std::string(interpolation)},
                      {"fill", std::string(fill)},
                      {"fill_value", 0.0}};
        // Differences in the transform's direction would be seen, and no gradient flows there.
        warp.has_gradient = std::string_view(interpolation) == "nearest";
        cases.push_back(warp);
        OpCase projective = warp;
        projective.name += ", projective";
        projective.operands[1].shape = {4, 8};
        cases.push_back(std::move(projective));
        OpCase given = warp;
        given.name += ", given places";
        given.operands[1].shape = {4, 3, 6, 2};
        cases.push_back(std::move(given));
        if (std::string_view(fill) == "constant") {
          warp.name += " of a value";
          warp.attrs["fill_value"] = 1.5;
          cases.push_back(std::move(warp));
        }
      }
    }
  }
  return cases;
}

}  // namespace meshtrain
