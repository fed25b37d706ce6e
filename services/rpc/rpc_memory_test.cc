// What a server does with more messages than its memory may hold.
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/rpc/rpc.h"

namespace skein::services {
namespace {

constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr size_t kMessages = 32;

// Takes messages as gRPC has them, and keeps each until it is released.
class KeepsMessages final
    : public v1::Orchestrator::WithRawCallbackMethod_Explain<v1::Orchestrator::Service> {
 public:
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                    grpc::ByteBuffer* response) override {
    const grpc::Slice nothing;
    *response = grpc::ByteBuffer(&nothing, 1);  // an empty message; none at all cannot be sent
    auto* reactor = context->DefaultReactor();
    std::lock_guard lock(mutex_);
    if (released_) {
      reactor->Finish(grpc::Status::OK);
      return reactor;
    }
    const auto id = context->client_metadata().find("id");
    kept_[std::stoul(std::string(id->second.data(), id->second.size()))] = reactor;
    return reactor;
  }
  void Release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    for (const auto& [id, reactor] : std::exchange(kept_, {})) reactor->Finish(grpc::Status::OK);
  }
  bool Has(size_t id) {
    std::lock_guard lock(mutex_);
    return kept_.count(id) > 0;
  }

 private:
  std::mutex mutex_;
  std::map<size_t, grpc::ServerUnaryReactor*> kept_;
  bool released_ = false;
};

// A call on a connection of its own.
class Call {
 public:
  Call(int port, size_t id, size_t bytes) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = v1::Orchestrator::NewStub(grpc::CreateCustomChannel(
        "127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(), std::move(own)));
    context_.AddMetadata("id", std::to_string(id));
    request_.mutable_request()->assign(bytes, 'x');
    auto ended = std::make_shared<std::promise<grpc::Status>>();
    end_ = ended->get_future();
    stub_->async()->Explain(&context_, &request_, &response_,
                            [ended](grpc::Status status) { ended->set_value(std::move(status)); });
  }
  bool ended() const { return end_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  grpc::StatusCode End() const { return end_.get().error_code(); }

 private:
  std::unique_ptr<v1::Orchestrator::Stub> stub_;
  grpc::ClientContext context_;
  v1::ExplainRequest request_;
  v1::ExplainResponse response_;
  std::shared_future<grpc::Status> end_;
};

class RpcMemoryTest : public ::testing::Test {
 protected:
  void Serve(size_t memory_bytes) {
    auto served = ServeRpc("127.0.0.1:0", {&service_}, kMessageBytesMax, memory_bytes);
    ASSERT_TRUE(served.ok()) << served.status();
    server_ = *std::move(served);
    for (size_t id = 0; id < kMessages; ++id) {
      calls_.push_back(std::make_unique<Call>(server_.port, id, kMessageBytes));
    }
    for (size_t id = 0; id < kMessages; ++id) {
      while (!service_.Has(id) && !calls_[id]->ended()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }
  // How those ended that were not kept.
  std::vector<grpc::StatusCode> Refused() const {
    std::vector<grpc::StatusCode> refused;
    for (const auto& call : calls_) {
      if (call->ended()) refused.push_back(call->End());
    }
    return refused;
  }
  void TearDown() override {
    service_.Release();
    for (const auto& call : calls_) call->End();
    if (server_.server != nullptr) server_.server->Shutdown();
  }

  KeepsMessages service_;
  RpcServer server_;
  std::vector<std::unique_ptr<Call>> calls_;
};

TEST_F(RpcMemoryTest, MessagesBeyondItAreRefusedAndTheServerGoesOn) {
  constexpr size_t kMemoryBytes = 8 * kMessageBytes;
  Serve(kMemoryBytes);
  // A quarter fits. gRPC may refuse a call only some time after it has taken its message.
  while (Refused().size() < kMessages / 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (const grpc::StatusCode code : Refused()) {
    EXPECT_TRUE(code == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                code == grpc::StatusCode::UNAVAILABLE)
        << code;
  }
  service_.Release();
  // gRPC has the memory again some time after the calls have ended.
  while (Call(server_.port, kMessages, 100).End() != grpc::StatusCode::OK) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_F(RpcMemoryTest, TheUsualMemoryHoldsThemAll) {
  Serve(kServerMemoryBytes);
  EXPECT_TRUE(Refused().empty());
}

}  // namespace
}  // namespace skein::services
