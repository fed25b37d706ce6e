#include "scheduler/orchestrator/worker_side.h"

#include <gtest/gtest.h>

#include <utility>

#include "scheduler/base/held_digest.h"
#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

class WorkerSideTest : public PartsTest {
 protected:
  WorkerSideTest() {
    prefill_instance_ = Join(Role::kPrefill, 1);
    decode_instance_ = Join(Role::kDecode, 2);
  }
  void Report(InstanceId instance, uint64_t incarnation, std::vector<HeldRequest> held,
              std::vector<EndedRequest> ended) {
    ReportRequest report{.instance = instance, .incarnation = {incarnation}};
    report.load = registry_.Find(instance)->load;
    report.held_digest = DigestOf(held);
    report.held = std::move(held);
    report.full = true;
    report.ended = std::move(ended);
    effects_.clear();
    workers_.On(ReportCalled{{incarnation}, std::move(report)}, now_);
  }

  InstanceId prefill_instance_;
  InstanceId decode_instance_;
};

TEST_F(WorkerSideTest, AnAnswerIsFinishedByItsDecodeInstancesReport) {
  Request& request = Submit(1);
  Accept(request);
  const EndedRequest ended{request.spec->id, request.epoch, FinishReason::kStop, absl::OkStatus()};
  Report(decode_instance_, 2, {}, {ended});
  EXPECT_EQ(Of<SendPlanUpdate>().size(), 1u) << "its router hears of the place that it missed";
  EXPECT_EQ(ends_, std::vector<std::string>{"1 finished"});
  EXPECT_TRUE(registry_.Find(prefill_instance_)->placed.empty());
}

TEST_F(WorkerSideTest, APrefillInstanceThatHandsARequestBackIsNotAskedAgain) {
  const InstanceId other = Join(Role::kPrefill, 3);
  Request& request = Submit(1);
  Accept(request);
  const InstanceId at = request.members[0].instance;
  const uint64_t incarnation = at == prefill_instance_ ? 1 : 3;
  const EndedRequest ended{request.spec->id, request.epoch, FinishReason::kCancelled,
                           absl::UnavailableError("leaving")};
  Report(at, incarnation, {}, {ended});
  EXPECT_EQ(request.members[0].instance, at == prefill_instance_ ? other : prefill_instance_);
  EXPECT_EQ(request.replans, 0);
  EXPECT_EQ(request.tried_prefill.count(at), 1u);
}

// Its OpenTransfer came under an epoch that the decode side no longer expects, or from a writer
// that it does not expect yet.
TEST_F(WorkerSideTest, APlainRequestWhoseTransferWasRefusedIsPlannedAgainSomeTimes) {
  Request& request = Submit(1);
  const absl::Status refused = absl::FailedPreconditionError("epoch: stale");
  for (int replans = 1; replans <= kReplansMax; ++replans) {
    const Epoch epoch = request.epoch;
    Accept(request);
    Report(prefill_instance_, 1, {}, {{request.spec->id, epoch, FinishReason::kError, refused}});
    ASSERT_TRUE(ends_.empty()) << ends_[0];
    EXPECT_EQ(request.replans, replans);
    EXPECT_EQ(request.state, State::kAssigning);
    EXPECT_GT(request.epoch, epoch);
  }
  Accept(request);
  Report(prefill_instance_, 1, {},
         {{request.spec->id, request.epoch, FinishReason::kError, refused}});
  EXPECT_EQ(ends_, std::vector<std::string>{"1 failed: epoch: stale"});
}

TEST_F(WorkerSideTest, AnInvalidRequestFailsAndNoOtherInstanceIsAsked) {
  Request& request = Submit(1);
  const Member& lead = request.members[0];
  workers_.On(AssignReplied{lead.instance,
                            request.spec->id,
                            request.epoch,
                            {absl::InvalidArgumentError("prompt: bad")},
                            lead.assigned},
              now_);
  EXPECT_EQ(ends_, std::vector<std::string>{"1 failed: prompt: bad"});
}

TEST_F(WorkerSideTest, WhatAWorkerLacksIsSentAgainAndWhatItHoldsWithoutCauseIsCancelled) {
  Request& request = Submit(1);
  Accept(request);
  const Epoch epoch = request.epoch;
  workers_.On(WorkerDisconnected{{2}}, now_);
  EXPECT_FALSE(registry_.Find(decode_instance_)->connected());
  effects_.clear();
  Join(Role::kDecode, 2, {{.id = {7, 9}, .epoch = epoch}});
  ASSERT_EQ(Of<AnswerRegister>().size(), 1u);
  const RegisterReply welcome = Of<AnswerRegister>()[0].reply;
  EXPECT_EQ(welcome.instance, decode_instance_) << "the same process keeps its id";
  ASSERT_EQ(welcome.cancel.size(), 1u);
  EXPECT_EQ(welcome.cancel[0].id, (RequestId{7, 9}));
  ASSERT_EQ(Of<CallAnnounce>().size(), 1u) << "it never heard of the request";
  EXPECT_EQ(request.epoch, epoch);
}

TEST_F(WorkerSideTest, APrefillInstanceIsToldOfItsPoolAndThePoolOfIt) {
  const auto register_at = [this](uint64_t incarnation, const std::string& comm_address) {
    RegisterRequest hello{
        .identity = registry_.Find(prefill_instance_)->identity, .held = {}, .ended = {}};
    hello.identity.incarnation = {incarnation};
    hello.identity.endpoint = "p" + std::to_string(incarnation);
    hello.identity.comm_address = comm_address;
    hello.stream = ++hellos_;
    effects_.clear();
    workers_.Connect({{incarnation}, hello}, {1, {1}}, now_);
    return Of<AnswerRegister>().back().reply;
  };
  // The fixture's instance has the address c1.
  EXPECT_EQ(register_at(11, "a").peers, std::vector<std::string>{"c1"});
  ASSERT_EQ(Of<CallPeer>().size(), 1u);
  EXPECT_EQ(Of<CallPeer>()[0].instance, prefill_instance_);
  const RegisterReply second = register_at(12, "b");
  EXPECT_EQ(second.peers, (std::vector<std::string>{"c1", "a"}));
  ASSERT_EQ(Of<CallPeer>().size(), 2u);
  EXPECT_EQ(Of<CallPeer>()[0].request.comm_address, "b");
  workers_.On(WorkerDisconnected{{11}}, now_);
  EXPECT_EQ(register_at(13, "c").peers, (std::vector<std::string>{"c1", "a", "b"}));
  ASSERT_EQ(Of<CallPeer>().size(), 2u) << "one has no stream; it is told when it comes back";
  EXPECT_EQ(Of<CallPeer>()[1].instance, second.instance);
  EXPECT_EQ(register_at(11, "a").peers, (std::vector<std::string>{"c1", "b", "c"}));
  EXPECT_TRUE(Of<CallPeer>().empty()) << "the others know it";
}

TEST_F(WorkerSideTest, DecodeInstancesOfANodeAreToldToMakeTheirCommunicators) {
  const InstanceId other = Join(Role::kDecode, 3);
  now_ = groups_.NextDue();
  workers_.OrderGroups(now_);
  ASSERT_EQ(Of<CallGroup>().size(), 2u);
  const GroupOrder first = Of<CallGroup>()[0].request;
  EXPECT_EQ(Of<CallGroup>()[0].instance, decode_instance_);
  EXPECT_GE(first.generation, numbers_.first_epoch()) << "above a former orchestrator's";
  ASSERT_EQ(first.members.size(), 2u);
  EXPECT_EQ(first.members[1].instance, other);
  EXPECT_EQ(first.members[1].comm_address, "c3");
  effects_.clear();
  workers_.OrderGroups(now_);
  EXPECT_TRUE(Of<CallGroup>().empty());

  workers_.On(WorkerDisconnected{{3}}, now_);
  Join(Role::kDecode, 3);
  ASSERT_EQ(Of<CallGroup>().size(), 1u) << "the order may be lost with the stream";
  EXPECT_EQ(Of<CallGroup>()[0].instance, other);
  EXPECT_EQ(Of<CallGroup>()[0].request.generation, first.generation);
  EXPECT_EQ(Of<CallGroup>()[0].request.index, 1u);

  registry_.Find(other)->load.groups_failed = first.generation;
  Report(other, 3, {}, {});
  workers_.OrderGroups(groups_.NextDue());
  ASSERT_EQ(Of<CallGroup>().size(), 2u) << "they make them anew";
  EXPECT_GT(Of<CallGroup>()[0].request.generation, first.generation);
}

// The decode side misses the KV of a writer before this orchestrator's lease of it expires, maybe
// even before its stream breaks.
class MovedOffTest : public WorkerSideTest {
 protected:
  // Two processes have ended under the request, and it moves off a third one.
  void MoveOff(Request& request, bool stream_breaks_first) {
    request.failures.Lose({101}, {101});
    request.failures.Lose({102}, {102});
    Accept(request);
    Open(request);
    spare_ = Join(Role::kPrefill, 21);
    effects_.clear();
    if (stream_breaks_first) workers_.On(WorkerDisconnected{{1}}, now_);
    ReportRequest report{.instance = decode_instance_, .incarnation = {2}};
    report.load = registry_.Find(decode_instance_)->load;
    report.ended = {{.id = request.spec->id,
                     .epoch = request.epoch,
                     .reason = FinishReason::kError,
                     .status = absl::UnavailableError("the writer's lease expired")}};
    workers_.On(ReportCalled{{2}, report}, now_);
    if (!stream_breaks_first) workers_.On(WorkerDisconnected{{1}}, now_);
    EXPECT_EQ(request.failures.failed_or_lost(), 2) << "it may come back";
    EXPECT_EQ(request.state, State::kReplanning);
  }
  void PassALease() {  // the others are heard
    for (int i = 0; i < 8; ++i) {
      now_ += kLeaseUs / 4;
      registry_.Heard(decode_instance_, now_);
      registry_.Heard(spare_, now_);
      workers_.LoseTheSilent(now_);
      replanner_.LeaveTheSilent(now_);
    }
  }

  InstanceId spare_;
};

TEST_F(MovedOffTest, TheThirdLossCountsBeforeTheRequestIsPlannedAgain) {
  for (const bool stream_breaks_first : {true, false}) {
    ends_.clear();
    MoveOff(Submit(1), stream_breaks_first);
    PassALease();
    EXPECT_EQ(registry_.Find(prefill_instance_), nullptr);
    EXPECT_TRUE(Of<CallAssign>().empty()) << "no fourth process gets it";
    ASSERT_EQ(ends_.size(), 1u);
    EXPECT_EQ(ends_[0].rfind("1 failed: 3 engines failed or were lost", 0), 0u) << ends_[0];
    workers_.On(UnregisterCalled{{9}, {spare_, {21}}}, now_);
    prefill_instance_ = Join(Role::kPrefill, 1);
  }
}

TEST_F(MovedOffTest, ARequestWithoutOtherLossesIsPlannedAgainWithTheEvidence) {
  Request& request = Submit(1);
  MoveOff(request, true);
  request.failures = EngineFailures();
  PassALease();
  EXPECT_EQ(request.failures.failed_or_lost(), 1);
  ASSERT_EQ(Of<CallAssign>().size(), 1u);
  EXPECT_EQ(Of<CallAssign>()[0].instance, spare_);
  EXPECT_TRUE(Of<CallAssign>()[0].request.suspect);
}

TEST_F(MovedOffTest, AnInstanceThatComesBackHasNotCrashed) {
  Request& request = Submit(1);
  MoveOff(request, true);
  now_ += kLeaseUs / 2;
  Join(Role::kPrefill, 1);  // without the request
  EXPECT_EQ(Of<CallAssign>().size(), 1u) << "it is planned again at once";
  EXPECT_EQ(request.failures.failed_or_lost(), 2);
}

TEST_F(MovedOffTest, AnInstanceThatFallsSilentOnItsStreamIsNoEvidence) {
  Request& request = Submit(1);
  MoveOff(request, false);
  Join(Role::kPrefill, 1, {{.id = request.spec->id, .epoch = {request.epoch.value - 1}}});
  EXPECT_EQ(request.state, State::kReplanning) << "it holds the plan that was given up";
  PassALease();
  EXPECT_EQ(registry_.Find(prefill_instance_), nullptr);
  EXPECT_EQ(Of<CallAssign>().size(), 1u);
  EXPECT_EQ(request.failures.failed_or_lost(), 2);
}

TEST_F(WorkerSideTest, AReportThatDoesNotFitAsksForAFullOne) {
  ReportRequest report{.instance = prefill_instance_, .incarnation = {1}};
  report.held_digest = 5;
  workers_.On(ReportCalled{{1}, report}, now_);
  EXPECT_TRUE(Of<AnswerReport>().back().reply.want_full);
  EXPECT_EQ(workers_.digest_mismatches(), 1u);
  report.incarnation = {9};
  workers_.On(ReportCalled{{1}, report}, now_);
  EXPECT_TRUE(absl::IsNotFound(Of<AnswerReport>().back().reply.status));
}

TEST_F(WorkerSideTest, ALostInstancesRequestsMoveAndItIsCounted) {
  Request& request = Submit(1);
  Accept(request);
  Join(Role::kPrefill, 3);
  std::vector<OrchestratorEffect> closed;
  for (const TimeUs end = now_ + kLeaseUs * 5 / 4; now_ < end; now_ += kLeaseUs / 16) {
    for (const uint64_t alive : {2, 3}) {
      const Instance* instance = registry_.FindConnected({alive});
      Report(instance->id, alive, {}, {});
    }
    workers_.LoseTheSilent(now_);
    for (const CloseWorker& one : Of<CloseWorker>()) closed.push_back(one);
  }
  EXPECT_EQ(registry_.Find(prefill_instance_), nullptr);
  EXPECT_EQ(closed.size(), 1u);
  EXPECT_EQ(request.members[0].instance, registry_.FindConnected({3})->id);
  EXPECT_EQ(workers_.lost().at({"m", Role::kPrefill}), 1u);
}

// So that its streams move only where they can go on.
TEST_F(WorkerSideTest, ADecodeInstanceThatDrainsHearsOfTheRoomElsewhere) {
  const auto told = [this](InstanceId instance, uint64_t incarnation) {
    Report(instance, incarnation, {}, {});
    return Of<AnswerReport>().back().reply.elsewhere;
  };
  EXPECT_EQ(told(decode_instance_, 2), PoolRoom()) << "it does not drain";
  ASSERT_TRUE(workers_.Drain({.instance = decode_instance_, .force = true}, now_).ok());
  EXPECT_EQ(told(decode_instance_, 2), PoolRoom()) << "there is no other";
  const InstanceId other = Join(Role::kDecode, 3);
  Report(other, 3, {}, {});
  const PoolRoom room = told(decode_instance_, 2);
  EXPECT_GT(room.requests, 0);
  EXPECT_EQ(room.blocks, 7);
  EXPECT_EQ(room.sequence_blocks, 10);
  EXPECT_EQ(told(other, 3), PoolRoom());
  ASSERT_TRUE(workers_.Drain({.instance = prefill_instance_, .force = true}, now_).ok());
  EXPECT_EQ(told(decode_instance_, 2), PoolRoom()) << "no prompt could be computed";
}

TEST_F(WorkerSideTest, RoomIsOnlyAtInstancesThatTakeRequestsAndWithoutWhatIsOnItsWayThere) {
  const auto told = [this] {
    Report(decode_instance_, 2, {}, {});
    return Of<AnswerReport>().back().reply.elsewhere;
  };
  ASSERT_TRUE(workers_.Drain({.instance = decode_instance_, .force = true}, now_).ok());
  const InstanceId other = Join(Role::kDecode, 3);
  const InstanceId cut_off = Join(Role::kDecode, 4);
  EXPECT_EQ(told().blocks, 14);
  workers_.On(WorkerDisconnected{{4}}, now_);
  EXPECT_FALSE(registry_.Find(cut_off)->Placeable());
  EXPECT_EQ(told().blocks, 7) << "one of the two takes nothing";

  Request& request = Submit(1, /*prompt_tokens=*/7);  // and one to come: 2 blocks
  EXPECT_EQ(request.decode, other);
  EXPECT_EQ(told().blocks, 5) << "the prompt is still computed";
  Accept(request);
  Open(request);
  EXPECT_EQ(told().blocks, 5);
  registry_.Find(other)->load.held_blocks = 2;
  registry_.Find(other)->load.free_blocks = 8;
  Report(other, 3, {{.id = request.spec->id, .epoch = request.epoch, .opened = true}}, {});
  EXPECT_EQ(told().blocks, 5) << "it counts once";

  Submit(2, /*prompt_tokens=*/35);  // 9 blocks
  Request& waits = requests_.At({7, 2});
  Accept(waits);
  Ask(waits, 5);
  ASSERT_EQ(decode_.WaitingOf("m"), 1);
  EXPECT_EQ(told(), PoolRoom()) << "what moves would wait behind it";
}

TEST_F(WorkerSideTest, ADrainedInstanceHearsOfItAndTheLastOneIsRefused) {
  EXPECT_TRUE(absl::IsFailedPrecondition(workers_.Drain({.instance = prefill_instance_}, now_)));
  Join(Role::kPrefill, 3);
  effects_.clear();
  EXPECT_TRUE(workers_.Drain({.instance = prefill_instance_}, now_).ok());
  ASSERT_EQ(Of<CallDrainOrder>().size(), 1u);
  EXPECT_TRUE(Of<CallDrainOrder>()[0].request.drain);
  EXPECT_NE(Submit(1).members[0].instance, prefill_instance_);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
