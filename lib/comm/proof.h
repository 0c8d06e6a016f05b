// How two processes prove to each other that they know one secret, which never leaves either.
//
//   the one that joins -> rank 0: Handshake, with a random number
//   rank 0 -> the other:          Challenge, with another one
//   the one that joins -> rank 0: proof_of(Prover::kJoining), then
//   rank 0 -> the other:          proof_of(Prover::kRankZero)
//
// A proof is an HMAC of both messages and of who proves: an earlier proof, or that of the other
// side, is of no use. The one that joins proves first, so that strangers who connect get nothing
// by which they could try secrets. What follows over the connection is neither encrypted nor
// signed: who can change packets between the hosts is not kept out.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/sha256.h"

namespace meshtrain {

// A secret or a random number of 256 bits.
using Token = Sha256;
Token random_token();
// The same for the same text: as hard to guess as the text is.
Token token_of(std::string_view text);
// For another use than that of `secret` itself; says nothing of it.
Token derived_token(const Token& secret, std::string_view use);

constexpr uint64_t kAnyProofVersion = 0x006b6e617274686d;                   // "mhtrank"
constexpr uint64_t kProofVersion = kAnyProofVersion | uint64_t{'2'} << 56;  // of these messages
// Whether a process of this program sent it, of whatever version.
constexpr bool is_of_meshtrain(uint64_t version) {
  return (version & ~(uint64_t{0xff} << 56)) == kAnyProofVersion;
}

struct Handshake {
  uint64_t version = kProofVersion;
  Token nonce = {};
  int32_t rank = 0, size = 0;
};

struct Challenge {
  uint64_t version = kProofVersion;
  Token nonce = {};
};

enum class Prover { kJoining, kRankZero };
Token proof_of(const Token& secret, Prover prover, const Handshake& handshake,
               const Challenge& challenge);

// As it goes over a connection.
template <class T>
std::string_view wire_bytes(const T& message) {
  return {reinterpret_cast<const char*>(&message), sizeof message};
}

}  // namespace meshtrain
