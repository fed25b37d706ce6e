#include "services/rpc/credentials.h"

#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "services/rpc/caller_policy.h"
#include "services/rpc/status_map.h"

namespace skein::services {
namespace {

using grpc::experimental::CertificateProviderInterface;
using grpc::experimental::ExternalCertificateVerifier;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;

constexpr char kTokenKey[] = "x-skein-cluster-token";
constexpr unsigned kReadEveryS = 1;

std::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

std::vector<std::string> Strings(const std::vector<grpc::string_ref>& texts) {
  std::vector<std::string> out;
  out.reserve(texts.size());
  for (const grpc::string_ref& text : texts) out.emplace_back(text.data(), text.size());
  return out;
}

// gRPC's end of Certificates: it reads the files again by itself. One for each, until the process
// ends: gRPC's threads may use their paths longer than anyone here knows.
std::shared_ptr<CertificateProviderInterface> ProviderOf(
    const std::shared_ptr<tls::Certificates>& certificates) {
  static std::mutex mutex;
  static auto* const providers = new std::map<std::shared_ptr<tls::Certificates>,
                                              std::shared_ptr<CertificateProviderInterface>>;
  std::lock_guard lock(mutex);
  auto& provider = (*providers)[certificates];
  if (provider == nullptr) {
    const std::string identity = certificates->identity_path();
    provider = std::make_shared<FileWatcherCertificateProvider>(
        identity, identity, certificates->authority_path(), kReadEveryS);
  }
  return provider;
}

// ---- servers ----

// The token that `metadata` carries; "": none.
template <typename Metadata>
std::string_view TokenIn(const Metadata& metadata) {
  const auto it = metadata.find(kTokenKey);
  return it != metadata.end() ? View(it->second) : std::string_view();
}

absl::Status CheckToken(const tls::ClusterToken& token, std::string_view given) {
  if (token.Accepts(given)) return absl::OkStatus();
  return absl::UnauthenticatedError(
      given.empty() ? "the call carries no cluster token: start its process with the "
                      "--cluster-token-file of this cluster"
                    : "the call carries a wrong cluster token: --cluster-token-file of its process "
                      "and of this one differ");
}

tls::RoleSet RolesIn(const grpc::AuthContext& context, const tls::Certificates& own) {
  const tls::SubjectNames names{
      .uris = Strings(context.FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)),
      .dns = Strings(context.FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME))};
  return tls::RolesOf(names, own.files()->trust_domain);
}

class CallerCheck : public grpc::AuthMetadataProcessor {
 public:
  explicit CallerCheck(tls::Security security) : security_(std::move(security)) {}

  bool IsBlocking() const override { return false; }

  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed, OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const std::string_view method =
        path != metadata.end() ? View(path->second) : std::string_view();
    if (security_.mutual != tls::Mutual::kOff) return ToGrpc(CheckRole(method, *context));
    if (method.starts_with("/grpc.health.v1.Health/")) return grpc::Status::OK;
    absl::Status checked = CheckToken(*security_.token, TokenIn(metadata));
    if (const auto it = metadata.find(kTokenKey); it != metadata.end()) {
      consumed->emplace(std::string(View(it->first)), std::string(View(it->second)));
    }
    return ToGrpc(checked);
  }

 private:
  absl::Status CheckRole(std::string_view method, const grpc::AuthContext& context) const {
    const tls::RoleSet may = MayCall(method);
    const tls::RoleSet roles = RolesIn(context, *security_.certificates);
    if (roles.Meets(may)) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat(std::string(method), ": the caller's certificate is for ", tls::NamesOf(roles),
                     " of this trust domain, but this call is for ", tls::NamesOf(may)));
  }

  const tls::Security security_;
};

// ---- clients ----

// Whether a server is the one that the channel is for. The chain has been checked before.
class ServerCheck : public ExternalCertificateVerifier {
 public:
  ServerCheck(tls::RoleSet wanted, tls::Security security)
      : wanted_(wanted), security_(std::move(security)) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* result) override {
    *result = ToGrpc(Check(*request));
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  absl::Status Check(const TlsCustomVerificationCheckRequest& request) const {
    const tls::SubjectNames names{.uris = Strings(request.uri_names()),
                                  .dns = Strings(request.dns_names())};
    return tls::CheckServer(security_, wanted_, names, View(request.peer_cert()),
                            std::string(View(request.target_name())));
  }

  const tls::RoleSet wanted_;
  const tls::Security security_;
};

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(tls::RoleSet wanted,
                                                            const tls::Security& security) {
  if (security.certificates == nullptr) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(security.certificates));
  options.watch_root_certs();
  if (!security.certificates->identity_path().empty()) options.watch_identity_key_cert_pairs();
  options.set_check_call_host(false);  // ServerCheck knows what is wanted
  options.set_certificate_verifier(
      ExternalCertificateVerifier::Create<ServerCheck>(wanted, security));
  return grpc::experimental::TlsCredentials(options);
}

// Adds the token to each call of a channel.
class TokenSender : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(std::shared_ptr<tls::ClusterToken> token) : token_(std::move(token)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kTokenKey, token_->Own());
    }
    methods->Proceed();
  }

 private:
  const std::shared_ptr<tls::ClusterToken> token_;
};

class TokenSenders : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenders(std::shared_ptr<tls::ClusterToken> token) : token_(std::move(token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(token_);
  }

 private:
  const std::shared_ptr<tls::ClusterToken> token_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const tls::Security& security) {
  if (security.certificates == nullptr) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(ProviderOf(security.certificates));
  options.watch_identity_key_cert_pairs();
  const bool mutual = security.mutual != tls::Mutual::kOff;
  if (mutual) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  auto credentials = grpc::experimental::TlsServerCredentials(options);
  if (mutual || security.token != nullptr) {
    credentials->SetAuthMetadataProcessor(std::make_shared<CallerCheck>(security));
  }
  return credentials;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& endpoint, tls::RoleSet wanted,
                                           const grpc::ChannelArguments& arguments,
                                           const tls::Security& security) {
  const auto credentials = ClientCredentials(wanted, security);
  if (security.token == nullptr || wanted.empty()) {
    return grpc::CreateCustomChannel(endpoint, credentials, arguments);
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> senders;
  senders.push_back(std::make_unique<TokenSenders>(security.token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(endpoint, credentials, arguments,
                                                                 std::move(senders));
}

absl::Status CheckCaller(const grpc::CallbackServerContext& context,
                         const tls::Security& security) {
  if (security.token == nullptr || security.certificates != nullptr) return absl::OkStatus();
  return CheckToken(*security.token, TokenIn(context.client_metadata()));
}

tls::RoleSet CallerRoles(const grpc::CallbackServerContext& context,
                         const tls::Security& security) {
  if (security.mutual == tls::Mutual::kOff) return tls::RoleSet::All();
  const auto caller = context.auth_context();
  return caller != nullptr ? RolesIn(*caller, *security.certificates) : tls::RoleSet{};
}

}  // namespace skein::services
