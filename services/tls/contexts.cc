#include "services/tls/contexts.h"

#include <openssl/err.h>

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/tls/owned.h"

namespace skein::services::tls {
namespace {

constexpr std::string_view kProtocol("\x08http/1.1", 9);

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::Status Failed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(what), ": ", LastTlsError()));
}

int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_size,
                   const unsigned char* offered, unsigned int offered_size, void*) {
  unsigned char* found = nullptr;
  const int result =
      SSL_select_next_proto(&found, chosen_size, Bytes(kProtocol),
                            static_cast<unsigned int>(kProtocol.size()), offered, offered_size);
  *chosen = found;
  // A client that offers other protocols only may still speak HTTP/1.1.
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

absl::StatusOr<Context> MakeContext(const SSL_METHOD* method) {
  ERR_clear_error();
  Context context(SSL_CTX_new(method), SSL_CTX_free);
  if (context == nullptr) return Failed("TLS");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  return context;
}

absl::Status UseIdentity(const TlsFiles& files, SSL_CTX* context) {
  const Owned<BIO> in = Reader(files.certificate);
  const Owned<X509> own = NextCertificate(in.get());
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return Failed("tls.crt");
  while (Owned<X509> further = NextCertificate(in.get())) {
    if (SSL_CTX_add1_chain_cert(context, further.get()) != 1) return Failed("tls.crt");
  }
  ERR_clear_error();  // the end of the text
  const Owned<EVP_PKEY> key = KeyIn(files.key);
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1) return Failed("tls.key");
  return absl::OkStatus();
}

absl::Status TrustAuthorities(const TlsFiles& files, bool name_them, SSL_CTX* context) {
  const Owned<BIO> in = Reader(files.ca);
  while (Owned<X509> authority = NextCertificate(in.get())) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1) {
      return Failed("ca.crt");
    }
    if (name_them && SSL_CTX_add_client_CA(context, authority.get()) != 1) return Failed("ca.crt");
  }
  ERR_clear_error();  // the end of the text
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Context> MakeServerContext(const TlsFiles& files, bool ask_clients) {
  absl::StatusOr<Context> made = MakeContext(TLS_server_method());
  if (!made.ok()) return made;
  SSL_CTX* context = made->get();
  if (absl::Status s = UseIdentity(files, context); !s.ok()) return s;
  SSL_CTX_set_alpn_select_cb(context, ChooseProtocol, nullptr);
  if (ask_clients) {
    if (absl::Status s = TrustAuthorities(files, /*name_them=*/true, context); !s.ok()) return s;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    constexpr std::string_view kSessions = "skein";
    SSL_CTX_set_session_id_context(context, Bytes(kSessions), kSessions.size());
  }
  return made;
}

absl::StatusOr<Context> MakeClientContext(const TlsFiles& files) {
  absl::StatusOr<Context> made = MakeContext(TLS_client_method());
  if (!made.ok()) return made;
  SSL_CTX* context = made->get();
  if (!files.certificate.empty()) {
    if (absl::Status s = UseIdentity(files, context); !s.ok()) return s;
  }
  if (absl::Status s = TrustAuthorities(files, /*name_them=*/false, context); !s.ok()) return s;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(context, Bytes(kProtocol), kProtocol.size());
  return made;
}

std::string PeerCertificate(const SSL* connection) {
  const Owned<X509> certificate(SSL_get1_peer_certificate(connection));
  const Owned<BIO> out(BIO_new(BIO_s_mem()));
  if (certificate == nullptr || PEM_write_bio_X509(out.get(), certificate.get()) != 1) return "";
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

}  // namespace skein::services::tls
