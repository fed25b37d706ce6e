// OpenSSL contexts for HTTP, from the files of a TLS folder: TLS 1.2 or later, HTTP/1.1.
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "absl/status/statusor.h"
#include "services/tls/tls_files.h"

namespace skein::services::tls {

using Context = std::shared_ptr<SSL_CTX>;

// A server with this identity. `ask_clients`: a client is asked for a certificate. One that it
// presents is checked against ca.crt; a handshake without one succeeds as well.
// REQUIRES: the files have an identity.
absl::StatusOr<Context> MakeServerContext(const TlsFiles& files, bool ask_clients);

// A client that checks the server's certificate against ca.crt, but no name in it, and presents its
// own if the files have one.
absl::StatusOr<Context> MakeClientContext(const TlsFiles& files);

// The first certificate of a context's peer, in PEM; "": it has presented none.
std::string PeerCertificate(const SSL* connection);

}  // namespace skein::services::tls
