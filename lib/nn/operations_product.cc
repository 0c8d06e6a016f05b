// Products of tensors. Source: Keras 3.15 ops/numpy.py.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "nn/operations.h"

namespace meshtrain {
namespace {

using Context = OperationContext;

// Floats, and integers as floats: products have kernels for floats only.
std::vector<ValueId> factors(Context& c) {
  std::vector<ValueId> out = c.promoted(c.operands);
  for (ValueId& x : out) {
    if (!is_floating(c.b.dtype(x))) {
      operation_error("products are of floats", "cast(x, \"float32\") makes integers such");
    }
  }
  return out;
}

ValueId matmul(Context& c) {
  Builder& b = c.b;
  std::vector<ValueId> x = factors(c);
  const bool row = b.shape(x[0]).size() == 1, column = b.shape(x[1]).size() == 1;
  if (b.shape(x[0]).empty() || b.shape(x[1]).empty()) {
    operation_error("a number is no matrix", "write `*`");
  }
  x[0] = row ? b.expand_dims(x[0], 0) : x[0];
  x[1] = column ? b.expand_dims(x[1], 1) : x[1];
  Shape left = b.shape(x[0]), right = b.shape(x[1]);
  Shape left_batch(left.begin(), left.end() - 2), right_batch(right.begin(), right.end() - 2);
  if (left.back() != right[right.size() - 2] || !can_broadcast(left_batch, right_batch)) {
    operation_error(fmt::format("{} and {} cannot be multiplied as matrices", shape_string(left),
                                shape_string(right)),
                    "the last size of the first must be the last but one of the second");
  }
  // Dimensions of size 1 that broadcast are written out; missing ones just have no letter.
  std::string left_letters, right_letters, out_letters;
  const Shape batch = broadcast_shapes(left_batch, right_batch);
  const auto letters = [&](ValueId& value, const Shape& own) {
    Shape to(batch.end() - static_cast<std::ptrdiff_t>(own.size()), batch.end());
    to.insert(to.end(), b.shape(value).end() - 2, b.shape(value).end());
    value = b.broadcast_to(value, to);
    std::string out;
    for (size_t i = batch.size() - own.size(); i < batch.size(); ++i) {
      out += static_cast<char>('A' + i);
    }
    return out;
  };
  left_letters = letters(x[0], left_batch) + "ik";
  right_letters = letters(x[1], right_batch) + "kj";
  for (size_t i = 0; i < batch.size(); ++i) {
    out_letters += static_cast<char>('A' + i);
  }
  ValueId out =
      b.einsum(left_letters + "," + right_letters + "->" + out_letters + "ij", {x[0], x[1]});
  const auto rank = static_cast<int>(b.shape(out).size());
  out = column ? b.squeeze(out, rank - 1) : out;
  return row ? b.squeeze(out, rank - 2) : out;
}

// The product with the dimensions `left` of the first summed over the dimensions `right` of the
// second, pair by pair; the others follow, those of the first before those of the second.
ValueId contracted(Context& c, const std::vector<ValueId>& x, const std::vector<int64_t>& left,
                   const std::vector<int64_t>& right) {
  const Shape &a = c.b.shape(x[0]), &b = c.b.shape(x[1]);
  if (a.size() + b.size() > 26) {
    operation_error("more than 26 dimensions");
  }
  std::string first, second, out;
  for (size_t i = 0; i < a.size(); ++i) {
    first += static_cast<char>('a' + i);
  }
  for (size_t i = 0; i < b.size(); ++i) {
    second += static_cast<char>('a' + a.size() + i);
  }
  for (size_t i = 0; i < left.size(); ++i) {
    const auto l = static_cast<size_t>(left[i]), r = static_cast<size_t>(right[i]);
    if (a[l] != b[r]) {
      operation_error(fmt::format("sizes {} of {} and {} of {} are summed together", a[l],
                                  shape_string(a), b[r], shape_string(b)));
    }
    second[r] = first[l];
  }
  for (const std::string* letters : {&first, &second}) {
    const std::string& other = letters == &first ? second : first;
    for (const char letter : *letters) {
      out += other.find(letter) == std::string::npos ? std::string(1, letter) : "";
    }
  }
  return c.b.einsum(first + "," + second + "->" + out, {x[0], x[1]});
}

// As numpy.dot: over the last dimension of the first and the last but one of the second.
ValueId dot(Context& c) {
  const std::vector<ValueId> x = factors(c);
  const auto a = static_cast<int64_t>(c.b.shape(x[0]).size());
  const auto b = static_cast<int64_t>(c.b.shape(x[1]).size());
  return a == 0 || b == 0 ? c.b.mul(x[0], x[1]) : contracted(c, x, {a - 1}, {b == 1 ? 0 : b - 2});
}

ValueId inner(Context& c) {
  const std::vector<ValueId> x = factors(c);
  const auto a = static_cast<int64_t>(c.b.shape(x[0]).size());
  const auto b = static_cast<int64_t>(c.b.shape(x[1]).size());
  return a == 0 || b == 0 ? c.b.mul(x[0], x[1]) : contracted(c, x, {a - 1}, {b - 1});
}

// All numbers of the first with all of the second: (n, m), or their sum of products.
template <bool all_pairs>
ValueId flat_product(Context& c) {
  std::vector<ValueId> x = factors(c);
  for (ValueId& value : x) {
    value = c.b.reshape(value, {num_elements(c.b.shape(value))});
  }
  const std::vector<int64_t> summed = all_pairs ? std::vector<int64_t>{} : std::vector<int64_t>{0};
  return contracted(c, x, summed, summed);
}

// `axes`: so many last of the first with as many first of the second, or a list of both.
ValueId tensordot(Context& c) {
  const std::vector<ValueId> x = factors(c);
  const size_t a = c.b.shape(x[0]).size(), b = c.b.shape(x[1]).size();
  const ExprValue& given = c.arguments.at("axes");
  std::vector<int64_t> left, right;
  if (const auto* pair = std::get_if<std::vector<ExprValue>>(&given.data)) {
    if (pair->size() != 2) {
      operation_error("`axes` must be a number, or a list for each of the two tensors");
    }
    const auto in_order = [&](const ExprValue& axes, size_t rank) {
      const OperationArguments own = {{"axes", axes}};
      const OperationContext one{c.b, c.floatx, {}, own};
      one.axes("axes", rank);  // checks them
      std::vector<int64_t> out = one.integers("axes");
      for (int64_t& axis : out) {
        axis = normal_axis(axis, rank);
      }
      return out;
    };
    left = in_order((*pair)[0], a);
    right = in_order((*pair)[1], b);
  } else {
    const int64_t count = c.integer("axes");
    if (count < 0 || count > static_cast<int64_t>(std::min(a, b))) {
      operation_error(fmt::format("`axes` is {} for {} and {} dimensions", count, a, b));
    }
    for (int64_t i = 0; i < count; ++i) {
      left.push_back(static_cast<int64_t>(a) - count + i);
      right.push_back(i);
    }
  }
  if (left.size() != right.size()) {
    operation_error("`axes` names more dimensions of one tensor than of the other");
  }
  return contracted(c, x, left, right);
}

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

[[noreturn]] void wrong_equation(const std::string& text, std::string what) {
  operation_error(fmt::format("`{}` {}", text, what), "write it as \"bij,bjk->bik\"");
}

// Letters for the dimensions that `...` stands for, the same for all operands from the last on.
void expand_ellipsis(std::string& letters, size_t rank, const std::string& text, bool is_result,
                     size_t most) {
  const size_t at = letters.find("...");
  if (at == std::string::npos) {
    return;
  }
  const size_t count = is_result ? most : rank - std::min(rank, letters.size() - 3);
  if (count > 20) {
    wrong_equation(text, "has too many dimensions");
  }
  static constexpr std::string_view kSpare = "ZYXWVUTSRQPONMLKJIHG";
  std::string inner(kSpare.substr(0, count));
  std::reverse(inner.begin(), inner.end());
  letters.replace(at, 3, inner);
}

Equation read_equation(Context& c, std::string text, const std::vector<ValueId>& x) {
  std::erase(text, ' ');
  const size_t arrow = text.find("->");
  Equation out;
  out.operands = split(text.substr(0, arrow), ',');
  if (out.operands.size() != x.size()) {
    wrong_equation(text, fmt::format("has {} operands, not {}", out.operands.size(), x.size()));
  }
  size_t most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t rank = c.b.shape(x[i]).size();
    if (out.operands[i].find("...") != std::string::npos) {
      most = std::max(most, rank - std::min(rank, out.operands[i].size() - 3));
    }
    expand_ellipsis(out.operands[i], rank, text, false, 0);
    if (out.operands[i].size() != rank) {
      wrong_equation(text, fmt::format("gives operand {} as `{}`, whose shape is {}", i + 1,
                                       out.operands[i], shape_string(c.b.shape(x[i]))));
    }
  }
  if (arrow != std::string::npos) {
    out.result = text.substr(arrow + 2);
    expand_ellipsis(out.result, 0, text, true, most);
    return out;
  }
  std::map<char, int> counts;
  for (const std::string& operand : out.operands) {
    for (const char letter : operand) {
      ++counts[letter];
    }
  }
  for (const auto& [letter, count] : counts) {
    out.result += count == 1 ? std::string(1, letter) : "";
  }
  return out;
}

void check_equation(Context& c, const Equation& equation, const std::string& text,
                    const std::vector<ValueId>& x) {
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::string& letters = equation.operands[i];
    for (size_t d = 0; d < letters.size(); ++d) {
      const int64_t size = c.b.shape(x[i])[d];
      if (std::isalpha(static_cast<unsigned char>(letters[d])) == 0 ||
          letters.find(letters[d], d + 1) != std::string::npos) {
        wrong_equation(text, "has an operand with a letter twice, or with no letter");
      }
      if (const auto [known, is_new] = sizes.emplace(letters[d], size);
          !is_new && known->second != size) {
        wrong_equation(text,
                       fmt::format("names sizes {} and {} `{}`", known->second, size, letters[d]));
      }
    }
  }
  for (size_t d = 0; d < equation.result.size(); ++d) {
    const char letter = equation.result[d];
    if (!sizes.contains(letter) || equation.result.find(letter, d + 1) != std::string::npos) {
      wrong_equation(text,
                     fmt::format("has `{}` in the result, which no operand has, or twice", letter));
    }
  }
}

// Two operands at a time, from the left; letters that nothing later has are summed at once.
ValueId einsum(Context& c) {
  const std::string text = c.text("subscripts");
  std::vector<ValueId> x = factors(c);
  const Equation equation = read_equation(c, text, x);
  check_equation(c, equation, text, x);
  ValueId out = x[0];
  std::string letters = equation.operands[0];
  for (size_t i = 1; i < x.size(); ++i) {
    std::string later = equation.result;
    for (size_t j = i + 1; j < x.size(); ++j) {
      later += equation.operands[j];
    }
    std::string kept;
    for (const char letter : letters + equation.operands[i]) {
      const bool wanted = later.find(letter) != std::string::npos;
      kept += wanted && kept.find(letter) == std::string::npos ? std::string(1, letter) : "";
    }
    const std::string result = i + 1 == x.size() ? equation.result : kept;
    out = c.b.einsum(letters + "," + equation.operands[i] + "->" + result, {out, x[i]});
    letters = result;
  }
  return x.size() == 1 ? c.b.einsum(letters + "->" + equation.result, {out}) : out;
}

}  // namespace

std::vector<Operation> product_operations() {
  return {
      {"matmul", "Matmul", "numpy", "x1, x2", "", matmul},
      {"dot", "Dot", "numpy", "x1, x2", "", dot},
      {"inner", "Inner", "numpy", "x1, x2", "", inner},
      {"outer", "Outer", "numpy", "x1, x2", "", flat_product<true>},
      {"vdot", "Vdot", "numpy", "x1, x2", "", flat_product<false>},
      {"tensordot", "Tensordot", "numpy", "x1, x2", "axes=2", tensordot},
      {"einsum", "Einsum", "numpy", "*operands", "subscripts", einsum},
  };
}

}  // namespace meshtrain
