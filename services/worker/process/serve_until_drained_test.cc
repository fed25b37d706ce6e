// How ServeUntilDrained ends a process whose engine, or whose calls, never come to an end.
#include <chrono>
#include <csignal>
#include <future>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/orchestrator.grpc.pb.h"
#include "services/base/signals.h"
#include "services/flags/command_line.h"
#include "services/worker/process/worker_common.h"

namespace skein::services {
namespace {

// A service that never answers, with a call under way.
class SilentService final : public v1::Orchestrator::CallbackService {
 public:
  explicit SilentService(WorkerServers* servers) {
    servers->rpc = *ServeRpc("127.0.0.1:0", {this});
    const auto channel = channels_.Get("127.0.0.1:" + std::to_string(servers->rpc.port));
    CallUnary<v1::Orchestrator>(
        "orchestrator", channel, &v1::Orchestrator::StubInterface::async_interface::Drain, &calls_,
        v1::DrainRequest(), 60'000'000, [](const absl::Status&, const v1::DrainResponse&) {});
    called_.get_future().wait();
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    class Silent : public grpc::ServerUnaryReactor {
      void OnDone() override { delete this; }
    };
    called_.set_value();
    return new Silent;
  }

 private:
  std::promise<void> called_;
  Channels channels_;
  CallTracker calls_;
};

class ServeUntilDrainedDeathTest : public ::testing::Test {
 protected:
  ServeUntilDrainedDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(ServeUntilDrainedDeathTest, AFailedEngineEndsTheProcessThoughACallIsNeverAnswered) {
  const auto serve = [] {
    WorkerServers servers;
    SilentService service(&servers);
    WorkerEnd end;
    end.EngineFailed(absl::InternalError("broken"), 5);
    end.Drained();
    (void)ServeUntilDrained(
        {}, &end, [](int64_t) {}, [] {}, &servers);
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(kEngineFailed), "its engine failed");
}

// The step in flight has the time that steps have, no more and no less.
TEST_F(ServeUntilDrainedDeathTest, AStopThatTakesLongerThanAStepMayEndsTheProcess) {
  const auto serve = [] {
    WorkerServers servers;
    servers.rpc = *ServeRpc("127.0.0.1:0", {});
    WorkerOptions options;
    options.step_timeout_s = 0.1;
    WorkerEnd end;
    end.Refused(absl::FailedPreconditionError("so that it stops"));
    std::promise<void> never;
    (void)ServeUntilDrained(
        options, &end, [&end](int64_t) { end.Drained(); },
        [&never] { never.get_future().wait_for(std::chrono::seconds(2)); }, &servers);
  };
  EXPECT_EXIT(serve(), ::testing::ExitedWithCode(kEngineFailed), "a step did not end");
}

class ServeUntilDrainedTest : public ::testing::Test {
 protected:
  ServeUntilDrainedTest() { BlockStopSignals(); }
  void SetUp() override {
    auto admin = AdminServer::Start({}, "127.0.0.1", {.status = [] { return ProcessStatus(); }});
    ASSERT_TRUE(admin.ok()) << admin.status();
    admin_ = *std::move(admin);
    servers_.rpc = *ServeRpc("127.0.0.1:0", {});
    servers_.admin = admin_.get();
  }

  std::unique_ptr<AdminServer> admin_;
  WorkerServers servers_;
  WorkerEnd end_;
};

TEST_F(ServeUntilDrainedTest, ARefusedWorkerSaysWhy) {
  end_.Refused(absl::FailedPreconditionError("another shape"));
  const absl::Status status = ServeUntilDrained(
      {}, &end_, [this](int64_t) { end_.Drained(); }, [] {}, &servers_);
  EXPECT_EQ(status, absl::AbortedError("the orchestrator refuses this worker: another shape"));
}

TEST_F(ServeUntilDrainedTest, AWorkerThatIsStoppedEndsAsOneWhateverComesThen) {
  raise(SIGTERM);
  const absl::Status status = ServeUntilDrained(
      {}, &end_,
      [this](int64_t) {
        end_.Refused(absl::FailedPreconditionError("another shape"));
        end_.Drained();
      },
      [] {}, &servers_);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace skein::services
