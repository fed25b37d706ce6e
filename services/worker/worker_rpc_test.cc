// When a worker takes a refused registration for final.
#include "services/worker/worker_rpc.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/loop.h"
#include "services/base/rpc.h"

namespace skein::services {
namespace {

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;

// Answers registrations as it was told last.
class FakeOrchestrator final : public v1::Orchestrator::CallbackService {
 public:
  explicit FakeOrchestrator(int64_t instance_lease_us) : instance_lease_us_(instance_lease_us) {
    rpc_ = *ServeRpc("127.0.0.1:0", {this});
  }

  std::shared_ptr<grpc::Channel> Channel() {
    return channels_.Get("127.0.0.1:" + std::to_string(rpc_.port));
  }
  void Answer(grpc::StatusCode code) { code_.store(code); }
  int list_models_calls() const { return list_models_calls_.load(); }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest*,
                                     v1::RegisterResponse* response) override {
    response->set_instance(1);
    response->set_lease_us(kHourUs);
    auto* reactor = context->DefaultReactor();
    const grpc::StatusCode code = code_.load();
    reactor->Finish(code == grpc::StatusCode::OK ? grpc::Status::OK : grpc::Status(code, "no"));
    return reactor;
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    list_models_calls_.fetch_add(1);
    response->set_instance_lease_us(static_cast<uint64_t>(instance_lease_us_));
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const int64_t instance_lease_us_;
  std::atomic<grpc::StatusCode> code_{grpc::StatusCode::OK};
  std::atomic<int> list_models_calls_{0};
  Channels channels_;
  RpcServer rpc_;
};

class RefusalTest : public ::testing::Test {
 protected:
  void Connect(int64_t instance_lease_us) {
    orchestrator_ = std::make_unique<FakeOrchestrator>(instance_lease_us);
    membership_ = std::make_unique<MembershipCalls>(&calls_, orchestrator_->Channel());
    membership_->OnRefused([this](const absl::Status& why) {
      EXPECT_TRUE(absl::IsFailedPrecondition(why)) << why;
      refused_.fetch_add(1);
    });
  }
  void TearDown() override { calls_.CancelAndWait(); }

  // Registers and waits for the answer, which comes later than at the time of the call.
  void RegisterAnswered(grpc::StatusCode code) {
    orchestrator_->Answer(code);
    std::promise<void> done;
    const int64_t now_us = MonotonicUs();
    membership_->Register({{}, 20'000'000},
                          [&done](const scheduler::RegisterReplied&) { done.set_value(); });
    done.get_future().wait();
    while (MonotonicUs() == now_us) std::this_thread::yield();
  }
  void AwaitListModels(int calls) {
    while (orchestrator_->list_models_calls() < calls) std::this_thread::yield();
  }

  CallTracker calls_;
  std::unique_ptr<FakeOrchestrator> orchestrator_;
  std::unique_ptr<MembershipCalls> membership_;
  std::atomic<int> refused_{0};
};

// They may be refused because of instances that are dead, and whose leases have not ended.
TEST_F(RefusalTest, RefusalsWithinALeaseAreNotFinal) {
  Connect(kHourUs);
  for (int i = 0; i < 5; ++i) RegisterAnswered(grpc::StatusCode::FAILED_PRECONDITION);
  AwaitListModels(4);
  EXPECT_EQ(refused_.load(), 0);
}

TEST_F(RefusalTest, RefusalsForLongerThanTwoLeasesAreFinal) {
  Connect(1);
  RegisterAnswered(grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused_.load(), 0) << "the first one says nothing yet";
  while (refused_.load() == 0) RegisterAnswered(grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(RefusalTest, AnyOtherAnswerBeginsAnew) {
  Connect(1);
  for (const auto other : {grpc::StatusCode::OK, grpc::StatusCode::UNAVAILABLE}) {
    RegisterAnswered(grpc::StatusCode::FAILED_PRECONDITION);
    RegisterAnswered(other);
  }
  RegisterAnswered(grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(orchestrator_->list_models_calls(), 0) << "no refusal came after another one";
}

}  // namespace
}  // namespace skein::services
