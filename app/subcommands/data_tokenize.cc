// meshtrain data tokenize: texts to a file of token ids.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>

#include "base/durable_file.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "base/text_lines.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "output.h"
#include "subcommand.h"
#include "tensor/read_error.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;  // of a file

struct DataTokenizeOptions {
  std::vector<std::string> texts;
  std::string tokenizer, output, separator, documents = "file", header = "llm.c";
  bool force = false;
};

// The id of `--separator`, a token or a number.
std::optional<int32_t> separator_id(const std::string& text, const Tokenizer& tokenizer) {
  if (text.empty()) {
    return std::nullopt;
  }
  if (const auto id = tokenizer.find(text)) {
    return id;
  }
  const auto id = parse_number<int64_t>(text);
  if (!id || *id < 0 || *id >= tokenizer.size()) {
    throw ConfigError("E140", {},
                      fmt::format("--separator `{}` is no token, and no id from 0 to {}", text,
                                  tokenizer.size() - 1));
  }
  return static_cast<int32_t>(*id);
}

std::string read_text_or_stdin(const std::string& path) {
  return path == "-" ? read_utf8("/dev/stdin", kMaxTextBytes)
                     : read_utf8(open_input(path, "E300", "E300").path(), kMaxTextBytes);
}

// The documents of a text: the whole one, or its lines that are not empty.
std::vector<std::string_view> documents_of(std::string_view text, bool by_line) {
  if (!by_line) {
    return {text};
  }
  std::vector<std::string_view> out;
  for (const TextLine& line : text_lines(text)) {
    out.push_back(line.text);
  }
  return out;
}

// Ids as bytes, which the header precedes once their number is known.
class TokenOutput {
 public:
  explicit TokenOutput(DType dtype) : dtype_(dtype) {}

  void add(std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      const auto bits = static_cast<uint32_t>(id);  // little-endian: the low bytes come first
      bytes_.append(reinterpret_cast<const char*>(&bits), dtype_size(dtype_));
    }
  }
  int64_t count() const { return static_cast<int64_t>(bytes_.size() / dtype_size(dtype_)); }

  void write(const std::string& path, bool has_header) const {
    if (has_header && count() > INT32_MAX) {
      throw ConfigError("E140", {},
                        fmt::format("llm.c's header counts to 2,147,483,647 ids; these are {}",
                                    format_thousands(count())))
          .help("--header none, or several files");
    }
    const std::string header = has_header ? token_header(dtype_, count()) : "";
    const std::span<const std::byte> chunks[] = {std::as_bytes(std::span(header)),
                                                 std::as_bytes(std::span(bytes_))};
    write_file_atomic(path, chunks);
  }

 private:
  DType dtype_;
  std::string bytes_;
};

int run_data_tokenize(const DataTokenizeOptions& options, Invocation& invocation) {
  if (options.output == "-") {
    refuse("E140", "-o -: a file of ids is not written to standard output", "-o FILE.bin");
  }
  std::error_code error;
  if (!options.force && std::filesystem::is_regular_file(options.output, error)) {
    refuse("E141", fmt::format("`{}` exists", options.output), "another -o, or --force");
  }
  Tokenizer tokenizer(read_tokenizer_text(options.tokenizer), options.tokenizer);
  const std::optional<int32_t> separator = separator_id(options.separator, tokenizer);
  const DType dtype = tokenizer.size() <= 65536 ? DType::kUInt16 : DType::kUInt32;
  TokenOutput output(dtype);
  int64_t num_bytes = 0, num_documents = 0;
  std::vector<int32_t> ids;
  for (const std::string& path : options.texts) {
    const std::string text = read_text_or_stdin(path);
    for (const std::string_view document : documents_of(text, options.documents == "line")) {
      ids.clear();
      tokenizer.encode(document, ids, path);
      if (separator) {
        ids.push_back(*separator);
      }
      output.add(ids);
      num_bytes += static_cast<int64_t>(document.size());
      ++num_documents;
    }
  }
  invocation.started = true;
  output.write(options.output, options.header == "llm.c");
  out_stream().write(fmt::format(
      "{}: {} tokens ({}) of {} bytes in {} documents, {:.2f} bytes a token\n", options.output,
      format_thousands(output.count()), dtype_name(dtype), format_thousands(num_bytes),
      format_thousands(num_documents),
      output.count() > 0 ? static_cast<double>(num_bytes) / static_cast<double>(output.count())
                         : 0.0));
  return 0;
}

}  // namespace

void add_data_tokenize(Subcommands& to) {
  auto [app, options, subcommand] = to.add<DataTokenizeOptions>(
      "data tokenize", "Write the ids of texts for the source `tokens`", run_data_tokenize);
  app.add_option("TEXT", options.texts, "Files in UTF-8; - is stdin")->required();
  app.add_option("--tokenizer", options.tokenizer,
                 "Folder with tokenizer.json, vocab.json and merges.txt, vocab.txt, or a .model")
      ->required()
      ->type_name("DIR");
  app.add_option("-o,--output", options.output, "The file to write")->required()->type_name("FILE");
  app.add_option("--separator", options.separator,
                 "Token or id that ends each document, such as <|endoftext|>")
      ->type_name("TOKEN");
  app.add_option("--documents", options.documents,
                 "What a document is: file, or line (empty lines are left out); default file")
      ->check(one_of({"file", "line"}));
  app.add_option("--header", options.header,
                 "llm.c: 1024 bytes with type and number of the ids; none: ids alone. Default "
                 "llm.c")
      ->check(one_of({"llm.c", "none"}));
  app.add_flag("--force", options.force, "Replace FILE");
  add_color_flag(app);
}

}  // namespace meshtrain
