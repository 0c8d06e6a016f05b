#include "interop/keras/archive.h"

#include "base/json.h"
#include "base/printable.h"
#include "tensor/zip.h"

namespace meshtrain {
namespace {

constexpr uint64_t kMaxJson = uint64_t{64} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kMetadata = "metadata.json";
constexpr const char* kWeights = "model.weights.h5";

std::string version_of(const std::string& metadata) {
  const auto parsed = parse_json(metadata);
  if (!parsed.is_object() || !parsed.contains("keras_version") ||
      !parsed.at("keras_version").is_string()) {
    return "";
  }
  return printable(parsed.at("keras_version").get<std::string>());
}

}  // namespace

KerasArchive read_keras_archive(const std::string& path) {
  const ZipReader zip(path, {"E404", "E405"});
  for (const char* part : {kConfig, kWeights}) {
    if (!zip.has(part)) {
      read_error("E405", path, "no `{}` inside: not a model that Keras 3 saved", part);
    }
  }
  KerasArchive out;
  out.config = zip.text(kConfig, kMaxJson);
  if (zip.has(kMetadata)) {
    out.version = version_of(zip.text(kMetadata, kMaxJson));
  }
  const std::vector<std::byte> image = zip.read(kWeights, [](ByteReader& bytes) {
    std::vector<std::byte> all(bytes.remaining());
    bytes.read(all.data(), all.size());
    return all;
  });
  out.weights = read_h5(image, fmt::format("{}[{}]", path, kWeights));
  return out;
}

void write_keras_archive(const std::string& path, const std::string& config,
                         const std::string& metadata, std::span<const std::byte> weights) {
  const ZipMember members[] = {{kMetadata, {std::as_bytes(std::span(metadata))}},
                               {kConfig, {std::as_bytes(std::span(config))}},
                               {kWeights, {weights}}};
  write_zip(path, members);
}

}  // namespace meshtrain
