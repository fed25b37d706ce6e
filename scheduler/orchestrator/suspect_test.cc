// OrchestratorCore and requests under which engines failed before the orchestrator knew them.
#include <gtest/gtest.h>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class SuspectTest : public OrchestratorCoreTest {
 protected:
  SuspectTest() {
    for (uint64_t incarnation = 11; incarnation <= 13; ++incarnation) {
      incarnations_[Up(Role::kPrefill, incarnation)] = incarnation;
    }
    Up(Role::kDecode, 21);
  }

  Effects SubmitWith(const FailedEngines& engines) {
    return Do(
        SubmitCalled{.spec = Spec(1), .accepted = !engines.empty(), .failed_engines = engines});
  }
  static EndedRequest UnderFailedEngine(Epoch epoch) {
    return {.id = {7, 1},
            .epoch = epoch,
            .reason = FinishReason::kError,
            .status = absl::UnavailableError("the engine failed: bus error"),
            .engine_failed = true};
  }
  // The engine of a plan's only member fails.
  Effects FailEngine(const CallAssign& assign) {
    Do(AssignReplied{assign.instance, {7, 1}, assign.request.epoch, {}, assign.request.sequence});
    Opened(assign);
    return Report(assign.instance, incarnations_.at(assign.instance), {},
                  {UnderFailedEngine(assign.request.epoch)});
  }
  // A worker whose engine failed under a plan of the orchestrator before connects.
  void ConnectFailed(uint64_t incarnation) {
    RegisterRequest hello;
    hello.identity = {.role = Role::kPrefill,
                      .model = "m",
                      .endpoint = "w:" + std::to_string(incarnation),
                      .incarnation = {incarnation},
                      .shape = kShape,
                      .total_blocks = 10,
                      .max_positions = 0,
                      .details = "",
                      .max_batch_tokens = 8};
    hello.ended = {UnderFailedEngine({FirstNumberOf(kGeneration) - 1})};
    Do(RegisterCalled{Call(), std::move(hello)});
  }
  static absl::Status RefusalOf(const Effects& effects) {
    EXPECT_TRUE(Of<CallAssign>(effects).empty());
    const auto failed = Updates<Failed>(effects);
    EXPECT_EQ(failed.size(), 1u);
    return failed.empty() ? absl::OkStatus() : failed[0].status;
  }

  std::map<InstanceId, uint64_t> incarnations_;
};

TEST_F(SuspectTest, ARequestThatBringsAFailureIsSuspectAndIsNotPlannedAThirdTime) {
  const CallAssign assign = Of<CallAssign>(SubmitWith({{51}})).at(0);
  EXPECT_TRUE(assign.request.suspect) << "it is computed in steps of its own";
  const absl::Status end = RefusalOf(FailEngine(assign));
  EXPECT_EQ(end.code(), absl::StatusCode::kInternal);
  EXPECT_NE(end.message().find("2 engines failed"), std::string::npos) << end;
}

TEST_F(SuspectTest, ARequestThatBringsTwoFailuresIsNotPlanned) {
  EXPECT_EQ(RefusalOf(SubmitWith({{51}, {52}})).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Of<CallAssign>(Do(SubmitCalled{Spec(2)})).size(), 1u) << "another one is";
}

TEST_F(SuspectTest, TheRouterIsToldOfEachFailure) {
  const Effects planned = SubmitWith({});
  EXPECT_TRUE(Updates<Planned>(planned).at(0).failed_engines.empty());
  const CallAssign assign = Of<CallAssign>(planned).at(0);
  const Effects failed = FailEngine(assign);
  ASSERT_FALSE(Updates<Planned>(failed).empty());
  const FailedEngines engines = {{incarnations_.at(assign.instance)}};
  for (const Planned& update : Updates<Planned>(failed)) EXPECT_EQ(update.failed_engines, engines);
  // It may have missed it: it is told again on its next stream.
  RouterHello hello{.identity = {.router = 7, .endpoint = "r:1"}};
  hello.requests = {{.id = {7, 1}, .epoch = assign.request.epoch}};
  const Effects again = Do(RouterConnected{Call(), std::move(hello)});
  EXPECT_EQ(Updates<Planned>(again).at(0).failed_engines, engines);
}

// Workers connect to a new orchestrator before routers submit.
TEST_F(SuspectTest, AFailureThatTheOrchestratorBeforeDidNotHearOfCounts) {
  ConnectFailed(31);
  const CallAssign assign = Of<CallAssign>(SubmitWith({})).at(0);
  EXPECT_TRUE(assign.request.suspect);
  EXPECT_EQ(RefusalOf(FailEngine(assign)).code(), absl::StatusCode::kInternal);
}

// The plan after the first failure was still under way when that orchestrator died.
TEST_F(SuspectTest, AFailureWhileThereWasNoOrchestratorIsAddedToWhatTheRouterWasTold) {
  ConnectFailed(31);
  EXPECT_EQ(RefusalOf(SubmitWith({{51}})).code(), absl::StatusCode::kInternal);
}

// It died before the worker had its answer, so the worker reports it again.
TEST_F(SuspectTest, AFailureThatTheRouterWasToldOfAndTheWorkerReportsAgainCountsOnce) {
  ConnectFailed(31);
  EXPECT_EQ(Of<CallAssign>(SubmitWith({{31}})).size(), 1u);
}

TEST_F(SuspectTest, TwoEnginesThatFailedUnderTheOrchestratorBeforeAreEnough) {
  ConnectFailed(31);
  ConnectFailed(32);
  EXPECT_EQ(RefusalOf(SubmitWith({})).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace skein::scheduler
