// OrchestratorCore with a latency profile: plans that are refused, or lose an instance.
#include <algorithm>

#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class ReplanningTest : public PlanningTest {
 protected:
  ReplanningTest() {
    prefill_ = UpPrefill(4);
    decode_ = Up(Role::kDecode, 2);
  }
  // All but `dead` report (and so live on), now_ grows by `us`.
  Effects Pass(TimeUs us, InstanceId dead = {}) {
    Effects all;
    const auto add = [&all](const Effects& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    for (TimeUs end = now_ + us; now_ < end;) {
      add(Until(std::min(end, now_ + kSecondUs)));
      for (const auto& [id, incarnation] : incarnations_) {
        if (id == dead) continue;
        std::vector<HeldRequest> held;
        for (const auto& [key, epoch] : held_) {
          if (key.first == id) held.push_back({.id = key.second, .epoch = epoch, .opened = true});
        }
        add(Report(id, held));
      }
    }
    return all;
  }
  void Hold(const std::vector<CallAssign>& assigns) {
    for (const CallAssign& assign : assigns) {
      held_[{assign.instance, assign.request.spec->id}] = assign.request.epoch;
    }
  }

  // The KV of a prefill instance that was lost may be there: the decode instance knows.
  Effects LeaseEnds(const CallAssign& assign) {
    return Report(decode_, {},
                  {{.id = assign.request.spec->id,
                    .epoch = assign.request.epoch,
                    .status = absl::UnavailableError("the lease of a prefill instance expired")}});
  }

  std::vector<InstanceId> prefill_;
  InstanceId decode_;
  std::map<std::pair<InstanceId, RequestId>, Epoch> held_;
};

TEST_F(ReplanningTest, ARefusalCancelsAtTheOthersAndPlansWithoutTheRefuser) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(assigns.size(), 4u);
  Answer(assigns[0]);
  Answer(assigns[1]);
  const Effects refused = Answer(assigns[2], absl::ResourceExhaustedError("queue full"));
  const auto cancels = Of<CallCancel>(refused);
  ASSERT_EQ(cancels.size(), 5u);  // at the decode instance, too
  for (const CallCancel& cancel : cancels) {
    EXPECT_EQ(cancel.request.epoch, assigns[0].request.epoch);
  }
  EXPECT_TRUE(Of<CallAssign>(refused).empty());  // not before it has ended at the others
  EXPECT_EQ(Updates<Planned>(refused)[0].prefill, InstanceId{});
  EXPECT_GT(Updates<Planned>(refused)[0].epoch, assigns[0].request.epoch);
  const absl::Status cancelled = absl::CancelledError("refused");
  Report(prefill_[0], {}, {Ended(assigns[0], cancelled)});
  Report(prefill_[1], {}, {Ended(assigns[1], cancelled)});
  const auto again = Of<CallAssign>(Answer(assigns[3], absl::ResourceExhaustedError("queue full")));
  ASSERT_EQ(again.size(), 2u);
  for (const CallAssign& assign : again) {
    EXPECT_NE(assign.instance, prefill_[2]);
    EXPECT_GT(assign.request.epoch, Updates<Planned>(refused)[0].epoch);
  }
  const Explanation explained = core_->Explain("cmpl-1", now_)[0];
  ASSERT_EQ(explained.plans.size(), 2u);
  EXPECT_NE(explained.plans[0].lost.find("queue full"), std::string::npos);
}

// Others are not planned on an instance that refused, until it reports again.
TEST_F(ReplanningTest, WhoRefusedIsAvoidedForAWhile) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  Answer(assigns[2], absl::ResourceExhaustedError("queue full"));
  EXPECT_EQ(Of<CallAssign>(Submit(2, 4000)).size(), 2u);
  Report(prefill_[2]);
  EXPECT_EQ(Of<CallAssign>(Submit(3, 40000)).size(), 4u);
  for (const InstanceId id : prefill_) {
    auto spec = Spec(10 + id.value, 4);
    spec->want_prompt_logprobs = true;  // alone, on the instance that is free first
    const auto alone = Of<CallAssign>(Do(SubmitCalled{spec}));
    ASSERT_EQ(alone.size(), 1u);
    Answer(alone[0], absl::ResourceExhaustedError("queue full"));
  }
  EXPECT_TRUE(Of<CallAssign>(Submit(4, 4000)).empty());  // all have refused: it is parked
  const auto reported = Of<CallAssign>(Report(prefill_[0]));
  ASSERT_FALSE(reported.empty());
  EXPECT_EQ(reported.back().request.spec->id, (RequestId{7, 4}));
}

TEST_F(ReplanningTest, ADeadMemberIsReplacedInEveryState) {
  for (int state = 0; state < 4; ++state) {
    SCOPED_TRACE(state);
    const auto serial = static_cast<uint64_t>(state + 1);
    held_.clear();
    const auto assigns = Of<CallAssign>(Submit(serial, 4000));
    ASSERT_EQ(assigns.size(), 4u);
    if (state >= 1) {
      for (const CallAssign& assign : assigns) Answer(assign);
      Hold(assigns);
    }
    if (state >= 2) Ask(assigns[0]);
    if (state >= 3) {
      Opened(decode_, assigns[0]);
      held_[{decode_, {7, serial}}] = assigns[0].request.epoch;
    }
    const InstanceId dead = assigns[1].instance;
    const Effects effects = Pass(4 * kSecondUs, dead);
    EXPECT_TRUE(Updates<Failed>(effects).empty());
    EXPECT_EQ(core_->Snapshot(now_).planning, 1);
    bool decode_cancelled = false;
    for (const CallCancel& cancel : Of<CallCancel>(effects)) {
      EXPECT_NE(cancel.instance, dead);
      decode_cancelled |= cancel.instance == decode_;
    }
    EXPECT_TRUE(decode_cancelled) << "it was announced there";
    EXPECT_TRUE(Of<CallAssign>(effects).empty());
    Effects after;
    for (const CallAssign& assign : assigns) {
      if (assign.instance == dead) continue;
      after = Report(assign.instance, {}, {Ended(assign, absl::CancelledError("x"))});
    }
    const auto again = Of<CallAssign>(after);
    ASSERT_EQ(again.size(), 2u);  // of three, two
    EXPECT_GT(again[0].request.epoch, assigns[0].request.epoch);
    Do(Closed({7, serial}));
    std::erase(prefill_, dead);
    incarnations_.erase(dead);
    prefill_.push_back(Up(Role::kPrefill, 200 + serial));
    held_.clear();
    Pass(2 * kSecondUs);
  }
}

TEST_F(ReplanningTest, AMembersFailureIsPlacedAnewUnderTheNewEpoch) {
  const auto assigns = Place(1, 4000);
  const Effects failed =
      Report(prefill_[1], {}, {Ended(assigns[1], absl::UnavailableError("collective"))});
  EXPECT_TRUE(Updates<Failed>(failed).empty());
  EXPECT_EQ(Of<CallCancel>(failed).size(), 4u);  // three members and decode
  // Others say so too; that changes nothing.
  Report(prefill_[0], {}, {Ended(assigns[0], absl::UnavailableError("collective"))});
  Report(prefill_[2], {}, {Ended(assigns[2], absl::CancelledError("by decode"))});
  const auto again =
      Of<CallAssign>(Report(prefill_[3], {}, {Ended(assigns[3], absl::CancelledError("c"))}));
  ASSERT_EQ(again.size(), 4u);  // nobody is to blame
  for (const CallAssign& assign : again) Answer(assign);
  // The blocks of the old epoch may be in quarantine for a while.
  const Effects refused = Ask(again[0], decode_, absl::ResourceExhaustedError("no room"));
  EXPECT_EQ(PlacedAt(refused), InstanceId{});
  EXPECT_TRUE(Of<CallCancel>(refused).empty());  // it would refuse this epoch from then on
  EXPECT_EQ(PlacedAt(Report(decode_)), decode_);
  const Effects placed = Opened(decode_, again[0]);
  EXPECT_EQ(Updates<skein::scheduler::Placed>(placed)[0].epoch, again[0].request.epoch);
  EXPECT_EQ(Of<CallStart>(placed).size(), 4u);
}

// The time since which a decode instance must list a request in its reports is that of the plan in
// force, not that of an earlier one.
TEST_F(ReplanningTest, ADecodeInstanceMayReportBeforeItHasTheRequestOfALaterPlan) {
  const auto assigns = Place(1, 4000);
  Hold(assigns);
  held_[{decode_, {7, 1}}] = assigns[0].request.epoch;
  Pass(4 * kSecondUs);  // longer than a lease
  held_.clear();
  Report(prefill_[1], {}, {Ended(assigns[1], absl::UnavailableError("collective"))});
  Report(prefill_[0], {}, {Ended(assigns[0], absl::CancelledError("c"))});
  Report(prefill_[2], {}, {Ended(assigns[2], absl::CancelledError("c"))});
  const auto again =
      Of<CallAssign>(Report(prefill_[3], {}, {Ended(assigns[3], absl::CancelledError("c"))}));
  ASSERT_EQ(again.size(), 4u);
  for (const CallAssign& assign : again) Answer(assign);
  EXPECT_EQ(again[0].request.placed->decode, decode_);
  const Effects reported = Report(decode_);  // the announcement is on its way
  EXPECT_TRUE(Of<CallCancel>(reported).empty());
  EXPECT_EQ(core_->Snapshot(now_).replans, 1u);
  EXPECT_EQ(Updates<skein::scheduler::Placed>(Opened(decode_, again[0])).size(), 1u);
}

TEST_F(ReplanningTest, TheDecodeInstanceMayBeTheFirstToTell) {
  const auto assigns = Place(1, 4000);
  const EndedRequest aborted = {
      {7, 1}, assigns[0].request.epoch, FinishReason::kError, absl::CancelledError("aborted")};
  const Effects effects = Report(decode_, {}, {aborted});
  EXPECT_TRUE(Updates<Failed>(effects).empty());
  EXPECT_EQ(core_->Snapshot(now_).planning, 1);
  EXPECT_EQ(core_->Snapshot(now_).replans, 1u);
}

TEST_F(ReplanningTest, ADeadDecodeInstanceIsReplacedBeforeTheKvIsThere) {
  const InstanceId other = Up(Role::kDecode, 3);
  const auto first = Place(1, 4000);
  const auto second = Place(2, 4000);
  ASSERT_EQ(opened_at_, other);
  for (size_t i = 0; i < 4; ++i) Report(prefill_[i], {Held(second[i])}, {Ended(first[i])});
  Hold(second);
  Until(3 * kSecondUs - 1);
  for (const InstanceId id : prefill_) Report(id, {Held(second[0])});
  const Effects effects = Until(now_ + 1);  // both decode instances are dead
  const auto failed = Ends(effects);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].id, (RequestId{7, 1}));  // its tokens may have been sent
  EXPECT_EQ(core_->Snapshot(now_).planning, 1);
}

TEST_F(ReplanningTest, WhenTheKvMayBeThereTheDecodeInstanceDecides) {
  const auto assigns = Place(1, 4000);
  for (size_t i = 0; i < 3; ++i) Report(prefill_[i], {}, {Ended(assigns[i])});
  const Effects lost = Do(UnregisterCalled{Call(), {prefill_[3], incarnations_[prefill_[3]]}});
  EXPECT_TRUE(Of<CallCancel>(lost).empty());
  EXPECT_EQ(core_->Snapshot(now_).placed, 1);
  const EndedRequest lease = {
      {7, 1}, assigns[0].request.epoch, FinishReason::kError, absl::UnavailableError("lease")};
  const Effects again = Report(decode_, {}, {lease});
  EXPECT_TRUE(Updates<Failed>(again).empty());
  EXPECT_EQ(Of<CallAssign>(again).size(), 2u);  // at once: nobody has it any more
}

TEST_F(ReplanningTest, AttemptsAreBounded) {
  std::vector<CallAssign> assigns = Of<CallAssign>(Submit(1, 4000));
  Effects effects;
  int plans = 0;
  for (; plans < 20 && !assigns.empty(); ++plans) {
    for (const CallAssign& assign : assigns) {
      effects = Report(assign.instance, {}, {Ended(assign, absl::AbortedError("group"))});
      if (!Ends(effects).empty()) break;
    }
    assigns = Of<CallAssign>(effects);
  }
  EXPECT_EQ(plans, 7);
  ASSERT_EQ(Updates<Failed>(effects).size(), 1u);
  EXPECT_EQ(Updates<Failed>(effects)[0].status, absl::AbortedError("group"));
}

// Alone on one instance, whatever the policy.
std::shared_ptr<RequestHead> PlainSpec(uint64_t serial) {
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt_tokens = 400;
  spec->max_tokens = 4;
  spec->want_prompt_logprobs = true;
  return spec;
}

EndedRequest UnderFailedEngine(const CallAssign& assign) {
  return {.id = assign.request.spec->id,
          .epoch = assign.request.epoch,
          .reason = FinishReason::kError,
          .status = absl::UnavailableError("the engine failed: bus error"),
          .engine_failed = true};
}

// It would end so on any engine: with NaN, or with nothing left to sample.
TEST_F(ReplanningTest, WhatIsTheRequestsOwnFaultIsNotPlannedAnew) {
  uint64_t serial = 0;
  for (const absl::Status& fault : {absl::InternalError("the logits are NaN"),
                                    absl::InvalidArgumentError("no token is left")}) {
    const auto assigns = Place(++serial, 4000);
    const Effects effects = Report(prefill_[1], {}, {Ended(assigns[1], fault)});
    EXPECT_TRUE(Of<CallAssign>(effects).empty());
    ASSERT_EQ(Updates<Failed>(effects).size(), 1u);
    EXPECT_EQ(Updates<Failed>(effects)[0].status, fault);
  }
}

TEST_F(ReplanningTest, ARequestUnderWhichTwoEnginesFailedIsNotPlannedAThirdTime) {
  const CallAssign first = Of<CallAssign>(Do(SubmitCalled{PlainSpec(1)})).at(0);
  EXPECT_FALSE(first.request.suspect);
  Placed({first});
  const Effects once = Report(first.instance, {}, {UnderFailedEngine(first)}, /*draining=*/true);
  EXPECT_TRUE(Updates<Failed>(once).empty());
  const CallAssign second = Of<CallAssign>(once).at(0);
  EXPECT_NE(second.instance, first.instance);
  EXPECT_TRUE(second.request.suspect) << "it is computed in steps of its own";
  // The report is repeated until it is answered: that is still one engine.
  EXPECT_TRUE(
      Ends(Report(first.instance, {}, {UnderFailedEngine(first)}, /*draining=*/true)).empty());
  Do(UnregisterCalled{Call(), {first.instance, incarnations_[first.instance]}});
  Placed({second});
  const Effects twice = Report(second.instance, {}, {UnderFailedEngine(second)}, true);
  EXPECT_TRUE(Of<CallAssign>(twice).empty());
  const absl::Status end = Updates<Failed>(twice).at(0).status;
  EXPECT_EQ(end.code(), absl::StatusCode::kInternal);
  EXPECT_NE(end.message().find("2 engines failed"), std::string::npos) << end;
}

TEST_F(ReplanningTest, AnEngineThatFailedUnderAnOlderPlanOfARequestCounts) {
  const auto assigns = Place(1, 4000);
  // Another member hears of the broken step first; the reason comes with a later report.
  Report(prefill_[0], {}, {Ended(assigns[0], absl::UnavailableError("collective"))});
  EXPECT_TRUE(Ends(Report(prefill_[1], {}, {UnderFailedEngine(assigns[1])})).empty());
  Report(prefill_[2], {}, {Ended(assigns[2], absl::UnavailableError("collective"))});
  const auto again = Of<CallAssign>(
      Report(prefill_[3], {}, {Ended(assigns[3], absl::UnavailableError("collective"))}));
  ASSERT_FALSE(again.empty());
  EXPECT_TRUE(again[0].request.suspect);
  const auto other = std::find_if(again.begin(), again.end(), [this](const CallAssign& assign) {
    return assign.instance != prefill_[1];
  });
  const Effects twice = Report(other->instance, {}, {UnderFailedEngine(*other)});
  EXPECT_EQ(Updates<Failed>(twice).at(0).status.code(), absl::StatusCode::kInternal);
}

// They may have been killed for reasons of their own: the client may try again.
TEST_F(ReplanningTest, ARequestUnderWhichThreeProcessesEndedEndsAsUnavailable) {
  const auto replaced = [this](InstanceId instance) {
    WorkerIdentity other = Identity(Role::kPrefill, 300 + instance.value);  // at the same address
    other.endpoint = Identity(Role::kPrefill, incarnations_[instance].value).endpoint;
    Do(RegisterCalled{Call(), {other}});
  };
  CallAssign assign = Of<CallAssign>(Do(SubmitCalled{PlainSpec(1)})).at(0);
  for (int i = 0; i < 2; ++i) {
    replaced(Placed({assign})[0].instance);
    const auto again = Of<CallAssign>(LeaseEnds(assign));
    ASSERT_EQ(again.size(), 1u) << "it is healthy, as far as anyone can tell";
    EXPECT_TRUE(again[0].request.suspect) << "no other request falls with it";
    assign = again[0];
  }
  replaced(Placed({assign})[0].instance);
  const Effects last = LeaseEnds(assign);
  ASSERT_EQ(Updates<Failed>(last).size(), 1u);
  EXPECT_EQ(Updates<Failed>(last)[0].status.code(), absl::StatusCode::kUnavailable);
}

// A process that crashes closes its stream. One whose host dies does not.
TEST_F(ReplanningTest, OnlyALossWhoseStreamBrokeIsEvidence) {
  for (const bool crashes : {false, true}) {
    const uint64_t serial = crashes ? 2 : 1;
    CallAssign assign = Of<CallAssign>(Do(SubmitCalled{PlainSpec(serial)})).at(0);
    Placed({assign});
    const InstanceId dead = assign.instance;
    held_ = {{{decode_, {7, serial}}, assign.request.epoch}};
    if (crashes) Break(dead);
    Pass(4 * kSecondUs, dead);
    incarnations_.erase(dead);
    const auto again = Of<CallAssign>(LeaseEnds(assign));
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0].request.suspect, crashes);
    Do(Closed({7, serial}));
    held_.clear();
  }
}

// It waits for the members of the first chunk, or hands over what it has computed.
TEST_F(ReplanningTest, AMemberWhoseTurnItIsNotIsNoEvidence) {
  const auto assigns = Place(1, 4000);
  Report(assigns[1].instance, {Held(assigns[1], 1)});  // its only chunk is done
  WorkerIdentity other = Identity(Role::kPrefill, 300);
  other.endpoint = Identity(Role::kPrefill, incarnations_[assigns[1].instance].value).endpoint;
  Do(RegisterCalled{Call(), {other}});
  Effects after;
  for (const CallAssign& assign : assigns) {
    if (assign.instance == assigns[1].instance) continue;
    after = Report(assign.instance, {}, {Ended(assign, absl::CancelledError("x"))});
  }
  const auto again = Of<CallAssign>(after);
  ASSERT_FALSE(again.empty());
  EXPECT_FALSE(again[0].request.suspect);
}

TEST_F(ReplanningTest, WhoHasNotBegunARequestIsNoEvidenceAgainstIt) {
  Effects effects = Do(SubmitCalled{PlainSpec(1)});
  for (int i = 0; i < 3; ++i) {
    const CallAssign assign = Of<CallAssign>(effects).at(0);
    EXPECT_FALSE(assign.request.suspect);
    Answer(assign);
    WorkerIdentity other = Identity(Role::kPrefill, 300 + i);
    other.endpoint = Identity(Role::kPrefill, incarnations_[assign.instance].value).endpoint;
    effects = Do(RegisterCalled{Call(), {other}});
  }
  EXPECT_EQ(Of<CallAssign>(effects).size(), 1u);
}

// A plain prompt waits for decode room while it is computed.
class WaitingPromptTest : public ReplanningTest {
 protected:
  // The lead of this plan asks for room, and finds none.
  void Wait(const CallAssign& assign) {
    Answer(assign);
    const bool placed = assign.request.placed.has_value();
    placed ? Ask(assign, decode_, absl::ResourceExhaustedError("blocks")) : Ask(assign);
    ASSERT_EQ(core_->Snapshot(now_).waiting, 1);
  }
  // Its process ends, and another one takes its address.
  Effects Crash(InstanceId instance) {
    WorkerIdentity other = Identity(Role::kPrefill, ++last_incarnation_);
    other.endpoint = Identity(Role::kPrefill, incarnations_.at(instance).value).endpoint;
    return Do(RegisterCalled{Call(), {other}});
  }
};

// It may have crashed because of it.
TEST_F(WaitingPromptTest, ALossCountsAgainstAPromptThatWaitsForDecodeRoom) {
  Effects effects = Do(SubmitCalled{PlainSpec(1)});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Of<CallAssign>(effects).size(), 1u) << i;
    const CallAssign assign = Of<CallAssign>(effects)[0];
    EXPECT_EQ(assign.request.suspect, i > 0);
    Wait(assign);
    effects = Crash(assign.instance);
  }
  ASSERT_EQ(Updates<Failed>(effects).size(), 1u);
  EXPECT_EQ(Updates<Failed>(effects)[0].status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(WaitingPromptTest, ALossDoesNotCountAgainstOneThatIsComputed) {
  Effects effects = Do(SubmitCalled{PlainSpec(1)});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Of<CallAssign>(effects).size(), 1u) << i;
    const CallAssign assign = Of<CallAssign>(effects)[0];
    EXPECT_FALSE(assign.request.suspect);
    Wait(assign);
    Report(assign.instance, {Held(assign, 1)});
    effects = Crash(assign.instance);
  }
  EXPECT_EQ(Of<CallAssign>(effects).size(), 1u);
  const DegradedCounts counts = core_->Explain("7/1", now_).at(0).degraded;
  EXPECT_EQ(counts[static_cast<size_t>(Degraded::kRecomputed)], 3u);
}

// It has given its blocks back to an older plan on several instances.
TEST_F(WaitingPromptTest, ALossCountsAgainstOneThatIsComputedAgain) {
  const CallAssign assign = Of<CallAssign>(Do(SubmitCalled{PlainSpec(1)})).at(0);
  Wait(assign);
  Report(assign.instance, {Held(assign, 1)});
  Report(assign.instance, {Held(assign, 0)});
  const auto again = Of<CallAssign>(Crash(assign.instance));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].request.suspect);
}

// Its place came with its plan, and no word of the grant: so only its own report tells that its
// computation is lost with the decode instance.
TEST_F(WaitingPromptTest, ALostDecodeInstanceCostsWhatWasComputedForIt) {
  const CallAssign assign = Of<CallAssign>(Do(SubmitCalled{PlainSpec(1)})).at(0);
  Answer(assign);
  ASSERT_TRUE(assign.request.placed.has_value());
  Report(assign.instance, {Held(assign, 1)});
  Do(UnregisterCalled{Call(), {decode_, incarnations_.at(decode_)}});
  const DegradedCounts counts = core_->Explain("7/1", now_).at(0).degraded;
  EXPECT_EQ(counts[static_cast<size_t>(Degraded::kReplanned)], 1u);
  EXPECT_EQ(counts[static_cast<size_t>(Degraded::kRecomputed)], 1u);
}

TEST_F(ReplanningTest, AMemberThatNeverSaysThatItEndedIsNotWaitedForForever) {
  const auto assigns = Place(1, 4000);
  Hold(assigns);
  Report(prefill_[0], {}, {Ended(assigns[0], absl::UnavailableError("collective"))});
  held_.erase({prefill_[0], {7, 1}});
  held_.erase({prefill_[1], {7, 1}});
  held_.erase({prefill_[2], {7, 1}});
  for (size_t i = 1; i < 3; ++i) {
    Report(prefill_[i], {}, {Ended(assigns[i], absl::CancelledError("c"))});
  }
  const auto again = Of<CallAssign>(Pass(4 * kSecondUs));  // the fourth still reports to hold it
  ASSERT_EQ(again.size(), 2u);
  for (const CallAssign& assign : again) EXPECT_NE(assign.instance, prefill_[3]);
}

TEST_F(ReplanningTest, APlainPromptIsReplannedToo) {
  auto spec = Spec(1, 400);
  spec->want_prompt_logprobs = true;
  const auto assign = Of<CallAssign>(Do(SubmitCalled{spec}))[0];
  Answer(assign);
  const auto again = Of<CallAssign>(
      Do(UnregisterCalled{Call(), {assign.instance, incarnations_[assign.instance]}}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].instance, assign.instance);
}

}  // namespace
}  // namespace skein::scheduler
