#include "mesh/visualize.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace meshtrain {

namespace {

constexpr int kMaxColumns = 80;
constexpr int kMaxRows = 24;       // cells; more are left out in the middle
constexpr int kMinCellWidth = 10;  // as JAX draws small arrays
constexpr int kMaxLabel = 30;
// Background colours of cells, dark enough for white letters; neighbours differ clearly.
constexpr int kBackgrounds[] = {61, 130, 28, 125, 31, 94, 97, 22, 160, 24, 58, 90};

// "CPU 0-3,8": the devices of one cell, runs of three and more shortened.
std::string device_list(const DeviceMesh& mesh, const std::vector<int64_t>& devices) {
  const std::string& first = mesh.devices()[devices[0]];
  const std::string platform = first.substr(0, first.find(':') + 1);
  std::vector<int64_t> numbers;
  for (const int64_t device : devices) {
    const std::string& name = mesh.devices()[device];
    const std::string_view digits = std::string_view(name).substr(platform.size());
    const bool plain = starts_with(name, platform) && !platform.empty() && !digits.empty() &&
                       digits.size() < 10 &&
                       std::all_of(digits.begin(), digits.end(),
                                   [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!plain) {  // mixed or unusual names: positions in the mesh say it best
      return fmt::format("device {}", fmt::join(devices, ","));
    }
    numbers.push_back(std::stoll(std::string(digits)));
  }
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    if (end - begin >= 3) {
      parts.push_back(fmt::format("{}-{}", numbers[begin], numbers[end - 1]));
    } else {
      for (size_t i = begin; i < end; ++i) {
        parts.push_back(fmt::format("{}", numbers[i]));
      }
    }
    begin = end;
  }
  std::string name = platform.substr(0, platform.size() - 1);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format("{} {}", name, join(parts, ","));
}

struct Cell {
  std::string label;
  int color = 0;
};
using Grid = std::vector<std::vector<Cell>>;

// The dimensions drawn down and across; -1 where there is none.
struct Axes {
  int down = -1;
  int across = -1;
};

Axes choose_dims(const Sharding& sharding) {
  const int rank = static_cast<int>(sharding.dims.size());
  if (rank <= 2) {
    return rank == 0 ? Axes{} : rank == 1 ? Axes{-1, 0} : Axes{0, 1};
  }
  std::vector<int> order;
  for (const bool split : {true, false}) {
    for (int d = 0; d < rank; ++d) {
      if (!sharding.dims[d].empty() == split) {
        order.push_back(d);
      }
    }
  }
  return {std::min(order[0], order[1]), std::max(order[0], order[1])};
}

// Which of `count` rows or columns are drawn when there is room for `room`; -1 stands for "...".
std::vector<int64_t> drawn(int64_t count, int64_t room) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) {
    if (count <= room || i < room - 2 || i == count - 1) {
      out.push_back(i);
    } else if (out.back() != -1) {
      out.push_back(-1);
    }
  }
  return out;
}

Grid make_grid(const Sharding& sharding, const DeviceMesh& mesh, const Axes& dims) {
  static const AxisList kNone;
  const AxisList& down = dims.down < 0 ? kNone : sharding.dims[dims.down];
  const AxisList& across = dims.across < 0 ? kNone : sharding.dims[dims.across];
  const int64_t num_rows = mesh.size_of(down);
  const int64_t num_columns = mesh.size_of(across);
  std::vector<std::vector<int64_t>> holders(num_rows * num_columns);
  for (int64_t device = 0; device < mesh.num_devices(); ++device) {
    const int64_t row = mesh.index_along(device, down);
    holders[row * num_columns + mesh.index_along(device, across)].push_back(device);
  }
  const std::vector<int64_t> rows = drawn(num_rows, kMaxRows);
  for (int width = kMaxLabel;; --width) {
    // The widest label that leaves room for all columns, or the narrowest cells and "..." columns.
    Grid grid;
    int widest = kMinCellWidth - 2;
    const int64_t room = width > kMinCellWidth ? num_columns : (kMaxColumns - 1) / (width + 3);
    const std::vector<int64_t> columns = drawn(num_columns, std::max<int64_t>(room, 3));
    for (const int64_t row : rows) {
      grid.emplace_back();
      for (const int64_t column : columns) {
        Cell cell{"...", -1};
        if (row >= 0 && column >= 0) {
          const int64_t block = row * num_columns + column;
          cell = {device_list(mesh, holders[block]), static_cast<int>(block)};
          if (static_cast<int>(cell.label.size()) > width) {
            cell.label = cell.label.substr(0, width - 3) + "...";
          }
        }
        widest = std::max(widest, static_cast<int>(cell.label.size()));
        grid.back().push_back(std::move(cell));
      }
    }
    if (static_cast<int>(columns.size()) * (widest + 3) + 1 <= kMaxColumns ||
        width <= kMinCellWidth) {
      return grid;
    }
  }
}

std::string centred(const std::string& text, int width) {
  const int left = (width - static_cast<int>(text.size())) / 2;
  return fmt::format("{}{}{}", std::string(left, ' '), text,
                     std::string(width - left - static_cast<int>(text.size()), ' '));
}

std::string rule(size_t columns, int width, std::string_view left, std::string_view middle,
                 std::string_view right) {
  std::string out(left);
  for (size_t c = 0; c < columns; ++c) {
    for (int i = 0; i < width; ++i) {
      out += "─";
    }
    out += c + 1 == columns ? right : middle;
  }
  return out + "\n";
}

std::string framed(const Grid& grid, int width) {
  const size_t columns = grid[0].size();
  std::string out = rule(columns, width, "┌", "┬", "┐");
  for (size_t r = 0; r < grid.size(); ++r) {
    out += r == 0 ? std::string() : rule(columns, width, "├", "┼", "┤");
    for (const Cell& cell : grid[r]) {
      out += fmt::format("│{}", centred(cell.label, width));
    }
    out += "│\n";
  }
  return out + rule(columns, width, "└", "┴", "┘");
}

std::string coloured(const Grid& grid, int width) {
  std::string out;
  for (const std::vector<Cell>& row : grid) {
    for (const bool labelled : {false, true, false}) {
      for (const Cell& cell : row) {
        const std::string text = centred(labelled ? cell.label : std::string(), width);
        out += cell.color < 0
                   ? text
                   : fmt::format("\x1b[97;48;5;{}m{}\x1b[0m",
                                 kBackgrounds[cell.color % std::size(kBackgrounds)], text);
      }
      out += '\n';
    }
  }
  return out;
}

}  // namespace

std::string draw_sharding(const Shape& shape, const Sharding& sharding, const DeviceMesh& mesh,
                          bool color) {
  check_sharding(sharding, shape, mesh);
  const Axes dims = choose_dims(sharding);
  std::string out;
  if (shape.size() > 2) {
    out = fmt::format("dimensions {} (down) and {} (across) of {}\n", dims.down, dims.across,
                      shape_string(shape));
  }
  const Grid grid = make_grid(sharding, mesh, dims);
  size_t widest = kMinCellWidth - 2;
  for (const std::vector<Cell>& row : grid) {
    for (const Cell& cell : row) {
      widest = std::max(widest, cell.label.size());
    }
  }
  const int width = static_cast<int>(widest) + 2;
  out += color ? coloured(grid, width) : framed(grid, width);
  for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
    if (d != dims.down && d != dims.across && !sharding.dims[d].empty()) {
      out += fmt::format(
          "dimension {} is split too, {} ways: a cell lists the holders of all its "
          "parts\n",
          d, mesh.size_of(sharding.dims[d]));
    }
  }
  if (sharding.partial != 0) {
    const Sharding partial{{}, sharding.partial, sharding.combine};
    out += fmt::format("partial {}: every device holds a term\n",
                       sharding_string(partial, mesh).substr(3));
  }
  return out;
}

}  // namespace meshtrain
