#include "services/rpc/bidi_stream.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/decode_worker.grpc.pb.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/rpc.h"
#include "services/rpc/testing/wire_that_falls_silent.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

v1::WorkerMessage Numbered(uint64_t sequence) {
  v1::WorkerMessage message;
  message.set_sequence(sequence);
  return message;
}

v1::WorkerMessages Batch(uint64_t first, uint64_t last) {
  v1::WorkerMessages batch;
  for (uint64_t i = first; i <= last; ++i) *batch.add_messages() = Numbered(i);
  return batch;
}

TEST(WriteQueueTest, ABatchTakesAllThatWaitsUpToItsLimit) {
  WriteQueue<v1::WorkerMessages> queue;
  for (uint64_t i = 1; i <= 3; ++i) queue.Add(Numbered(i));
  EXPECT_EQ(queue.Next()->messages_size(), 3);
  EXPECT_TRUE(queue.empty());
  v1::WorkerMessage large = Numbered(4);
  large.mutable_hello()->set_model(std::string(WriteQueue<v1::WorkerMessages>::kBatchBytes, 'x'));
  queue.Add(large);
  queue.Add(Numbered(5));
  EXPECT_EQ(queue.Next()->messages_size(), 1);
  const v1::WorkerMessages* const last = queue.Next();
  ASSERT_EQ(last->messages_size(), 1);
  EXPECT_EQ(last->messages(0).sequence(), 5u);
}

TEST(ReadAheadTest, IsBoundedAndTellsOnceThatSomethingWaits) {
  ReadAhead<v1::WorkerMessages> arrived;
  EXPECT_TRUE(arrived.Add(Batch(1, 2)));
  size_t waiting = 1;
  for (; arrived.HasRoom(); ++waiting) EXPECT_FALSE(arrived.Add(Batch(waiting + 2, waiting + 2)));
  EXPECT_EQ(waiting, ReadAhead<v1::WorkerMessages>::kBatchesMax);
  const auto batches = arrived.TakeAll();
  EXPECT_TRUE(arrived.HasRoom());
  EXPECT_TRUE(arrived.Add(Batch(1, 1)));
  uint64_t handled = 0;
  HandleBatches(
      batches, [&](const v1::WorkerMessage& message) { EXPECT_EQ(message.sequence(), ++handled); },
      [&] { return handled == 10; });
  EXPECT_EQ(handled, 10u);
}

v1::TokenBatch Tokens(uint64_t epoch) {
  v1::TokenBatch batch;
  batch.add_sequences()->set_epoch(epoch);
  return batch;
}

TEST(WriteQueueTest, AMessageWithoutMessagesIsABatchOfItsOwn) {
  static_assert(std::is_same_v<MessageOf<v1::TokenBatch>, v1::TokenBatch>);
  WriteQueue<v1::TokenBatch> queue;
  for (uint64_t i = 1; i <= 2; ++i) queue.Add(Tokens(i));
  std::vector<v1::TokenBatch> sent;
  while (!queue.empty()) sent.push_back(*queue.Next());
  ASSERT_EQ(sent.size(), 2u);
  uint64_t handled = 0;
  HandleBatches(
      sent, [&](const v1::TokenBatch& batch) { EXPECT_EQ(batch.sequences(0).epoch(), ++handled); },
      [] { return false; });
  EXPECT_EQ(handled, 2u);
}

class Peer : public v1::Orchestrator::CallbackService {
 public:
  using Stream = ServerStream<v1::WorkerMessages, v1::OrchestratorMessages>;

  explicit Peer(std::chrono::milliseconds first_message_max = Stream::kFirstMessageMax)
      : first_message_max_(first_message_max) {}

  // Answers each message with three of the same number.
  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = Stream::Make(
        context, [this](std::function<void()> hook) { loop.PostFirst(std::move(hook)); },
        grpc::Status::CANCELLED, first_message_max_);
    stream->Open({.message =
                      [s = stream.get()](const v1::WorkerMessage& message) {
                        v1::OrchestratorMessage answer;
                        answer.set_sequence(message.sequence());
                        for (int i = 0; i < 3; ++i) s->Write(answer);
                      },
                  .ended = [this] { ended.set_value(); }});
    return stream.get();
  }

  Loop loop{16};
  std::promise<void> ended;

 private:
  const std::chrono::milliseconds first_message_max_;
};

TEST(BidiStreamTest, KeepsTheOrderUnderABacklogOfBothSides) {
  constexpr uint64_t kMessages = 5000;
  Peer peer;
  Loop loop(16);
  for (Loop* one : {&peer.loop, &loop}) {
    one->Start(
        "test", [] { return INT64_MAX; }, [] {});
  }
  auto server = ServeRpc("127.0.0.1:0", {&peer});
  ASSERT_TRUE(server.ok()) << server.status();
  Channels channels;
  CallTracker calls;
  const auto stub =
      v1::Orchestrator::NewStub(channels.Get("127.0.0.1:" + std::to_string(server->port)));
  uint64_t received = 0;
  std::promise<void> all;
  const auto stream = ClientStream<v1::WorkerMessages, v1::OrchestratorMessages>::Open(
      "orchestrator", &calls, [&](std::function<void()> hook) { loop.PostFirst(std::move(hook)); },
      {.message =
           [&](const v1::OrchestratorMessage& message) {
             EXPECT_EQ(message.sequence(), received / 3 + 1);
             if (++received == 3 * kMessages) all.set_value();
           },
       .ended = [](const absl::Status& status) { ADD_FAILURE() << status; }},
      [&](auto* context, auto* reactor) { stub->async()->ConnectWorker(context, reactor); });
  // More than may wait: the reader stops reading meanwhile, and goes on.
  std::promise<void> go;
  loop.PostFirst([blocked = go.get_future().share()] { blocked.wait(); });
  for (uint64_t i = 1; i <= kMessages; ++i) stream->Write(Numbered(i));
  go.set_value();
  all.get_future().wait();
  stream->Close();
  peer.ended.get_future().wait();
  calls.CancelAndWait();
  loop.Stop();
  peer.loop.Stop();
  server->server->Shutdown();
}

// Answers a message with three that it queues.
class Queuer : public v1::Orchestrator::CallbackService {
 public:
  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = Peer::Stream::Make(context, [](const std::function<void()>& hook) { hook(); });
    stream->Open({.message =
                      [s = stream.get()](const v1::WorkerMessage&) {
                        int asked = 0;  // to flush
                        for (int i = 0; i < 3; ++i) asked += s->Queue({}) ? 1 : 0;
                        EXPECT_EQ(asked, 1);
                        s->Flush();
                      },
                  .ended = [] {}});
    return stream.get();
  }
};

TEST(BidiStreamTest, QueuedMessagesLeaveInOneBatch) {
  Queuer queuer;
  auto server = ServeRpc("127.0.0.1:0", {&queuer});
  ASSERT_TRUE(server.ok()) << server.status();
  Channels channels;
  const auto stub =
      v1::Orchestrator::NewStub(channels.Get("127.0.0.1:" + std::to_string(server->port)));
  grpc::ClientContext context;
  const auto stream = stub->ConnectWorker(&context);
  ASSERT_TRUE(stream->Write(Batch(1, 1)));
  v1::OrchestratorMessages answers;
  ASSERT_TRUE(stream->Read(&answers));
  EXPECT_EQ(answers.messages_size(), 3);
  context.TryCancel();
  stream->Finish();
}

// Writes a message and closes at once, with a reason. Holds no stream.
class Refuser : public v1::Orchestrator::CallbackService {
 public:
  // `last` bytes go with the message.
  explicit Refuser(size_t last) : last_(last) {}

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = Peer::Stream::Make(context, [](const std::function<void()>& hook) { hook(); });
    {
      std::lock_guard lock(mu_);
      streams_.push_back(stream);
    }
    stream->Open({.message =
                      [this, s = stream.get()](const v1::WorkerMessage&) {
                        v1::OrchestratorMessage answer;
                        answer.mutable_assign()->set_spec(std::string(last_, 'x'));
                        s->Write(answer);
                        s->Close({grpc::StatusCode::INVALID_ARGUMENT, "the reason"});
                      },
                  .ended = [] {}});
    return stream.get();
  }
  // gRPC's threads may hold a stream for a moment after its end. False: one lives for a minute.
  bool AwaitNoStream() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    std::lock_guard lock(mu_);
    return std::all_of(streams_.begin(), streams_.end(), [end](const auto& stream) {
      while (!stream.expired() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return stream.expired();
    });
  }

 private:
  const size_t last_;
  std::mutex mu_;
  std::vector<std::weak_ptr<Peer::Stream>> streams_;  // by mu_; all that were opened
};

TEST(BidiStreamTest, AClientThatReadsLearnsWhyItWasClosed) {
  Refuser refuser(10);
  auto server = ServeRpc("127.0.0.1:0", {&refuser});
  ASSERT_TRUE(server.ok()) << server.status();
  Channels channels;
  const auto stub =
      v1::Orchestrator::NewStub(channels.Get("127.0.0.1:" + std::to_string(server->port)));
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    const auto stream = stub->ConnectWorker(&context);
    ASSERT_TRUE(stream->Write(Batch(1, 1)));
    v1::OrchestratorMessages answer;
    EXPECT_TRUE(stream->Read(&answer));
    EXPECT_FALSE(stream->Read(&answer));
    EXPECT_EQ(stream->Finish().error_message(), "the reason");
  }
  EXPECT_TRUE(refuser.AwaitNoStream()) << "a closed stream is not freed";
}

TEST(BidiStreamTest, AStreamOnWhichNothingComesIsEnded) {
  Peer peer(std::chrono::milliseconds(50));
  peer.loop.Start(
      "test", [] { return INT64_MAX; }, [] {});
  auto server = ServeRpc("127.0.0.1:0", {&peer});
  ASSERT_TRUE(server.ok()) << server.status();
  Channels channels;
  const auto stub =
      v1::Orchestrator::NewStub(channels.Get("127.0.0.1:" + std::to_string(server->port)));
  grpc::ClientContext context;
  const auto silent = stub->ConnectWorker(&context);
  v1::OrchestratorMessages answer;
  EXPECT_FALSE(silent->Read(&answer));
  const grpc::Status end = silent->Finish();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(end.error_message(), "the stream's first message did not come within 50 ms");
  peer.ended.get_future().wait();
  server->server->Shutdown();
  peer.loop.Stop();
}

// A router's host vanishes without a word: its orchestrator and its decode-workers notice, and so
// does it when theirs vanish. Keepalives of 5 s and 5 s more end the test, no deadline does.
TEST(BidiStreamTest, WhenThePathFallsSilentBothSidesEndTheStream) {
  Peer peer;
  peer.loop.Start(
      "test", [] { return INT64_MAX; }, [] {});
  auto server = ServeRpc("127.0.0.1:0", {&peer});
  ASSERT_TRUE(server.ok()) << server.status();
  WireThatFallsSilent wire(server->port);
  Channels channels;
  const auto stub = v1::Orchestrator::NewStub(channels.Get(wire.endpoint()));
  grpc::ClientContext context;
  const auto stream = stub->ConnectWorker(&context);
  ASSERT_TRUE(stream->Write(Batch(1, 1)));
  v1::OrchestratorMessages answer;
  for (int received = 0; received < 3; received += answer.messages_size()) {
    ASSERT_TRUE(stream->Read(&answer));
  }
  wire.FallSilent();
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  peer.ended.get_future().wait();
  server->server->Shutdown();
  peer.loop.Stop();
}

TEST(BidiStreamTest, AClientThatDoesNotReadHoldsNoStreamOpen) {
  Refuser refuser(size_t{8} << 20);  // more than flow control lets through unread
  auto server = ServeRpc("127.0.0.1:0", {&refuser});
  ASSERT_TRUE(server.ok()) << server.status();
  Channels channels;
  const auto stub =
      v1::Orchestrator::NewStub(channels.Get("127.0.0.1:" + std::to_string(server->port)));
  grpc::ClientContext context;
  const auto stream = stub->ConnectWorker(&context);
  ASSERT_TRUE(stream->Write(Batch(1, 1)));
  server->server->Shutdown();  // waits for the stream's end
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(refuser.AwaitNoStream()) << "a cancelled stream is not freed";
}

// Answers a request with `tokens` batches, each when the one before has gone, and the end.
class TokenPeer : public v1::DecodeWorker::CallbackService {
 public:
  using Stream = ServerStream<v1::TokenStreamRequest, v1::TokenBatch>;

  grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch>* StreamTokens(
      grpc::CallbackServerContext* context) override {
    auto stream =
        Stream::Make(context, [this](std::function<void()> hook) { loop.Post(std::move(hook)); },
                     {grpc::StatusCode::INVALID_ARGUMENT, "half-closed"});
    stream->Open({.message = [this, s = stream.get()](const auto&) { Send(s); },
                  .ended = [this] { ended.set_value(); },
                  .writable = [this, s = stream.get()] { Send(s); }});
    return stream.get();
  }
  void Send(Stream* stream) {
    while (sent < tokens && stream->Writable()) stream->Write(Tokens(++sent));
    if (sent == tokens) stream->Close({grpc::StatusCode::UNAVAILABLE, "stopping"});
  }

  static constexpr uint64_t tokens = 500;
  uint64_t sent = 0;
  Loop loop{16};
  std::promise<void> ended;
};

class TokenStreamTest : public ::testing::Test {
 protected:
  using Stream = ClientStream<v1::TokenStreamRequest, v1::TokenBatch>;

  TokenStreamTest() {
    for (Loop* one : {&peer_.loop, &loop_}) {
      one->Start(
          "test", [] { return INT64_MAX; }, [] {});
    }
    server_ = ServeRpc("127.0.0.1:0", {&peer_});
    EXPECT_TRUE(server_.ok()) << server_.status();
    stub_ = v1::DecodeWorker::NewStub(channels_.Get("127.0.0.1:" + std::to_string(server_->port)));
  }
  ~TokenStreamTest() override {
    calls_.CancelAndWait();
    loop_.Stop();
    peer_.loop.Stop();
    server_->server->Shutdown();
  }

  std::shared_ptr<Stream> Open(Stream::Hooks hooks) {
    return Stream::Open(
        "decode-worker", &calls_,
        [this](std::function<void()> hook) { loop_.Post(std::move(hook)); }, std::move(hooks),
        [this](auto* context, auto* reactor) { stub_->async()->StreamTokens(context, reactor); });
  }

  TokenPeer peer_;
  Loop loop_{16};
  absl::StatusOr<RpcServer> server_ = RpcServer();
  Channels channels_;
  std::unique_ptr<v1::DecodeWorker::Stub> stub_;
  CallTracker calls_;
};

TEST_F(TokenStreamTest, WhatWasWrittenWhenWritableArrivesBeforeTheEnd) {
  uint64_t received = 0;
  std::promise<absl::Status> ended;
  const auto stream = Open(
      {.message =
           [&](const v1::TokenBatch& batch) { EXPECT_EQ(batch.sequences(0).epoch(), ++received); },
       .ended = [&](const absl::Status& end) { ended.set_value(end); }});
  stream->Write({});
  EXPECT_TRUE(absl::IsUnavailable(ended.get_future().get()));
  EXPECT_EQ(received, TokenPeer::tokens);
  EXPECT_FALSE(stream->Writable()) << "it has ended";
}

TEST_F(TokenStreamTest, AClientIsToldWhenItMayWriteAgain) {
  std::promise<void> enough;
  int written = 0;
  std::shared_ptr<Stream> stream;
  const auto write = [&] {
    while (written < 500 && stream->Writable()) {
      stream->Write({});
      if (++written == 500) enough.set_value();
    }
  };
  peer_.sent = TokenPeer::tokens + 1;  // no answer
  stream = Open({.message = [](const auto&) {}, .ended = [](const auto&) {}, .writable = write});
  loop_.Post(write);
  enough.get_future().wait();
  stream->Close();
  peer_.ended.get_future().wait();
}

}  // namespace
}  // namespace skein::services
