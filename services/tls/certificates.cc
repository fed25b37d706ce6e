#include "services/tls/certificates.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/log/log.h"

namespace skein::services::tls {

Certificates::Certificates(std::string folder, Needs needs, bool ask_clients)
    : folder_(std::move(folder)), needs_(needs), ask_clients_(ask_clients) {}

absl::StatusOr<std::shared_ptr<Certificates>> Certificates::Open(const std::string& folder,
                                                                 Needs needs, bool ask_clients,
                                                                 int64_t now_s) {
  std::shared_ptr<Certificates> made(new Certificates(folder, needs, ask_clients));
  std::lock_guard lock(made->mutex_);
  made->taken_ = made->Signature();
  made->seen_ = made->taken_;
  if (absl::Status s = made->Take(now_s); !s.ok()) return s;
  return made;
}

// REQUIRES: mutex_ held.
absl::Status Certificates::Take(int64_t now_s) {
  absl::StatusOr<TlsFiles> read = ReadTlsFiles(folder_, needs_, now_s);
  if (!read.ok()) return read.status();
  const bool identity = !read->certificate.empty();
  absl::StatusOr<Context> client = MakeClientContext(*read);
  if (!client.ok()) return client.status();
  absl::StatusOr<Context> server = Context();
  if (identity) server = MakeServerContext(*read, ask_clients_);
  if (!server.ok()) return server.status();
  const int64_t changed_s = std::max(now_s, changed_s_ + 1);
  if (identity) {
    const std::string both = absl::StrCat(read->key, "\n", read->certificate);
    if (absl::Status s = identity_.Put(both, changed_s); !s.ok()) return s;
  }
  if (absl::Status s = authority_.Put(read->ca, changed_s); !s.ok()) return s;
  changed_s_ = changed_s;
  client_ = *std::move(client);
  server_ = *std::move(server);
  files_ = std::make_shared<const TlsFiles>(*std::move(read));
  return absl::OkStatus();
}

std::shared_ptr<const TlsFiles> Certificates::files() const {
  std::lock_guard lock(mutex_);
  return files_;
}

Certificates::Counts Certificates::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

Context Certificates::ServerContext() const {
  std::lock_guard lock(mutex_);
  return server_;
}

Context Certificates::ClientContext() const {
  std::lock_guard lock(mutex_);
  return client_;
}

std::string Certificates::identity_path() const {
  std::lock_guard lock(mutex_);
  return files_->certificate.empty() ? "" : identity_.path();
}

std::string Certificates::authority_path() const {
  std::lock_guard lock(mutex_);
  return authority_.path();
}

// What changes when a file is written or replaced, or when a link leads to another one.
std::string Certificates::Signature() const {
  std::string all;
  for (const char* name : {"/tls.crt", "/tls.key", "/ca.crt"}) {
    struct stat file {};
    if (stat((folder_ + name).c_str(), &file) != 0) {
      absl::StrAppend(&all, "none;");
      continue;
    }
    absl::StrAppend(&all, file.st_dev, ",", file.st_ino, ",", file.st_size, ",");
    absl::StrAppend(&all, file.st_mtim.tv_sec, ".", file.st_mtim.tv_nsec, ";");
  }
  return all;
}

void Certificates::Look(int64_t now_s) {
  std::lock_guard lock(mutex_);
  std::string now = Signature();
  const bool settled = now == seen_;
  seen_ = now;
  if (!settled || now == taken_) return;
  taken_ = std::move(now);
  if (absl::Status taken = Take(now_s); !taken.ok()) {
    ++counts_.failed;
    LogError("TLS files not reloaded", {{"reason", std::string(taken.message())}});
    return;
  }
  ++counts_.reloaded;
  LogInfo("TLS files reloaded",
          {{"folder", folder_}, {"serial", files_->serial}, {"expires_unix_s", files_->expires_s}});
}

}  // namespace skein::services::tls
