// What the orchestrator takes on a worker's stream, over gRPC.
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/orchestrator/testing/worker_stream.h"
#include "services/rpc/rpc.h"

namespace skein::services {
namespace {

using testing::WorkerStream;

// What instance `instance`, whose incarnation is 9, may say of itself.
std::vector<v1::WorkerMessage> AboutInstance(uint64_t instance) {
  std::vector<v1::WorkerMessage> messages(3);
  *messages[0].mutable_report() =
      ToProto(scheduler::ReportRequest{.instance = {instance}, .incarnation = {9}, .serial = 1});
  *messages[1].mutable_place_decode() = ToProto(scheduler::PlaceDecodeRequest{
      .instance = {instance}, .incarnation = {9}, .id = {1, 1}, .epoch = {1}});
  *messages[2].mutable_goodbye() = ToProto(scheduler::UnregisterRequest{{instance}, {9}});
  return messages;
}

TEST(WorkerStreamsTest, AWorkerSpeaksForItselfOnly) {
  OrchestratorShell shell({}, 64);
  shell.Start();
  OrchestratorService service(&shell);
  const auto server = ServeRpc("127.0.0.1:0", {&service});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::Orchestrator::NewStub(grpc::CreateChannel(
      absl::StrCat("127.0.0.1:", server->port), grpc::InsecureChannelCredentials()));
  scheduler::RegisterRequest registration = testing::PrefillWorker(9);
  v1::OrchestratorMessage answer;
  const auto connect = [&] {
    auto stream = std::make_unique<WorkerStream>(stub.get());
    ++registration.stream;
    v1::WorkerMessage hello;
    *hello.mutable_hello() = ToProto(registration);
    stream->Send(hello);
    EXPECT_TRUE(stream->Receive(&answer)) << stream->Finish().error_message();
    return stream;
  };
  for (size_t kind = 0; kind < AboutInstance(1).size(); ++kind) {
    const auto stream = connect();
    stream->Send(AboutInstance(answer.welcome().instance() + 1)[kind]);
    EXPECT_FALSE(stream->Receive(&answer)) << kind;
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << kind;
    EXPECT_EQ(status.error_message().find("instance: "), 0u) << status.error_message();
  }
  const auto stream = connect();
  for (const v1::WorkerMessage& message : AboutInstance(answer.welcome().instance())) {
    stream->Send(message);
    EXPECT_TRUE(stream->Receive(&answer)) << message.ShortDebugString();
  }
  stream->Cancel();
  stream->Finish();
  shell.Stop();
  server->server->Shutdown();
}

}  // namespace
}  // namespace skein::services
