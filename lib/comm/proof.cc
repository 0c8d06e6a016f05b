#include "comm/proof.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "base/system_calls.h"

namespace meshtrain {

static_assert(std::has_unique_object_representations_v<Handshake> &&
              std::has_unique_object_representations_v<Challenge>);

Token random_token() {
  Token token;
  const ssize_t got = retrying([&] { return ::getrandom(token.data(), sizeof token, 0); });
  MESHTRAIN_CHECK(got == sizeof token, "getrandom: {}", std::strerror(errno));
  return token;
}

Token token_of(std::string_view text) {
  return sha256(text);
}

Token derived_token(const Token& secret, std::string_view use) {
  return hmac_sha256(secret, "meshtrain use " + std::string(use));
}

Token proof_of(const Token& secret, Prover prover, const Handshake& handshake,
               const Challenge& challenge) {
  std::string message = prover == Prover::kJoining ? "meshtrain joins " : "meshtrain rank 0 ";
  message += wire_bytes(handshake);
  message += wire_bytes(challenge);
  return hmac_sha256(secret, message);
}

}  // namespace meshtrain
