// Updates of variables by their gradients. Sizes and addresses are arguments, so that all variables
// of a model are updated by one kernel.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/lowering.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

// Formulas and the order of slots: ir/ops/optimizer.cc; how they are computed:
// cpu/simd/optimizer.cc. In the text, p, g, s0.. are the elements and n0.. the new slots.
class UpdateText {
 public:
  explicit UpdateText(const OptimizerSpec& spec) : spec_(spec) {}

  int num_slots() const {
    switch (spec_.rule) {
      case OptimizerRule::kSgd:
        return 0;
      case OptimizerRule::kMomentum:
      case OptimizerRule::kNesterov:
        return 1;
      case OptimizerRule::kRmsprop:
        return 1 + (has_momentum() ? 1 : 0) + (is_variant() ? 1 : 0);
      default:
        return is_variant() ? 3 : 2;
    }
  }

  // Arguments: param, grad, new_param; of each slot the old and the new one; rate, perhaps decay;
  // the number of elements and the step of threads.
  std::string text(int pack) const {
    const int slots = num_slots(), scalars = 3 + 2 * slots;
    const bool has_decay = spec_.decay != nullptr;
    const int sizes = scalars + (has_decay ? 2 : 1);
    std::string text = type_line("T", compute_type(spec_.dtype)) +
                       type_line("E", type_name(spec_.dtype)) +
                       fmt::format("const T rate = mt::load((const E*)arg[{}]);\n", scalars);
    if (has_decay)
      text += fmt::format("const T decay = mt::load((const E*)arg[{}]);\n", scalars + 1);
    text += fmt::format(
        "const unsigned long long n = arg[{0}], step = arg[{1}];\n"
        "for (unsigned long long i = ((unsigned long long)block * kThreads + threadIdx.x) * {2}u; "
        "i < n; i += step) {{\n"
        "T ps[{2}], gs[{2}];\n"
        "mt::read(ps, (const E*)arg[0], i, n);\n"
        "mt::read(gs, (const E*)arg[1], i, n);\n",
        sizes, sizes + 1, pack);
    for (int s = 0; s < slots; ++s) {
      text += fmt::format("T ss{0}[{1}], ns{0}[{1}];\nmt::read(ss{0}, (const E*)arg[{2}], i, n);\n",
                          s, pack, 3 + 2 * s);
    }
    text += fmt::format("#pragma unroll\nfor (int e = 0; e < {}; ++e) {{\n", pack) +
            "T p = ps[e];\nconst T g = gs[e];\n";
    for (int s = 0; s < slots; ++s)
      text += fmt::format("const T s{0} = ss{0}[e];\nT n{0};\n", s);
    text += update() + "ps[e] = p;\n";
    for (int s = 0; s < slots; ++s)
      text += fmt::format("ns{0}[e] = n{0};\n", s);
    text += "}\nmt::write((E*)arg[2], i, n, ps);\n";
    for (int s = 0; s < slots; ++s)
      text += fmt::format("mt::write((E*)arg[{}], i, n, ns{});\n", 4 + 2 * s, s);
    return text + "}\n";
  }

 private:
  // Statements that end with the new parameter in `p`.
  std::string update() const {
    std::string text = spec_.decay != nullptr ? "T w = p - p * decay;\n" : "T w = p;\n";
    switch (spec_.rule) {
      case OptimizerRule::kSgd:
        return text + "p = w - rate * g;\n";
      case OptimizerRule::kMomentum:
      case OptimizerRule::kNesterov:
        text += fmt::format("const T step = rate * g;\nn0 = {} * s0 - step;\n", momentum());
        return text + (spec_.rule == OptimizerRule::kMomentum
                           ? "p = w + n0;\n"
                           : fmt::format("p = w + ({} * n0 - step);\n", momentum()));
      case OptimizerRule::kRmsprop:
        return text + rmsprop();
      default:
        return text + adam();
    }
  }

  bool is_variant() const { return spec_.args.scalars[kVariant] != 0; }
  bool has_momentum() const { return spec_.args.scalars[kMomentumFactor] > 0; }
  std::string number(double value) const { return literal(value, spec_.dtype); }
  std::string momentum() const { return number(spec_.args.scalars[kMomentumFactor]); }
  std::string epsilon() const { return number(spec_.args.scalars[kEpsilonTerm]); }

  std::string rmsprop() const {
    const double rho = spec_.args.scalars[kRho];
    const std::string keep = number(rho), rest = number(1.0 - rho);
    std::string text = fmt::format("n0 = {} * s0 + {} * (g * g);\n", keep, rest);
    if (is_variant()) {
      const int average = has_momentum() ? 2 : 1;
      text += fmt::format("n{0} = {1} * s{0} + {2} * g;\nconst T below = n0 - n{0} * n{0} + {3};\n",
                          average, keep, rest, epsilon());
    } else {
      text += fmt::format("const T below = n0 + {};\n", epsilon());
    }
    text += "T increment = rate * g / mt::sqrt(below);\n";
    if (has_momentum())
      text += fmt::format("increment = {} * s1 + increment;\nn1 = increment;\n", momentum());
    return text + "p = w - increment;\n";
  }

  std::string adam() const {
    const auto& scalars = spec_.args.scalars;
    std::string text = fmt::format("n0 = s0 + (g - s0) * {};\nn1 = s1 + (g * g - s1) * {};\n",
                                   number(1.0 - scalars[kBeta1]), number(1.0 - scalars[kBeta2]));
    if (is_variant())
      text += "n2 = mt::max(s2, n1);\n";
    return text + fmt::format("p = w - rate * n0 / (mt::sqrt({}) + {});\n",
                              is_variant() ? "n2" : "n1", epsilon());
  }

  const OptimizerSpec& spec_;
};

}  // namespace

void GpuLowering::make(const OptimizerSpec& spec) {
  MESHTRAIN_CHECK(is_floating(spec.dtype), "no optimizer of {}", dtype_name(spec.dtype));
  if (spec.num_elements == 0)
    return;
  const UpdateText update(spec);
  const int slots = update.num_slots();
  const auto item = static_cast<int64_t>(dtype_size(spec.dtype));
  int pack = std::min(largest_pack(item), 4);
  std::vector<Use> uses;
  Launch launch;
  const auto add_array = [&](const void* data, bool is_write) {
    while (!is_aligned(data, pack * item))
      pack /= 2;
    launch.args.push_back(address(data));
    uses.push_back({static_cast<const std::byte*>(data), spec.num_elements * item, is_write});
  };
  add_array(spec.args.param, false);
  add_array(spec.args.grad, false);
  add_array(spec.args.new_param, true);
  for (int s = 0; s < slots; ++s) {
    add_array(spec.args.slots[s], false);
    add_array(spec.args.new_slots[s], true);
  }
  for (const std::byte* scalar : {spec.rate, spec.decay}) {
    if (scalar == nullptr)
      continue;
    launch.args.push_back(address(scalar));
    uses.push_back({scalar, item, false});
  }
  launch.blocks = blocks_for(spec.num_elements, pack);
  launch.work = spec.num_elements * (3 + 2 * slots);
  launch.args.push_back(static_cast<uint64_t>(spec.num_elements));
  launch.args.push_back(launch.blocks * kThreads * static_cast<uint64_t>(pack));
  launch.body = make_body("optimizer", update.text(pack), 0, false);
  add(std::move(launch), uses);
}

}  // namespace meshtrain::gpu
