// When a worker takes a refused registration for final.
#include "services/worker/worker_link.h"

#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "scheduler/base/peer_build.h"
#include "services/rpc/bidi_stream.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"
#include "services/rpc/status_map.h"
#include "services/shell/loop.h"

namespace skein::services {
namespace {

constexpr int64_t kHourUs = int64_t{3600} * 1'000'000;

// Answers registrations as it was told last.
class FakeOrchestrator final : public v1::Orchestrator::CallbackService {
 public:
  explicit FakeOrchestrator(int64_t instance_lease_us) : instance_lease_us_(instance_lease_us) {
    rpc_ = *ServeRpc("127.0.0.1:0", {this});
  }

  Channels* Pool() { return &channels_; }
  std::string Address() const { return "127.0.0.1:" + std::to_string(rpc_.port); }
  void Answer(grpc::StatusCode code) { code_.store(code); }
  // Before the first hello.
  void StandBy(const std::string& leader) { stands_by_ = ToGrpc(StandbyError(leader)); }
  int CountHellos() const { return hellos_.load(); }
  void OrderDrainAfterWelcome() { orders_.store(true); }
  // It speaks this revision of the protocol only.
  void SpeakOnly(uint32_t revision) { revision_.store(revision); }
  int list_models_calls() const { return list_models_calls_.load(); }

  grpc::ServerBidiReactor<v1::WorkerMessages, v1::OrchestratorMessages>* ConnectWorker(
      grpc::CallbackServerContext* context) override {
    auto stream = Stream::Make(context, [](const std::function<void()>& hook) { hook(); });
    {
      std::lock_guard lock(mutex_);
      streams_.push_back(stream);
    }
    stream->Open({.message = [this, s = stream.get()](const auto& message) { Take(s, message); },
                  .ended = [] {}});
    return stream.get();
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
  using Stream = ServerStream<v1::WorkerMessages, v1::OrchestratorMessages>;

  void Take(Stream* stream, const v1::WorkerMessage& message) {
    if (!message.has_hello()) return;
    hellos_.fetch_add(1);
    if (!stands_by_.ok()) return stream->Close(stands_by_);
    const grpc::StatusCode code = code_.load();
    if (code != grpc::StatusCode::OK) return stream->Close(grpc::Status(code, "no"));
    MessageCounters counters(scheduler::FirstNumberOf(1));
    EXPECT_TRUE(counters.Take(message, 0).ok());
    v1::OrchestratorMessage welcome;
    welcome.mutable_welcome()->set_instance(1);
    welcome.mutable_welcome()->set_lease_us(kHourUs);
    welcome.mutable_welcome()->mutable_generation()->set_number(1);
    welcome.mutable_welcome()->mutable_generation()->set_orchestrator(1);
    welcome.mutable_welcome()->set_version("9.0.0");
    welcome.mutable_welcome()->mutable_protocol()->set_oldest(revision_.load());
    welcome.mutable_welcome()->mutable_protocol()->set_newest(revision_.load());
    counters.Stamp(&welcome, 0);
    stream->Write(std::move(welcome));
    if (!orders_.load()) return;
    v1::OrchestratorMessage order;
    order.mutable_drain_order()->set_drain(true);
    counters.Stamp(&order, 0);
    stream->Write(std::move(order));
  }

  const int64_t instance_lease_us_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::atomic<grpc::StatusCode> code_{grpc::StatusCode::OK};
  grpc::Status stands_by_;
  std::atomic<int> hellos_{0};
  std::atomic<int> list_models_calls_{0};
  std::atomic<bool> orders_{false};
  std::atomic<uint32_t> revision_{0};
  Channels channels_;
  RpcServer rpc_;
};

class RefusalTest : public ::testing::Test {
 protected:
  void Connect(int64_t instance_lease_us) {
    orchestrator_ = std::make_unique<FakeOrchestrator>(instance_lease_us);
    link_ = std::make_unique<WorkerLink>(&calls_, &loop_, orchestrator_->Pool(),
                                         orchestrator_->Address());
    link_->Start({.registered =
                      [this](const auto& event) {
                        registered_ = event.reply.status;
                        answered_();
                      },
                  .reported = [](const auto&) {},
                  .unregistered = [](const auto&) {},
                  .disconnected = [this](const auto&) { answered_(); },
                  .cancelled = [](const auto&) {},
                  .ordered = [this](const auto& order) { ordered_.set_value(order.drain); },
                  .peer = [](const std::string&) {},
                  .other = [](const auto&) { return absl::OkStatus(); }});
    loop_.Start(
        "test", [] { return std::numeric_limits<int64_t>::max(); }, [] {});
    link_->OnRefused([this](const absl::Status& why) {
      EXPECT_TRUE(absl::IsFailedPrecondition(why)) << why;
      refused_.fetch_add(1);
    });
  }
  void TearDown() override {
    loop_.RunAndWait([this] { link_->Close(); });
    loop_.Stop();
    calls_.CancelAndWait();
  }

  // Registers and waits for the answer, which comes later than at the time of the call.
  void RegisterAnswered(grpc::StatusCode code) {
    orchestrator_->Answer(code);
    std::promise<void> done;
    const int64_t now_us = MonotonicUs();
    loop_.RunAndWait([&] {
      answered_ = [&done] { done.set_value(); };
      link_->Open({}, {});
    });
    done.get_future().wait();
    loop_.RunAndWait([this] { answered_ = [] {}; });
    while (MonotonicUs() == now_us) std::this_thread::yield();
  }
  void AwaitListModels(int calls) {
    while (orchestrator_->list_models_calls() < calls) std::this_thread::yield();
  }

  CallTracker calls_;
  Loop loop_{64};
  std::unique_ptr<FakeOrchestrator> orchestrator_, leader_;
  std::function<void()> answered_ = [] {};  // on the loop
  std::unique_ptr<WorkerLink> link_;
  std::atomic<int> refused_{0};
  absl::Status registered_;     // the latest answer; on the loop
  std::promise<bool> ordered_;  // on the loop
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

TEST_F(RefusalTest, AnOrchestratorOfAnotherProtocolIsRefusedByTheWorker) {
  Connect(1);
  orchestrator_->SpeakOnly(scheduler::kProtocol.newest);
  RegisterAnswered(grpc::StatusCode::OK);
  EXPECT_TRUE(registered_.ok()) << registered_;
  orchestrator_->SpeakOnly(1000);
  RegisterAnswered(grpc::StatusCode::OK);
  EXPECT_TRUE(absl::IsFailedPrecondition(registered_)) << registered_;
  EXPECT_NE(registered_.message().find("the orchestrator (9.0.0) 1000 to 1000"),
            absl::string_view::npos)
      << registered_;
  while (refused_.load() == 0) RegisterAnswered(grpc::StatusCode::OK);
}

TEST_F(RefusalTest, AnOrderToDrainIsAMessageOfItsOwn) {
  Connect(kHourUs);
  orchestrator_->OrderDrainAfterWelcome();
  RegisterAnswered(grpc::StatusCode::OK);
  EXPECT_TRUE(ordered_.get_future().get());
}

TEST_F(RefusalTest, TheLeaderThatAStandbyNamesIsAskedInTheSameAttempt) {
  leader_ = std::make_unique<FakeOrchestrator>(kHourUs);
  Connect(kHourUs);
  orchestrator_->StandBy(leader_->Address());
  RegisterAnswered(grpc::StatusCode::OK);
  EXPECT_EQ(orchestrator_->CountHellos(), 1);
  EXPECT_EQ(leader_->CountHellos(), 1);
  RegisterAnswered(grpc::StatusCode::OK);
  EXPECT_EQ(orchestrator_->CountHellos(), 1) << "the leader is remembered";
  EXPECT_EQ(leader_->CountHellos(), 2);
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
