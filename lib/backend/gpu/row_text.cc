// The text of a kernel over rows.
//
//   x3[e], w5[e]   what is whole: an array, a value, at column base + e * lanes
//   s3, n5         one number a row
//
// Where a lane keeps all of its columns, e counts them and `base` is the lane; otherwise there is a
// loop over `base` for every reduction and one for the results, each of kColumnsAtATime columns at
// a time.
#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernel_text.h"
#include "backend/gpu/preamble.h"
#include "backend/gpu/reduction.h"
#include "backend/gpu/row_fusion.h"
#include "backend/gpu/tape_text.h"
#include "backend/gpu/text.h"

namespace meshtrain::gpu {
namespace {

constexpr int kColumnsAtATime = 4;

class RowText {
 public:
  explicit RowText(const RowPlan& plan) : plan_(plan) {}

  Launch launch() {
    Launch launch;
    const int64_t rows_of_block = kThreads / plan_.lanes;
    launch.blocks = static_cast<uint64_t>((plan_.rows + rows_of_block - 1) / rows_of_block);
    launch.work = plan_.work;
    text_ = declarations(launch.args);
    for (const RowPlan::Member& member : plan_.members)
      add(member);
    add_last_stores();
    launch.body = make_body("rows", std::move(text_), static_cast<unsigned>(widest_) * kThreads,
                            plan_.lanes > 1, "rows");
    return launch;
  }

 private:
  using Operand = RowPlan::Operand;
  using Member = RowPlan::Member;

  const RowPlan::Value& value(int v) const { return plan_.values[static_cast<size_t>(v)]; }
  bool holds() const { return plan_.held > 0; }
  static bool is_reduction(const Member& member) {
    return member.call->kind == RowCall::Kind::kReduce;
  }

  std::string declarations(std::vector<uint64_t>& args) const {
    int64_t reach = plan_.rows * plan_.columns + kThreads * (plan_.held + 8);
    for (const RowPlan::Array& array : plan_.arrays)
      reach += reach_of(array.rows.sizes, array.rows.strides[0]) +
               reach_of(array.columns.sizes, array.columns.strides[0]);
    std::string text = index_types(reach) + constant_line("U", "rows", plan_.rows) +
                       constant_line("U", "columns", plan_.columns) +
                       constant_line("unsigned", "lanes", plan_.lanes);
    text += constant_line("int", "count", holds() ? plan_.held : kColumnsAtATime);
    text += R"(const unsigned t = threadIdx.x, lane = t % lanes;
const U own = (U)block * (kThreads / lanes) + t / lanes;
)";
    const bool are_full = plan_.rows % (kThreads / plan_.lanes) == 0;  // all blocks
    text += are_full ? "const U row = own, end = columns;\n"
                     : "const U row = own < rows ? own : 0, end = own < rows ? columns : 0;\n";
    text += holds() ? "const U base = lane;\n" : "";
    for (size_t a = 0; a < plan_.arrays.size(); ++a) {
      const RowPlan::Array& array = plan_.arrays[a];
      text += offset_line(fmt::format("row{}", a), array.rows.sizes, array.rows.strides[0]);
      text += fmt::format("const {0}* p{1} = (const {0}*)arg[{1}] + row{1}(row);\n",
                          type_name(array.view.dtype), a);
      if (array.is_whole) {
        text +=
            offset_line(fmt::format("column{}", a), array.columns.sizes, array.columns.strides[0]);
      } else {
        text +=
            fmt::format("const {0} s{1} = mt::load(p{1});\n", compute_type(array.view.dtype), a);
      }
      args.push_back(address(array.view.data));
    }
    return text + result_declarations(args);
  }

  std::string result_declarations(std::vector<uint64_t>& args) const {
    std::string text = offset_line("row_of", plan_.result_rows.sizes, plan_.result_rows.strides[0]);
    text += offset_line("column_of", plan_.result_columns.sizes, plan_.result_columns.strides[0]);
    for (size_t v = 0; v < plan_.values.size(); ++v) {
      const RowPlan::Value& value = plan_.values[v];
      if (!value.is_stored)
        continue;
      text += fmt::format("{0}* to{1} = ({0}*)arg[{2}] + {3};\n", type_name(value.view.dtype), v,
                          args.size(), value.is_whole ? "row_of(row)" : "(I)row");
      args.push_back(address(value.view.data));
    }
    return text;
  }

  void add(const Member& member) {
    if (is_reduction(member)) {
      add_reduction(member);
    } else if (!member.is_whole) {
      add_of_rows(member);
    } else if (holds()) {
      add_held(member);
    }
  }

  // At all columns of a lane, or at those of a chunk; `r` is the column.
  static std::string columns_loop(std::string_view body, bool uses_r = true) {
    return fmt::format("#pragma unroll\nfor (int e = 0; e < count; ++e) {{\n{}{}}}\n",
                       uses_r ? "const U r = base + e * lanes;\n" : "", body);
  }
  static std::string chunks(const std::string& body) {
    return "for (U base = lane; base < end; base += count * lanes) {\n" + body + "}\n";
  }

  std::string load_text(size_t a) const {
    const std::string_view type = compute_type(plan_.arrays[a].view.dtype);
    return fmt::format("{} x{}[count];\n", type, a) +
           columns_loop(fmt::format("x{0}[e] = r < end ? mt::load(p{0} + column{0}(r)) : ({1})0;\n",
                                    a, type));
  }

  std::string compute_text(const Member& member) const {
    std::string text;
    for (const int v : member.results) {
      if (is_wanted(v))
        text += fmt::format("{} w{}[count];\n", compute_type(value(v).view.dtype), v);
    }
    return text + columns_loop(member_lines(member), member.call->kind == RowCall::Kind::kOneHot);
  }

  static std::string store_text(int v) {
    return columns_loop(fmt::format("if (r < end) mt::store(to{0} + column_of(r), w{0}[e]);\n", v));
  }

  // Arrays that the member is the first to read.
  void load_held(const Member& member) {
    is_loaded_.resize(plan_.arrays.size());
    for (const Operand& operand : member.operands) {
      const auto a = static_cast<size_t>(operand.index);
      if (operand.is_value || !plan_.arrays[a].is_whole || is_loaded_[a])
        continue;
      is_loaded_[a] = true;
      text_ += load_text(a);
    }
  }

  void add_held(const Member& member) {
    load_held(member);
    text_ += compute_text(member);
    for (const int v : member.results) {
      if (value(v).is_stored && !value(v).is_last)
        text_ += store_text(v);
    }
  }

  // Returns the text that computes the wanted values of a chunk from the operands.
  std::string chunk_text(const std::vector<Operand>& wanted) const {
    std::vector<bool> values(plan_.values.size()), arrays(plan_.arrays.size());
    const auto want = [&](const Operand& operand) {
      (operand.is_value ? values : arrays)[static_cast<size_t>(operand.index)] = true;
    };
    std::for_each(wanted.begin(), wanted.end(), want);
    std::vector<bool> is_needed(plan_.members.size());
    for (size_t m = plan_.members.size(); m-- > 0;) {
      const Member& member = plan_.members[m];
      is_needed[m] = member.is_whole && !is_reduction(member) &&
                     std::any_of(member.results.begin(), member.results.end(),
                                 [&](int v) { return values[static_cast<size_t>(v)]; });
      if (is_needed[m])
        std::for_each(member.operands.begin(), member.operands.end(), want);
    }
    std::string text;
    for (size_t a = 0; a < arrays.size(); ++a) {
      if (arrays[a] && plan_.arrays[a].is_whole)
        text += load_text(a);
    }
    for (size_t m = 0; m < is_needed.size(); ++m) {
      if (is_needed[m])
        text += compute_text(plan_.members[m]);
    }
    return text;
  }

  void add_last_stores() {
    std::vector<Operand> wanted;
    std::string stores;
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const int v = static_cast<int>(i);
      if (value(v).is_stored && value(v).is_whole && (value(v).is_last || !holds())) {
        wanted.push_back({true, v});
        stores += store_text(v);
      }
    }
    if (!wanted.empty())
      text_ += holds() ? stores : chunks(chunk_text(wanted) + stores);
  }

  // Numbers of a row, computed by all of its lanes.

  void add_of_rows(const Member& member) {
    for (const int v : member.results) {
      if (is_wanted(v))
        text_ += fmt::format("{} n{};\n", compute_type(value(v).view.dtype), v);
    }
    text_ += "{\n" + member_lines(member) + "}\n";
    for (const int v : member.results)
      store_of_row(v);
  }

  void store_of_row(int v) {
    if (value(v).is_stored)
      text_ += fmt::format("if (lane == 0 && own < rows) mt::store(to{0}, n{0});\n", v);
  }

  void add_reduction(const Member& member) {
    const Operand& x = member.operands[0];
    const DType dtype = plan_.view_of(x).dtype;
    const int v = member.results[0];
    if (holds())
      load_held(member);
    text_ += fmt::format("{} n{};\n{{\n", compute_type(value(v).view.dtype), v);
    const std::string_view op = reduction_name(member.call->reduction);
    text_ += fmt::format("RowTerms<{}, {}> terms;\n", op, compute_type(dtype));
    const std::string terms = fmt::format("take<lanes>(terms, {}, base, end);\n", base_name(x));
    text_ += holds() ? terms : chunks(chunk_text({x}) + terms);
    text_ += fmt::format("const {} all = join_lanes<lanes, {}>(terms, shared);\n",
                         compute_type(dtype), is_shared_used_);
    if (plan_.lanes > kWarp) {
      is_shared_used_ = true;
      widest_ = std::max(widest_, dtype_size(compute_dtype(dtype)));
    }
    text_ += fmt::format("n{} = {};\n}}\n", v, stored_as("all", dtype, value(v).view.dtype));
    store_of_row(v);
  }

  // Returns the text of a member for one column, or for one row.
  std::string member_lines(const Member& member) const {
    const RowCall& call = *member.call;
    const auto assigned = [&](size_t result, const std::string& text, DType dtype) {
      const int v = member.results[result];
      return is_wanted(v) ? fmt::format("{} = {};\n", name({true, v}),
                                        stored_as(text, dtype, value(v).view.dtype))
                          : std::string();
    };
    if (call.kind == RowCall::Kind::kCopy)
      return assigned(0, name(member.operands[0]), call.operands[0].dtype);
    if (call.kind == RowCall::Kind::kOneHot) {
      return assigned(0,
                      fmt::format("({})((long long){} - {} == (long long)r ? 1 : 0)",
                                  compute_type(call.lookup.dtype), name(member.operands[0]),
                                  literal(static_cast<double>(call.lookup.start), DType::kInt64)),
                      call.lookup.dtype);
    }
    const auto argument = [&](int arg) -> TapeArgument {
      const size_t i = static_cast<size_t>(arg);
      if (i < member.operands.size())
        return {name(member.operands[i]), plan_.view_of(member.operands[i]).dtype};
      const size_t earlier = i - member.operands.size();
      return {fmt::format("v{}", earlier), call.tape[earlier].dtype};
    };
    std::string text;
    for (size_t i = 0; i < call.tape.size(); ++i) {
      text += fmt::format("const {} v{} = {};\n", compute_type(call.tape[i].dtype), i,
                          instruction_text(call.tape[i], argument));
    }
    for (size_t r = 0; r < call.results.size(); ++r) {
      const auto instruction = static_cast<size_t>(call.results[r].instruction);
      text += assigned(r, fmt::format("v{}", instruction), call.tape[instruction].dtype);
    }
    return text;
  }

  // As it comes back after it was stored.
  static std::string stored_as(const std::string& text, DType dtype, DType stored) {
    if (is_16_bit(stored))
      return fmt::format("mt::rounded<{}>({})", type_name(stored), text);
    return dtype == stored ? text : fmt::format("({}){}", compute_type(stored), text);
  }

  bool is_wanted(int v) const { return value(v).is_used || value(v).is_stored; }

  std::string base_name(const Operand& operand) const {
    const bool whole = plan_.is_whole(operand);
    const char letter = operand.is_value ? (whole ? 'w' : 'n') : (whole ? 'x' : 's');
    return fmt::format("{}{}", letter, operand.index);
  }
  std::string name(const Operand& operand) const {
    return base_name(operand) + (plan_.is_whole(operand) ? "[e]" : "");
  }

  const RowPlan& plan_;
  std::string text_;
  std::vector<bool> is_loaded_;  // arrays
  bool is_shared_used_ = false;
  size_t widest_ = 0;  // bytes of a value that warps join, if any
};

}  // namespace

Launch row_launch(const RowPlan& plan) {
  return RowText(plan).launch();
}

}  // namespace meshtrain::gpu
