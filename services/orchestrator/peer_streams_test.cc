#include "services/orchestrator/peer_streams.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/rpc.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

constexpr size_t kMax = 2;

// Names each stream at its first message, and answers each message. A goodbye ends its name.
class Streams : public v1::Orchestrator::CallbackService {
 public:
  using Peers = PeerStreams<v1::WorkerMessages, v1::OrchestratorMessages, uint64_t>;

  explicit Streams(Loop* loop)
      : peers_(loop, kMax, "worker",
               {.message =
                    [this](uint64_t call, uint64_t key, const v1::WorkerMessage& message) {
                      if (key == 0) peers_.Name(call, call, /*generation=*/1);
                      peers_.Send(call, v1::OrchestratorMessage());
                      if (message.has_goodbye()) peers_.Unname(call);
                      return absl::OkStatus();
                    },
                .broke = [](uint64_t, uint64_t, const absl::Status&) {}}) {}

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    return peers_.Open(context, ++calls_);
  }
  void Stop() { peers_.CloseAll(grpc::Status::CANCELLED); }

 private:
  std::atomic<uint64_t> calls_{0};
  Peers peers_;
};

class PeerStreamsTest : public ::testing::Test {
 protected:
  struct Client {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessages, v1::OrchestratorMessages>> stream;
  };

  PeerStreamsTest() {
    loop_.Start(
        "test", [] { return INT64_MAX; }, [] {});
    server_ = ServeRpc("127.0.0.1:0", {&streams_}).value();
    stub_ = v1::Orchestrator::NewStub(channels_.Get("127.0.0.1:" + std::to_string(server_.port)));
  }
  ~PeerStreamsTest() override {
    loop_.Stop();
    streams_.Stop();
    server_.server->Shutdown();
  }

  // Says hello on a new stream and waits for the answer. `status`: with which it was closed.
  std::unique_ptr<Client> Open(grpc::Status* status) {
    auto client = std::make_unique<Client>();
    client->stream = stub_->ConnectWorker(&client->context);
    v1::WorkerMessages batch;
    batch.add_messages()->set_sequence(1);
    v1::OrchestratorMessages answer;
    client->stream->Write(batch);
    if (client->stream->Read(&answer)) return client;
    *status = client->stream->Finish();
    return nullptr;
  }
  void Leave(std::unique_ptr<Client> client) {
    client->stream->WritesDone();
    client->stream->Finish();
  }

  Loop loop_{100};
  Streams streams_{&loop_};
  RpcServer server_;
  Channels channels_;
  std::unique_ptr<v1::Orchestrator::Stub> stub_;
};

TEST_F(PeerStreamsTest, OneMoreThanTheLimitIsRefusedByName) {
  grpc::Status status;
  std::vector<std::unique_ptr<Client>> open;
  for (size_t i = 0; i < kMax; ++i) {
    open.push_back(Open(&status));
    ASSERT_NE(open.back(), nullptr) << status.error_message();
  }
  EXPECT_EQ(Open(&status), nullptr);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "The limit of worker streams is reached (2).");

  Leave(std::move(open.back()));
  // The client sees its end a little before the loop does.
  while ((open.back() = Open(&status)) == nullptr) {
    ASSERT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  for (auto& one : open) Leave(std::move(one));
}

TEST_F(PeerStreamsTest, WhatIsSentWithinARoundTravelsInOneBatch) {
  auto client = std::make_unique<Client>();
  client->stream = stub_->ConnectWorker(&client->context);
  v1::WorkerMessages batch;
  for (uint64_t i = 1; i <= 3; ++i) batch.add_messages()->set_sequence(i);
  ASSERT_TRUE(client->stream->Write(batch));
  v1::OrchestratorMessages answers;
  ASSERT_TRUE(client->stream->Read(&answers));
  EXPECT_EQ(answers.messages_size(), 3);
  Leave(std::move(client));
}

TEST_F(PeerStreamsTest, WhatCrossesTheAnswerToAGoodbyeIsDropped) {
  auto client = std::make_unique<Client>();
  client->stream = stub_->ConnectWorker(&client->context);
  v1::WorkerMessages batch;
  for (uint64_t i = 1; i <= 3; ++i) batch.add_messages()->set_sequence(i);
  batch.mutable_messages(1)->mutable_goodbye();
  ASSERT_TRUE(client->stream->Write(batch));
  v1::OrchestratorMessages answers;
  ASSERT_TRUE(client->stream->Read(&answers));
  EXPECT_EQ(answers.messages_size(), 2);
  Leave(std::move(client));
}

TEST_F(PeerStreamsTest, AStreamThatTheLoopCannotTakeIsClosed) {
  loop_.Stop();
  grpc::Status status;
  EXPECT_EQ(Open(&status), nullptr);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

}  // namespace
}  // namespace skein::services
