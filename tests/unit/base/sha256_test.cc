#include "base/sha256.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "base/file.h"
#include "support/temp_folder.h"

namespace meshtrain::test {
namespace {

Sha256 key_of(std::string_view text) {
  Sha256 key = {};
  std::copy(text.begin(), text.end(), key.begin());
  return key;
}

TEST_CASE("sha256_of: the digests of the standard's examples") {
  TempFolder folder;
  CHECK(sha256_of(InputFile(folder.write("a", "abc"))) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(to_text(sha256("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_of(InputFile(folder.write("b", ""))) ==
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(
      sha256_of(InputFile(folder.write("c", std::string(1'000'000, 'a') + std::string(4, 'a')))) !=
      sha256_of(InputFile(folder.write("d", std::string(1'000'000, 'a')))));
  CHECK(sha256_of(InputFile(folder.write("d", std::string(1'000'000, 'a')))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("hmac_sha256: the examples of RFC 4231 whose keys are short enough") {
  CHECK(to_text(hmac_sha256(key_of(std::string(20, '\x0b')), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(to_text(hmac_sha256(key_of("Jefe"), "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(to_text(hmac_sha256(key_of(std::string(20, '\xaa')), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

TEST_CASE("is_same_digest: every byte counts") {
  const Sha256 digest = sha256("a");
  CHECK(is_same_digest(digest, digest));
  for (size_t i = 0; i < digest.size(); ++i) {
    Sha256 other = digest;
    other[i] ^= 0x80;
    CHECK_FALSE(is_same_digest(digest, other));
  }
}

}  // namespace
}  // namespace meshtrain::test
