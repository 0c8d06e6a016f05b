// Goldens: what Keras' image_dataset_from_directory makes of tests/golden/images
// (tests/reference/images.py).
#include "data/image.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/sources.h"
#include "source_config.h"
#include "support/golden.h"
#include "support/temp_folder.h"
#include "support/thread_signals.h"
#include "tensor/npz.h"

TEST_SUITE_BEGIN("cpu");

namespace meshtrain {
namespace {

using test::object;
using test::value;

const std::string kImages = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/images";

// A source with Keras' defaults, changed by `args`.
ConfigObject image_folder(const std::string& folder, const test::Args& args = {}) {
  ConfigObject source = object("image_folder", {{"directory", value(folder)},
                                                {"label_mode", value("int")},
                                                {"class_names", test::null_value()},
                                                {"color_mode", value("rgb")},
                                                {"image_size", test::list_value({256, 256})},
                                                {"interpolation", value("bilinear")},
                                                {"crop_to_aspect_ratio", value(false)},
                                                {"pad_to_aspect_ratio", value(false)},
                                                {"follow_links", value(false)},
                                                {"seed", test::null_value()},
                                                {"validation_split", test::null_value()},
                                                {"subset", test::null_value()},
                                                {"on_bad_record", value("error")},
                                                {"max_bad_records", value(10)},
                                                {"masks", value("")},
                                                {"mask_values", test::null_value()},
                                                {"other_pixels", test::null_value()}});
  for (const auto& [name, arg] : args) {
    source.args[name] = arg;
  }
  return source;
}

ConfigValue names(const std::vector<std::string>& texts) {
  ConfigValue::List list;
  for (const std::string& text : texts) {
    list.push_back(value(text));
  }
  return value(std::move(list));
}

void copy(const std::string& from, const std::string& to) {
  std::filesystem::create_directories(std::filesystem::path(to).parent_path());
  std::filesystem::copy(kImages + "/folder/" + from, to);
}

std::string bytes_of(const std::string& file) {
  return test::read_text(kImages + "/folder/" + file);
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The message of the error that `function` throws, with its code: "E322 ...".
std::string problem(const std::function<void()>& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    const Diagnostic& first = error.diagnostics().list().front();
    std::string text = first.code + " " + first.message;
    for (const std::string& note : first.notes) {
      text += " | " + note;
    }
    return text;
  }
  return "none";
}

struct Case {
  std::string name;
  test::Args args;
};

std::vector<Case> golden_cases() {
  const auto rgb = [](int64_t height, int64_t width, const char* interpolation) -> test::Args {
    return {{"image_size", test::list_value({height, width})},
            {"interpolation", value(interpolation)}};
  };
  const auto sized = [](const char* color_mode, int64_t side) -> test::Args {
    return {{"image_size", test::list_value({side, side})}, {"color_mode", value(color_mode)}};
  };
  std::vector<Case> cases = {{"rgb", sized("rgb", 8)},
                             {"grey", sized("grayscale", 8)},
                             {"rgba", sized("rgba", 8)},
                             {"larger", rgb(23, 31, "bilinear")},
                             {"nearest", rgb(10, 7, "nearest")},
                             {"bicubic", rgb(10, 21, "bicubic")},
                             {"lanczos3", rgb(10, 21, "lanczos3")},
                             {"lanczos5", rgb(21, 9, "lanczos5")},
                             {"cropped", rgb(6, 15, "bilinear")},
                             {"padded", rgb(9, 14, "bilinear")},
                             {"one_hot", sized("grayscale", 4)}};
  cases[8].args.emplace_back("crop_to_aspect_ratio", value(true));
  cases[9].args.emplace_back("pad_to_aspect_ratio", value(true));
  cases[10].args.emplace_back("label_mode", value("categorical"));
  return cases;
}

}  // namespace

TEST_CASE("image_folder: images and labels are those of Keras") {
  NpzReader goldens(kImages + "/goldens.npz");
  std::istringstream files(test::read_text(kImages + "/files.txt"));
  std::vector<bool> is_jpeg;
  for (std::string file; std::getline(files, file);) {
    is_jpeg.push_back(bytes_of(file).starts_with("\xff\xd8"));
  }
  REQUIRE(is_jpeg.size() == 17);
  for (const Case& golden : golden_cases()) {
    CAPTURE(golden.name);
    const Dataset data = read_source(image_folder(kImages + "/folder", golden.args), "");
    const HostTensor x = test::whole(data.inputs[0].rows);
    const HostTensor want_x = goldens.read(golden.name + "_x");
    REQUIRE(x.shape() == want_x.shape());
    REQUIRE(x.dtype() == DType::kFloat32);
    const int64_t row = x.size() / x.shape()[0];
    for (int64_t i = 0; i < x.size(); ++i) {
      // Two builds of a JPEG decoder may differ by a level or two.
      const double bound = is_jpeg[static_cast<size_t>(i / row)] ? 2 : 1e-3;
      REQUIRE_MESSAGE(std::abs(x.at(i) - want_x.at(i)) <= bound,
                      "image " << i / row << " value " << i % row << ": " << x.at(i)
                               << ", Keras has " << want_x.at(i));
    }
    const HostTensor y = test::whole(data.targets[0].rows);
    const HostTensor want_y = goldens.read(golden.name + "_y");
    REQUIRE(y.shape() == want_y.shape());
    REQUIRE(y.dtype() == want_y.dtype());
    for (int64_t i = 0; i < y.size(); ++i) {
      REQUIRE(y.at(i) == want_y.at(i));
    }
  }
}

TEST_CASE("image_folder: classes are folders by name or as they are asked for") {
  const Dataset sorted = read_source(image_folder(kImages + "/folder"), "");
  CHECK(sorted.class_names == std::vector<std::string>{"a png", "b jpeg"});
  CHECK(sorted.description == "image_folder " + kImages + "/folder: 2 classes");
  const Dataset other =
      read_source(image_folder(kImages + "/folder", {{"class_names", names({"b jpeg"})}}), "");
  CHECK(other.inputs[0].rows->size() == 8);
  CHECK(other.class_names == std::vector<std::string>{"b jpeg"});
  CHECK(test::whole(other.targets[0].rows).at(0) == 0);
  const Dataset without =
      read_source(image_folder(kImages + "/folder", {{"label_mode", value("none")}}), "");
  CHECK(without.targets.empty());
  CHECK(without.inputs[0].rows->size() == 17);
  CHECK(problem([] {
          read_source(image_folder(kImages + "/folder",
                                   {{"class_names", names({"a jpeg", "b jpeg", "b jpeg"})}}),
                      "");
        }) == "E113 `" + kImages +
                  "/folder` has no folder for the class `a jpeg` | help: did you mean `b jpeg`?");
}

TEST_CASE("image_folder: rows come in any order and as often as asked") {
  const Dataset data = read_source(
      image_folder(kImages + "/folder", {{"image_size", test::list_value({5, 6})}}), "");
  const Rows& rows = *data.inputs[0].rows;
  const HostTensor all = rows.read_range(0, rows.size());
  const std::vector<int64_t> order = {16, 3, 3, 0};
  std::vector<float> some(order.size() * 5 * 6 * 3);
  rows.read(order, reinterpret_cast<std::byte*>(some.data()));
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < 90; ++j) {
      REQUIRE(some[i * 90 + j] == all.at(order[i] * 90 + static_cast<int64_t>(j)));
    }
  }
}

TEST_CASE("image_folder: a split by seed has every file once and both kinds in each part") {
  const auto part = [](const char* subset) {
    return read_source(image_folder(kImages + "/folder", {{"image_size", test::list_value({4, 4})},
                                                          {"seed", value(3)},
                                                          {"validation_split", value(0.3)},
                                                          {"subset", value(subset)}}),
                       "");
  };
  const Dataset training = part("training");
  const Dataset validation = part("validation");
  CHECK(training.inputs[0].rows->size() == 12);
  CHECK(validation.inputs[0].rows->size() == 5);  // int(0.3 x 17)
  const Dataset all = read_source(
      image_folder(kImages + "/folder", {{"image_size", test::list_value({4, 4})}}), "");
  std::vector<std::vector<float>> found;
  std::vector<std::vector<float>> wanted;
  const auto add = [](const Dataset& data, std::vector<std::vector<float>>& to) {
    const HostTensor x = test::whole(data.inputs[0].rows);
    const HostTensor y = test::whole(data.targets[0].rows);
    for (int64_t i = 0; i < x.shape()[0]; ++i) {
      std::vector<float> row(x.data<float>() + i * 48, x.data<float>() + (i + 1) * 48);
      row.push_back(static_cast<float>(y.at(i)));
      to.push_back(std::move(row));
    }
  };
  add(training, found);
  CHECK(std::any_of(found.begin(), found.end(), [](const auto& row) { return row.back() == 0; }));
  CHECK(std::any_of(found.begin(), found.end(), [](const auto& row) { return row.back() == 1; }));
  add(validation, found);
  add(all, wanted);
  CHECK(found != wanted);
  std::sort(found.begin(), found.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(found == wanted);
}

TEST_CASE("image_folder: what is no image is ignored or refused by its name") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  copy("a png/rgb.png", root + "/cat/1.png");
  copy("a png/rgb.png", root + "/dog/1.PNG");
  std::ofstream(root + "/cat/notes.txt") << "text";
  std::ofstream(root + "/cat/.hidden.png") << "text";
  std::ofstream(root + "/README") << "text";
  std::filesystem::create_directories(root + "/.git/objects");
  const Dataset data = read_source(image_folder(root), "");
  CHECK(data.inputs[0].rows->size() == 2);
  CHECK(data.description == "image_folder " + root + ": 2 classes, 1 other file ignored");
  std::ofstream(root + "/dog/moving.gif") << "GIF89a....";
  const Dataset with_gif = read_source(image_folder(root), "");
  CHECK(problem([&] { test::whole(with_gif.inputs[0].rows); }) ==
        "E322 `" + root +
            "/dog/moving.gif`: a GIF file; only PNG and JPEG images are read: convert "
            "it | help: `on_bad_record: skip` leaves such images out");
}

TEST_CASE("image_folder: folders without images or classes are refused") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  CHECK(problem([&] { read_source(image_folder(root), ""); }) ==
        "E300 there is no folder `" + root + "`");
  std::filesystem::create_directories(root);
  CHECK(problem([&] { read_source(image_folder(root), ""); }) ==
        "E316 `" + root +
            "` holds no folders, one for each class | help: `label_mode: none` reads "
            "images without labels");
  std::filesystem::create_directories(root + "/cat");
  std::ofstream(root + "/cat/notes.txt") << "text";
  CHECK(problem([&] { read_source(image_folder(root), ""); }) ==
        "E316 there are no images (.png, .jpg, .jpeg) in `" + root + "`, only 1 other file");
  CHECK(problem([&] { read_source(image_folder(root + "/cat/notes.txt"), ""); }) ==
        "E300 `" + root + "/cat/notes.txt` is no folder");
  copy("a png/rgb.png", root + "/cat/1.png");
  CHECK(problem([&] {
          read_source(image_folder(root, {{"label_mode", value("binary")}}), "");
        }) == "E113 `label_mode: binary` needs two classes; `" + root + "` has 1");
}

TEST_CASE("image_folder: links lead where Keras follows them and never in a circle") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  copy("a png/rgb.png", folder.file("elsewhere/2.png"));
  copy("a png/rgb.png", root + "/cat/1.png");
  std::filesystem::create_directory_symlink(folder.file("elsewhere"), root + "/dog");
  std::filesystem::create_directory_symlink(folder.file("elsewhere"), root + "/cat/more");
  std::filesystem::create_symlink(folder.file("elsewhere/2.png"), root + "/cat/3.png");
  const Dataset data = read_source(image_folder(root), "");
  CHECK(data.inputs[0].rows->size() == 3);  // dog/2, cat/1 and cat/3
  const test::Args follow = {{"follow_links", value(true)}};
  CHECK(read_source(image_folder(root, follow), "").inputs[0].rows->size() == 4);
  std::filesystem::create_directory_symlink(root, root + "/cat/around");
  CHECK(problem([&] { read_source(image_folder(root, follow), ""); }) ==
        "E300 `" + root +
            "/cat/around/cat` is a folder around itself: a link leads in a circle (`follow_links: "
            "true`)");
}

TEST_CASE("image_folder: bad images are left out once or too many of them refused") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  for (const char* name : {"1.png", "2.png", "3.png"}) {
    copy("a png/rgb.png", root + "/cat/" + name);
    copy("b jpeg/rgb.jpg", root + "/dog/" + name);
  }
  std::string cut = bytes_of("a png/rgb.png");
  cut.resize(cut.size() / 2);
  std::ofstream(root + "/cat/2.png", std::ios::binary) << cut;
  std::ofstream(root + "/dog/3.png", std::ios::binary) << "";
  const test::Args skip = {{"on_bad_record", value("skip")},
                           {"image_size", test::list_value({12, 16})}};
  const Dataset data = read_source(image_folder(root, skip), "");
  CHECK(data.description == "image_folder " + root + ": 2 classes, 2 bad images left out");
  const HostTensor y = test::whole(data.targets[0].rows);
  CHECK(y.shape() == Shape{4});
  CHECK(std::vector<double>{y.at(0), y.at(1), y.at(2), y.at(3)} == std::vector<double>{0, 0, 1, 1});
  CHECK(test::whole(data.inputs[0].rows).shape() == Shape{4, 12, 16, 3});
  test::Args few = skip;
  few.emplace_back("max_bad_records", value(1));
  CHECK(problem([&] { read_source(image_folder(root, few), ""); }) ==
        "E322 2 of 6 images cannot be read; `max_bad_records` allows 1 | note: `" + root +
            "/cat/2.png`: libpng: the file ends early: truncated? | note: `" + root +
            "/dog/3.png`: the file is empty");
}

namespace {

const std::string kMasks = std::string(MESHTRAIN_SOURCE_DIR) + "/tests/golden/masks";

ConfigObject masked_folder(const std::string& masks, const test::Args& more = {}) {
  ConfigObject source = image_folder(kMasks + "/images", more);
  source.args["image_size"] = test::list_value({12, 16});
  source.args["masks"] = value(masks);
  return source;
}

}  // namespace

TEST_CASE("masks: the numbers of every kind of PNG") {
  NpzReader goldens(kMasks + "/goldens.npz");
  const Dataset data = read_source(masked_folder(kMasks + "/masks/*_mask.png"), "");
  REQUIRE(data.targets.size() == 1);
  const Rows& masks = *data.targets[0].rows;
  REQUIRE(masks.shape() == Shape{10, 12, 16, 1});
  REQUIRE(masks.dtype() == DType::kInt32);
  const HostTensor y = test::whole(data.targets[0].rows);
  for (int64_t i = 0; i < masks.size(); ++i) {
    const std::string name =
        std::filesystem::path((*data.files)[static_cast<size_t>(i)]).stem().string();
    CAPTURE(name);
    const HostTensor wanted = goldens.read(name);
    for (int64_t j = 0; j < wanted.size(); ++j) {
      REQUIRE(y.at(i * wanted.size() + j) == wanted.at(j));
    }
  }
}

TEST_CASE("masks: the nearest pixel, as images of one size, with the same crop") {
  const test::Args small = {{"crop_to_aspect_ratio", value(true)}};
  ConfigObject source = masked_folder(kMasks + "/masks/*_mask.png", small);
  ConfigObject images = image_folder(kMasks + "/masks", small);
  images.args["label_mode"] = test::null_value();
  images.args["interpolation"] = value("nearest");
  images.args["color_mode"] = value("grayscale");
  for (ConfigObject* each : {&source, &images}) {
    each->args["image_size"] = test::list_value({5, 9});
  }
  const HostTensor masks = test::whole(read_source(source, "").targets[0].rows);
  const Dataset read = read_source(images, "");
  const HostTensor pixels = test::whole(read.inputs[0].rows);
  for (size_t i = 0; i < read.files->size(); ++i) {
    if (!(*read.files)[i].ends_with("grey_mask.png")) {
      continue;
    }
    for (int64_t j = 0; j < 45; ++j) {
      const int64_t at = static_cast<int64_t>(i) * 45 + j;
      REQUIRE(masks.at(at) == pixels.at(at));
    }
  }
}

TEST_CASE("masks: numbers that stand for classes, and all others") {
  test::TempFolder folder;
  const std::string root = folder.file("set");
  std::filesystem::create_directories(root + "/images/in");
  std::filesystem::create_directories(root + "/masks/in");
  std::filesystem::copy(kMasks + "/images/deep.png", root + "/images/in/a.png");
  std::filesystem::copy(kMasks + "/masks/deep_mask.png", root + "/masks/in/a.png");
  const auto source = [&](const test::Args& args) {
    ConfigObject out = image_folder(root + "/images", args);
    out.args["image_size"] = test::list_value({12, 16});
    out.args["masks"] = value(root + "/masks");
    return out;
  };
  const HostTensor raw = test::whole(read_source(source({}), "").targets[0].rows);
  const HostTensor listed = test::whole(
      read_source(source({{"mask_values", test::list_value({600, 0, 300})}}), "").targets[0].rows);
  const HostTensor rest = test::whole(
      read_source(source({{"mask_values", test::list_value({300})}, {"other_pixels", value(1)}}),
                  "")
          .targets[0]
          .rows);
  for (int64_t i = 0; i < raw.size(); ++i) {
    REQUIRE(listed.at(i) == (raw.at(i) == 600 ? 0 : raw.at(i) == 0 ? 1 : 2));
    REQUIRE(rest.at(i) == (raw.at(i) == 300 ? 0 : 1));
  }
  const Dataset some = read_source(source({{"mask_values", test::list_value({0, 300})}}), "");
  CHECK(problem([&] { test::whole(some.targets[0].rows); })
            .starts_with("E312 `" + root +
                         "/masks/in/a.png`: a pixel is 600, which `mask_values` does not list"));
}

TEST_CASE("masks: images without a mask, and masks with colours") {
  test::TempFolder folder;
  const std::string root = folder.file("set");
  std::filesystem::create_directories(root + "/images");
  std::filesystem::create_directories(root + "/masks");
  for (const char* name : {"a", "b", "c"}) {
    std::filesystem::copy(kMasks + "/images/grey.png", root + "/images/" + name + ".png");
  }
  std::filesystem::copy(kMasks + "/masks/grey_mask.png", root + "/masks/a.png");
  copy("a png/rgb.png", root + "/masks/c.png");
  const auto source = [&](const test::Args& args) {
    ConfigObject out = image_folder(root + "/images", args);
    out.args["image_size"] = test::list_value({12, 16});
    out.args["masks"] = value(root + "/masks");
    return out;
  };
  CHECK(problem([&] { read_source(source({}), ""); })
            .starts_with("E300 1 of 3 images have no mask in `" + root + "/masks`, the first is `" +
                         root + "/images/b.png`"));
  const Dataset kept = read_source(source({{"on_bad_record", value("skip")}}), "");
  CHECK(kept.inputs[0].rows->size() == 1);
  CHECK(kept.targets[0].rows->size() == 1);
  REQUIRE(kept.skipped.size() == 2);
  CHECK(kept.skipped[0] == "`" + root + "/images/b.png` has no mask");
  CHECK(kept.skipped[1] ==
        "`" + root + "/masks/c.png`: the mask has colours, where each pixel is to be one number");
}

TEST_CASE("threads that decode images or draw digits leave signals to the main thread") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  for (int i = 0; i < 50; ++i) {
    copy("a png/rgb.png", fmt::format("{}/cat/{}.png", root, i));
  }
  const std::function<void()> works[] = {
      [&] {
        read_source(image_folder(root, {{"on_bad_record", value("skip")}}), "");
      },
      [] { make_digits(20000, 1); }};
  for (const auto& work : works) {
    test::OtherThreads threads;
    for (int time = 0; time < 100 && threads.seen == 0; ++time) {
      threads = test::watch_threads(work);
    }
    CHECK(threads.open == 0);
    CHECK((threads.seen > 0 || std::thread::hardware_concurrency() == 1));
  }
}

TEST_CASE("image_folder: an image that goes away while it is used is named") {
  test::TempFolder folder;
  const std::string root = folder.file("photos");
  copy("a png/rgb.png", root + "/cat/1.png");
  const Dataset data = read_source(image_folder(root), "");
  std::filesystem::remove(root + "/cat/1.png");
  CHECK(problem([&] { test::whole(data.inputs[0].rows); }) ==
        "E321 `" + root + "/cat/1.png` is not there any more, it was when the data were opened");
}

TEST_CASE("decode_image: every damaged file is refused with what the decoder says") {
  const auto refused = [](const std::string& text) {
    return problem([&] { decode_image(as_bytes(text), "x", 3); });
  };
  CHECK(refused("") == "E322 `x`: the file is empty");
  CHECK(refused("BM1234") == "E322 `x`: a BMP file; only PNG and JPEG images are read: convert it");
  CHECK(refused("hello, world") ==
        "E322 `x`: no PNG or JPEG image (it begins with 68 65 6c 6c 6f 2c 20 77)");
  std::string png = bytes_of("a png/rgb.png");
  png[png.size() - 14] ^= 1;  // of the checksum of the pixels
  CHECK(refused(png) == "E322 `x`: libpng: IDAT: CRC error");
  std::string jpeg = bytes_of("b jpeg/rgb.jpg");
  CHECK(refused(jpeg.substr(0, jpeg.size() / 2 + 200)) ==
        "E322 `x`: libjpeg: Premature end of JPEG file");
  CHECK(refused(jpeg.substr(0, 20)) == "E322 `x`: there is no image in the file: truncated?");
}

TEST_CASE("decode_image: a header that promises more than the bytes can hold is refused") {
  const auto refused = [](const std::string& text) {
    return problem([&] { decode_image(as_bytes(text), "x", 3); });
  };
  // A PNG header with another size and its checksum.
  const auto header = [](uint32_t width, uint32_t height) {
    std::string png = bytes_of("a png/rgb.png");
    for (int i = 0; i < 4; ++i) {
      png[static_cast<size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
      png[static_cast<size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
    }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 12; i < 29; ++i) {
      crc ^= static_cast<uint8_t>(png[i]);
      for (int bit = 0; bit < 8; ++bit) {
        crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
      }
    }
    crc = ~crc;
    for (int i = 0; i < 4; ++i) {
      png[static_cast<size_t>(29 + i)] = static_cast<char>(crc >> (24 - 8 * i));
    }
    return png;
  };
  CHECK(refused(header(1 << 18, 1 << 18)) ==
        "E322 `x`: the image declares 262144x262144 pixels; at most 134,217,728 are read");
  CHECK(refused(header((1 << 18) + 1, 1)) == "E322 `x`: libpng: a side of more than 262144 pixels");
  CHECK(refused(header(11000, 11000)) ==
        "E322 `x`: the image declares 11000x11000 pixels in 496 bytes, which cannot be");
  CHECK(refused(header(1u << 31, 1)).starts_with("E322 `x`: libpng: "));
  std::string jpeg = bytes_of("b jpeg/rgb.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\x27\x10\x27\x10");
  CHECK(refused(jpeg) ==
        "E322 `x`: the image declares 10000x10000 pixels in 912 bytes, which cannot be");
}

TEST_CASE("decode_image: a large image is checked before memory is taken for it") {
  // The header is made to say so many pixels that the file is read twice.
  std::string jpeg = bytes_of("b jpeg/nested/progressive.jpg");
  const size_t frame = jpeg.find("\xff\xc2");
  REQUIRE(frame != std::string::npos);
  jpeg.replace(frame + 5, 4, "\x0f\xa0\x0f\xa0");                 // 4000 x 4000
  jpeg.insert(2, "\xff\xfe\x7f\xff" + std::string(0x7ffd, ' '));  // a comment: more bytes
  const auto refused = [](const std::string& text) {
    return problem([&] { decode_image(as_bytes(text), "x", 3); });
  };
  CHECK(refused(jpeg).starts_with("E322 `x`: libjpeg: "));
  jpeg.resize(jpeg.size() - 2);
  CHECK(refused(jpeg) == "E322 `x`: the file ends early: truncated?");
}

TEST_CASE("decode_image: bytes between the markers of a JPEG are harmless") {
  std::string jpeg = bytes_of("b jpeg/rgb.jpg");
  const Image clean = decode_image(as_bytes(jpeg), "x", 3);
  jpeg.insert(jpeg.size() - 2, std::string(40, 'x'));
  const Image padded = decode_image(as_bytes(jpeg), "x", 3);
  CHECK(
      std::equal(clean.pixels.get(), clean.pixels.get() + clean.num_bytes(), padded.pixels.get()));
}

}  // namespace meshtrain

TEST_SUITE_END();
