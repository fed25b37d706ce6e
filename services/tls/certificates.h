// Certificates: the files of a TLS folder as they are now. When they change, connections that begin
// from then on use the new ones, and those that are open go on. Files that cannot be used are
// logged and counted, and the ones before them stay in use. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "services/tls/contexts.h"
#include "services/tls/memory_file.h"
#include "services/tls/tls_files.h"

namespace skein::services::tls {

class Certificates {
 public:
  struct Counts {
    uint64_t reloaded = 0, failed = 0;
  };

  // Errors are those of ReadTlsFiles. `ask_clients`: of ServerContext.
  static absl::StatusOr<std::shared_ptr<Certificates>> Open(const std::string& folder, Needs needs,
                                                            bool ask_clients, int64_t now_s);

  std::shared_ptr<const TlsFiles> files() const;
  Counts counts() const;
  // For a connection that begins now. REQUIRES of the first: Needs::kIdentity.
  Context ServerContext() const;
  Context ClientContext() const;

  // For gRPC, which reads from paths: the private key and after it the certificates ("" if there is
  // no identity), and the authorities. Their time of change grows with each reload.
  std::string identity_path() const;
  std::string authority_path() const;

  // Looks whether the files have changed, and takes them once two looks have found the same: they
  // may be written one after the other. To be called about once a second.
  void Look(int64_t now_s);

 private:
  Certificates(std::string folder, Needs needs, bool ask_clients);

  absl::Status Take(int64_t now_s);
  std::string Signature() const;

  const std::string folder_;
  const Needs needs_;
  const bool ask_clients_;
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<const TlsFiles> files_;
  Context server_, client_;
  MemoryFile identity_, authority_;
  int64_t changed_s_ = 0;     // the memory files' time
  std::string taken_, seen_;  // Signature of the files in use or refused; at the last look
  Counts counts_;
};

}  // namespace skein::services::tls
