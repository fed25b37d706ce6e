// Whose instances a caller may drain, by its certificate.
#include <ctime>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/testing/worker_stream.h"
#include "services/rpc/credentials.h"
#include "services/rpc/rpc.h"
#include "services/tls/security.h"
#include "services/tls/testing/authority.h"

namespace skein::services {
namespace {

using testing::WorkerStream;
using tls::Role;

class DrainCallersTest : public ::testing::Test {
 protected:
  DrainCallersTest() {
    tls::UseSecurity(Of("orchestrator"));
    shell_.Start();
    auto server = ServeRpc("127.0.0.1:0", {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~DrainCallersTest() override {
    shell_.Stop();
    server_.server->Shutdown();
  }

  tls::Security Of(const std::string& role) {
    tls::Security security{.mutual = tls::Mutual::kCluster};
    const std::string folder = tls::testing::TestFolder(role);
    authority_.Issue(folder, {.names = {tls::testing::RoleName(role)}});
    security.certificates =
        *tls::Certificates::Open(folder, tls::Needs::kIdentity, true, std::time(nullptr));
    return security;
  }
  // A process of this role, with a connection of its own.
  std::unique_ptr<v1::Orchestrator::Stub> Process(const std::string& role) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::Orchestrator::NewStub(MakeChannel(absl::StrCat("127.0.0.1:", server_.port),
                                                 {Role::kOrchestrator}, arguments, Of(role)));
  }
  // The instance that it becomes.
  static uint64_t Register(WorkerStream* stream, uint64_t incarnation) {
    v1::WorkerMessage hello;
    *hello.mutable_hello() = ToProto([&] {
      scheduler::RegisterRequest registration = testing::PrefillWorker(incarnation);
      registration.stream = 1;
      return registration;
    }());
    stream->Send(hello);
    v1::OrchestratorMessage answer;
    EXPECT_TRUE(stream->Receive(&answer));
    return answer.welcome().instance();
  }
  static grpc::Status Drain(v1::Orchestrator::Stub* stub, uint64_t instance, uint64_t router = 0) {
    grpc::ClientContext context;
    v1::DrainRequest request;
    request.set_instance(instance);
    request.set_router(router);
    request.set_force(true);
    v1::DrainResponse response;
    return stub->Drain(&context, request, &response);
  }
  // Whether the orchestrator passes an order on.
  static bool Ordered(WorkerStream* stream) {
    v1::OrchestratorMessage message;
    while (stream->Receive(&message)) {
      if (message.has_drain_order()) return message.drain_order().drain();
    }
    return false;
  }

  const tls::testing::Authority authority_;
  OrchestratorShell shell_{{}, 64};
  OrchestratorService service_{&shell_};
  RpcServer server_;
};

TEST_F(DrainCallersTest, AWorkerDrainsItselfAlone) {
  const auto one = Process("prefill-worker"), other = Process("prefill-worker");
  WorkerStream stream_of_one(one.get()), stream_of_other(other.get());
  const uint64_t first = Register(&stream_of_one, 9), second = Register(&stream_of_other, 10);
  ASSERT_NE(first, second);
  for (const uint64_t instance : {second, second + 1}) {
    const grpc::Status refused = Drain(one.get(), instance);
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED) << refused.error_message();
    EXPECT_TRUE(absl::StrContains(refused.error_message(),
                                  "a certificate for prefill-worker may drain only the instance "
                                  "that has registered over the same connection"))
        << refused.error_message();
  }
  EXPECT_EQ(Drain(one.get(), 0, 7).error_code(), grpc::StatusCode::PERMISSION_DENIED)
      << "nor a router";
  EXPECT_TRUE(Drain(one.get(), first).ok());
  EXPECT_TRUE(Ordered(&stream_of_one));
  for (const char* role : {"router", "operator"}) {
    EXPECT_TRUE(Drain(Process(role).get(), second).ok()) << role;
  }
  EXPECT_TRUE(Ordered(&stream_of_other));
  for (WorkerStream* stream : {&stream_of_one, &stream_of_other}) {
    stream->Cancel();
    stream->Finish();
  }
}

}  // namespace
}  // namespace skein::services
