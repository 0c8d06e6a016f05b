// Transforms of batches that move images, and their masks and weights with them.
#include "nn/batch_transforms.h"

#include <algorithm>

#include "nn_testing.h"

namespace meshtrain::testing {
namespace {

constexpr int64_t kImages = 6, kRows = 40, kColumns = 54;

struct Moving {
  const char* name;
  NamedArgs args;
};
const std::vector<Moving> kMoving = {
    {"RandomFlip", {}},
    {"RandomFlip", {{"mode", "vertical"}}},
    {"RandomRotation", {{"factor", 0.2}, {"fill_mode", "wrap"}}},
    {"RandomTranslation", {{"height_factor", 0.3}, {"width_factor", {-0.2, 0.4}}}},
    {"RandomZoom", {{"height_factor", 0.4}, {"fill_mode", "constant"}, {"fill_value", 3.0}}},
    {"RandomShear", {{"x_factor", 0.5}, {"fill_mode", "nearest"}}},
    {"RandomPerspective", {{"scale", 0.6}}},
    {"RandomElasticTransform", {{"scale", 1.0}, {"value_range", {0, 1000}}}}};

ConfigObject transform_of(const Moving& moving, const char* interpolation = nullptr) {
  NamedArgs args = moving.args;
  if (interpolation != nullptr && std::string_view(moving.name) != "RandomFlip") {
    args.emplace_back("interpolation", interpolation);
  }
  return make_object(Category::kTransform, moving.name, args);
}

// Neighbours are different whole numbers, the same in all channels.
HostTensor numbered(DType dtype, Shape shape) {
  HostTensor out(dtype, std::move(shape));
  const int64_t channels = out.size() / (kImages * kRows * kColumns);
  for (int64_t i = 0; i < out.size(); ++i) {
    out.set(i, static_cast<double>(i / channels % 251));
  }
  return out;
}

// Input, target and weights of a batch as a training step has them.
std::vector<HostTensor> transformed(const ConfigObject& transform, const HostTensor& x,
                                    const HostTensor& y, const HostTensor& weight, int64_t step) {
  return run({&x, &y, &weight}, [&](Builder& b, const std::vector<ValueId>& in) {
    CallContext context{.builder = b,
                        .training = true,
                        .step = b.constant(static_cast<double>(step), DType::kInt64),
                        .seed = 7,
                        .compute_dtype = DType::kFloat32};
    BatchArrays<ValueId> batch{{in[0]}, {in[1]}, in[2]};
    transform_batch(context, transform, batch);
    return std::vector<ValueId>{batch.inputs[0], batch.targets[0], *batch.sample_weight};
  });
}

Diagnostics checked(const ConfigObject& transform, const Shape& input, const Shape& target) {
  Diagnostics diagnostics;
  check_batch_transform(transform, {{{input, DType::kFloat32}}, {{target, DType::kInt32}}, {}},
                        diagnostics);
  return diagnostics;
}

TEST_CASE("masks and weights of pixels move as their images do") {
  const HostTensor x = numbered(DType::kFloat32, {kImages, kRows, kColumns, 2});
  const HostTensor mask = numbered(DType::kInt32, {kImages, kRows, kColumns, 1});
  const HostTensor weight = numbered(DType::kFloat32, {kImages, kRows, kColumns});
  for (const Moving& moving : kMoving) {
    CAPTURE(moving.name);
    const ConfigObject transform = transform_of(moving, "nearest");
    const std::vector<HostTensor> out = transformed(transform, x, mask, weight, 3);
    REQUIRE(out[1].dtype() == DType::kInt32);
    REQUIRE(out[1].shape() == mask.shape());
    REQUIRE(out[2].shape() == weight.shape());
    CHECK(numbers(out[1]) != numbers(mask));
    CHECK(numbers(out[2]) == numbers(out[1]));
    for (int64_t i = 0; i < out[1].size(); ++i) {
      REQUIRE(out[0].at(2 * i) == out[1].at(i));
      REQUIRE(out[0].at(2 * i + 1) == out[1].at(i));
    }
    CHECK(numbers(transformed(transform, x, mask, weight, 3)[1]) == numbers(out[1]));
    CHECK(numbers(transformed(transform, x, mask, weight, 4)[1]) != numbers(out[1]));
  }
}

TEST_CASE("class ids stay class ids where pixels are mixed") {
  const HostTensor x = numbered(DType::kUInt8, {kImages, kRows, kColumns, 1});
  HostTensor mask(DType::kInt32, {kImages, kRows, kColumns});
  for (int64_t i = 0; i < mask.size(); ++i) {
    mask.set(i, i * i / 7 % 3 == 0 ? 7 : 2);
  }
  const HostTensor weight = floats({kImages}, {1, 2, 3, 4, 5, 6});
  for (const Moving& moving : kMoving) {
    CAPTURE(moving.name);
    const std::vector<HostTensor> out = transformed(transform_of(moving), x, mask, weight, 0);
    CHECK(out[0].dtype() == DType::kFloat32);
    CHECK(numbers(out[2]) == numbers(weight));  // one weight a sample stays where it is
    const std::vector<double> ids = numbers(out[1]);
    CHECK(std::all_of(ids.begin(), ids.end(),
                      [](double id) { return id == 7 || id == 2 || id == 0 || id == 3; }));
    CHECK(ids != numbers(mask));
  }
}

TEST_CASE("channels first: the same move") {
  const HostTensor last = numbered(DType::kFloat32, {kImages, kRows, kColumns, 1});
  const HostTensor mask = numbered(DType::kInt32, {kImages, kRows, kColumns});
  HostTensor first(DType::kFloat32, {kImages, 1, kRows, kColumns});
  std::copy_n(last.bytes(), last.num_bytes(), first.bytes());
  for (const Moving& moving : kMoving) {
    CAPTURE(moving.name);
    Moving turned = moving;
    turned.args.emplace_back("data_format", "channels_first");
    const std::vector<HostTensor> a =
        transformed(transform_of(moving), last, mask, floats({6}, {1, 1, 1, 1, 1, 1}), 2);
    const std::vector<HostTensor> b =
        transformed(transform_of(turned), first, mask, floats({6}, {1, 1, 1, 1, 1, 1}), 2);
    CHECK(b[0].shape() == first.shape());
    CHECK(numbers(a[0]) == numbers(b[0]));
    CHECK(numbers(a[1]) == numbers(b[1]));
  }
}

TEST_CASE("labels that are no masks stay, and samples that are no images are refused") {
  const HostTensor x = numbered(DType::kFloat32, {kImages, kRows, kColumns, 1});
  const HostTensor labels = ints({kImages, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const HostTensor weight = floats({kImages}, {1, 1, 1, 1, 1, 1});
  const ConfigObject flip = transform_of(kMoving[0]);
  CHECK(numbers(transformed(flip, x, labels, weight, 1)[1]) == numbers(labels));
  CHECK(!checked(flip, {8, 8, 3}, {8, 8, 1}).has_errors());
  CHECK(checked(flip, {8, 8}, {}).has_errors());
  const ConfigObject rotation =
      make_object(Category::kTransform, "RandomRotation", {{"factor", {-2.0, -1.5}}});
  CHECK(checked(rotation, {8, 8, 3}, {}).has_errors());
}

}  // namespace
}  // namespace meshtrain::testing
