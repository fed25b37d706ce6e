// OpenSSL's objects with an owner. Internal to services/tls.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string_view>

namespace skein::services::tls {

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(BIGNUM* p) const { BN_free(p); }
  void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

// Reads `text`, which outlives it.
inline Owned<BIO> Reader(std::string_view text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// No one can type a pass phrase.
inline int NoPassPhrase(char*, int, int, void*) { return -1; }

// The next certificate of a PEM text; null: there is none, or it is malformed.
inline Owned<X509> NextCertificate(BIO* in) {
  return Owned<X509>(PEM_read_bio_X509(in, nullptr, NoPassPhrase, nullptr));
}

// The private key of a PEM text; null: there is none.
inline Owned<EVP_PKEY> KeyIn(std::string_view pem) {
  return Owned<EVP_PKEY>(
      PEM_read_bio_PrivateKey(Reader(pem).get(), nullptr, NoPassPhrase, nullptr));
}

}  // namespace skein::services::tls
