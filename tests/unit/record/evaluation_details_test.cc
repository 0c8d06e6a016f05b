// evaluate --details beside the definitions, counted by hand.
#include "record/evaluation_details.h"

#include <doctest/doctest.h>

#include <cmath>

#include "support/splitmix.h"

namespace meshtrain {
namespace {

using test::splitmix_below;
using test::splitmix_signed;

ClassOutput one_of(bool is_logits, std::vector<std::string> names = {}) {
  return {ClassOutput::Kind::kOneOf, is_logits, std::move(names)};
}

// The share of pairs of a sample of the class and another one that are in order, ties one half.
double area_by_pairs(const std::vector<double>& scores, const std::vector<int32_t>& wanted,
                     int32_t id) {
  double sum = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < scores.size(); ++j) {
      if (wanted[i] == id && wanted[j] != id) {
        ++pairs;
        sum += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
      }
    }
  }
  return sum / pairs;
}

}  // namespace

TEST_CASE("classes: confusion, precision, recall, the worst samples") {
  // Targets 0 0 1 1 2, predictions 0 1 1 1 0.
  const HostTensor p = tensor_of<float>(
      DType::kFloat32, {5, 3},
      {0.7F, 0.2F, 0.1F, 0.3F, 0.6F, 0.1F, 0.1F, 0.8F, 0.1F, 0, 0.9F, 0.1F, 0.5F, 0.25F, 0.25F});
  const HostTensor y = tensor_of<int32_t>(DType::kInt32, {5}, {0, 0, 1, 1, 2});
  const OutputDetails out =
      output_details("o", p, y, one_of(false, {"a", "b", "c"}), {"f0", "f1", "f2", "f3", "f4"});
  CHECK(out.confusion == std::vector<std::vector<int64_t>>{{1, 1, 0}, {0, 2, 0}, {1, 0, 0}});
  CHECK(out.accuracy == doctest::Approx(0.6));
  CHECK(out.classes[0].support == 2);
  CHECK(out.classes[0].precision == doctest::Approx(0.5));
  CHECK(out.classes[0].recall == doctest::Approx(0.5));
  CHECK(out.classes[1].precision == doctest::Approx(2.0 / 3));
  CHECK(out.classes[1].recall == doctest::Approx(1));
  CHECK(out.classes[1].f1 == doctest::Approx(0.8));
  CHECK(std::isnan(out.classes[2].precision));  // never predicted
  CHECK(out.classes[2].recall == 0);
  CHECK(out.classes[2].f1 == 0);
  REQUIRE(out.worst.size() == 2);
  CHECK(out.worst[0].file == "f1");
  CHECK(out.worst[0].measure == doctest::Approx(0.6));
  CHECK(out.worst[1].sample == 4);
  CHECK(out.worst[1].target == 2);
  CHECK(out.worst[1].prediction == 0);
  const std::string text = details_text({out});
  CHECK(text.find("o: 5 samples, accuracy 0.6000") != std::string::npos);
  CHECK(text.find("     4  c       a               0.5000  f4") != std::string::npos);
  const nlohmann::ordered_json json = details_json({out});
  CHECK(json["outputs"][0]["classes"][2]["precision"].is_null());
  CHECK(json["outputs"][0]["worst"][0]["target"] == "a");
}

TEST_CASE("the area under the curve is the share of ordered pairs") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    constexpr int64_t kSamples = 60, kClasses = 4;
    HostTensor p(DType::kFloat64, {kSamples, kClasses});
    std::vector<int32_t> wanted;
    for (int64_t i = 0; i < kSamples; ++i) {
      wanted.push_back(static_cast<int32_t>(splitmix_below(seed, static_cast<uint64_t>(i), 3)));
      for (int64_t c = 0; c < kClasses; ++c)  // a few values, so that many are equal
        p.set(i * kClasses + c, static_cast<double>(splitmix_below(
                                    seed + 100, static_cast<uint64_t>(i * kClasses + c), 7)));
    }
    const HostTensor y = tensor_of<int32_t>(DType::kInt32, {kSamples, 1}, wanted);
    const OutputDetails out = output_details("o", p, y, one_of(false), {});
    for (int32_t id = 0; id < 3; ++id) {
      std::vector<double> scores;
      for (int64_t i = 0; i < kSamples; ++i)
        scores.push_back(p.at(i * kClasses + id));
      const ClassDetails& one = out.classes[static_cast<size_t>(id)];
      CHECK(one.auc == doctest::Approx(area_by_pairs(scores, wanted, id)).epsilon(1e-12));
      CHECK(one.roc.front() == std::pair<double, double>{0, 0});
      CHECK(one.roc.back() == std::pair<double, double>{1, 1});
    }
    CHECK(std::isnan(out.classes[3].auc));  // no sample is of it
    CHECK(out.classes[3].roc.empty());
  }
}

TEST_CASE("one-hot targets, logits and yes or no; targets without a class") {
  const HostTensor logits = tensor_of<float>(DType::kFloat32, {3, 2}, {2, 0, 100, 101, -5, -4});
  const HostTensor rows = tensor_of<float>(DType::kFloat32, {3, 2}, {1, 0, 0, 1, 1, 0});
  const OutputDetails out = output_details("o", logits, rows, one_of(true), {});
  CHECK(out.confusion == std::vector<std::vector<int64_t>>{{1, 1}, {0, 1}});
  CHECK(out.worst[0].measure == doctest::Approx(1 / (1 + std::exp(-1))));
  // Probabilities order the samples, not logits, which differ by a constant from row to row.
  CHECK(out.classes[0].auc == doctest::Approx(0.75));
  const ClassOutput yes_no{ClassOutput::Kind::kYesNo, true, {"no", "yes"}};
  const HostTensor p = tensor_of<float>(DType::kFloat32, {4, 1}, {-1, 2, 3, -2});
  const HostTensor y = tensor_of<int32_t>(DType::kInt32, {4}, {0, 1, 0, -1});
  const OutputDetails binary = output_details("o", p, y, yes_no, {});
  CHECK(binary.confusion == std::vector<std::vector<int64_t>>{{1, 1}, {0, 1}});
  CHECK(binary.without_class == 1);
  CHECK(binary.classes[1].auc == doctest::Approx(0.5));
  CHECK(details_text({binary}).find("1 targets are no class") != std::string::npos);
}

TEST_CASE("pixels: each has a class, of which some are none") {
  // Two samples of 2 x 2 pixels and three classes; predictions 0 1 1 2, 0 0 2 1.
  HostTensor p(DType::kFloat32, {2, 2, 2, 3});
  const int predicted[] = {0, 1, 1, 2, 0, 0, 2, 1};
  for (int i = 0; i < 8; ++i)
    p.set(3 * i + predicted[i], 0.8);
  const HostTensor y = tensor_of<int32_t>(DType::kInt32, {2, 2, 2, 1}, {0, 1, 0, 2, 0, 1, 255, 2});
  ClassOutput pixels = one_of(false, {"a", "b", "c"});
  pixels.per_sample = 4;
  const OutputDetails out = output_details("o", p, y, pixels, {"f0", "f1"});
  CHECK(out.unit == "pixels");
  CHECK(out.samples == 2);
  CHECK(out.without_class == 1);
  CHECK(out.confusion == std::vector<std::vector<int64_t>>{{2, 1, 0}, {1, 1, 0}, {0, 1, 1}});
  CHECK(out.accuracy == doctest::Approx(4.0 / 7));
  CHECK(out.classes[0].iou == doctest::Approx(2.0 / 4));
  CHECK(out.classes[1].iou == doctest::Approx(1.0 / 4));
  CHECK(out.classes[2].iou == doctest::Approx(1.0 / 2));
  CHECK(out.mean_iou == doctest::Approx((0.5 + 0.25 + 0.5) / 3));
  CHECK(out.classes[0].roc.empty());
  REQUIRE(out.worst.size() == 2);
  CHECK(out.worst[0].file == "f1");
  CHECK(out.worst[0].measure == doctest::Approx(0.5));
  CHECK(out.worst[1].measure == doctest::Approx(0.25));
  const std::string text = details_text({out});
  CHECK(text.find("o: 2 samples, accuracy 0.5714 of pixels, mean IoU 0.4167; 1 targets") !=
        std::string::npos);
  CHECK(text.find("50.0%  f1") != std::string::npos);
  const nlohmann::ordered_json json = details_json({out});
  CHECK(json["outputs"][0]["unit"] == "pixels");
  CHECK(json["outputs"][0]["worst"][0]["wrong"] == 0.5);
}

TEST_CASE("labels: each is a yes or no of its own") {
  const HostTensor p = tensor_of<float>(DType::kFloat32, {4, 2}, {3, -1, 2, 1, -1, 4, -2, -3});
  const HostTensor y = tensor_of<int32_t>(DType::kInt32, {4, 2}, {1, 0, 0, 1, 1, 1, 0, 0});
  const ClassOutput each{ClassOutput::Kind::kEach, true, {"wet", "cold"}};
  const OutputDetails out = output_details("o", p, y, each, {});
  CHECK(out.unit == "labels");
  CHECK(out.confusion.empty());
  REQUIRE(out.classes.size() == 2);
  CHECK(out.classes[0].name == "wet");  // predicted 1 1 0 0, wanted 1 0 1 0
  CHECK(out.classes[0].support == 2);
  CHECK(out.classes[0].precision == doctest::Approx(0.5));
  CHECK(out.classes[0].recall == doctest::Approx(0.5));
  CHECK(out.classes[0].auc == doctest::Approx(0.75));
  CHECK(out.classes[1].f1 == doctest::Approx(1));
  CHECK(out.classes[1].auc == doctest::Approx(1));
  CHECK(out.accuracy == doctest::Approx(0.75));
  CHECK(out.exact == doctest::Approx(0.5));
  REQUIRE(out.worst.size() == 2);
  CHECK(out.worst[0].measure == doctest::Approx(0.5));
  CHECK(details_text({out}).find("accuracy 0.7500 of labels; all labels are right in 0.5000") !=
        std::string::npos);
}

TEST_CASE("numbers: residuals, their quantiles and the worst rows") {
  const HostTensor p = tensor_of<float>(DType::kFloat32, {5, 1}, {0, 0, 0, 0, 0});
  const HostTensor y = tensor_of<float>(DType::kFloat32, {5, 1}, {1, -2, 3, 0, 8});
  const OutputDetails out = output_details("o", p, y, {}, {});
  CHECK(out.mean_residual == doctest::Approx(2));
  CHECK(out.mean_absolute == doctest::Approx(2.8));
  REQUIRE(out.quantiles.size() == 7);
  CHECK(out.quantiles[0].second == -2);
  CHECK(out.quantiles[1].second == doctest::Approx(-1.6));  // between -2 and 0
  CHECK(out.quantiles[3].second == 1);
  CHECK(out.quantiles[6].second == 8);
  CHECK(out.worst[0].sample == 4);
  CHECK(out.worst[1].sample == 2);
  CHECK(out.worst.size() == 5);
  const OutputDetails none = output_details("o", p, HostTensor(DType::kFloat32, {5, 2}), {}, {});
  CHECK(none.none_because != "");
  CHECK(details_text({none}).find("no details: outputs (5, 1) and targets (5, 2)") !=
        std::string::npos);
}

TEST_CASE("NaN in predictions is no crash") {
  HostTensor p(DType::kFloat32, {30, 2});
  for (int64_t i = 0; i < p.size(); ++i)
    p.set(i, i % 3 == 0 ? NAN : splitmix_signed(1, static_cast<uint64_t>(i), 1));
  const HostTensor y = tensor_of<int32_t>(DType::kInt32, {30}, std::vector<int32_t>(30, 1));
  CHECK(details_json({output_details("o", p, y, one_of(true), {})}).is_object());
  const OutputDetails numbers =
      output_details("o", p, HostTensor(DType::kFloat32, {30, 2}), {}, {});
  CHECK(std::isnan(numbers.worst[0].measure));
  CHECK(details_json({numbers})["outputs"][0]["mean_residual"].is_null());
}

}  // namespace meshtrain
