#include "mesh/visualize.h"

#include <doctest/doctest.h>

#include "base/text.h"

using namespace meshtrain;

namespace {
std::string draw(const Shape& shape, std::string_view sharding, const DeviceMesh& mesh,
                 bool color = false) {
  return draw_sharding(shape, parse_sharding(sharding, mesh), mesh, color);
}
// Terminal columns: code points outside escape sequences.
int columns(std::string_view line) {
  int count = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      i = line.find('m', i);
    } else if ((static_cast<unsigned char>(line[i]) & 0xC0) != 0x80) {
      ++count;
    }
  }
  return count;
}
const DeviceMesh kMesh({2, 4}, {"data", "model"});
}  // namespace

TEST_CASE("draw_sharding: shows the holders of every block") {
  CHECK(draw({8, 8}, "[data, model]", kMesh) ==
        "┌──────────┬──────────┬──────────┬──────────┐\n"
        "│  CPU 0   │  CPU 1   │  CPU 2   │  CPU 3   │\n"
        "├──────────┼──────────┼──────────┼──────────┤\n"
        "│  CPU 4   │  CPU 5   │  CPU 6   │  CPU 7   │\n"
        "└──────────┴──────────┴──────────┴──────────┘\n");
  CHECK(draw({8, 8}, "[data, null]", kMesh) ==
        "┌──────────┐\n"
        "│ CPU 0-3  │\n"
        "├──────────┤\n"
        "│ CPU 4-7  │\n"
        "└──────────┘\n");
  CHECK(draw({8}, "[model]", kMesh) ==
        "┌──────────┬──────────┬──────────┬──────────┐\n"
        "│ CPU 0,4  │ CPU 1,5  │ CPU 2,6  │ CPU 3,7  │\n"
        "└──────────┴──────────┴──────────┴──────────┘\n");
  CHECK(draw({}, "[]", kMesh) ==
        "┌──────────┐\n"
        "│ CPU 0-7  │\n"
        "└──────────┘\n");
}

TEST_CASE("draw_sharding: says which dimensions of a higher rank it shows") {
  const std::string text = draw({4, 3, 8}, "[data, null, model]", kMesh);
  CHECK(starts_with(text, "dimensions 0 (down) and 2 (across) of (4, 3, 8)\n┌"));
  const DeviceMesh cube({2, 2, 2}, {"a", "b", "c"});
  const std::string all = draw({4, 4, 4}, "[a, b, c]", cube);
  CHECK(all.find("│ CPU 0,1  │ CPU 2,3  │") != std::string::npos);
  CHECK(all.find("dimension 2 is split too, 2 ways") != std::string::npos);
}

TEST_CASE("draw_sharding: names partial axes") {
  CHECK(draw({4, 4}, "[null, null] sum(data, model)", kMesh)
            .find("partial sum(data, model): every device holds a term\n") != std::string::npos);
}

TEST_CASE("draw_sharding: colours cells instead of framing them") {
  const std::string text = draw({8, 8}, "[data, null]", kMesh, true);
  CHECK(text.find("┌") == std::string::npos);
  CHECK(text.find("\x1b[97;48;5;61m CPU 0-3  \x1b[0m\n") != std::string::npos);
  CHECK(text.find("\x1b[97;48;5;130m CPU 4-7  \x1b[0m\n") != std::string::npos);
}

TEST_CASE("draw_sharding: never wider than 80 columns") {
  const DeviceMesh big({64, 64}, {"data", "model"});
  const DeviceMesh named({2}, {"data"}, {"tpu", "gpu:1"});
  for (const bool color : {false, true}) {
    for (const std::string& text :
         {draw({64, 64}, "[data, model]", big, color), draw({64, 64}, "[model, null]", big, color),
          draw({64, 64}, "[null, model]", big, color), draw({4096}, "[[data, model]]", big, color),
          draw({2}, "[data]", named, color)}) {
      const std::vector<std::string> lines = split(text, '\n');
      CHECK(lines.size() < 80);
      for (const std::string& line : lines) {
        CHECK_MESSAGE(columns(line) <= 80, line);
      }
    }
  }
  CHECK(draw({2}, "[data]", named).find("│ device 0 │  GPU 1   │") != std::string::npos);
  CHECK(draw({64, 64}, "[data, model]", big).find("...") != std::string::npos);
}
