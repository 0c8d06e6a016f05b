// Tapes of elementwise ops: one pass over the result, a few neighbours at a time. What lies between
// operands and results is computed in compute_type and not rounded to 16 bits, as on the CPU.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/tape_text.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

enum class Pattern {
  kFull,    // laid out as the results
  kScalar,  // one element
  kStrided,
};

class TapeText {
 public:
  TapeText(const Shape& shape, const std::vector<View>& operands,
           const std::vector<TapeInstruction>& tape, const std::vector<TapeResult>& results)
      : operands_(operands), tape_(tape), results_(results), loop_(coalesced(shape, operands)) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const std::vector<int64_t>& strides = loop_.strides[i + 1];
      const bool is_scalar =
          std::all_of(strides.begin(), strides.end(), [](int64_t stride) { return stride == 0; });
      patterns_.push_back(strides == loop_.strides[0] ? Pattern::kFull
                          : is_scalar                 ? Pattern::kScalar
                                                      : Pattern::kStrided);
      has_strided_ = has_strided_ || patterns_.back() == Pattern::kStrided;
    }
    choose_pack();
  }

  Launch launch() {
    const int64_t total = num_elements(loop_.sizes);
    const int each = pack_ > 1 ? pack_ : kSpread;
    Launch launch;
    launch.blocks = blocks_for(total, each);
    launch.work = total * static_cast<int64_t>(operands_.size() + results_.size());
    const int64_t step = static_cast<int64_t>(launch.blocks) * kThreads * each;
    for (const View& operand : operands_)
      launch.args.push_back(address(operand.data));
    for (const TapeResult& result : results_)
      launch.args.push_back(address(result.view.data));
    std::string text = index_types(loop_reach(loop_, step)) + declarations();
    // Without coordinates, one kernel serves every size.
    if (!has_strided_) {
      const size_t first = launch.args.size();
      text += fmt::format("const U n = (U)arg[{}], step = (U)arg[{}];\n", first, first + 1);
      launch.args.push_back(static_cast<uint64_t>(total));
      launch.args.push_back(static_cast<uint64_t>(step));
    } else {
      text += constant_line("U", "n", total) + constant_line("U", "step", step);
    }
    text += pack_ > 1 ? packed_loop() : spread_loop();
    launch.body = make_body("tape", std::move(text), 0, false);
    return launch;
  }

 private:
  static StridedLoop coalesced(const Shape& shape, const std::vector<View>& operands) {
    StridedLoop loop{shape, {row_major_strides(shape)}};
    for (const View& operand : operands)
      loop.strides.push_back(operand.strides);
    coalesce(loop);
    return loop;
  }

  // Neighbours that a thread computes together: they must be in one row of strided operands.
  void choose_pack() {
    int64_t widest = 1;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (patterns_[i] != Pattern::kScalar)
        widest = std::max(widest, operands_[i].item_size());
    }
    for (const TapeResult& result : results_)
      widest = std::max(widest, result.view.item_size());
    pack_ = largest_pack(widest);
    for (const TapeResult& result : results_) {
      while (!is_aligned(result.view.data, pack_ * result.view.item_size()))
        pack_ /= 2;
    }
    while (has_strided_ && loop_.sizes.back() % pack_ != 0)
      pack_ /= 2;
  }

  std::string declarations() const {
    std::string text;
    for (size_t i = 0; i < operands_.size(); ++i) {
      text += fmt::format("const {0}* p{1} = (const {0}*)arg[{1}];\n",
                          type_name(operands_[i].dtype), i);
      if (patterns_[i] == Pattern::kStrided)
        text += offset_line(fmt::format("at{}", i), loop_.sizes, loop_.strides[i + 1]);
    }
    for (size_t r = 0; r < results_.size(); ++r) {
      text += fmt::format("{0}* to{1} = ({0}*)arg[{2}];\n", type_name(results_[r].view.dtype), r,
                          operands_.size() + r);
    }
    return text;
  }

  std::string scalars() const {
    std::string text;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (patterns_[i] == Pattern::kScalar)
        text +=
            fmt::format("const {} a{} = mt::load(p{});\n", compute_type(operands_[i].dtype), i, i);
    }
    return text;
  }

  std::string arrays(int count) const {
    std::string text;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (patterns_[i] != Pattern::kScalar)
        text += fmt::format("{} a{}[{}] = {{}};\n", compute_type(operands_[i].dtype), i, count);
    }
    for (size_t r = 0; r < results_.size(); ++r)
      text += fmt::format("{} r{}[{}];\n", compute_type(results_[r].view.dtype), r, count);
    return text;
  }

  std::string packed_loop() const {
    std::string text = scalars();
    text += fmt::format(
        "for (U i = ((U)block * kThreads + threadIdx.x) * {}u; i < n; i += step) {{\n", pack_);
    text += arrays(pack_);
    for (size_t i = 0; i < operands_.size(); ++i)
      text += packed_read(i);
    text += compute(pack_);
    for (size_t r = 0; r < results_.size(); ++r)
      text += fmt::format("mt::write(to{0}, i, n, r{0});\n", r);
    return text + "}\n";
  }

  std::string packed_read(size_t i) const {
    const int64_t bytes = pack_ * operands_[i].item_size();
    if (patterns_[i] == Pattern::kScalar)
      return "";
    if (patterns_[i] == Pattern::kFull) {
      if (is_aligned(operands_[i].data, bytes))
        return fmt::format("mt::read(a{0}, p{0}, i, n);\n", i);
      return fmt::format(
          "#pragma unroll\n"
          "for (int e = 0; e < {0}; ++e) if (i + e < n) a{1}[e] = mt::load(p{1} + i + e);\n",
          pack_, i);
    }
    const std::vector<int64_t>& strides = loop_.strides[i + 1];
    std::string text = fmt::format("const I o{0} = at{0}(i);\n", i);
    const bool in_packs = strides.back() == 1 && is_aligned(operands_[i].data, bytes) &&
                          std::all_of(strides.begin(), strides.end() - 1,
                                      [this](int64_t stride) { return stride % pack_ == 0; });
    if (in_packs)
      return text + fmt::format("mt::read(a{0}, p{0}, o{0}, o{0} + {1});\n", i, pack_);
    return text + fmt::format(
                      "#pragma unroll\n"
                      "for (int e = 0; e < {0}; ++e) a{1}[e] = mt::load(p{1} + o{1} + e * {2});\n",
                      pack_, i, strides.back());
  }

  // Elements kThreads apart: the threads of a warp read neighbours.
  std::string spread_loop() const {
    std::string text = scalars();
    text += fmt::format("for (U i = (U)block * {}u + threadIdx.x; i < n; i += step) {{\n",
                        kSpread * kThreads);
    text += arrays(kSpread);
    text += fmt::format(
        "#pragma unroll\nfor (int e = 0; e < {}; ++e) {{\nconst U j = i + e * kThreads;\n"
        "if (j < n) {{\n",
        kSpread);
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (patterns_[i] != Pattern::kScalar) {
        text += fmt::format("a{0}[e] = mt::load(p{0} + {1});\n", i,
                            patterns_[i] == Pattern::kFull ? "j" : fmt::format("at{}(j)", i));
      }
    }
    text += "}\n}\n" + compute(kSpread);
    for (size_t r = 0; r < results_.size(); ++r) {
      text += fmt::format(
          "#pragma unroll\n"
          "for (int e = 0; e < {0}; ++e)\n"
          "if (i + e * kThreads < n) mt::store(to{1} + i + e * kThreads, r{1}[e]);\n",
          kSpread, r);
    }
    return text + "}\n";
  }

  std::string compute(int count) const {
    std::string text = fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) {{\n", count);
    for (size_t i = 0; i < tape_.size(); ++i) {
      const DType dtype = tape_[i].dtype;
      text += fmt::format("const {} v{} = {};\n", compute_type(dtype), i,
                          instruction_text(tape_[i], [this](int arg) { return argument(arg); }));
    }
    for (size_t r = 0; r < results_.size(); ++r)
      text += fmt::format("r{}[e] = v{};\n", r, results_[r].instruction);
    return text + "}\n";
  }

  TapeArgument argument(int arg) const {
    const size_t i = static_cast<size_t>(arg);
    if (i >= operands_.size())
      return {fmt::format("v{}", i - operands_.size()), tape_[i - operands_.size()].dtype};
    return {fmt::format("a{}{}", i, patterns_[i] == Pattern::kScalar ? "" : "[e]"),
            operands_[i].dtype};
  }

  const std::vector<View>& operands_;
  const std::vector<TapeInstruction>& tape_;
  const std::vector<TapeResult>& results_;
  StridedLoop loop_;  // array 0: the results, then the operands
  std::vector<Pattern> patterns_;
  bool has_strided_ = false;
  int pack_ = 1;
};

}  // namespace

void GpuLowering::make(const TapeSpec& spec) {
  const auto& [shape, operands, tape, results] = spec;
  if (num_elements(shape) == 0)
    return;
  if (row_calls_) {
    row_calls_->push_back({RowCall::Kind::kTape, path_, shape, operands, tape, results});
    row_calls_->back().last_reads = last_reads_;
    return;
  }
  std::vector<Access> accesses;
  for (const View& operand : operands)
    accesses.push_back(whole_access(operand, false));
  for (const TapeResult& result : results)
    accesses.push_back(whole_access(result.view, true));
  add(TapeText(shape, operands, tape, results).launch(), std::move(accesses));
  fuse_into_product(spec);
}

}  // namespace meshtrain::gpu
