// The files of a TLS folder, in the layout of Kubernetes' TLS secrets and of cert-manager:
//   tls.crt  this process's certificate, then those between it and the authority (PEM)
//   tls.key  its private key (PEM, not encrypted)
//   ca.crt   the authorities whose certificates are trusted (PEM)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/tls/roles.h"

namespace skein::services::tls {

struct TlsFiles {
  std::string certificate, key, ca;  // PEM; the first two are empty where there is no tls.crt
  int64_t expires_s = 0;             // when the certificate does, in seconds since 1970; 0: none
  std::string serial;                // of the certificate, in hexadecimal digits
  std::string trust_domain;          // of its SPIFFE ID; "": it has none
  RoleSet roles;                     // that it names
};

// What a folder must have.
enum class Needs {
  kIdentity,   // all three files: a server
  kAuthority,  // ca.crt; tls.crt and tls.key if either is there: a client
};

// Reads and checks the files. INVALID_ARGUMENT names file and reason: it cannot be read, is no PEM,
// the key is another certificate's, the certificate has expired at `now_s` (seconds since 1970) or
// is not valid yet.
absl::StatusOr<TlsFiles> ReadTlsFiles(const std::string& folder, Needs needs, int64_t now_s);

// The alternative names of the first certificate of a PEM text. INVALID_ARGUMENT: there is none.
absl::StatusOr<SubjectNames> NamesIn(std::string_view pem);

// Whether the first certificate of a PEM text is for `host`, a DNS name or an IP address.
bool IsForHost(std::string_view pem, const std::string& host);

// What OpenSSL says of its last error on this thread; empties its queue.
std::string LastTlsError();

}  // namespace skein::services::tls
