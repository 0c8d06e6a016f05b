// Attention and rotary positions, over every way to split them, against the interpreter.
#include <doctest/doctest.h>

#include "check_op.h"

namespace meshtrain::testing {
namespace {

struct AttentionCase {
  int64_t batch, queries, keys, heads, groups, head_size, value_size;
};

constexpr AttentionCase kSmall{8, 16, 16, 8, 8, 4, 6};
constexpr AttentionCase kGrouped{8, 16, 8, 16, 8, 4, 4};
constexpr AttentionCase kWide{1, 40, 70, 2, 1, 16, 18};  // large enough for loops of bfloat16
constexpr AttentionCase kLong{2, 200, 150, 4, 2, 8, 5};  // several blocks, the last ones smaller

// Optional operands, by the names of the attribute.
std::vector<Operand> attention_operands(const AttentionCase& n, const std::string& names) {
  const auto has = [&](const std::string& name) {
    return (" " + names + " ").find(" " + name + " ") != std::string::npos;
  };
  const Shape queries{n.batch, n.queries}, keys{n.batch, n.keys};
  std::vector<Operand> out;
  if (has("step"))
    out.push_back({{}, DType::kInt64, Values::kStep});
  if (has("query_mask"))
    out.push_back({queries, DType::kBool, Values::kBool});
  if (has("key_mask"))
    out.push_back({keys, DType::kBool, Values::kBool});
  for (const char* pair : {"segments", "positions"}) {
    if (has(std::string("query_") + pair)) {
      out.push_back({queries, DType::kInt32, Values::kSmallIntegers});
      out.push_back({keys, DType::kInt32, Values::kSmallIntegers});
    }
  }
  if (has("mask"))
    out.push_back({{n.batch, 1, n.queries, n.keys}, DType::kBool, Values::kBool});
  return out;
}

void check_attention(const AttentionCase& n, const std::string& names, int64_t causal,
                     int64_t window, double rate) {
  const Operand q{{n.batch, n.queries, n.heads, n.head_size}};
  const Operand k{{n.batch, n.keys, n.groups, n.head_size}};
  const Operand v{{n.batch, n.keys, n.groups, n.value_size}};
  const Operand o{{n.batch, n.queries, n.heads, n.value_size}};
  const Operand lse{{n.batch, n.heads, n.queries}, DType::kFloat32, Values::kPositive, true};
  Attrs attrs = {{"scale", 0.4},     {"causal", causal},      {"window", window},
                 {"rate", rate},     {"seed", int64_t{1337}}, {"stream", int64_t{0x89ABCDEF}},
                 {"operands", names}};
  std::vector<Operand> operands = {q, k, v};
  std::vector<Operand> of_grad = {q, k, v, o, lse, o};
  for (const Operand& operand : attention_operands(n, names)) {
    operands.push_back(operand);
    of_grad.push_back(operand);
  }
  check_everywhere({"attention", operands, attrs, 1e-5});
  check_everywhere({"attention_grad", of_grad, attrs, 1e-5});
  if (!names.empty() || window > 0) {
    return;  // of lse's cotangent, that much is enough
  }
  of_grad.push_back(lse);
  attrs["operands"] = std::string("lse_cotangent");
  check_everywhere({"attention_grad", of_grad, attrs, 1e-5});
}

TEST_CASE("attention equals the interpreter on every split") {
  check_attention(kSmall, "", 0, 0, 0);
  check_attention(kSmall, "", 1, 0, 0);
  check_attention(kGrouped, "", 1, 5, 0);
}

TEST_CASE("masks of attention leave empty rows zero on every split") {
  check_attention(kSmall, "query_mask key_mask", 1, 0, 0);
  check_attention(kGrouped, "query_segments key_segments", 0, 0, 0);
  check_attention(kSmall, "query_positions key_positions", 1, 2, 0);
  check_attention(kSmall, "key_mask mask", 0, 0, 0);
}

TEST_CASE("dropout of attention does not depend on the mesh") {
  check_attention(kGrouped, "step", 0, 0, 0.4);
  check_attention(kSmall, "step query_mask", 1, 0, 0.1);
}

TEST_CASE("attention of several blocks equals the interpreter on every split") {
  check_attention(kLong, "", 1, 0, 0);
  check_attention(kLong, "step key_mask", 0, 40, 0.3);
  check_attention(kWide, "", 1, 0, 0);
  check_attention(kWide, "step key_mask", 0, 21, 0.3);
}

TEST_CASE("rotary positions equal the interpreter on every split") {
  for (int64_t batch : {1, 8}) {
    const Operand angles{{batch, 16, 3}};
    for (int64_t inverse : {0, 1})
      check_everywhere({"rotary", {{{8, 16, 8, 6}}, angles, angles}, {{"inverse", inverse}}});
  }
}

}  // namespace
}  // namespace meshtrain::testing
