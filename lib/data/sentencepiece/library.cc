// libmeshtrain_sentencepiece.so: models of SentencePiece, by Google's library. The one symbol.
#include <sentencepiece_processor.h>

#include "data/tokenizer/sentence_piece.h"

namespace meshtrain {
namespace {

class Model final : public SentencePieceModel {
 public:
  bool load(std::string_view bytes, std::string& reason) {
    const sentencepiece::util::Status status =
        processor_.LoadFromSerializedProto({bytes.data(), bytes.size()});
    reason = status.ok() ? "" : status.message();
    return status.ok();
  }
  int32_t size() const override { return processor_.GetPieceSize(); }
  int32_t find(std::string_view piece) const override {
    const int id = processor_.PieceToId({piece.data(), piece.size()});
    return id >= 0 && id < size() && processor_.IdToPiece(id) == piece ? id : -1;
  }
  std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    processor_.Encode({text.data(), text.size()}, &ids).IgnoreError();
    return {ids.begin(), ids.end()};
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text).IgnoreError();
    return text;
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Library final : public SentencePieceLibrary {
 public:
  std::unique_ptr<SentencePieceModel> load(std::string_view bytes, std::string& reason) override {
    auto model = std::make_unique<Model>();
    return model->load(bytes, reason) ? std::move(model) : nullptr;
  }
};

}  // namespace
}  // namespace meshtrain

extern "C" __attribute__((visibility("default"))) meshtrain::SentencePieceLibrary*
meshtrain_sentencepiece(int abi) {
  static meshtrain::Library library;
  return abi == meshtrain::kSentencePieceAbi ? &library : nullptr;
}
