#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "base/file.h"
#include "config/source_like.h"
#include "data/csv_dates.h"
#include "data/csv_table.h"
#include "data/dataset.h"
#include "data/learned.h"
#include "source_config.h"
#include "support/malformed.h"

namespace meshtrain {
namespace {

using namespace test;

using Records = std::vector<std::vector<std::string>>;

// The records of a text that comes `step` bytes at a time.
Records records_of(std::string_view text, size_t step = 1 << 20, char separator = ',') {
  CsvRecords records("t.csv", separator, [&](char* to, size_t count) {
    count = text.copy(to, std::min(step, count));
    text.remove_prefix(count);
    return count;
  });
  Records out;
  std::vector<std::string_view> fields;
  while (records.next(fields)) {
    out.emplace_back(fields.begin(), fields.end());
  }
  return out;
}

TEST_CASE("CsvRecords: fields with and without quotes and all line ends") {
  CHECK(records_of("a,b\n1,2\n") == Records{{"a", "b"}, {"1", "2"}});
  CHECK(records_of("a,b\r\n1,2") == Records{{"a", "b"}, {"1", "2"}});
  CHECK(records_of("\xef\xbb\xbfx,y\n") == Records{{"x", "y"}});
  CHECK(records_of(",\n,") == Records{{"", ""}, {"", ""}});
  CHECK(records_of("\"\"\n1\n\"\"") == Records{{""}, {"1"}, {""}});
  CHECK(records_of("a;b\tc\n", 100, ';') == Records{{"a", "b\tc"}});
  CHECK(records_of("1\n\n\r\n\n") == Records{{"1"}});
  CHECK(records_of("") == Records{});
  CHECK(records_of("\n\n") == Records{});
}

TEST_CASE("CsvRecords: what stands in quotes is kept wherever a block ends") {
  const std::string text =
      "\"a \"\"quoted\"\", word\",\"two\r\nlines\",\"\"\r\nplain, 2 ,\"\"\"\"\n\"x\",,y";
  const Records wanted = {
      {"a \"quoted\", word", "two\r\nlines", ""}, {"plain", " 2 ", "\""}, {"x", "", "y"}};
  CHECK(records_of(text) == wanted);
  for (size_t before = 0; before <= text.size() + 1; ++before) {  // bytes in the first block
    const std::string padding((1 << 20) - 1 - before, 'p');
    Records records = records_of(padding + "\n" + text, 1 << 16);
    CHECK(records[0] == std::vector<std::string>{padding});
    records.erase(records.begin());
    CHECK(records == wanted);
  }
}

TEST_CASE("CsvRecords: records longer than a block") {
  const std::string field(3 << 20, 'f');
  CHECK(records_of("a,\"" + field + "\"\n" + field + ",b\n", 4096) ==
        Records{{"a", field}, {field, "b"}});
}

TEST_CASE("parse_decimal: numbers with a decimal comma, and points of thousands") {
  for (const auto& [text, value] :
       std::vector<std::pair<std::string, double>>{{"1,5", 1.5},
                                                   {"-3,25e2", -325},
                                                   {",5", 0.5},
                                                   {" 7,0 ", 7},
                                                   {"1.234,5", 1234.5},
                                                   {"1.234", 1234},
                                                   {"-12.345.678,5", -12345678.5},
                                                   {"42", 42},
                                                   {"1e3", 1000}}) {
    CAPTURE(text);
    REQUIRE(parse_decimal(text, ','));
    CHECK(*parse_decimal(text, ',') == value);
  }
  for (const char* text : {"1.5", "0.123", "48.14", "1,2,3", "5,", "1,234.5", "12.34,5", "a,b",
                           "192.168.100.200.1", "1.234,5 EUR", "", ","}) {
    CAPTURE(text);
    CHECK(!parse_decimal(text, ','));
  }
  CHECK(parse_decimal("1.5", '.') == 1.5);
  CHECK(!parse_decimal("1,5", '.'));
}

TEST_CASE("parse_decimal: the numbers of Python's float") {
  const std::pair<const char*, double> table[] = {
      {"1", 1},
      {" -2.5\t", -2.5},
      {"+3.", 3},
      {".5e1", 5},
      {"1E-3", 1e-3},
      {"-0", -0.0},
      {"0.1", 0.1},
      {"123456789012345678901234567890", 1.2345678901234568e29},
      {"9007199254740993", 9007199254740992},  // between two doubles, to the even one
      {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022},
      {"5e-324", 0x0.0000000000001p-1022},
      {"1e-400", 0},
      {"1e400", HUGE_VAL},
      {"-1e400", -HUGE_VAL},
      {"inf", HUGE_VAL},
      {"-Infinity", -HUGE_VAL},
  };
  for (const auto& [text, value] : table) {
    CAPTURE(text);
    REQUIRE(parse_decimal(text).has_value());
    CHECK(*parse_decimal(text) == value);
    CHECK(std::signbit(*parse_decimal(text)) == std::signbit(value));
  }
  CHECK(std::isnan(*parse_decimal("NaN")));
  for (const char* text : {"", " ", "+", "-", "+-1", "1,5", "1 2", "0x10", "1_000", "nan(1)", "e5",
                           "1e", "1.2.3", "five", "١"}) {
    CAPTURE(text);
    CHECK(!parse_decimal(text).has_value());
  }
}

TEST_CASE("parse_decimal: random numbers of every length as the C library reads them") {
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t bits = splitmix_bits(5, i);
    const std::string text =
        fmt::format("{}{}.{}e{}", i % 2 ? "-" : "", bits >> (bits % 60), splitmix_bits(6, i) >> 20,
                    static_cast<int>(bits % 660) - 330);
    CHECK(*parse_decimal(text) == std::strtod(text.c_str(), nullptr));
    const std::string shorter = text.substr(0, 1 + i % 20);
    if (shorter != "-" && shorter.find('e') == std::string::npos) {
      CHECK(*parse_decimal(shorter) == std::strtod(shorter.c_str(), nullptr));
    }
  }
}

CsvTable parse(std::string_view text, const CsvSettings& settings,
               const CsvLearned* learned = nullptr) {
  return parse_csv(text, "t.csv", settings, learned);
}
CsvSettings labelled(const char* label) {
  CsvSettings settings;
  settings.targets = {{"y", {{label, {}}}, true}};
  return settings;
}
std::vector<double> values(const HostTensor& tensor) {
  std::vector<double> out;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    out.push_back(tensor.at(i));
  }
  return out;
}
using Values = std::vector<double>;

constexpr const char* kFlowers =
    "width,length,species\n0.2,1.4,setosa\n2.5,6,virginica\n1.3,4.5,\"setosa\"\n";

TEST_CASE("parse_csv: all columns but the label are features and texts become classes") {
  for (const char* label : {"species", "2", "-1"}) {
    const CsvTable table = parse(kFlowers, labelled(label));
    REQUIRE(table.inputs.size() == 1);
    CHECK(table.inputs[0].name == "x");
    CHECK(table.inputs[0].tensor.dtype() == DType::kFloat32);
    CHECK(table.inputs[0].tensor.shape() == Shape{3, 2});
    CHECK(table.inputs[0].tensor.data<float>()[0] == 0.2F);
    REQUIRE(table.targets.size() == 1);
    CHECK(table.targets[0].tensor.dtype() == DType::kInt32);
    CHECK(table.targets[0].tensor.shape() == Shape{3});
    CHECK(values(table.targets[0].tensor) == Values{0, 1, 0});
    CHECK(table.learned.categories.at("species") ==
          std::vector<std::string>{"setosa", "virginica"});
  }
}

TEST_CASE("parse_csv: a number is read as a double before it becomes a float") {
  // Between two floats: rounded once, from the text, it would become the odd neighbour's.
  const CsvTable table = parse("1.00000017881393432617187499,0\n", labelled("1"));
  CHECK(table.inputs[0].tensor.data<float>()[0] ==
        static_cast<float>(std::strtod("1.00000017881393432617187499", nullptr)));
  CsvSettings exact = labelled("1");
  exact.dtype = DType::kFloat64;
  CHECK(parse("0.1,0\n", exact).inputs[0].tensor.at(0) == 0.1);
  exact.dtype = DType::kInt32;
  const CsvTable whole = parse("-7,1e3\n", exact);
  CHECK(whole.inputs[0].tensor.dtype() == DType::kInt32);
  CHECK(whole.targets[0].tensor.at(0) == 1000);
  CHECK(parse("-2147483648,0\n", exact).inputs[0].tensor.at(0) == -2147483648.0);
  for (const char* wide : {"-2147483649,0\n", "2147483648,0\n"}) {
    CHECK(caught([&] { parse(wide, exact); }).says("no 32-bit integer"));
  }
}

TEST_CASE("parse_csv: numbers of an Input of whole numbers are not rounded") {
  const std::string text = "id,size,y\n16777217,16777217,0\n-4503599627370497,2,1\n";
  CsvSettings settings = labelled("y");
  settings.inputs = {{"size", {{"size", {}}}, true}, {"id", {{"id", {}}}, true}};
  settings.model_inputs = {{"id", DType::kInt64}, {"size", DType::kFloat32}};
  const CsvTable table = parse(text, settings);
  CHECK(table.inputs[0].tensor.dtype() == DType::kFloat32);
  CHECK(table.inputs[0].tensor.at(0) == 16777216);
  CHECK(values(table.inputs[1].tensor) == Values{16777217, -4503599627370497});
  settings.inputs = {{"a", {{"size", {}}}, true}, {"b", {{"id", {}}}, true}};  // by their order
  CHECK(parse(text, settings).inputs[0].tensor.at(0) == 16777217);
  CHECK(parse(text, settings).inputs[1].tensor.dtype() == DType::kFloat32);
  settings.inputs = {};  // "x", of the only Input
  settings.model_inputs = {{"ids", DType::kInt32}};
  CHECK(parse("id,y\n16777217,0\n", settings).inputs[0].tensor.at(0) == 16777217);
  for (const char* wrong : {"2147483648", "1.5", "1e10"}) {
    const Caught error = caught([&] { parse(fmt::format("id,y\n1,0\n{},0\n", wrong), settings); });
    CHECK(error.code == "E310");
    CHECK(
        error.says(fmt::format("row 2 (line 3) column `id` is `{}`, and its Input takes int32: "
                               "whole numbers from -2147483648 to 2147483647",
                               wrong)));
  }
  settings.model_inputs = {{"ids", DType::kInt64}};
  CHECK(parse("id,y\n9007199254740991,0\n", settings).inputs[0].tensor.at(0) == 9007199254740991);
  CHECK(caught([&] { parse("id,y\n9007199254740993,0\n", settings); }).says("takes int64"));
}

TEST_CASE("parse_csv: all columns that are not there are named at once") {
  CsvSettings settings = labelled("z");
  settings.inputs = {{"x", {{"a", {}}, {"c", {}}, {"d", {}}}, false}};
  const Caught error = caught([&] { parse("a,b,y\n1,2,3\n", settings); });
  CHECK(error.says("no column `z`"));
  CHECK(error.says("no column `c`"));
  CHECK(error.says("no column `d`"));
}

TEST_CASE("parse_csv: the first row is a header when none of its fields is a number") {
  CHECK(parse("1,2\n3,4\n", labelled("0")).inputs[0].tensor.shape() == Shape{2, 1});
  CHECK(parse("a,b\n3,4\n", labelled("a")).inputs[0].tensor.shape() == Shape{1, 1});
  // A row of flowers without names above it.
  CHECK(values(parse("5.1,3.5,setosa\n", labelled("-1")).inputs[0].tensor).size() == 2);
  CsvSettings years = labelled("2020");
  years.header = CsvSettings::Header::kYes;
  CHECK(values(parse("2019,2020\n1,2\n", years).targets[0].tensor) == Values{2});
  CsvSettings texts = labelled("1");
  texts.categorical = {{"0", {}}};
  texts.header = CsvSettings::Header::kNo;
  CHECK(values(parse("b,x\na,y\n", texts).inputs[0].tensor) == Values{1, 0});
}

TEST_CASE("parse_csv: arrays by name with categories in them") {
  CsvSettings settings;
  settings.inputs = {{"numbers", {{"age", {}}, {"height", {}}}, false},
                     {"city", {{"city", {}}}, true},
                     {"mixed", {{"city", {}}, {"age", {}}}, false}};
  settings.targets = {{"price", {{"price", {}}, {"rent", {}}}, false},
                      {"sold", {{"sold", {}}}, true}};
  settings.weight = {"weight", {}};
  settings.categorical = {{"city", {}}};
  settings.vocabularies = {{{"sold", {}}, {"yes", "no"}}};
  const CsvTable table = parse(
      "age,height,city,price,rent,sold,weight,unused\n"
      "30,1.5,Rome,1,2,no,0.5,?\n"
      "40,1.75,Bonn,3,4,yes,2,-\n",
      settings);
  CHECK(values(table.inputs[0].tensor) == Values{30, 1.5, 40, 1.75});
  CHECK(table.inputs[1].tensor.dtype() == DType::kInt32);
  CHECK(table.inputs[1].tensor.shape() == Shape{2});
  CHECK(values(table.inputs[1].tensor) == Values{1, 0});
  CHECK(table.inputs[2].tensor.dtype() == DType::kFloat32);
  CHECK(values(table.inputs[2].tensor) == Values{1, 30, 0, 40});
  CHECK(table.targets[0].tensor.shape() == Shape{2, 2});
  CHECK(values(table.targets[1].tensor) == Values{1, 0});
  REQUIRE(table.weight);
  CHECK(table.weight->dtype() == DType::kFloat32);
  CHECK(values(*table.weight) == Values{0.5, 2});
}

TEST_CASE("parse_csv: categories that are numbers are sorted as numbers") {
  CsvSettings settings = labelled("y");
  settings.categorical = {{"zone", {}}};
  const CsvTable table = parse("zone,y\n10,1\n9,1\n-1,1\n10,1\n", settings);
  CHECK(values(table.inputs[0].tensor) == Values{2, 1, 0, 2});
  CHECK(table.learned.categories.at("zone") == std::vector<std::string>{"-1", "9", "10"});
}

TEST_CASE(
    "parse_csv: missing and unknown texts of features have the first ids, as in StringLookup") {
  CsvSettings settings = labelled("y");
  settings.categorical = {{"c", {}}};
  settings.mask_token = "[MASK]";
  settings.oov_token = "[UNK]";
  const CsvTable train = parse("c,y\nred,1\n,2\nblue,3\nNA,4\n", settings);
  CHECK(train.learned.categories.at("c") ==
        std::vector<std::string>{"[MASK]", "[UNK]", "blue", "red"});
  CHECK(values(train.inputs[0].tensor) == std::vector<double>{3, 0, 2, 0});
  const CsvTable later = parse("c,y\ngreen,1\n?,2\nred,3\n", settings, &train.learned);
  CHECK(values(later.inputs[0].tensor) == std::vector<double>{1, 0, 3});
  settings.vocabularies = {{{"c", {}}, {"red", "blue"}}};
  const CsvTable given = parse("c,y\nred,1\n,2\npink,3\n", settings);
  CHECK(values(given.inputs[0].tensor) == std::vector<double>{2, 0, 1});
  settings.oov_token = "";
  CHECK(caught([&] { parse("c,y\npink,1\n", settings); }).code == "E312");
}

TEST_CASE("parse_csv: one-hot texts and dates are columns of their array") {
  CsvSettings settings = labelled("y");
  settings.one_hot = {{"c", {}}};
  settings.dates = {{{"d", {}}, {DatePart::kYear, DatePart::kWeekday, DatePart::kDays}}};
  settings.missing = CsvSettings::Missing::kMean;
  const CsvTable table =
      parse("n,d,c,y\n7,1970-01-02,b,1\n8,,a,2\n9,2024-02-29 12:30:00,b,3\n", settings);
  CHECK(table.inputs[0].tensor.shape() == Shape{3, 6});
  CHECK(table.columns.at("x") ==
        std::vector<std::string>{"n", "d.year", "d.weekday", "d.days", "c=a", "c=b"});
  CHECK(values(table.inputs[0].tensor) == std::vector<double>{7, 1970, 4, 1, 0, 1, 8, 1997, 3.5,
                                                              9891.5, 1, 0, 9, 2024, 3, 19782, 0,
                                                              1});
  settings.date_format = "%d.%m.%Y";
  CHECK(caught([&] { parse("n,d,c,y\n7,31.02.2020,b,1\n", settings); }).code == "E310");
  CHECK(parse("n,d,c,y\n7,29.02.2020,b,1\n", settings).inputs[0].tensor.at(1) == 2020);
}

TEST_CASE("parse_date: ISO 8601, and only days that there are") {
  const std::pair<const char*, double> kTimes[] = {{"1970-01-01", 0},
                                                   {"1969-12-31", -86400},
                                                   {"2001-09-09T01:46:40Z", 1e9},
                                                   {" 2001-09-09 01:46:40.25 ", 1e9},
                                                   {"2001/09/09 01:46", 999999960}};
  for (const auto& [text, seconds] : kTimes) {
    CAPTURE(text);
    REQUIRE(parse_date(text, ""));
    CHECK(date_part(*parse_date(text, ""), DatePart::kTimestamp) == seconds);
  }
  for (const char* text :
       {"", "2023-02-29", "2023-13-01", "20230101", "2023-01-01x", "1.5", "23-01-01"}) {
    CAPTURE(text);
    CHECK(!parse_date(text, ""));
  }
  CHECK(!parse_date("01.01.23", "%d.%m.%Y"));  // the year 23 to strptime()
  const auto seconds_of = [](const char* text, const char* format) {
    return date_part(parse_date(text, format).value(), DatePart::kTimestamp);
  };
  constexpr const char* kLog = "%d/%b/%Y:%H:%M:%S %z";
  CHECK(seconds_of("10/Oct/2023:13:55:36 -0700", kLog) ==
        seconds_of("10/Oct/2023:20:55:36 +0000", kLog));
  CHECK(date_part(*parse_date("10/Oct/2023:13:55:36 -0700", kLog), DatePart::kHour) == 13);
  for (const char* zone : {"UTC", "EST5"}) {  // whatever the machine's
    setenv("TZ", zone, 1);
    tzset();
    CHECK(seconds_of("1700000000", "%s") == 1700000000);
    CHECK(date_part(*parse_date("1700000000", "%s"), DatePart::kHour) == 22);
  }
  unsetenv("TZ");
  tzset();
  CHECK(date_part(*parse_date("01.01.23", "%d.%m.%y"), DatePart::kYear) == 2023);
  CHECK(date_part(*parse_date("1969-12-31 23:00", ""), DatePart::kDays) == -1);
  CHECK(date_part(*parse_date("2024-12-31", ""), DatePart::kDayOfYear) == 366);
  CHECK(date_part(*parse_date("2024-03-03", ""), DatePart::kWeekday) == 6);
}

TEST_CASE("parse_csv: missing features become a number or the mean of their column") {
  const char* text = "a,b,y\n1,,0\nNA,4,0\n3,nan,0\n";
  CsvSettings settings = labelled("y");
  const Caught refused = caught([&] { parse(text, settings); });
  CHECK(refused.code == "E311");
  CHECK(refused.exit_code == 3);
  CHECK(refused.says("row 1 (line 2) column `b` is empty (and 2 more such fields)"));
  settings.missing = CsvSettings::Missing::kValue;
  settings.missing_value = -1;
  CHECK(values(parse(text, settings).inputs[0].tensor) == Values{1, -1, -1, 4, 3, -1});
  settings.missing = CsvSettings::Missing::kMean;
  const CsvTable mean = parse(text, settings);
  CHECK(values(mean.inputs[0].tensor) == Values{1, 4, 2, 4, 3, 4});
  CHECK(mean.learned.means.at("a") == 2);
  CHECK(caught([&] { parse("a,y\n,0\nNA,0\n", settings); }).says("missing everywhere"));
  settings.missing_texts = {"-999", "inf"};
  CHECK(values(parse("a,y\n2,0\n-999,0\n4,0\ninf,1\n", settings).inputs[0].tensor) ==
        Values{2, 3, 4, 3});
  CHECK(caught([&] { parse("a,y\n1,\n", settings); }).code == "E311");  // never a label
}

TEST_CASE("parse_csv: other data take classes and means over from the training data") {
  CsvSettings settings = labelled("y");
  settings.categorical = {{"c", {}}};
  settings.missing = CsvSettings::Missing::kMean;
  const CsvTable train = parse("n,c,y\n1,red,yes\n2,blue,no\n6,green,yes\n", settings);
  // Other columns, in another order; only some of the classes.
  const CsvTable test = parse("y,extra,n,c\nyes,5,,red\nyes,5,9,green\n", settings, &train.learned);
  CHECK(values(test.inputs[0].tensor) == Values{3, 2, 9, 1});
  CHECK(values(test.targets[0].tensor) == Values{1, 1});
  CHECK(test.learned.categories == train.learned.categories);
  const Caught unknown = caught([&] { parse("n,c,y\n1,pink,yes\n", settings, &train.learned); });
  CHECK(unknown.code == "E312");
  CHECK(
      unknown.says("column `c` is `pink`, which is not among the 3 known: `blue`, `green`, `red`"));
  // Labels that are numbers in training are no classes elsewhere.
  const CsvTable numbers = parse("n,c,y\n1,red,5\n", settings);
  CHECK(caught([&] { parse("n,c,y\n1,red,yes\n", settings, &numbers.learned); }).code == "E310");
  // Data to predict from.
  CsvSettings unlabelled = settings;
  unlabelled.targets.clear();
  CHECK(values(parse("c,n\nblue,7\n", unlabelled, &train.learned).inputs[0].tensor) ==
        Values{7, 0});
}

TEST_CASE("parse_csv: an index means the column that it is of the training data") {
  CsvSettings settings = labelled("-1");
  settings.inputs = {{"x", {{"0", {}}, {"1", {}}}, false}};
  settings.categorical = {{"0", {}}};
  const CsvTable train = parse("city,n,kind\nRome,1,b\nBonn,2,a\n", settings);
  const CsvTable test = parse("kind,extra,n,city\nb,0,7,Rome\n", settings, &train.learned);
  CHECK(values(test.inputs[0].tensor) == Values{1, 7});
  CHECK(values(test.targets[0].tensor) == Values{1});
  CsvSettings unlabelled = settings;
  unlabelled.targets.clear();
  CHECK(values(parse("n,city\n5,Bonn\n", unlabelled, &train.learned).inputs[0].tensor) ==
        Values{0, 5});
  const Caught lost = caught([&] { parse("city,m,kind\nRome,1,b\n", settings, &train.learned); });
  CHECK(lost.says("has no column `n`; columns: city, m, kind"));
  CHECK(lost.says("column `1` of the training data is `n`"));
  // Its own columns are those of its own file.
  CsvSettings own = settings;
  own.targets[0].columns = {{"0", {}}};
  CHECK(values(parse("kind,n,city\na,5,Bonn\n", own, &train.learned).targets[0].tensor) ==
        Values{0});
  // Without names an index is that of the file, and the classes still those of training.
  for (const auto header : {CsvSettings::Header::kNo, CsvSettings::Header::kAuto}) {
    CsvSettings nameless = settings;
    nameless.header = header;
    const CsvTable indexed = parse("Rome,7,b\n", nameless, &train.learned);
    CHECK(values(indexed.inputs[0].tensor) == Values{1, 7});
    CHECK(values(indexed.targets[0].tensor) == Values{1});
  }
}

TEST_CASE("parse_csv: whether there is a header is decided by the training data") {
  CsvSettings settings = labelled("-1");
  settings.missing = CsvSettings::Missing::kMean;
  settings.missing_texts = {"NA"};
  const CsvTable train = parse("1,2,a\n3,4,b\n", settings);
  CHECK(!train.learned.has_header);
  const CsvTable test = parse("NA,NA,b\n5,6,a\n", settings, &train.learned);
  CHECK(values(test.inputs[0].tensor) == Values{2, 3, 5, 6});
  CHECK(values(test.targets[0].tensor) == Values{1, 0});
  const CsvTable named = parse("p,q,y\n1,2,a\n3,4,b\n", settings);
  CHECK(values(parse("p,q,2020,y\n1,2,0,b\n", settings, &named.learned).inputs[0].tensor) ==
        Values{1, 2});
  const Caught lost = caught([&] { parse("7,8,a\n1,2,b\n", settings, &named.learned); });
  CHECK(lost.code == "E310");
}

TEST_CASE("parse_csv: a label with a vocabulary is not looked for where labels are not needed") {
  CsvSettings settings = labelled("y");
  settings.vocabularies = {{{"y", {}}, {"yes", "no"}}};
  const CsvTable train = parse("n,y\n1,no\n2,yes\n", settings);
  CHECK(values(train.targets[0].tensor) == Values{1, 0});
  settings.targets.clear();
  CHECK(values(parse("n\n7\n", settings, &train.learned).inputs[0].tensor) == Values{7});
}

TEST_CASE("parse_csv: malformed files are refused with row and line and column") {
  CsvSettings settings = labelled("y");
  const std::string good = "x,y\n1,2\n";
  const std::vector<MalformedFile> table = {
      {"empty", "", "E310", "is empty"},
      {"mark only", "\xef\xbb\xbf", "E310", "is empty"},
      {"header only", "x,y\n", "E310", "a header and no rows"},
      {"UTF-16",
       std::string("\xff\xfe"
                   "x\0,\0y\0",
                   8),
       "E310", "UTF-16"},
      {"ragged", good + "1,2,3\n", "E310", "row 2 (line 3) has 3 fields, expected 2"},
      {"short", good + "\n1\n", "E310", "line 3 is empty"},
      {"text", good + "one,2\n", "E310", "row 2 (line 3) column `x` is `one`, which is no number"},
      {"text twice", good + "one,2\ntwo,2\n", "E310", "(and 1 more such fields)"},
      {"text late", "x,y\n\"1\",\"2\"\n\"a\nb\",1\n", "E310", "row 2 (line 3) column `x` is `a?b`"},
      {"label", good + "1,two\n", "E310", "column `y` is `two`"},
      {"NUL", good + std::string("1,\0\n", 4), "E310", "line 3 holds a NUL byte"},
      {"NUL in quotes", good + std::string("1,\"\0\"\n", 6), "E310", "line 3 holds a NUL byte"},
      {"open quote", good + "1,\"2\n3,4\n", "E310", "line 3 opens a quote that is not closed"},
      {"late quote", good + "1,2\"\n", "E310", "line 3 has a quote within a field"},
      {"after quote", good + "1,\"2\"3\n", "E310", "line 3 continues behind a closing quote"},
      {"carriage return", "x,y\r1,2\r", "E310", "carriage return without a line feed"},
      {"twice", "y,x,y\n1,2,3\n", "E310", "two columns have the name `y`"},
      {"no label", "x,z\n1,2\n", "E310", "has no column `y`; columns: x, z"},
      {"no features", "y\n1\n", "E310", "no column left for features"},
      {"infinite", good + "-inf,2\n", "E311", "column `x` is `-inf`, no finite float32"},
      {"too large", good + "1e39,2\n", "E311", "column `x` is `1e39`, no finite float32"},
      {"empty field", good + ",2\n", "E311", "row 2 (line 3) column `x` is empty"},
      {"nan", good + "1,nan\n", "E311", "row 2 (line 3) column `y` is `nan`"},
      {"long line", good + std::string(20 << 20, '1'), "E310", "line 3 is longer than 8.0 MiB"},
      {"long quote", good + "\"" + std::string(20 << 20, '\n'), "E310", "line 3 is longer"},
  };
  check_malformed(table, "bad.csv", 3, [&](const std::string& path) {
    parse_csv(read_file(path, 1 << 30), path, settings);
  });
}

TEST_CASE("parse_csv: flipped bits never crash") {
  check_bit_flips(kFlowers, "a.csv", 3, 2000, [](const std::string& path) {
    CsvSettings settings = labelled("-1");
    settings.header = CsvSettings::Header::kYes;
    parse_csv(read_file(path, 1 << 20), path, settings);
  });
}

ConfigObject csv_source(const Args& more) {
  Args args = {{"path", value("train.csv")},        {"label", null_value()},
               {"features", null_value()},          {"sample_weight", null_value()},
               {"categorical", null_value()},       {"vocabulary", value(ConfigValue::Dict{})},
               {"header", default_value("auto")},   {"separator", default_value(",")},
               {"dtype", default_value("float32")}, {"missing", default_value("error")},
               {"missing_texts", null_value()},     {"slice", null_value()}};
  for (auto& [name, arg] : args) {
    arg.is_default = true;
  }
  args.insert(args.end(), more.begin(), more.end());
  return object("csv", args);
}

TEST_CASE("load_dataset: csv files of validation data are read like those of the training data") {
  const TempFolder folder;
  folder.write("train.csv", "a,kind\n1,cat\n3,dog\n,cat\n100,eel\n");
  folder.write("val.csv", "a,kind\n,eel\n");
  DataConfig data;
  data.base_dir = folder.path();
  data.train =
      csv_source({{"label", value("kind")}, {"missing", value("mean")}, {"slice", value("[:3]")}});
  ConfigObject validation = csv_source({{"path", value("val.csv")}});
  read_like_training(*data.train, validation);
  const Dataset train = load_dataset(*data.train, data);
  CHECK(train.description == "csv train.csv, 3 classes of kind: cat, dog, eel ([:3], 3 samples)");
  CHECK(values(*train.inputs[0].rows->tensor()) == Values{1, 3, 2});
  const Dataset other = load_dataset(validation, data);
  CHECK(values(*other.inputs[0].rows->tensor()) == Values{2});  // the mean of the slice
  CHECK(values(*other.targets[0].rows->tensor()) == Values{2});
}

TEST_CASE("load_dataset: what is known of the training data is not read from them") {
  const TempFolder folder;
  folder.write("train.csv", "city,a,kind\nRome,1,cat\nBonn,3,dog\nOslo,5,eel\n");
  folder.write("val.csv", "kind,a,city\neel,,Rome\n");
  DataConfig data;
  data.base_dir = folder.path();
  data.train = csv_source(
      {{"label", value("-1")}, {"categorical", value(ConfigValue::List{value("city")})}});
  const LearnedPtr known = load_dataset(*data.train, data).learned;
  REQUIRE(known != nullptr);
  CHECK(known->source == "csv");
  CHECK(known->class_names == std::vector<std::string>{"cat", "dog", "eel"});
  CHECK(known->csv.means.at("a") == 3);  // nothing is missing, elsewhere something may be
  ConfigObject validation = csv_source({{"path", value("val.csv")}, {"missing", value("mean")}});
  read_like_training(*data.train, validation);
  for (const bool is_there : {true, false}) {
    if (is_there) {
      folder.write("train.csv", "city,a,kind\nRome,100,eel\n");
    } else {
      std::filesystem::remove(folder.file("train.csv"));
    }
    const Dataset other = load_dataset(validation, data, known);
    CHECK(other.learned == known);
    CHECK(values(*other.inputs[0].rows->tensor()) == Values{2, 3});
    CHECK(values(*other.targets[0].rows->tensor()) == Values{2});
    CHECK(other.class_names == known->class_names);
  }
  const Caught gone = caught([&] { load_dataset(validation, data); });
  CHECK(gone.code == "E300");
  CHECK(gone.says("train.csv"));
}

TEST_CASE("load_dataset: classes in other encodings than UTF-8 are described in UTF-8") {
  const TempFolder folder;
  folder.write("train.csv", "a,y\n1,caf\xe9\n2,t\xc3\xa9\n");
  DataConfig data;
  data.base_dir = folder.path();
  const Dataset dataset = load_dataset(csv_source({{"label", value("y")}}), data);
  CHECK(dataset.class_names == std::vector<std::string>{"caf\xe9", "t\xc3\xa9"});
  // A description is written to checkpoints, as JSON.
  CHECK(dataset.description == "csv train.csv, 2 classes of y: caf?, t\xc3\xa9 (2 samples)");
}

TEST_CASE("load_dataset: a mean that the training data did not give is never one of other data") {
  const TempFolder folder;
  folder.write("train.csv", "a,y\n,1\n3,2\n");
  folder.write("val.csv", "a,y\n,1\n7,2\n");
  DataConfig data;
  data.base_dir = folder.path();
  data.train = csv_source({{"label", value("y")}, {"missing", value("0")}});
  ConfigObject validation = csv_source({{"path", value("val.csv")}, {"missing", value("mean")}});
  read_like_training(*data.train, validation);
  const LearnedPtr known = load_dataset(*data.train, data).learned;
  const Caught error = caught([&] { load_dataset(validation, data, known); });
  CHECK(error.code == "E311");
  CHECK(error.says("no mean was learned"));
}

TEST_CASE("load_dataset: several csv files are one after the other and must agree") {
  const TempFolder folder;
  folder.write("a.csv", "x,y\n1,b\n");
  folder.write("b.csv", "x,y\n2,a\n");
  folder.write("c.csv", "y,x\na,2\n");
  DataConfig data;
  data.base_dir = folder.path();
  const auto source = [](const char* second) {
    return csv_source(
        {{"path", value(ConfigValue::List{value("a.csv"), value(second)})}, {"label", value("y")}});
  };
  const Dataset dataset = load_dataset(source("b.csv"), data);
  CHECK(values(*dataset.inputs[0].rows->tensor()) == Values{1, 2});
  CHECK(values(*dataset.targets[0].rows->tensor()) == Values{1, 0});
  const Caught error = caught([&] { load_dataset(source("c.csv"), data); });
  CHECK(error.code == "E310");
  CHECK(error.says("different columns"));
  CHECK(error.says("test.yaml:2:3"));
  CHECK(caught([&] { load_dataset(source("none.csv"), data); }).code == "E300");
}

TEST_CASE("load_dataset: the first csv file decides whether all have a header") {
  const TempFolder folder;
  folder.write("a.csv", "1,b\n");
  folder.write("b.csv", "NA,a\n3,b\n");
  DataConfig data;
  data.base_dir = folder.path();
  const Dataset dataset =
      load_dataset(csv_source({{"path", value(ConfigValue::List{value("a.csv"), value("b.csv")})},
                               {"label", value("-1")},
                               {"missing", value("-1_000")}}),
                   data);
  CHECK(values(*dataset.inputs[0].rows->tensor()) == Values{1, -1000, 3});
}

TEST_CASE("load_dataset: a csv file takes at most twice the memory of its arrays") {
  const TempFolder folder;
  std::string text;
  for (int row = 0; row < 100000; ++row) {
    for (int column = 0; column < 20; ++column) {
      text += fmt::format("{}{}", column == 0 ? "" : ",", (row * 31 + column) % 10);
    }
    text += '\n';
  }
  folder.write("train.csv", text);
  std::string().swap(text);
  DataConfig data;
  data.base_dir = folder.path();
  const MemoryMeter memory;
  const Dataset dataset = load_dataset(csv_source({{"label", value("0")}}), data);
  const size_t arrays = 100000 * 20 * sizeof(float);
  CHECK(memory.peak() <= 2 * arrays + (size_t{4} << 20));
}

}  // namespace
}  // namespace meshtrain
