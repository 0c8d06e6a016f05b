#include "data/windows.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "config/source_like.h"
#include "data/characters.h"
#include "data/learned.h"
#include "data/sources.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "source_config.h"
#include "support/malformed.h"

namespace meshtrain {
namespace {

using namespace test;

std::vector<int32_t> read_rows(const RowsPtr& rows, const std::vector<int64_t>& order) {
  std::vector<int32_t> out(order.size() * rows->row_bytes() / sizeof(int32_t));
  rows->read(order, reinterpret_cast<std::byte*>(out.data()));
  return out;
}
using Ints = std::vector<int32_t>;

ConfigObject ids_source(const char* class_name, const Args& more) {
  Args args = {{"sequence_length", value(3)},
               {"stride", null_value()},
               {"target", default_value("sequence")},
               {"dtype", default_value("uint16")},
               {"vocabulary",
                class_name == std::string("text") ? default_value("characters") : null_value()},
               {"characters", null_value()},
               {"characters_file", null_value()},
               {"slice", null_value()}};
  for (auto& [name, arg] : args) {
    arg.is_default = true;
  }
  args.insert(args.end(), more.begin(), more.end());
  return object(class_name, args);
}
Dataset load(const TempFolder& folder, const ConfigObject& source) {
  DataConfig data;
  data.base_dir = folder.path();
  return load_dataset(source, data);
}

TEST_CASE("text: windows of characters and the ones that follow") {
  const TempFolder folder;
  folder.write("t.txt", "abcabdabcx");  // ids 0 1 2 0 1 3 0 1 2 4
  const ConfigObject source = ids_source("text", {{"path", value("t.txt")}});
  const Dataset dataset = load(folder, source);
  CHECK(dataset.description == "text t.txt, 5 characters (3 samples)");
  REQUIRE(dataset.inputs[0].rows->shape() == Shape{3, 3});
  REQUIRE(dataset.targets[0].rows->shape() == Shape{3, 3});
  CHECK(dataset.inputs[0].rows->dtype() == DType::kInt32);
  CHECK(read_rows(dataset.inputs[0].rows, {0, 2, 0}) == Ints{0, 1, 2, 0, 1, 2, 0, 1, 2});
  CHECK(read_rows(dataset.inputs[0].rows, {1}) == Ints{0, 1, 3});
  CHECK(read_rows(dataset.targets[0].rows, {1, 2}) == Ints{1, 3, 0, 1, 2, 4});
}

TEST_CASE("text: overlapping windows and only the last target") {
  const TempFolder folder;
  folder.write("t.txt", "abcdefgh");
  const Dataset dataset =
      load(folder,
           ids_source("text",
                      {{"path", value("t.txt")}, {"stride", value(2)}, {"target", value("last")}}));
  REQUIRE(dataset.inputs[0].rows->shape() == Shape{3, 3});
  CHECK(read_rows(dataset.inputs[0].rows, {0, 1, 2}) == Ints{0, 1, 2, 2, 3, 4, 4, 5, 6});
  REQUIRE(dataset.targets[0].rows->shape() == Shape{3});
  CHECK(read_rows(dataset.targets[0].rows, {0, 1, 2}) == Ints{3, 5, 7});
}

TEST_CASE("text: without targets a window may end where the text ends") {
  const TempFolder folder;
  folder.write("t.txt", "abcdef");
  const Dataset dataset =
      load(folder, ids_source("text", {{"path", value("t.txt")}, {"target", null_value()}}));
  CHECK(dataset.inputs[0].rows->shape() == Shape{2, 3});
  CHECK(dataset.targets.empty());
}

TEST_CASE("text: a slice is one of characters so that no window crosses it") {
  const TempFolder folder;
  folder.write("t.txt", "abcdefghij");
  const Args common = {{"path", value("t.txt")}, {"stride", value(1)}};
  const auto part = [&](const char* slice) {
    Args args = common;
    args.push_back({"slice", value(slice)});
    return load(folder, ids_source("text", args));
  };
  const Dataset train = part("[:60%]");
  CHECK(read_rows(train.targets[0].rows, {train.num_samples - 1}) == Ints{3, 4, 5});
  const Dataset tail = part("[60%:]");
  CHECK(tail.num_samples == 1);
  CHECK(read_rows(tail.inputs[0].rows, {0}) == Ints{6, 7, 8});
  CHECK(tail.description == "text t.txt, 10 characters [60%:] (1 samples)");
  const Caught empty = caught([&] { part("[7:]"); });
  CHECK(empty.code == "E316");
  CHECK(empty.says("3 ids are too few for one window, which takes 4"));
}

TEST_CASE("text: other data have the ids of the training text") {
  const TempFolder folder;
  folder.write("train.txt", "hello wörld");
  folder.write("val.txt", "ööll");
  folder.write("alien.txt", "hell\xc3\xa4 no");
  const ConfigObject train = ids_source("text", {{"path", value("train.txt")}});
  ConfigObject validation = ids_source("text", {{"path", value("val.txt")}});
  read_like_training(train, validation);
  // sorted: space d e h l o r w U+00F6
  CHECK(read_rows(load(folder, validation).inputs[0].rows, {0}) == Ints{8, 8, 4});
  ConfigObject alien = ids_source("text", {{"path", value("alien.txt")}});
  read_like_training(train, alien);
  const Caught error = caught([&] { load(folder, alien); });
  CHECK(error.code == "E314");
  CHECK(error.exit_code == 3);
  CHECK(error.says("offset 4: the character U+00E4 is not in the vocabulary"));
}

TEST_CASE("text: known characters have the ids that they had in training") {
  const TempFolder folder;
  folder.write("t.txt", "abcabdabcx");
  const ConfigObject source = ids_source("text", {{"path", value("t.txt")}});
  DataConfig data;
  data.base_dir = folder.path();
  const LearnedPtr known = load_dataset(source, data).learned;
  REQUIRE(known != nullptr);
  CHECK(known->characters == Vocabulary{'a', 'b', 'c', 'd', 'x'});
  folder.write("t.txt", "xdxdxdxd");
  const Dataset other = load_dataset(source, data, known);
  CHECK(read_rows(other.inputs[0].rows, {0}) == Ints{4, 3, 4});
  CHECK(other.learned == known);
  folder.write("t.txt", "xdxd xdxd");
  CHECK(caught([&] { load_dataset(source, data, known); }).code == "E314");
  const LearnedPtr of_table = std::make_shared<LearnedData>(LearnedData{"csv", {}, {}, {}});
  CHECK(load_dataset(source, data, of_table).learned != of_table);  // of another kind of source
}

TEST_CASE("text: a given vocabulary and bytes") {
  const TempFolder folder;
  folder.write("t.txt", "cab\nc");
  folder.write("v.txt", "cba\n");
  const auto ids = [&](const Args& more) {
    Args args = {{"path", value("t.txt")}};
    args.insert(args.end(), more.begin(), more.end());
    return read_rows(load(folder, ids_source("text", args)).inputs[0].rows, {0});
  };
  CHECK(ids({{"characters", value("c\nba")}}) == Ints{0, 3, 2});
  CHECK(ids({{"characters_file", value("v.txt")}}) == Ints{0, 2, 1});
  CHECK(ids({{"vocabulary", value("bytes")}}) == Ints{'c', 'a', 'b'});
  CHECK(caught([&] {
          ids({{"characters", value("abca")}});
        }).says("`a` of the vocabulary is there"));
  CHECK(caught([&] {
          ids({{"characters", value("abc")}});
        }).says("offset 3: the character U+000A"));
}

ConfigValue tokenizer_value(const char* name) {
  return value(ConfigValue::Dict{{"tokenizer", value(std::string(MESHTRAIN_SOURCE_DIR) +
                                                     "/tests/golden/tokenizers/" + name)}});
}

TEST_CASE("text: tokens of a tokenizer, which later data get from what was learned") {
  const TempFolder folder;
  folder.write("t.txt", "First Citizen:\nBefore we proceed any further, hear me speak.\n");
  Tokenizer tokenizer(read_tokenizer_text(tokenizer_value("gpt2").dict()[0].second.string()), "t");
  std::vector<int32_t> expected;
  tokenizer.encode("First Citizen:\nBefore we proceed any further, hear me speak.\n", expected,
                   "t");
  const Args args = {{"path", value("t.txt")}, {"vocabulary", tokenizer_value("gpt2")}};
  const Dataset dataset = load(folder, ids_source("text", args));
  CHECK(read_rows(dataset.inputs[0].rows, {0}) == Ints(expected.begin(), expected.begin() + 3));
  REQUIRE(dataset.learned);
  CHECK(Tokenizer(dataset.learned->tokenizer, "t").size() == 600);
  const ConfigObject moved = ids_source(
      "text", {{"path", value("t.txt")}, {"vocabulary", tokenizer_value("not there any more")}});
  DataConfig data;
  data.base_dir = folder.path();
  const Dataset later = load_dataset(moved, data, dataset.learned);
  CHECK(read_rows(later.inputs[0].rows, {1}) == read_rows(dataset.inputs[0].rows, {1}));
  CHECK(caught([&] { load_dataset(moved, data); }).code == "E300");
}

// A .npy file of version 1.0.
template <class T>
std::string npy_of(const std::string& type, const std::string& shape, const std::vector<T>& ids) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header +
         std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T));
}

TEST_CASE("tokens: a .npy file says its type; other arrays are refused") {
  const TempFolder folder;
  const auto ids_of = [&](const std::string& file, int vocabulary = 100000) {
    folder.write("ids.npy", file);
    const Dataset dataset =
        load(folder,
             ids_source("tokens", {{"path", value("ids.npy")}, {"vocabulary", value(vocabulary)}}));
    return read_rows(dataset.inputs[0].rows, {0});
  };
  CHECK(ids_of(npy_of<uint8_t>("|u1", "(4,)", {1, 2, 3, 4})) == Ints{1, 2, 3});
  CHECK(ids_of(npy_of<uint16_t>("<u2", "(4,)", {1, 2, 60000, 4})) == Ints{1, 2, 60000});
  CHECK(ids_of(npy_of<uint32_t>("<u4", "(4,)", {1, 2, 70000, 4})) == Ints{1, 2, 70000});
  CHECK(ids_of(npy_of<int32_t>("<i4", "(4,)", {1, 2, 70000, 4})) == Ints{1, 2, 70000});
  CHECK(ids_of(npy_of<int64_t>("<i8", "(4,)", {1, 2, 70000, 4})) == Ints{1, 2, 70000});
  const auto problem = [&](const std::string& file) {
    try {
      ids_of(file, 100);
    } catch (const ConfigError& error) {
      const Diagnostic& first = error.diagnostics().list().front();
      return first.code + " " + first.message;
    }
    return std::string();
  };
  const auto says = [&](const std::string& file, const std::string& text) {
    CHECK_MESSAGE(problem(file).find(text) != std::string::npos, problem(file));
  };
  says(npy_of<int64_t>("<i8", "(4,)", {1, -2, 3, 4}), "id -2, but the vocabulary has 100 ids");
  says(npy_of<int32_t>("<i4", "(4,)", {1, -2, 3, 4}), "id -2, but the vocabulary has 100 ids");
  says(npy_of<int64_t>("<i8", "(4,)", {1, int64_t{1} << 32, 3, 4}), "id 4294967296, but");
  says(npy_of<float>("<f4", "(4,)", {1, 2, 3, 4}), "a .npy file of float32; ids are uint8");
  says(npy_of<uint16_t>(">u2", "(4,)", {1, 2, 3, 4}), "a .npy file of big-endian ids");
  says(npy_of<uint16_t>("<u2", "(2, 2)", {1, 2, 3, 4}), "of shape (2, 2); ids have one dimension");
  says(npy_of<uint16_t>("<u2", "(5,)", {1, 2, 3, 4}), "E305");
}

TEST_CASE("tokens: llm.c's header says the type; files with and without one are one sequence") {
  const TempFolder folder;
  const auto bytes_of = [](const auto& ids) {
    return std::string(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(ids[0]));
  };
  folder.write("1.bin",
               token_header(DType::kUInt32, 2) + bytes_of(std::vector<uint32_t>{7, 70000}));
  folder.write("2.bin", token_header(DType::kUInt16, 3) + bytes_of(std::vector<uint16_t>{1, 2, 3}));
  folder.write("3.bin", bytes_of(std::vector<uint16_t>{4, 5}));
  const auto rows = [&](const Args& more) {
    Args args = {{"path", value("*.bin")}, {"sequence_length", value(7)}, {"target", null_value()}};
    args.insert(args.end(), more.begin(), more.end());
    return load(folder, ids_source("tokens", args)).inputs[0].rows;
  };
  CHECK(read_rows(rows({}), {0}) == Ints{7, 70000, 1, 2, 3, 4, 5});
  CHECK(rows({{"path", value("3.bin")}, {"sequence_length", value(1)}})->size() == 2);
  CHECK(rows({{"path", value("2.bin")}, {"header", value("none")}, {"sequence_length", value(1)}})
            ->size() == 515);
}

TEST_CASE("tokens: documents give segments, positions and weights") {
  const TempFolder folder;
  const std::vector<uint16_t> ids = {4, 5, 0, 6, 0, 0, 7, 8, 9};
  folder.write("ids.bin", {reinterpret_cast<const char*>(ids.data()), ids.size() * 2});
  const Dataset dataset = load(folder, ids_source("tokens", {{"path", value("ids.bin")},
                                                             {"sequence_length", value(4)},
                                                             {"document_separator", value(0)}}));
  REQUIRE(dataset.inputs.size() == 3);
  CHECK(dataset.inputs[1].name == "segments");
  CHECK(dataset.inputs[2].name == "positions");
  CHECK(read_rows(dataset.inputs[0].rows, {0, 1}) == Ints{4, 5, 0, 6, 0, 0, 7, 8});
  CHECK(read_rows(dataset.inputs[1].rows, {0, 1}) == Ints{1, 1, 1, 2, 1, 2, 3, 3});
  CHECK(read_rows(dataset.inputs[2].rows, {0, 1}) == Ints{0, 1, 2, 0, 0, 0, 0, 1});
  const HostTensor weights = dataset.sample_weight->read_range(0, 2);
  CHECK(weights.shape() == Shape{2, 4});
  CHECK(std::vector<float>(weights.data<float>(), weights.data<float>() + 8) ==
        std::vector<float>{1, 1, 0, 1, 0, 0, 1, 1});
}

TEST_CASE("read_content: characters that a block boundary cuts and bytes that are no UTF-8") {
  std::string text((1 << 20) - 1, 'a');
  text += "\xf0\x9f\x98\x80\xe2\x82\xac";
  const TextContent content = read_content({text_in_memory("t", text)});
  CHECK(content.size == (1 << 20) + 1);
  CHECK(content.vocabulary == Vocabulary{'a', 0x20AC, 0x1F600});
  const HostTensor ids = encode({text_in_memory("t", text)}, content.vocabulary, content.size);
  CHECK(ids.dtype() == DType::kUInt8);
  CHECK(ids.at(content.size - 1) == 1);
  CHECK(ids.at(content.size - 2) == 2);
  for (const char* bad :
       {"\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80"}) {
    const std::string broken = text + bad;
    const Caught error = caught([&] { read_content({text_in_memory("bad.txt", broken)}); });
    CHECK(error.code == "E318");
    CHECK(error.says("at offset 1,048,582 is not UTF-8"));
    CHECK(error.says("bad.txt"));
  }
}

TEST_CASE("a byte order mark in front of a text is no character, elsewhere it is one") {
  const TextContent content = read_content({text_in_memory("t",
                                                           "\xef\xbb\xbf"
                                                           "ab\xef\xbb\xbf")});
  CHECK(content.size == 3);
  CHECK(content.vocabulary == Vocabulary{'a', 'b', 0xFEFF});
}

TEST_CASE("encode: wider ids for vocabularies of more than 256 characters") {
  std::string text;
  Vocabulary vocabulary;
  for (char32_t c = 0x4e00; c < 0x4e00 + 300; ++c) {
    vocabulary.push_back(c);
    text += {static_cast<char>(0xe0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3f)),
             static_cast<char>(0x80 | (c & 0x3f))};
  }
  const HostTensor ids = encode({text_in_memory("t", text)}, vocabulary, 300);
  CHECK(ids.dtype() == DType::kUInt16);
  CHECK(ids.at(299) == 299);
  CHECK(read_content({text_in_memory("t", text)}).vocabulary == vocabulary);
}

template <class T>
std::string raw(const std::vector<T>& ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(T)};
}

TEST_CASE("tokens: windows across files of both types") {
  const TempFolder folder;
  folder.write("a_0.bin", raw<uint16_t>({1, 2, 3, 4}));
  folder.write("a_1.bin", "");
  folder.write("a_2.bin", raw<uint16_t>({5, 65535, 7}));
  const Dataset dataset = load(folder, ids_source("tokens", {{"path", value("a_*.bin")}}));
  CHECK(dataset.description == "tokens a_*.bin, 7 of uint16 (2 samples)");
  CHECK(read_rows(dataset.inputs[0].rows, {1, 0}) == Ints{4, 5, 65535, 1, 2, 3});
  CHECK(read_rows(dataset.targets[0].rows, {1}) == Ints{5, 65535, 7});
  folder.write("b.bin", raw<uint32_t>({100000, 2, 3, 4}));
  const Dataset wide =
      load(folder, ids_source("tokens", {{"path", value("b.bin")}, {"dtype", value("uint32")}}));
  CHECK(read_rows(wide.inputs[0].rows, {0}) == Ints{100000, 2, 3});
}

TEST_CASE("tokens: an id that the vocabulary lacks is named with its offset") {
  const TempFolder folder;
  std::vector<uint16_t> ids(2000, 50256);
  ids[1234] = 50257;
  folder.write("t.bin", raw(ids));
  const Dataset dataset =
      read_source(ids_source("tokens", {{"path", value("t.bin")}, {"vocabulary", value(50257)}}),
                  folder.path());
  CHECK(read_rows(dataset.inputs[0].rows, {0}) == Ints(3, 50256));
  const Caught error = caught([&] { read_rows(dataset.inputs[0].rows, {10, 411}); });
  CHECK(error.code == "E314");
  CHECK(error.exit_code == 3);
  CHECK(error.says("t.bin"));
  CHECK(error.says("offset 1,234: id 50257, but the vocabulary has 50,257 ids"));
  folder.write("w.bin", raw<uint32_t>({1, 2, 3, 0x80000000}));
  const Dataset wide = read_source(
      ids_source("tokens", {{"path", value("w.bin")}, {"dtype", value("uint32")}}), folder.path());
  CHECK(caught([&] { read_rows(wide.targets[0].rows, {0}); }).says("id 2147483648"));
}

TEST_CASE("tokens: files that are missing or cut or changed") {
  const TempFolder folder;
  const auto source = [](const char* path) {
    return ids_source("tokens", {{"path", value(path)}});
  };
  CHECK(caught([&] { load(folder, source("none.bin")); }).code == "E300");
  CHECK(caught([&] { load(folder, source("none*.bin")); }).code == "E300");
  folder.write("odd.bin", "12345");
  const Caught odd = caught([&] { load(folder, source("odd.bin")); });
  CHECK(odd.code == "E305");
  CHECK(odd.says("5 bytes are no whole number of uint16 ids"));
  const std::string path = folder.write("t.bin", raw(std::vector<uint16_t>(100, 1)));
  for (const size_t size : {size_t{20}, size_t{200}, size_t{400}}) {  // bytes afterwards
    const Dataset dataset = load(folder, source("t.bin"));
    CHECK(read_rows(dataset.inputs[0].rows, {30}) == Ints(3, 1));
    std::filesystem::resize_file(path, size);
    // A clock of milliseconds may not have moved since the file was written.
    std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
    const Caught error = caught([&] { read_rows(dataset.inputs[0].rows, {30}); });
    CHECK(error.code == "E321");
    CHECK(error.exit_code == 3);
    CHECK(error.says("t.bin"));
    folder.write("t.bin", raw(std::vector<uint16_t>(100, 1)));
  }
}

TEST_CASE("tokens: a large file takes no memory") {
  const TempFolder folder;
  const std::string path = folder.write("t.bin", "");
  std::filesystem::resize_file(path, size_t{1} << 30);  // a hole: half a thousand million zeros
  const MemoryMeter memory;
  const Dataset dataset = read_source(ids_source("tokens", {{"path", value("t.bin")},
                                                            {"sequence_length", value(1024)},
                                                            {"stride", value(1)}}),
                                      folder.path());
  CHECK(dataset.inputs[0].rows->size() == (1 << 29) - 1024);
  CHECK(read_rows(dataset.targets[0].rows, {(1 << 29) - 1025}) == Ints(1024, 0));
  CHECK(memory.peak() < (size_t{8} << 20));
}

}  // namespace
}  // namespace meshtrain
