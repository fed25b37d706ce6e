#include "services/tls/testing/authority.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace skein::services::tls::testing {
namespace {

std::shared_ptr<EVP_PKEY> NewKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::shared_ptr<X509> NewCertificate(EVP_PKEY* key, const char* name, const Ask& ask) {
  std::shared_ptr<X509> made(X509_new(), X509_free);
  X509_set_version(made.get(), 2);
  BIGNUM* serial = BN_new();
  BN_rand(serial, 120, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY);
  BN_to_ASN1_INTEGER(serial, X509_get_serialNumber(made.get()));
  BN_free(serial);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), ask.begins_in_s);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), ask.ends_in_s);
  X509_set_pubkey(made.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  std::string names;
  for (const std::string& one : ask.names) names += (names.empty() ? "" : ",") + one;
  if (!names.empty()) AddExtension(made.get(), NID_subject_alt_name, names);
  return made;
}

template <typename Write>
std::string Pem(Write write) {
  BIO* out = BIO_new(BIO_s_mem());
  write(out);
  char* text = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(out, &text));
  std::string pem(text, size);
  BIO_free(out);
  return pem;
}

std::string PemOf(X509* certificate) {
  return Pem([certificate](BIO* out) { PEM_write_bio_X509(out, certificate); });
}

void Replace(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text;
  std::rename((path + ".new").c_str(), path.c_str());
}

}  // namespace

std::string RoleName(const std::string& role) { return "URI:spiffe://test/skein/" + role; }

Authority::Authority() : key_(NewKey()) {
  certificate_ = NewCertificate(key_.get(), "test authority", {});
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), NID_subject_key_identifier, "hash");
  X509_sign(certificate_.get(), key_.get(), EVP_sha256());
}

std::string Authority::Issue(const std::string& folder, const Ask& ask) const {
  const std::shared_ptr<EVP_PKEY> key = NewKey();
  const std::shared_ptr<X509> made = NewCertificate(key.get(), "test process", ask);
  X509_set_issuer_name(made.get(), X509_get_subject_name(certificate_.get()));
  X509_sign(made.get(), key_.get(), EVP_sha256());
  Publish(folder);
  Replace(folder + "/tls.key", Pem([&key](BIO* out) {
            PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          }));
  Replace(folder + "/tls.crt", PemOf(made.get()));
  BIGNUM* number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(made.get()), nullptr);
  char* digits = BN_bn2hex(number);
  std::string serial = digits;
  OPENSSL_free(digits);
  BN_free(number);
  return serial;
}

void Authority::Publish(const std::string& folder) const {
  std::filesystem::create_directories(folder);
  Replace(folder + "/ca.crt", PemOf(certificate_.get()));
}

std::string TestFolder(const std::string& name) {
  std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace skein::services::tls::testing
