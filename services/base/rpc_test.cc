#include "services/base/rpc.h"

#include <atomic>
#include <future>

#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/credentials.h"

namespace skein::services {
namespace {

// Answers Status at once, holds ListModels until it is released.
class Fake final : public v1::Orchestrator::CallbackService {
 public:
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const v1::StatusRequest*,
                                   v1::StatusResponse* response) override {
    response->set_epoch(7);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse*) override {
    held = context->DefaultReactor();
    arrived = true;
    arrived.notify_all();
    return held;
  }
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest*,
                                    v1::ExplainResponse*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(absl::UnavailableError("no room")));
    return reactor;
  }
  grpc::ServerUnaryReactor* held = nullptr;
  std::atomic<bool> arrived{false};
};

class RpcTest : public ::testing::Test {
 protected:
  RpcTest() {
    auto served = ServeRpc("127.0.0.1:0", {&fake_});
    EXPECT_TRUE(served.ok()) << served.status();
    server_ = *std::move(served);
    channel_ = channels_.Get("127.0.0.1:" + std::to_string(server_.port));
    stub_ = v1::Orchestrator::NewStub(channel_);
  }

  // The first message that a method answers to raw bytes.
  std::string Ask(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, method, &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(bytes);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    queue.Next(&tag, &ok);
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    queue.Next(&tag, &ok);
    grpc::Slice whole;
    EXPECT_TRUE(ok && response.DumpToSingleSlice(&whole).ok()) << method;
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    return {reinterpret_cast<const char*>(whole.begin()), whole.size()};
  }

  Fake fake_;
  RpcServer server_;
  Channels channels_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<v1::Orchestrator::Stub> stub_;
};

TEST_F(RpcTest, EveryServerHasHealthAndReflection) {
  EXPECT_EQ(Ask("/grpc.health.v1.Health/Check", ""), "\x08\x01");  // status: SERVING
  const std::string services = Ask("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                   "\x3a\x01*");  // list_services
  EXPECT_NE(services.find("skein.v1.Orchestrator"), std::string::npos);
}

TEST_F(RpcTest, AUnaryCallAnswersOnce) {
  CallTracker calls;
  std::atomic<uint64_t> epoch{0};
  CallUnary<v1::StatusResponse>(
      "orchestrator", &calls, v1::StatusRequest(), 20'000'000,
      [this](auto* c, auto* q, auto* r, auto f) { stub_->async()->Status(c, q, r, std::move(f)); },
      [&epoch](absl::Status status, const v1::StatusResponse& response) {
        EXPECT_TRUE(status.ok()) << status;
        epoch = response.epoch();
        epoch.notify_all();
      });
  epoch.wait(0);
  EXPECT_EQ(epoch, 7u);
}

TEST_F(RpcTest, NoCallbackOutlivesItsTracker) {
  absl::Status ended;
  {
    CallTracker calls;
    CallUnary<v1::ListModelsResponse>(
        "orchestrator", &calls, v1::ListModelsRequest(), 60'000'000,
        [this](auto* c, auto* q, auto* r, auto f) {
          stub_->async()->ListModels(c, q, r, std::move(f));
        },
        [&ended](absl::Status status, const v1::ListModelsResponse&) { ended = status; });
    fake_.arrived.wait(false);
    calls.CancelAndWait();
    EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled);
  }
  fake_.held->Finish(grpc::Status::OK);
}

// How a call of Explain ends: Fake refuses it.
absl::Status Ended(v1::Orchestrator::Stub* stub) {
  CallTracker calls;
  std::promise<absl::Status> ended;
  CallUnary<v1::ExplainResponse>(
      "orchestrator", &calls, v1::ExplainRequest(), 20'000'000,
      [stub](auto* c, auto* q, auto* r, auto f) { stub->async()->Explain(c, q, r, std::move(f)); },
      [&ended](absl::Status status, const v1::ExplainResponse&) { ended.set_value(status); });
  return ended.get_future().get();
}

TEST_F(RpcTest, APeersOwnWordArrivesAsItIs) {
  EXPECT_EQ(Ended(stub_.get()), absl::UnavailableError("no room"));
}

TEST_F(RpcTest, APeerThatCannotBeReachedIsNamedWithoutItsAddress) {
  const auto stub = v1::Orchestrator::NewStub(channels_.Get("127.0.0.1:1"));
  EXPECT_EQ(Ended(stub.get()), absl::UnavailableError("the orchestrator cannot be reached"));
}

TEST_F(RpcTest, AnAddressThatIsTakenIsNamed) {
  const std::string address = "127.0.0.1:" + std::to_string(server_.port);
  const auto second = ServeRpc(address, {&fake_});
  ASSERT_FALSE(second.ok());
  EXPECT_NE(std::string(second.status().message()).find(address), std::string::npos);
}

}  // namespace
}  // namespace skein::services
