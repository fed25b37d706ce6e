#include "services/permits/permit.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "openssl/rand.h"

namespace skein::services {
namespace {

constexpr char kFormat = 1;
constexpr std::string_view kContext = "skein handoff permit";
constexpr size_t kNumbers = 10;
constexpr size_t kBodyBytes = 1 + kNumbers * sizeof(uint64_t);
constexpr size_t kSignatureBytes = 64;
static_assert(kBodyBytes + kSignatureBytes == kPermitBytes);

using Numbers = std::array<uint64_t, kNumbers>;

struct FreeDigest {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using DigestPtr = std::unique_ptr<EVP_MD_CTX, FreeDigest>;

std::string BodyOf(const Permit& permit) {
  const Numbers numbers = {permit.id.router,
                           permit.id.serial,
                           permit.epoch.value,
                           permit.writer.value,
                           permit.decode.value,
                           permit.generation,
                           static_cast<uint64_t>(permit.issued_s),
                           static_cast<uint64_t>(permit.expires_s),
                           permit.key,
                           permit.nonce};
  std::string body(1, kFormat);
  for (const uint64_t number : numbers) {
    for (int byte = 0; byte < 8; ++byte) body.push_back(static_cast<char>(number >> (8 * byte)));
  }
  return body;
}

std::string SignedText(std::string_view body) {
  std::string text(kContext);
  text.append(body);
  return text;
}

// Of the first 8 bytes.
uint64_t NumberAt(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t byte = 0; byte < 8; ++byte) {
    number |= uint64_t{static_cast<unsigned char>(bytes[byte])} << (8 * byte);
  }
  return number;
}

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

absl::StatusOr<PermitSigner> PermitSigner::Make() {
  KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  std::string public_key(kPermitKeyBytes, '\0');
  size_t size = public_key.size();
  if (key == nullptr ||
      EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(public_key.data()),
                                  &size) != 1) {
    return absl::InternalError("OpenSSL made no Ed25519 key for permits");
  }
  return PermitSigner(std::move(key), std::move(public_key));
}

absl::StatusOr<std::string> PermitSigner::Sign(Permit permit) const {
  const DigestPtr context(EVP_MD_CTX_new());
  const bool has_nonce =
      RAND_bytes(reinterpret_cast<unsigned char*>(&permit.nonce), sizeof permit.nonce) == 1;
  permit.key = PermitKeyId(public_key_);
  std::string out = BodyOf(permit);
  const std::string text = SignedText(out);
  out.resize(kPermitBytes);
  size_t size = kSignatureBytes;
  const bool is_signed =
      has_nonce && context != nullptr &&
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) == 1 &&
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data() + kBodyBytes),
                     &size, Bytes(text), text.size()) == 1;
  if (!is_signed) return absl::InternalError("OpenSSL did not sign a permit");
  return out;
}

std::optional<Permit> ReadPermit(std::string_view bytes) {
  if (bytes.size() != kPermitBytes || bytes[0] != kFormat) return std::nullopt;
  Numbers numbers{};
  for (size_t i = 0; i < kNumbers; ++i) numbers[i] = NumberAt(bytes.substr(1 + 8 * i));
  return Permit{.id = {numbers[0], numbers[1]},
                .epoch = {numbers[2]},
                .writer = {numbers[3]},
                .decode = {numbers[4]},
                .generation = numbers[5],
                .issued_s = static_cast<int64_t>(numbers[6]),
                .expires_s = static_cast<int64_t>(numbers[7]),
                .key = numbers[8],
                .nonce = numbers[9]};
}

uint64_t PermitKeyId(std::string_view public_key) { return NumberAt(public_key); }

absl::StatusOr<KeyPtr> PermitKeyFrom(std::string_view public_key) {
  KeyPtr key;
  if (public_key.size() == kPermitKeyBytes) {
    key.reset(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(public_key),
                                          public_key.size()));
  }
  if (key != nullptr) return key;
  return absl::InvalidArgumentError(absl::StrCat("permit_key: ", public_key.size(),
                                                 " bytes are no Ed25519 public key, which has ",
                                                 kPermitKeyBytes));
}

bool IsSignedBy(EVP_PKEY* key, std::string_view permit) {
  if (permit.size() != kPermitBytes) return false;
  const std::string text = SignedText(permit.substr(0, kBodyBytes));
  const std::string_view signature = permit.substr(kBodyBytes);
  const DigestPtr context(EVP_MD_CTX_new());
  return context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(text),
                          text.size()) == 1;
}

}  // namespace skein::services
