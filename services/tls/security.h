// How this process protects its connections: one setting for the whole process, from its flags. It
// is made before the first server or channel. Without the flags nothing is encrypted.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/flags/flags.h"
#include "services/tls/certificates.h"

namespace skein::services::tls {

// Whom a server asks for a certificate (--mtls).
enum class Mutual {
  kOff,      // nobody
  kCluster,  // callers of gRPC, by role; HTTP clients may present one
  kAll,      // HTTP clients, too, for all but the probes
};

// Secrets that callers may send, from a file with one a line. The first is the one to send. So a
// token is replaced by adding the new one below the old one everywhere, then above, then removing
// the old one. Thread-safe.
class ClusterToken {
 public:
  // INVALID_ARGUMENT names the file: it cannot be read, is empty, or a line is no single word of
  // printable ASCII characters or has fewer than kTokenBytesMin of them.
  static absl::StatusOr<std::shared_ptr<ClusterToken>> Open(const std::string& path);

  std::string Own() const;
  // Constant time, wherever they differ.
  bool Accepts(std::string_view token) const;
  // Reads the file again if it has changed. One that cannot be used is logged, and the tokens
  // before it stay.
  void Look();

 private:
  explicit ClusterToken(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  mutable std::mutex mutex_;
  std::vector<std::string> tokens_;  // guarded by mutex_
  std::string text_;                 // of the file at the last look; guarded by mutex_
};
inline constexpr size_t kTokenBytesMin = 16;

struct Security {
  std::shared_ptr<Certificates> certificates;  // null: no TLS
  Mutual mutual = Mutual::kOff;
  std::shared_ptr<ClusterToken> token;  // null: none is sent, none is asked for
};

struct SecurityOptions {
  std::string tls_dir, mtls = "off", cluster_token_file;
};

// INVALID_ARGUMENT names flag, file and reason. `needs`: kIdentity for a process that serves.
absl::StatusOr<Security> OpenSecurity(const SecurityOptions& options, Needs needs);

// For a client whose server has a certificate that `pem` begins with, with these names, after
// OpenSSL has checked its chain. OK: it names one of the roles `wanted`; or it names none (or none
// is wanted, as of etcd) and is for `host`. With --mtls a server that is wanted for a role must
// name it. PERMISSION_DENIED says what it names.
absl::Status CheckServer(const Security& security, RoleSet wanted, const SubjectNames& names,
                         std::string_view pem, const std::string& host);

// What this process uses; empty before UseSecurity.
const Security& ProcessSecurity();
// REQUIRES: no server, channel or other thread uses ProcessSecurity yet. A thread looks for changes
// of the files from here on, once a second, until the process ends.
void UseSecurity(Security security);

// --tls-dir, --mtls and --cluster-token-file of a service. Parsing opens the files, and the process
// uses them from then on.
void RegisterServiceSecurity(FlagSet* flags);
// --tls-dir and --cluster-token-file of a command that only calls.
void RegisterClientSecurity(FlagSet* flags);

}  // namespace skein::services::tls
