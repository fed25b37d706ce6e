// A certificate authority for tests. Keys are of elliptic curves, so it is fast.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace skein::services::tls::testing {

struct Ask {
  std::vector<std::string> names;  // as in OpenSSL's subjectAltName: "URI:spiffe://...", "IP:..."
  int64_t begins_in_s = -60;
  int64_t ends_in_s = 3600;
};

// "URI:spiffe://test/skein/ROLE".
std::string RoleName(const std::string& role);

class Authority {
 public:
  Authority();

  // A new key with a certificate of this authority, and its ca.crt, in a folder, which is made.
  // Each file is replaced by renaming. Returns the certificate's serial number.
  std::string Issue(const std::string& folder, const Ask& ask) const;
  // ca.crt alone.
  void Publish(const std::string& folder) const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
  std::shared_ptr<X509> certificate_;
};

// An empty folder of this test's own.
std::string TestFolder(const std::string& name);

}  // namespace skein::services::tls::testing
