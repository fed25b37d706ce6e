#include "services/tls/security.h"

#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/file.h"
#include "services/base/same_secret.h"
#include "services/log/log.h"

namespace skein::services::tls {
namespace {

constexpr std::chrono::seconds kLookEvery{1};

absl::StatusOr<std::vector<std::string>> TokensIn(const std::string& path,
                                                  const std::string& text) {
  std::vector<std::string> tokens;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view token = absl::StripAsciiWhitespace(line);
    if (token.empty()) continue;
    for (const char c : token) {
      if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": a token is one word of printable ASCII characters"));
      }
    }
    if (token.size() < kTokenBytesMin) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": a token of ", token.size(),
                                                     " characters can be guessed; use at least ",
                                                     kTokenBytesMin));
    }
    tokens.emplace_back(token);
  }
  if (tokens.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": contains no token"));
  return tokens;
}

absl::Status About(const char* flag, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("--", flag, ": ", status.message()));
}

Security& TheSecurity() {
  static auto* const security = new Security;  // used until the last thread has ended
  return *security;
}

// The stop signals and SIGHUP are for the main thread.
void LookForever(const std::shared_ptr<Certificates>& certificates,
                 const std::shared_ptr<ClusterToken>& token) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (;;) {
    std::this_thread::sleep_for(kLookEvery);
    if (certificates != nullptr) certificates->Look(std::time(nullptr));
    if (token != nullptr) token->Look();
  }
}

// The targets of the flags; a process has one security.
SecurityOptions& Flags() {
  static SecurityOptions options;
  return options;
}

void Register(Needs needs, FlagSet* flags) {
  SecurityOptions& options = Flags();
  options = {};
  flags->Check([&options, needs] {
    absl::StatusOr<Security> opened = OpenSecurity(options, needs);
    if (!opened.ok()) return opened.status();
    UseSecurity(*std::move(opened));
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::shared_ptr<ClusterToken>> ClusterToken::Open(const std::string& path) {
  std::shared_ptr<ClusterToken> made(new ClusterToken(path));
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  absl::StatusOr<std::vector<std::string>> tokens = TokensIn(path, *text);
  if (!tokens.ok()) return tokens.status();
  made->text_ = *text;
  made->tokens_ = *std::move(tokens);
  return made;
}

std::string ClusterToken::Own() const {
  std::lock_guard lock(mutex_);
  return tokens_.front();
}

bool ClusterToken::Accepts(std::string_view token) const {
  std::lock_guard lock(mutex_);
  bool accepted = false;
  for (const std::string& one : tokens_) accepted |= SameSecret(token, one);
  return accepted;
}

void ClusterToken::Look() {
  const absl::StatusOr<std::string> text = ReadFile(path_);
  std::lock_guard lock(mutex_);
  const std::string& now = text.ok() ? *text : "";
  if (now == text_) return;
  text_ = now;
  absl::StatusOr<std::vector<std::string>> tokens = TokensIn(path_, now);
  if (!tokens.ok()) {
    return LogError("cluster token not reloaded",
                    {{"reason", std::string(tokens.status().message())}});
  }
  tokens_ = *std::move(tokens);
  LogInfo("cluster token reloaded", {{"tokens", static_cast<int64_t>(tokens_.size())}});
}

absl::StatusOr<Security> OpenSecurity(const SecurityOptions& options, Needs needs) {
  Security security;
  security.mutual = options.mtls == "all"       ? Mutual::kAll
                    : options.mtls == "cluster" ? Mutual::kCluster
                                                : Mutual::kOff;
  if (options.tls_dir.empty() && security.mutual != Mutual::kOff) {
    return absl::InvalidArgumentError("--mtls: needs the certificates of --tls-dir");
  }
  if (!options.tls_dir.empty()) {
    auto opened = Certificates::Open(options.tls_dir, needs, security.mutual != Mutual::kOff,
                                     std::time(nullptr));
    if (!opened.ok()) return About("tls-dir", opened.status());
    security.certificates = *std::move(opened);
  }
  if (!options.cluster_token_file.empty()) {
    auto opened = ClusterToken::Open(options.cluster_token_file);
    if (!opened.ok()) return About("cluster-token-file", opened.status());
    security.token = *std::move(opened);
  }
  return security;
}

absl::Status CheckServer(const Security& security, RoleSet wanted, const SubjectNames& names,
                         std::string_view pem, const std::string& host) {
  const RoleSet roles = RolesOf(names, security.certificates->files()->trust_domain);
  if (roles.Meets(wanted)) return absl::OkStatus();
  const bool by_host = wanted.empty() || (roles.empty() && security.mutual == Mutual::kOff);
  if (by_host && IsForHost(pem, host)) return absl::OkStatus();
  std::string error =
      absl::StrCat("the server's certificate is for ", NamesOf(roles), " of this trust domain");
  if (!wanted.empty()) absl::StrAppend(&error, ", but ", NamesOf(wanted), " is wanted");
  if (by_host) absl::StrAppend(&error, ", nor is it for the host '", host, "'");
  return absl::PermissionDeniedError(error);
}

const Security& ProcessSecurity() { return TheSecurity(); }

void UseSecurity(Security security) {
  TheSecurity() = std::move(security);
  const Security& used = TheSecurity();
  if (used.certificates == nullptr && used.token == nullptr) return;
  std::thread([certificates = used.certificates, token = used.token] {
    LookForever(certificates, token);
  }).detach();
}

void RegisterServiceSecurity(FlagSet* flags) {
  flags->Group("Encryption and identity");
  SecurityOptions& options = Flags();
  Register(Needs::kIdentity, flags);
  flags
      ->String(&options.tls_dir, "tls-dir",
               "Folder with tls.crt, tls.key and ca.crt (PEM), as a Kubernetes TLS secret has "
               "them. With it all connections use TLS: gRPC, HTTP and etcd, as server and as "
               "client. Files that change are used for new connections without a restart.")
      .Value("DIR");
  flags
      ->String(&options.mtls, "mtls",
               "Who must present a certificate of ca.crt's authorities. cluster: every caller of "
               "gRPC, and the certificate's role must be one that may make the call. all: also "
               "every HTTP client, except for probes.")
      .Value("PEERS")
      .OneOf({"off", "cluster", "all"});
  flags->String(&options.cluster_token_file, "cluster-token-file",
                "File with a secret that all processes of the cluster share. Each call carries it, "
                "and a call without it is refused. If the file has several lines, the first is "
                "sent, and each is accepted. It is read again when it changes.");
}

void RegisterClientSecurity(FlagSet* flags) {
  SecurityOptions& options = Flags();
  Register(Needs::kAuthority, flags);
  flags
      ->String(&options.tls_dir, "tls-dir",
               "Folder with ca.crt, and with tls.crt and tls.key of an operator where the cluster "
               "asks for certificates. With it all connections use TLS.")
      .Value("DIR")
      .Environment("SKEIN_TLS_DIR");
  flags
      ->String(&options.cluster_token_file, "cluster-token-file",
               "File with the cluster's token, where it has one.")
      .Environment("SKEIN_CLUSTER_TOKEN_FILE");
}

}  // namespace skein::services::tls
