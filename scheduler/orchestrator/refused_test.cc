// OrchestratorCore and workers whose stream broke: their addresses are dialled, and one that
// refuses is evidence that its process has ended.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class RefusedTest : public OrchestratorCoreTest {
 protected:
  RefusedTest() {
    for (uint64_t process = 1; process <= 4; ++process) Come(process);
    RouterConnects(7);
  }
  InstanceId Come(uint64_t process) {
    const InstanceId id = Join(process <= 2 ? Role::kPrefill : Role::kDecode, process).instance;
    streams_[id] = {calls_};
    processes_[id] = {process};
    Report(id, process);
    Do(WorkerDialled{id, {process}, /*accepted=*/true});
    return id;
  }
  static WorkerIdentity Identity(uint64_t process) {
    return {.role = Role::kPrefill,
            .model = "m",
            .endpoint = "w:" + std::to_string(process),
            .incarnation = {process},
            .shape = kShape,
            .total_blocks = 10,
            .max_positions = 0,
            .details = "",
            .max_batch_tokens = 8};
  }
  Effects Break(InstanceId id) { return Do(WorkerDisconnected{streams_.at(id)}); }
  Effects Refuse(InstanceId id) { return Do(WorkerDialled{id, processes_.at(id)}); }
  Effects RouterHears(InstanceId id, bool hears) {
    RouterLoad load;
    (hears ? load.heard : load.not_heard).push_back(processes_.at(id));
    return Do(RouterReported{router_stream_, load});
  }
  // A request whose answer streams; the decode instance.
  InstanceId Stream(uint64_t serial) {
    const CallAssign assign = Place(serial);
    Report(assign.instance, processes_.at(assign.instance).value, {},
           {{.id = {7, serial}, .epoch = assign.request.epoch, .status = {}}});
    return assign.request.placed->decode;
  }
  uint64_t Lost() { return core_->Totals().instances_lost; }

  std::map<InstanceId, CallId> streams_;
  std::map<InstanceId, Incarnation> processes_;
};

TEST_F(RefusedTest, AWorkerWhoseStreamBreaksIsDialled) {
  const InstanceId prefill = Submit(1).instance;
  const auto dials = Of<DialWorker>(Break(prefill));
  ASSERT_EQ(dials.size(), 1u);
  EXPECT_TRUE(dials[0].broke);
  EXPECT_EQ(dials[0].instance, prefill);
  EXPECT_EQ(dials[0].incarnation, processes_.at(prefill));
  EXPECT_EQ(dials[0].endpoint, "w:" + std::to_string(processes_.at(prefill).value));
  EXPECT_TRUE(Of<DialWorker>(Break(prefill)).empty()) << "its stream is over already";
  EXPECT_EQ(Lost(), 0u) << "a broken stream alone says nothing";
}

TEST_F(RefusedTest, ARefusedPrefillInstanceIsLostAtOnceAndItsPromptGoesOnElsewhere) {
  const CallAssign assign = Submit(1);
  Break(assign.instance);
  const auto again = Of<CallAssign>(Refuse(assign.instance));
  EXPECT_EQ(Lost(), 1u);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].instance, assign.instance);
  EXPECT_GT(again[0].request.epoch, assign.request.epoch);
  const std::vector<Gone> gone = core_->Snapshot(now_).gone;
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_NE(gone[0].why.find("refuses connections"), std::string::npos) << gone[0].why;
  EXPECT_TRUE(Refuse(assign.instance).empty()) << "of an instance that is known no more: fine";
  EXPECT_EQ(Lost(), 1u);
}

// The router sees the loss itself, and tries its requests again: what it is told here is no news.
TEST_F(RefusedTest, ARefusedDecodeInstanceIsLostWhenNoRouterHearsIt) {
  const InstanceId decode = Stream(1);
  RouterHears(decode, true);
  Break(decode);
  EXPECT_TRUE(Refuse(decode).empty()) << "only this process does not reach it";
  EXPECT_EQ(Lost(), 0u);
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  RouterHears(decode, false);
  const auto failed = Updates<Failed>(Refuse(decode));
  EXPECT_EQ(Lost(), 1u);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(failed[0].status)) << failed[0].status;
}

// A firewall may refuse in the name of all.
TEST_F(RefusedTest, ARefusalSaysNothingOfAnAddressThatNeverAccepted) {
  const Effects came = Do(RegisterCalled{Call(), {Identity(9)}});
  const InstanceId instance = Of<AnswerRegister>(came).at(0).reply.instance;
  const CallId stream{calls_};
  const auto dials = Of<DialWorker>(came);
  ASSERT_EQ(dials.size(), 1u) << "to see whether it can be reached at all";
  EXPECT_FALSE(dials[0].broke);
  EXPECT_TRUE(Do(WorkerDialled{instance, {9}}).empty());
  Do(WorkerDisconnected{stream});
  EXPECT_TRUE(Do(WorkerDialled{instance, {9}}).empty());
  EXPECT_EQ(Lost(), 0u);
  // It is asked again with each of its streams, until it accepts.
  EXPECT_EQ(Of<DialWorker>(Do(RegisterCalled{Call(), {Identity(9)}})).size(), 1u);
  Do(WorkerDialled{instance, {9}, true});
  EXPECT_TRUE(Of<DialWorker>(Do(RegisterCalled{Call(), {Identity(9)}})).empty());
  Do(WorkerDisconnected{{calls_}});
  Do(WorkerDialled{instance, {9}});
  EXPECT_EQ(Lost(), 1u);
}

TEST_F(RefusedTest, AnAnswerThatCameTooLateChangesNothing) {
  const CallAssign assign = Submit(1);
  Break(assign.instance);
  WorkerIdentity identity;
  for (const InstanceStatus& one : core_->Snapshot(now_).instances) {
    if (one.instance == assign.instance) identity = one.identity;
  }
  // The same process is back: it only lost its connection.
  Do(RegisterCalled{Call(), {identity, {{{7, 1}, assign.request.epoch}}}});
  EXPECT_TRUE(Refuse(assign.instance).empty());
  // Another one listens there by now.
  identity.incarnation = {99};
  const auto welcome = Of<AnswerRegister>(Do(RegisterCalled{Call(), {identity}}));
  const InstanceId successor = welcome.at(0).reply.instance;
  const uint64_t lost = Lost();
  EXPECT_TRUE(Refuse(assign.instance).empty());
  Do(WorkerDialled{successor, {99}, true});
  Do(WorkerDisconnected{{calls_}});
  EXPECT_TRUE(Do(WorkerDialled{successor, processes_.at(assign.instance)}).empty());
  EXPECT_EQ(Lost(), lost);
}

}  // namespace
}  // namespace skein::scheduler
