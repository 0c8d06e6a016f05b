#include "op/op_case.h"

namespace meshtrain {
namespace {

struct Setting {
  std::string name;
  int64_t causal = 0, window = 0;
  double rate = 0;
  std::string operands = "";
  int64_t batch = 2, queries = 4, keys = 4, heads = 4, groups = 2, head_size = 2, value_size = 4;
};

Attrs attrs_of(const Setting& s) {
  return {{"scale", 0.6},        {"causal", s.causal},    {"window", s.window},    {"rate", s.rate},
          {"seed", int64_t{-5}}, {"stream", int64_t{77}}, {"operands", s.operands}};
}

void add_operands(const Setting& s, std::vector<OperandSpec>& out) {
  const auto has = [&](const char* name) {
    return (" " + s.operands + " ").find(std::string(" ") + name + " ") != std::string::npos;
  };
  const Shape queries{s.batch, s.queries}, keys{s.batch, s.keys};
  if (has("step"))
    out.push_back({{}, DType::kInt64, 7, 7});
  if (has("query_mask"))
    out.push_back({queries, DType::kBool, 0, 1});
  if (has("key_mask"))
    out.push_back({keys, DType::kBool, 0, 1});
  for (const auto& [name, high] : {std::pair("segments", 1.0), std::pair("positions", 5.0)}) {
    if (has((std::string("query_") + name).c_str())) {
      out.push_back({queries, DType::kInt32, 0, high});
      out.push_back({keys, DType::kInt32, 0, high});
    }
  }
  if (has("mask"))
    out.push_back({{s.batch, s.name.ends_with("of each head") ? s.heads : 1, s.queries, s.keys},
                   DType::kBool,
                   0,
                   1});
  if (has("lse_cotangent"))
    out.push_back({{s.batch, s.heads, s.queries}});
}

// A row without a key has lse -infinity: finite differences of a sum of it say nothing.
bool may_have_empty_rows(const Setting& s) {
  return s.operands.find("mask") != std::string::npos ||
         s.operands.find("segments") != std::string::npos ||
         s.operands.find("positions") != std::string::npos;
}

OpCase forward(const Setting& s) {
  OpCase out{"attention " + s.name, "attention", {}, attrs_of(s)};
  out.operands = {{{s.batch, s.queries, s.heads, s.head_size}},
                  {{s.batch, s.keys, s.groups, s.head_size}},
                  {{s.batch, s.keys, s.groups, s.value_size}}};
  add_operands(s, out.operands);
  out.has_gradient = !may_have_empty_rows(s);
  return out;
}

// lse and o are not those of q, k and v here: the formulas do not ask for it.
OpCase backward(Setting s, bool has_lse_cotangent) {
  if (has_lse_cotangent)
    s.operands += s.operands.empty() ? "lse_cotangent" : " lse_cotangent";
  OpCase out = forward(s);
  out.name = "attention_grad " + s.name;
  out.op = "attention_grad";
  const OperandSpec o{{s.batch, s.queries, s.heads, s.value_size}};
  const auto at = out.operands.begin() + 3;
  out.operands.insert(at, {o, {{s.batch, s.heads, s.queries}}, o});
  out.has_gradient = false;
  return out;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  const std::vector<Setting> settings = {
      {"of everything"},
      {"causal", 1},
      {"causal in a window", 1, 2},
      {"in a window", 0, 3},
      {"with dropout", 0, 0, 0.4, "step"},
      {"causal with masks and dropout", 1, 0, 0.4, "step query_mask key_mask"},
      {"within segments", 0, 0, 0, "query_segments key_segments"},
      {"causal by positions", 1, 3, 0, "query_positions key_positions"},
      {"with a mask", 0, 0, 0, "mask"},
      {"with a mask of each head", 1, 0, 0, "key_mask mask"},
      {"of other lengths", 1, 0, 0, "", 2, 2, 6, 4, 4, 4, 2},
      {"of one key head", 0, 0, 0, "", 2, 4, 4, 4, 1, 2, 2},
  };
  std::vector<OpCase> cases;
  for (const Setting& s : settings) {
    cases.push_back(forward(s));
    cases.push_back(backward(s, false));
  }
  cases.push_back(backward({"with a cotangent of lse", 1}, true));
  for (int64_t inverse : {0, 1}) {
    for (int64_t batch : {1, 4}) {
      OpCase rotary{fmt::format("rotary of {} batches, inverse {}", batch, inverse), "rotary", {}};
      rotary.operands = {{{4, 6, 2, 4}}, {{batch, 6, 2}}, {{batch, 6, 2}}};
      rotary.attrs = {{"inverse", inverse}};
      rotary.has_gradient = false;  // differences see cosine and sine, which have none
      cases.push_back(std::move(rotary));
    }
  }
  return cases;
}

}  // namespace meshtrain
