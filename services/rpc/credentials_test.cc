// Attacks on gRPC ports: who gets in with which certificate or token, and what others are told.
#include "services/rpc/credentials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "google/protobuf/descriptor.h"
#include "proto/decode_worker.pb.h"
#include "proto/jobs.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "proto/prefill_worker.pb.h"
#include "services/base/file.h"
#include "services/rpc/caller_policy.h"
#include "services/rpc/rpc.h"
#include "services/tls/testing/authority.h"

namespace skein::services {
namespace {

using tls::Role;
using tls::RoleSet;
using tls::testing::Authority;
using tls::testing::RoleName;
using tls::testing::TestFolder;

// Answers two calls, and echoes on the streams.
class Service : public v1::Orchestrator::CallbackService {
 public:
  // Tells of the security that it was made with, as a process does.
  explicit Service(tls::Security security) : security_(std::move(security)) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse*) override {
    return Answer(context);
  }
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    return Answer(context);
  }
  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext*) override {
    return new Echo;
  }

  int answered() const { return answered_.load(); }

 private:
  class Echo : public grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages> {
   public:
    Echo() { StartRead(&in_); }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      StartWrite(&out_);
    }
    void OnWriteDone(bool ok) override {
      if (ok) StartRead(&in_);
    }
    void OnDone() override { delete this; }

   private:
    v1::WorkerMessages in_;
    v1::OrchestratorMessages out_;
  };

  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Status caller = CheckCaller(*context, security_);
    if (caller.ok()) ++answered_;
    reactor->Finish(ToGrpc(caller));
    return reactor;
  }

  const tls::Security security_;
  std::atomic<int> answered_{0};
};

struct Server {
  explicit Server(const tls::Security& security)
      : service(security),
        rpc(*ServeRpc("127.0.0.1:0", {&service}, kMessageBytesMax, kServerMemoryBytes, security)) {}
  ~Server() { rpc.server->Shutdown(std::chrono::system_clock::now()); }

  std::string endpoint() const { return "127.0.0.1:" + std::to_string(rpc.port); }

  Service service;
  RpcServer rpc;
};

class Cluster : public ::testing::Test {
 protected:
  // The security of a process whose certificate has these names; null certificates: no TLS.
  static tls::Security Of(const Authority& authority, const std::string& name,
                          const tls::testing::Ask& ask, tls::Mutual mutual = tls::Mutual::kCluster,
                          const std::string& token = "") {
    tls::Security security{.mutual = mutual};
    const std::string folder = TestFolder(name);
    authority.Issue(folder, ask);
    security.certificates =
        *tls::Certificates::Open(folder, tls::Needs::kIdentity, true, std::time(nullptr));
    if (!token.empty()) security.token = Token(name, token);
    return security;
  }
  static tls::Security Member(const Authority& authority, const std::string& role,
                              tls::Mutual mutual = tls::Mutual::kCluster) {
    return Of(authority, role, {.names = {RoleName(role)}}, mutual);
  }
  static std::shared_ptr<tls::ClusterToken> Token(const std::string& name,
                                                  const std::string& token) {
    const std::string path = TestFolder(name + "-token") + "/token";
    std::ofstream(path) << token;
    return *tls::ClusterToken::Open(path);
  }

  static std::unique_ptr<v1::Orchestrator::Stub> Connect(const Server& server,
                                                         const tls::Security& security,
                                                         RoleSet wanted = {Role::kOrchestrator}) {
    return v1::Orchestrator::NewStub(MakeChannel(server.endpoint(), wanted, {}, security));
  }
  template <typename Request, typename Response>
  static grpc::Status Call(v1::Orchestrator::Stub* stub,
                           grpc::Status (v1::Orchestrator::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&,
                                                                          Response*)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Response response;
    return (stub->*method)(&context, Request(), &response);
  }
  static grpc::Status ListModels(v1::Orchestrator::Stub* stub) {
    return Call(stub, &v1::Orchestrator::Stub::ListModels);
  }
  static grpc::Status ListModels(const Server& server, const tls::Security& security,
                                 RoleSet wanted = {Role::kOrchestrator}) {
    return ListModels(Connect(server, security, wanted).get());
  }

  const Authority authority_, other_authority_;
};

TEST_F(Cluster, ServesCallersByRole) {
  const Server server(Member(authority_, "orchestrator"));
  EXPECT_TRUE(ListModels(server, Member(authority_, "router")).ok());
  const grpc::Status status = Call(Connect(server, Member(authority_, "decode-worker")).get(),
                                   &v1::Orchestrator::Stub::Status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(),
            "/skein.v1.Orchestrator/Status: the caller's certificate is for decode-worker of this "
            "trust domain, but this call is for router or operator");
}

TEST_F(Cluster, RefusesARouterThatRegistersAsAWorker) {
  const Server server(Member(authority_, "orchestrator"));
  const auto stub = Connect(server, Member(authority_, "router"));
  grpc::ClientContext context;
  const auto stream = stub->ConnectWorker(&context);
  v1::OrchestratorMessages answer;
  EXPECT_FALSE(stream->Read(&answer));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
}

// Of a caller that checks only the server's host: what it is refused for is this side's doing.
grpc::Status Attack(const Server& server, const Authority& authority, const tls::testing::Ask& ask,
                    const Authority& trusted) {
  const std::string folder = TestFolder("attacker");
  authority.Issue(folder, ask);
  trusted.Publish(folder);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = *ReadFile(folder + "/ca.crt");
  options.pem_private_key = *ReadFile(folder + "/tls.key");
  options.pem_cert_chain = *ReadFile(folder + "/tls.crt");
  const auto stub = v1::Orchestrator::NewStub(
      grpc::CreateChannel(server.endpoint(), grpc::SslCredentials(options)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  v1::ListModelsResponse response;
  return stub->ListModels(&context, {}, &response);
}

TEST_F(Cluster, RefusesAttackersByTheirCertificate) {
  const Server server(
      Of(authority_, "orchestrator", {.names = {RoleName("orchestrator"), "IP:127.0.0.1"}}));
  ASSERT_TRUE(Attack(server, authority_, {.names = {RoleName("router")}}, authority_).ok());
  const int before = server.service.answered();
  for (const char* name :
       {"URI:spiffe://other/skein/router", "DNS:router.example.org",
        "URI:spiffe://test/skein/decode-worker/router", "URI:spiffe://test/skein/orchestrator"}) {
    const grpc::Status status = Attack(server, authority_, {.names = {name}}, authority_);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED)
        << name << ": " << status.error_message();
  }
  EXPECT_EQ(Attack(server, authority_, {.names = {RoleName("router")}, .ends_in_s = -5}, authority_)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE)
      << "expired";
  EXPECT_EQ(
      Attack(server, other_authority_, {.names = {RoleName("router")}}, authority_).error_code(),
      grpc::StatusCode::UNAVAILABLE)
      << "of an authority that is not trusted";
  EXPECT_FALSE(ListModels(server, {}).ok()) << "plain text";
  EXPECT_EQ(server.service.answered(), before);
}

TEST_F(Cluster, RefusesAServerOfAnotherRole) {
  const Server server(Member(authority_, "decode-worker"));
  const grpc::Status status = ListModels(server, Member(authority_, "router"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_NE(status.error_message().find("the server's certificate is for decode-worker of this "
                                        "trust domain, but orchestrator is wanted"),
            std::string::npos)
      << status.error_message();
}

TEST_F(Cluster, ChecksTheHostOfServersWithoutARole) {
  const auto security = [this](const char* name) {
    return Of(authority_, "server", {.names = {name}}, tls::Mutual::kOff);
  };
  const tls::Security caller = Member(authority_, "router", tls::Mutual::kOff);
  EXPECT_TRUE(ListModels(Server(security("IP:127.0.0.1")), caller).ok());
  EXPECT_FALSE(ListModels(Server(security("IP:127.0.0.2")), caller).ok());
  // As of etcd.
  EXPECT_TRUE(ListModels(Server(security("IP:127.0.0.1")), caller, {}).ok());
  EXPECT_FALSE(ListModels(Server(security("DNS:router.skein.internal")), caller, {}).ok());
  // With --mtls a name of the host is not enough.
  EXPECT_FALSE(ListModels(Server(security("IP:127.0.0.1")), Member(authority_, "router")).ok());
}

TEST_F(Cluster, UsesRenewedCertificatesForNewConnectionsWhileStreamsGoOn) {
  const std::string folder = TestFolder("rotated");
  authority_.Issue(folder, {.names = {RoleName("orchestrator")}});
  tls::Security security{.mutual = tls::Mutual::kCluster};
  security.certificates =
      *tls::Certificates::Open(folder, tls::Needs::kIdentity, true, std::time(nullptr));
  const Server server(security);
  const auto stub = Connect(server, Member(authority_, "decode-worker"));
  grpc::ClientContext context;
  const auto stream = stub->ConnectWorker(&context);
  v1::OrchestratorMessages answer;
  ASSERT_TRUE(stream->Write({}) && stream->Read(&answer));
  // The new one is of another role, so that a caller can tell which one it meets.
  authority_.Issue(folder, {.names = {RoleName("decode-worker")}});
  for (int i = 0; i < 2; ++i) security.certificates->Look(std::time(nullptr));
  ASSERT_EQ(security.certificates->counts().reloaded, 1U);
  const tls::Security caller = Member(authority_, "prefill-worker");
  // gRPC looks at the files once a second.
  while (!ListModels(server, caller, {Role::kDecodeWorker}).ok()) {
  }
  EXPECT_TRUE(stream->Write({}) && stream->Read(&answer)) << "a running stream goes on";
  context.TryCancel();
  stream->Finish();
}

TEST_F(Cluster, WantsTheTokenInPlainTextAndInTls) {
  for (const bool encrypted : {false, true}) {
    const auto with = [&](const std::string& name, const std::string& token) {
      tls::Security security;
      if (encrypted)
        security = Of(authority_, name, {.names = {"IP:127.0.0.1"}}, tls::Mutual::kOff);
      if (!token.empty()) security.token = Token(name, token);
      return security;
    };
    const Server server(with("server", "the-secret-of-this-cluster"));
    EXPECT_TRUE(ListModels(server, with("member", "the-secret-of-this-cluster")).ok());
    const grpc::Status without = ListModels(server, with("stranger", ""));
    EXPECT_EQ(without.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_EQ(without.error_message(),
              "the call carries no cluster token: start its process with the --cluster-token-file "
              "of this cluster");
    const grpc::Status wrong = ListModels(server, with("liar", "the-secret-of-that-cluster"));
    EXPECT_EQ(wrong.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_NE(wrong.error_message().find("a wrong cluster token"), std::string::npos);
    EXPECT_EQ(server.service.answered(), 1);
  }
}

TEST(CallerPolicy, ListsEveryCallOfEveryService) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::StatusRequest::descriptor()->file(), v1::OpenTransferRequest::descriptor()->file(),
        v1::StepTimesRequest::descriptor()->file(), v1::FileId::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        const std::string path = "/" + service->full_name() + "/" + service->method(j)->name();
        EXPECT_FALSE(MayCall(path).empty()) << path;
        EXPECT_FALSE(MayCall(path) == RoleSet::All()) << path;
      }
    }
  }
  EXPECT_TRUE(MayCall("/skein.v1.Orchestrator/Unknown").empty());
  EXPECT_EQ(MayCall("/skein.v1.DecodeWorker/OpenTransfer"), RoleSet{Role::kPrefillWorker});
  EXPECT_EQ(MayCall("/skein.v1.DecodeWorker/StreamTokens"), RoleSet{Role::kRouter});
  for (const char* method :
       {"Status", "ListGroups", "ListRequests", "Explain", "Drain", "ChangeFormation"}) {
    EXPECT_TRUE(MayCall(std::string("/skein.v1.Orchestrator/") + method).Has(Role::kRouter))
        << method << " is what a router's console calls";
  }
}

}  // namespace
}  // namespace skein::services
