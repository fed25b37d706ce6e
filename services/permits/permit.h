// Permits: the orchestrator's signed leave for one writer to hand the KV of one request to one
// decode-worker. The orchestrator signs (PermitSigner); the decode-worker verifies (PermitGate,
// permit_gate.h); a prefill-worker carries the bytes and does not read them.
//
// A permit has 145 bytes: the format (1 byte, kFormat), ten numbers of 8 bytes in little-endian
// order (the fields of Permit as they are declared, the request's id as two), and the Ed25519
// signature (RFC 8032). What is signed is a fixed text (kContext in permit.cc) followed by these 81
// bytes, so that a signature that the key may one day make of something else is no permit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "openssl/evp.h"
#include "scheduler/base/ids.h"

namespace skein::services {

struct Permit {
  scheduler::RequestId id;
  scheduler::Epoch epoch;
  scheduler::Incarnation writer;  // the prefill-worker's process
  scheduler::Incarnation decode;  // the decode-worker's process
  uint64_t generation = 0;        // of the orchestrator
  // Seconds of the orchestrator's own clock, whose zero is arbitrary: the clocks of hosts need not
  // agree.
  int64_t issued_s = 0;
  int64_t expires_s = 0;
  uint64_t key = 0;    // PermitKeyId of the signer's key
  uint64_t nonce = 0;  // random, so that no two permits are the same
  bool operator==(const Permit&) const = default;
};

inline constexpr size_t kPermitBytes = 145;
inline constexpr size_t kPermitKeyBytes = 32;

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeKey>;

// Signs with a key that it makes and that never leaves the process. One thread at a time.
class PermitSigner {
 public:
  // INTERNAL: OpenSSL has no random numbers.
  static absl::StatusOr<PermitSigner> Make();

  const std::string& public_key() const { return public_key_; }  // kPermitKeyBytes
  // `permit.key` and `permit.nonce` are set here. INTERNAL: OpenSSL failed.
  absl::StatusOr<std::string> Sign(Permit permit) const;

 private:
  PermitSigner(KeyPtr key, std::string public_key)
      : key_(std::move(key)), public_key_(std::move(public_key)) {}

  KeyPtr key_;
  std::string public_key_;
};

// What the bytes say; the signature is not verified. nullopt: they are no permit.
std::optional<Permit> ReadPermit(std::string_view bytes);

// Names a public key: its first 8 bytes, in which keys of two orchestrators practically always
// differ. REQUIRES: kPermitKeyBytes.
uint64_t PermitKeyId(std::string_view public_key);
// Any thread. INVALID_ARGUMENT: not kPermitKeyBytes.
absl::StatusOr<KeyPtr> PermitKeyFrom(std::string_view public_key);
// Whether the owner of `key` signed the permit. Any thread.
bool IsSignedBy(EVP_PKEY* key, std::string_view permit);

}  // namespace skein::services
