#include "backend/cpu/half_tape.h"

#include <algorithm>

#include "backend/cpu/types.h"
#include "tensor/host_tensor.h"

namespace meshtrain::cpu {
namespace {

double rounded(DType dtype, double value) {
  HostTensor element(dtype, {1});
  element.set(0, value);
  return element.at(0);
}

class Widener {
 public:
  Widener(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape,
          const std::vector<TapeResult>& results)
      : operands_(operands),
        tape_(tape),
        results_(results),
        num_operands_(static_cast<int>(operands.size())),
        wide_operands_(operands.size(), -1) {}

  WideTape run() {
    out_.results = results_;
    for (const TapeInstruction& instruction : tape_) {
      places_.push_back(add(instruction));
      store(static_cast<int>(places_.size()) - 1, instruction.dtype);
    }
    return std::move(out_);
  }

 private:
  // Arguments are numbered as those of tapes.
  int emit(TapeInstruction instruction) {
    out_.instructions.push_back(std::move(instruction));
    return num_operands_ + static_cast<int>(out_.instructions.size()) - 1;
  }
  DType dtype_of(int arg) const {
    return arg < num_operands_ ? operands_[arg].dtype : tape_[arg - num_operands_].dtype;
  }

  // Where an argument is found, float32 in place of 16 bits.
  int wide(int arg) {
    if (arg >= num_operands_)
      return places_[arg - num_operands_];
    if (!is_half(operands_[arg].dtype))
      return arg;
    if (wide_operands_[arg] < 0)
      wide_operands_[arg] = emit({"cast", {arg}, DType::kFloat32, 0, 0});
    return wide_operands_[arg];
  }

  int add(TapeInstruction instruction) {
    const DType dtype = instruction.dtype;
    const DType from = instruction.args.empty() ? dtype : dtype_of(instruction.args[0]);
    for (int& arg : instruction.args)
      arg = wide(arg);
    if (is_half(dtype)) {
      instruction.dtype = DType::kFloat32;
      instruction.low = rounded(dtype, instruction.low);
      instruction.high = rounded(dtype, instruction.high);
    }
    const auto is_float32 = [](DType type) { return is_half(type) || type == DType::kFloat32; };
    if (instruction.op == "cast" && is_float32(from) && is_float32(dtype))
      return instruction.args[0];
    return emit(std::move(instruction));
  }

  // Stores the result of instruction `index` of the old tape. It becomes an instruction of the new
  // tape that has no other result.
  void store(int index, DType dtype) {
    const auto found =
        std::find_if(results_.begin(), results_.end(),
                     [&](const TapeResult& result) { return result.instruction == index; });
    if (found == results_.end())
      return;
    int place = places_[index];
    if (is_half(dtype)) {
      place = emit({"cast", {place}, dtype, 0, 0});
    } else if (place < num_operands_ ||
               std::find(taken_.begin(), taken_.end(), place) != taken_.end()) {
      place = emit({"copy", {place}, dtype, 0, 0});
    }
    taken_.push_back(place);
    out_.results[static_cast<size_t>(found - results_.begin())].instruction = place - num_operands_;
  }

  const std::vector<View>& operands_;
  const std::vector<TapeInstruction>& tape_;
  const std::vector<TapeResult>& results_;
  int num_operands_;
  std::vector<int> wide_operands_, places_;
  std::vector<int> taken_;  // places of results
  WideTape out_;
};

}  // namespace

bool has_halves(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape) {
  return std::any_of(operands.begin(), operands.end(),
                     [](const View& view) { return is_half(view.dtype); }) ||
         std::any_of(tape.begin(), tape.end(),
                     [](const TapeInstruction& i) { return is_half(i.dtype); });
}

WideTape widened_tape(const std::vector<View>& operands, const std::vector<TapeInstruction>& tape,
                      const std::vector<TapeResult>& results) {
  return Widener(operands, tape, results).run();
}

}  // namespace meshtrain::cpu
