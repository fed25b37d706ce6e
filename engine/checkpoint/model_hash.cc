#include "engine/checkpoint/model_hash.h"

#include <openssl/evp.h>

#include <memory>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kStretches = 32;
constexpr size_t kStretchBytes = 64;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    SKEIN_CHECK(context_ != nullptr);
    SKEIN_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }

  void Bytes(const void* data, size_t size) {
    SKEIN_CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  void Number(uint64_t value) { Bytes(&value, sizeof(value)); }
  void Text(std::string_view text) {  // length first, so that no two lists of texts agree
    Number(text.size());
    Bytes(text.data(), text.size());
  }

  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    SKEIN_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) {
      hex += "0123456789abcdef"[digest[i] >> 4];
      hex += "0123456789abcdef"[digest[i] & 15];
    }
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

void AddSample(const FileTensor& tensor, Sha256* hash) {
  if (tensor.bytes <= kStretches * kStretchBytes) {
    hash->Bytes(tensor.data, tensor.bytes);
    return;
  }
  const size_t last = tensor.bytes - kStretchBytes;
  for (size_t i = 0; i < kStretches; ++i) {
    const size_t offset = last / (kStretches - 1) * i;
    hash->Number(offset);
    hash->Bytes(tensor.data + offset, kStretchBytes);
  }
}

}  // namespace

std::string ModelHash(std::string_view config_text, const TensorStore& tensors) {
  Sha256 hash;
  hash.Text("skein model hash 1");
  hash.Text(config_text);
  for (const auto& [name, tensor] : tensors.tensors()) {
    hash.Text(name);
    hash.Text(tensor.dtype);
    hash.Number(tensor.shape.size());
    for (const int64_t extent : tensor.shape) hash.Number(static_cast<uint64_t>(extent));
    hash.Number(tensor.bytes);
    AddSample(tensor, &hash);
  }
  return hash.Hex();
}

}  // namespace skein::engine
