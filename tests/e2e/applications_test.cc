// Networks of keras.applications, imported, predict what they predict in Keras, on one device and
// on a mesh. tests/reference/applications.py makes architectures and predictions; weights and
// images are formulas, the same there and here.
#include <doctest/doctest.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "command.h"
#include "support/sampled.h"
#include "support/splitmix.h"
#include "tensor/npy.h"
#include "tensor/npz.h"
#include "tensor/weights.h"
#include "unit/interop/keras_files.h"

namespace meshtrain {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSamples = 4;
const std::string kFolder = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/keras/applications/";

std::string unpacked(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  REQUIRE(file != nullptr);
  std::string out, some(1 << 16, '\0');
  int count = 0;
  while ((count = gzread(file, some.data(), static_cast<unsigned>(some.size()))) > 0) {
    out.append(some, 0, static_cast<size_t>(count));
  }
  gzclose(file);
  REQUIRE(count == 0);
  return out;
}

// The largest power of two whose square, times the inputs of an output, is at most 3 * 2^gain.
float kernel_scale(const Shape& shape, int gain) {
  const bool is_depthwise = shape.size() == 4 && shape[3] == 1;
  int64_t inputs = 1;
  for (size_t d = 0; d + 1 < shape.size() - (is_depthwise ? 1 : 0); ++d) {
    inputs *= shape[d];
  }
  int halvings = 0;
  while (inputs > (int64_t{3} << gain) << (2 * halvings)) {
    ++halvings;
  }
  return std::ldexp(1.0F, -halvings);
}

// Values that are a function of the path alone.
HostTensor weight_values(const Weight& weight, int gain) {
  HostTensor out(weight.dtype, weight.shape);
  const size_t slash = weight.path.rfind('/');
  const std::string layer = weight.path.substr(0, slash), name = weight.path.substr(slash + 1);
  if (name == "count") {
    return out;
  }
  const uint64_t seed = crc32(0, reinterpret_cast<const Bytef*>(weight.path.data()),
                              static_cast<unsigned>(weight.path.size()));
  const bool is_factor = name.find("variance") != std::string::npos || name == "gamma";
  const float size = weight.shape.size() > 1 ? kernel_scale(weight.shape, gain) : 0.25F;
  // Of small logits float32 leaves more digits in the predictions.
  const float scale = layer == "logits" ? size / 4 : size;
  for (int64_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<uint64_t>(i);
    out.data<float>()[i] = is_factor ? test::splitmix_unit(seed, index) + 0.5F
                                     : test::splitmix_signed(seed, index, scale);
  }
  return out;
}

// Noise on 4 x 4 coarse tiles, so that the mean over an image depends on the image.
HostTensor images(int64_t size, bool pixels) {
  HostTensor out(DType::kFloat32, {kSamples, size, size, 3});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t channel = i % 3, column = i / 3 % size, row = i / 3 / size % size;
    const int64_t sample = i / 3 / size / size;
    const int64_t tile = ((sample * 4 + row * 4 / size) * 4 + column * 4 / size) * 3 + channel;
    const int64_t pixel = (test::splitmix_below(1, static_cast<uint64_t>(i), 256) +
                           3 * test::splitmix_below(2, static_cast<uint64_t>(tile), 256)) /
                          4;
    const auto value = static_cast<float>(pixel);
    out.data<float>()[i] = pixels ? value : value * 0x1p-7F - 1;
  }
  return out;
}

// Within 1e-5 of each sample's largest output.
void check_predictions(const HostTensor& found, const Json& expected) {
  REQUIRE(found.shape() == Shape{kSamples, 10});
  for (int64_t sample = 0; sample < kSamples; ++sample) {
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < 10; ++i) {
      const double value = expected[sample][i];
      worst = std::max(worst, std::abs(found.at(sample * 10 + i) - value));
      largest = std::max(largest, value);
    }
    CHECK(worst <= 1e-5 * largest);
  }
}

void check_network(const std::string& name, const Json& one) {
  CAPTURE(name);
  const TemporaryFolder folder;
  const std::string json = unpacked(kFolder + name + ".json.gz");
  folder.write("m.json", json);
  const Result imported = meshtrain({"import", "m.json", "-o", "in"}, folder.path());
  REQUIRE_MESSAGE(imported.exit_code == 0, imported.err);
  const test::Built built(test::import_text(json).yaml);
  std::vector<NamedTensor> weights;
  for (const Weight* weight : built.model->weights()) {
    weights.push_back({weight->path, weight_values(*weight, one.at("gain").get<int>())});
  }
  write_npz(folder.file("w.npz"), weights);
  write_npy(folder.file("x.npy"), images(one.at("size"), one.at("pixels")));
  for (const std::string mesh : {"1x1", "2x4"}) {
    CAPTURE(mesh);
    std::vector<std::string> args = {
        "predict",
        "in/config.yaml",
        "--weights",
        "w.npz",
        "--input",
        "x.npy",
        "--output",
        "y.npy",
        "-q",
        "distribution.type=ModelParallel",
        "distribution.device_mesh={shape: [1, 1], axis_names: [data, model]}",
        "--mesh",
        mesh,
        "--devices",
        mesh == "1x1" ? "cpu:1" : "cpu:8"};
    if (mesh == "2x4") {
      args.push_back("distribution.layout_map[\"" + one.at("split").get<std::string>() +
                     "\"]=[null,null,null,model]");
    }
    const Result result = meshtrain(args, folder.path());
    REQUIRE_MESSAGE(result.exit_code == 0, result.err);
    check_predictions(read_npy(folder.file("y.npy")), one.at("predictions"));
  }
}

// One size of each network; all of them with scripts/test.sh --long.
TEST_CASE("networks of keras.applications predict here what they predict in Keras") {
  const bool all = test::runs_everything();
  const Json cases = parse_json(read_file(kFolder + "cases.json", uint64_t{1} << 20));
  REQUIRE(cases.size() == 15);
  for (const auto& [name, one] : cases.items()) {
    const bool is_odd = name.find("_33") != std::string::npos;
    if (all || (name.find("MobileNet_") == 0 ? is_odd : name.find("_32") != std::string::npos)) {
      check_network(name, one);
    }
  }
}

// The CRC-32 of the sorted lines "path size x size".
unsigned long names_and_shapes(const Model& model) {
  std::vector<std::string> lines;
  for (const Weight* weight : model.weights()) {
    lines.push_back(fmt::format("{} {}", weight->path, fmt::join(weight->shape, "x")));
  }
  std::sort(lines.begin(), lines.end());
  const std::string text = join(lines, "\n");
  return crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<unsigned>(text.size()));
}

TEST_CASE("templates of keras.applications have the weights of Keras: names, shapes, number") {
  const TemporaryFolder folder;
  const Json networks = parse_json(read_file(kFolder + "weights.json", uint64_t{1} << 20));
  int listed = 0;
  for (const std::string& line : lines_of(meshtrain({"init"}, folder.path()).out)) {
    listed += contains(line, "as keras.applications has it") ? 1 : 0;
  }
  CHECK(static_cast<size_t>(listed) == networks.size());
  CHECK(networks.size() == 40);
  for (const auto& [name, one] : networks.items()) {
    CAPTURE(name);
    const Result text = meshtrain({"init", name}, folder.path());
    REQUIRE_MESSAGE(text.exit_code == 0, text.err);
    const test::Built built(text.out);
    CHECK(built.model->num_params() == one.at("params").get<int64_t>());
    CHECK(built.model->weights().size() == one.at("weights").get<size_t>());
    CHECK(names_and_shapes(*built.model) == one.at("crc32").get<unsigned long>());
  }
}

// A head of its own size, the rest from a file: what was left out is listed.
TEST_CASE("a template is fine-tuned: frozen layers stay as they are, the head is new") {
  const TemporaryFolder folder;
  const Result text = meshtrain({"init", "mobilenet"}, folder.path());
  REQUIRE(text.exit_code == 0);
  folder.write("net.yaml", text.out);
  const std::vector<std::string> small = {"vars.size=32", "vars.classes=6", "data.train.samples=8",
                                          "fit.batch_size=8"};
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.begin(), small.begin(), small.end());
    words.insert(words.begin(), {"train", "net.yaml"});
    return meshtrain(words, folder.path());
  };
  REQUIRE(train({"-o", "first"}).exit_code == 0);
  const Result refused =
      train({"-o", "refused", "vars.classes=3", "fit.initial_weights=first/weights.safetensors"});
  CHECK(refused.exit_code == 6);
  const Result tuned =
      train({"-o", "tuned", "vars.classes=3", "model.frozen=[\"(conv1|conv_dw|conv_pw).*\"]",
             "--partial", "fit.initial_weights=first/weights.safetensors"});
  REQUIRE_MESSAGE(tuned.exit_code == 0, tuned.err);
  CHECK_MESSAGE(contains(tuned.err, "conv_preds/kernel"), tuned.err);
  const auto weights = [&](const std::string& run) {
    std::map<std::string, HostTensor> out;
    for (NamedTensor& each : read_weights(folder.file(run + "/weights.safetensors"))) {
      out.emplace(each.name, std::move(each.tensor));
    }
    return out;
  };
  const auto first = weights("first"), last = weights("tuned");
  const auto same = [&](const std::string& path) {
    const HostTensor &a = first.at(path), &b = last.at(path);
    return a.num_bytes() == b.num_bytes() && std::memcmp(a.bytes(), b.bytes(), a.num_bytes()) == 0;
  };
  CHECK(same("conv1/kernel"));
  CHECK(same("conv_dw_1_bn/moving_mean"));  // of a frozen layer, too
  CHECK(last.at("conv_preds/kernel").shape() == Shape{1, 1, 1024, 3});
  const Result wrong = train({"-o", "wrong", "model.frozen=[conv2]"});
  CHECK(wrong.exit_code == 2);
  CHECK_MESSAGE(contains(wrong.err, "`conv2` of `frozen` matches no layer"), wrong.err);
}

}  // namespace
}  // namespace meshtrain
