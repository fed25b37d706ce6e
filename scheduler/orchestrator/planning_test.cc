// OrchestratorCore with a latency profile: plans, their members, their start, their explanation.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

TEST_F(PlanningTest, APlanOfTwoMembersRunsFromItsAssignsToItsEnd) {
  const auto prefill = UpPrefill(2);
  const InstanceId decode = Up(Role::kDecode, 2);
  const Effects submitted = Submit(1, 2000);
  const auto assigns = Of<CallAssign>(submitted);
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(Updates<Planned>(submitted)[0].prefill, prefill[0]);
  for (size_t i = 0; i < 2; ++i) {
    const AssignOrder& request = assigns[i].request;
    EXPECT_EQ(assigns[i].instance, prefill[i]);
    ASSERT_EQ(request.members.size(), 2u);
    EXPECT_EQ(request.members[1].comm_address, "c102");
    EXPECT_EQ(request.members[1].incarnation, Incarnation{102});
    ASSERT_EQ(request.chunks.size(), 1u);
    EXPECT_EQ(request.chunks[0].tokens, 2000);
    EXPECT_EQ(request.chunks[0].members, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(request.epoch, assigns[0].request.epoch);
    EXPECT_EQ(request.sequence, assigns[0].request.sequence);
  }
  // Nothing older is in its way: the lead knows its decode instance from the plan.
  ASSERT_EQ(Of<CallAnnounce>(submitted).size(), 1u);
  EXPECT_EQ(Of<CallAnnounce>(submitted)[0].instance, decode);
  EXPECT_EQ(Of<CallAnnounce>(submitted)[0].request.writers,
            (std::vector<Incarnation>{{101}, {102}}));
  EXPECT_EQ(assigns[0].request.placed->decode, decode);
  EXPECT_FALSE(assigns[1].request.placed.has_value()) << "it hears when the transfer is open";
  Answer(assigns[0]);
  Answer(assigns[1]);
  const Effects placed = Opened(decode, assigns[0]);
  const auto starts = Of<CallStart>(placed);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[0].instance, prefill[0]) << "as word that the other has the plan";
  EXPECT_EQ(starts[1].instance, prefill[1]);
  EXPECT_EQ(starts[1].request.placed.endpoint, "w:2");
  Report(prefill[0], {Held(assigns[0], 1)}, {});
  Report(prefill[1], {}, {Ended(assigns[1])});
  Report(prefill[0], {}, {Ended(assigns[0])});
  const Effects ended = Report(decode, {}, {Ended(assigns[0])});
  EXPECT_EQ(Ends(ended).size(), 1u);
  EXPECT_TRUE(Of<CallCancel>(ended).empty());
  EXPECT_EQ(core_->Snapshot(now_).sp_plans, 1u);
}

// If this orchestrator died, nobody would cancel the plan at those that started.
TEST_F(PlanningTest, NoMemberIsStartedWhileAnotherMayLackThePlan) {
  UpPrefill(4);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(assigns.size(), 4u);
  for (size_t i = 0; i < 3; ++i) Answer(assigns[i]);
  EXPECT_TRUE(Of<CallStart>(Opened(decode, assigns[0])).empty());
  EXPECT_EQ(Of<CallStart>(Answer(assigns[3])).size(), 4u);
}

// Else the younger would hold decode room while it waits for the older, which may wait for that
// room.
TEST_F(PlanningTest, APlanOnSeveralInstancesIsPlacedWhenAllOlderOnesThereAreOpen) {
  UpPrefill(2);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto older = Of<CallAssign>(Submit(1, 2000));
  const Effects submitted = Submit(2, 2000);
  const auto younger = Of<CallAssign>(submitted);
  ASSERT_EQ(younger.size(), 2u);
  EXPECT_TRUE(Of<CallAnnounce>(submitted).empty());
  EXPECT_FALSE(younger[0].request.placed.has_value());
  for (const CallAssign& assign : older) Answer(assign);
  Answer(younger[0]);
  // Only the lead may ask; it is answered when every member has the plan.
  EXPECT_EQ(Of<AnswerPlaceDecode>(Ask(younger[1]))[0].reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(PlacedAt(Ask(younger[0])), InstanceId{});
  EXPECT_EQ(PlacedAt(Answer(younger[1])), InstanceId{});
  EXPECT_EQ(core_->Snapshot(now_).waiting, 1);
  EXPECT_EQ(PlacedAt(Opened(decode, older[0])), decode);
  EXPECT_EQ(Of<CallStart>(Opened(decode, younger[0])).size(), 2u);
}

TEST_F(PlanningTest, PlansAreCountedOnceTheirPromptIsComputed) {
  const auto prefill = UpPrefill(2);
  const InstanceId decode = Up(Role::kDecode, 2);
  EXPECT_TRUE(core_->Snapshot(now_).plans.at("m").plans_by_chunks.empty());
  const auto counted = Place(1, 2000);
  now_ += 2 * kSecondUs;
  for (size_t i = 0; i < 2; ++i) Report(prefill[i], {}, {Ended(counted[i])});
  Report(decode, {}, {Ended(counted[0])});
  Place(2, 2000);
  Do(Closed({7, 2}));  // before anything was computed
  const PlanTotals totals = core_->Snapshot(now_).plans.at("m");
  EXPECT_EQ(totals.plans_by_chunks, (std::map<size_t, uint64_t>{{1, 1}}));
  EXPECT_EQ(totals.chunks_by_shape, (std::map<std::pair<size_t, int>, uint64_t>{{{2, 1}, 1}}));
  EXPECT_NEAR(totals.estimated_s, 1e-3 + 2000 * 0.55e-3, 1e-9);
  EXPECT_DOUBLE_EQ(totals.actual_s, 2);
  EXPECT_DOUBLE_EQ(totals.error_s, totals.actual_s - totals.estimated_s);
}

TEST_F(PlanningTest, AWordOfTheRouterAfterTheEndCountsAPlanOnce) {
  UpPrefill(2);
  Up(Role::kDecode, 2);
  const auto assigns = Place(1, 2000);
  RouterConnects(7);  // its router has all tokens, and no instance has reported yet
  RouterEnd end;
  end.id = assigns[0].request.spec->id;
  end.how = RouterEnd::How::kMaxTokens;
  end.first_token_us = kSecondUs;
  for (int i = 0; i < 2; ++i) {
    Do(RouterEnded{end});
    EXPECT_EQ(core_->Snapshot(now_).plans.at("m").plans_by_chunks,
              (std::map<size_t, uint64_t>{{1, 1}}));
  }
}

TEST_F(PlanningTest, AShortPromptAndOneWithLogprobsArePlain) {
  UpPrefill(2);
  Up(Role::kDecode, 2);
  const auto brief = Of<CallAssign>(Submit(1, 2));
  ASSERT_EQ(brief.size(), 1u);
  EXPECT_TRUE(brief[0].request.members.empty());
  auto spec = Spec(2, 2000);
  spec->want_prompt_logprobs = true;
  const auto scored = Of<CallAssign>(Do(SubmitCalled{spec}));
  ASSERT_EQ(scored.size(), 1u);
  EXPECT_TRUE(scored[0].request.members.empty());
  EXPECT_NE(scored[0].instance, brief[0].instance);  // the other one's queue is shorter
  EXPECT_NE(core_->Explain("cmpl-2", now_)[0].plans[0].how.find("logprobs"), std::string::npos);
}

// A profile needs prompts that one instance computed, also of a cluster that would share them.
TEST_F(PlanningTest, APromptIsPlannedAloneWhenItsSubmitterAsks) {
  for (const char* policy : {"tetris", "fixed2", "rolling"}) {
    Make(policy);
    UpPrefill(4);
    Up(Role::kDecode, 2);
    const auto alone =
        Of<CallAssign>(Do(SubmitCalled{Spec(1, 4000), PrefillShape{.instances = 1}}));
    ASSERT_EQ(alone.size(), 1u) << policy;
    EXPECT_TRUE(alone[0].request.members.empty()) << policy;
    EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].plans[0].how,
              "one instance: the request asks for one");
  }
}

// A profile needs each size, also of a cluster that would choose another.
TEST_F(PlanningTest, APromptIsPlannedInTheShapeThatItsSubmitterAsksFor) {
  for (const char* policy : {"tetris", "fixed2", "rolling"}) {
    Make(policy);
    UpPrefill(4);
    Up(Role::kDecode, 2);
    const auto assigns =
        Of<CallAssign>(Do(SubmitCalled{Spec(1, 4000), PrefillShape{.instances = 4, .tp = 2}}));
    ASSERT_EQ(assigns.size(), 4u) << policy;
    ASSERT_EQ(assigns[0].request.chunks.size(), 1u) << policy;
    EXPECT_EQ(assigns[0].request.chunks[0].members, (std::vector<uint32_t>{0, 1, 2, 3}));
    EXPECT_EQ(assigns[0].request.chunks[0].tp, 2u) << "although the profile has no such shape";
    EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].plans[0].how,
              "4 instances with a tensor-parallel size of 2: the request asks for them");
  }
}

// Such a profile may be the first of the cluster: the prompts are those that measure the others.
TEST_F(PlanningTest, AShapeOfMoreInstancesThanTheProfileKnowsIsPlanned) {
  latency_ = *LatencyModel::Make({{1, {0, 1e-3, 0, 0}}});
  for (const char* policy : {"tetris", "fixed1", "rolling"}) {
    for (const uint32_t tp : {1, 4}) {
      Make(policy);
      const auto prefill = UpPrefill(4);
      Up(Role::kDecode, 2);
      const auto assigns =
          Of<CallAssign>(Do(SubmitCalled{Spec(1, 4000), PrefillShape{.instances = 4, .tp = tp}}));
      ASSERT_EQ(assigns.size(), 4u) << policy;
      EXPECT_EQ(assigns[0].request.chunks[0].tp, tp) << policy;
      EXPECT_NEAR(QueueSeconds(prefill[3]), 4, 1e-9) << policy << ": as one instance would take";
      UpPrefill(1);  // the pool is laid out anew
      EXPECT_EQ(Of<CallAssign>(Submit(2, 100)).size(), 1u) << policy;
      for (const CallAssign& assign : Placed(assigns)) Report(assign.instance, {}, {Ended(assign)});
      EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].plans.size(), 1u) << policy;
    }
  }
}

TEST_F(PlanningTest, OneInstanceAndInstancesWithoutAddressPlanPlain) {
  UpPrefill(1);
  Up(Role::kDecode, 2);
  EXPECT_TRUE(Of<CallAssign>(Submit(1, 2000))[0].request.members.empty());
  Make("tetris");
  for (uint64_t i = 50; i < 52; ++i) {
    WorkerIdentity identity = Identity(Role::kPrefill, i);
    identity.comm_address.clear();
    const auto reply = Of<AnswerRegister>(Do(RegisterCalled{Call(), {identity}}))[0].reply;
    incarnations_[reply.instance] = {i};
    Report(reply.instance);
  }
  Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 2000));
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_TRUE(assigns[0].request.members.empty());
}

TEST_F(PlanningTest, AssignsAreSentInTheOrderOfTheirSequences) {
  UpPrefill(2);
  Up(Role::kDecode, 2);
  PlanSequence last;
  for (uint64_t serial = 1; serial <= 3; ++serial) {
    const auto assigns = Of<CallAssign>(Submit(serial, 4000));
    ASSERT_FALSE(assigns.empty());
    EXPECT_GT(assigns[0].request.sequence, last);
    last = assigns[0].request.sequence;
  }
}

// The state is the estimated queue times; the plan is that of skeinctl plan for it.
TEST_F(PlanningTest, PlansAsSkeinctlPlanDoesForTheSameState) {
  const LatencyModel latency = TestLatency();
  for (const double rate : {0.0, 0.2}) {
    Make("tetris", rate);
    const auto prefill = UpPrefill(8);
    const InstanceId decode = Up(Role::kDecode, 2);
    CdspPlanner planner(latency, {8, 4});
    for (uint64_t serial = 1; serial <= 40; ++serial) {
      now_ += static_cast<TimeUs>(serial * 37 % 11) * 100 * kMillisecondUs;
      for (const InstanceId id : prefill) Report(id);
      Report(decode);
      const auto tokens = static_cast<int64_t>(300 + serial * serial * 613 % 5000);
      std::vector<double> queue_s;
      for (const InstanceId id : prefill) queue_s.push_back(QueueSeconds(id));
      PrefillPlan expected;
      planner.Plan(queue_s, tokens, {.improvement_rate = rate}, &expected);
      RoundToBlocks(kTestBlockTokens, &expected);
      const auto assigns = Of<CallAssign>(Submit(serial, tokens));
      const Explanation explained = core_->Explain("cmpl-" + std::to_string(serial), now_)[0];
      const PlanExplanation& plan = explained.plans.at(0);
      ASSERT_EQ(plan.chunks.size(), expected.chunks.size());
      EXPECT_EQ(plan.ttft_s, expected.ttft_s);
      for (size_t k = 0; k < plan.chunks.size(); ++k) {
        EXPECT_EQ(plan.chunks[k].tokens, expected.chunks[k].tokens);
        std::set<InstanceId> of_plan;
        for (const int i : expected.chunks[k].instances) of_plan.insert(prefill.at(i));
        const auto& of_core = plan.chunks[k].instances;
        EXPECT_EQ(std::set<InstanceId>(of_core.begin(), of_core.end()), of_plan);
      }
      EXPECT_EQ(assigns.size(), expected.chunks.back().instances.size());
    }
    EXPECT_GT(core_->Snapshot(now_).sp_plans, 10u);
  }
}

TEST_F(PlanningTest, ChunksHaveGrowingMembersOnBlockBoundaries) {
  const auto prefill = UpPrefill(4);
  Up(Role::kDecode, 2);
  auto spec = Spec(1, 1003);
  spec->want_prompt_logprobs = true;  // keeps one instance busy, alone
  Do(SubmitCalled{spec});
  const auto assigns = Of<CallAssign>(Submit(2, 4999));
  ASSERT_EQ(assigns.size(), 4u);
  const AssignOrder& request = assigns[0].request;
  ASSERT_EQ(request.chunks.size(), 2u);  // two until the third is free, then four
  EXPECT_EQ(request.chunks[0].tokens % kTestBlockTokens, 0);
  EXPECT_EQ(request.chunks[0].tokens + request.chunks[1].tokens, 4999);
  EXPECT_EQ(request.chunks[0].members, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(request.chunks[1].members, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(request.members[3].instance == prefill[0] || request.members[2].instance == prefill[0],
            true);
}

TEST_F(PlanningTest, QueueTimesAreCorrectedByReports) {
  const auto prefill = UpPrefill(2);
  Up(Role::kDecode, 2);
  const auto assigns = Place(1, 2000);
  EXPECT_NEAR(QueueSeconds(prefill[0]), 1.101, 1e-9);  // it can begin, so it runs
  now_ += 500 * kMillisecondUs;
  EXPECT_NEAR(QueueSeconds(prefill[0]), 0.601, 1e-9);
  Report(prefill[0], {Held(assigns[0], 0, 400 * kMillisecondUs)});
  EXPECT_NEAR(QueueSeconds(prefill[1]), 0.701, 1e-9);  // it began later than was thought
  now_ += kSecondUs;
  EXPECT_EQ(QueueSeconds(prefill[0]), 0);  // late: at any moment
  Report(prefill[0], {Held(assigns[0], 1)});
  Report(prefill[1], {Held(assigns[1], 1)});
  const PlanExplanation plan = core_->Explain("7/1", now_)[0].plans[0];
  EXPECT_EQ(plan.chunks[0].started_us, 100 * kMillisecondUs);
  EXPECT_EQ(plan.chunks[0].ended_us, 1500 * kMillisecondUs);
}

// A plain prompt is computed while it waits for decode room: it keeps the instance busy as long as
// it is computed, and not as long as it waits.
TEST_F(PlanningTest, AQueueTimeHasNoWaitForDecodeRoom) {
  const InstanceId prefill = UpPrefill(1)[0];
  free_blocks_ = 0;
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign one = Of<CallAssign>(Submit(1, 2000)).at(0);
  const CallAssign two = Of<CallAssign>(Submit(2, 1000)).at(0);
  for (const CallAssign& assign : {one, two}) {
    ASSERT_FALSE(assign.request.placed.has_value());
    Answer(assign);
  }
  now_ += 100 * kMillisecondUs;
  EXPECT_NEAR(QueueSeconds(prefill), 3, 1e-9) << "none has begun";
  for (const CallAssign& assign : {one, two}) EXPECT_EQ(PlacedAt(Ask(assign)), InstanceId{});
  now_ += kSecondUs;
  EXPECT_NEAR(QueueSeconds(prefill), 2, 1e-9);
  now_ += 500 * kMillisecondUs;
  Report(prefill, {Held(one, 1), Held(two)});
  EXPECT_NEAR(QueueSeconds(prefill), 1, 1e-9) << "the second one has begun now";
  now_ += 400 * kMillisecondUs;
  EXPECT_NEAR(QueueSeconds(prefill), 0.6, 1e-9);
  Report(prefill, {Held(one, 1), Held(two, 1)});
  EXPECT_EQ(QueueSeconds(prefill), 0);
  free_blocks_ = 100000;
  EXPECT_EQ(PlacedAt(Report(decode)), decode);
  Opened(decode, one);
  EXPECT_EQ(QueueSeconds(prefill), 0) << "it is not computed again";
  const ChunkExplanation chunk = core_->Explain("7/1", now_)[0].plans[0].chunks[0];
  EXPECT_EQ(chunk.started_us, 100 * kMillisecondUs);
  EXPECT_EQ(chunk.ended_us, 1600 * kMillisecondUs);
}

// One of two is free at once and waits in the step for the other, which is busy for two seconds.
TEST_F(PlanningTest, AChunkBeginsWhenItsLastMemberIsThere) {
  Make("fixed2");
  const auto prefill = UpPrefill(2);
  Up(Role::kDecode, 2);
  auto plain = Spec(1, 2000);
  plain->want_prompt_logprobs = true;
  const auto alone = Placed(Of<CallAssign>(Do(SubmitCalled{plain})));
  ASSERT_EQ(alone.size(), 1u);
  const auto both = Place(2, 2000);
  ASSERT_EQ(both.size(), 2u);
  const auto at = [&](InstanceId instance) {
    return both[0].instance == instance ? both[0] : both[1];
  };
  const InstanceId busy = alone[0].instance;
  const InstanceId idle = busy == prefill[0] ? prefill[1] : prefill[0];
  now_ += kSecondUs;
  Report(idle, {Held(at(idle), 0, kSecondUs)});
  EXPECT_NEAR(QueueSeconds(busy), 1 + 1.101, 1e-9);
  EXPECT_NEAR(QueueSeconds(idle), 1 + 1.101, 1e-9);
  now_ += kSecondUs;
  Report(busy, {Held(at(busy))}, {Ended(alone[0])});
  now_ += 500 * kMillisecondUs;
  Report(idle, {Held(at(idle), 0, 2500 * kMillisecondUs)});
  EXPECT_NEAR(QueueSeconds(idle), 0.601, 1e-9);
  Report(busy, {Held(at(busy), 0, 400 * kMillisecondUs)});
  EXPECT_NEAR(QueueSeconds(idle), 0.701, 1e-9);
}

// A member that joins for the second chunk is in that one's step while the first one runs.
TEST_F(PlanningTest, WhoJoinsSaysNothingOfTheChunksBefore) {
  const auto prefill = UpPrefill(4);
  Up(Role::kDecode, 2);
  auto plain = Spec(1, 8000);
  plain->want_prompt_logprobs = true;
  Placed(Of<CallAssign>(Do(SubmitCalled{plain})));
  const auto assigns = Place(2, 60000);
  ASSERT_EQ(assigns.size(), 4u);
  const auto& chunks = assigns[0].request.chunks;
  ASSERT_EQ(chunks.size(), 2u);
  const size_t before = chunks[0].members.size();
  ASSERT_LT(before, 4u);
  const double end_s = QueueSeconds(assigns[0].instance);
  now_ += kSecondUs;
  Report(assigns[before].instance, {Held(assigns[before], 0, 100 * kMillisecondUs)});
  EXPECT_NEAR(QueueSeconds(assigns[0].instance), end_s - 1, 1e-9);
  EXPECT_EQ(core_->Explain("7/2", now_)[0].plans[0].chunks[0].started_us, 0);
}

TEST_F(PlanningTest, UnequalNodesAndPoolsThatGrowWork) {
  Up(Role::kPrefill, 11, "a");
  Up(Role::kPrefill, 12, "b");
  Up(Role::kPrefill, 13, "b");
  Up(Role::kDecode, 2);
  const auto two = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].request.members[0].endpoint, "w:12");  // a node's, and not across nodes
  Up(Role::kPrefill, 14, "a");
  Up(Role::kPrefill, 15, "a");
  Up(Role::kPrefill, 16, "a");
  const auto four = Of<CallAssign>(Submit(2, 40000));
  ASSERT_EQ(four.size(), 4u);
  EXPECT_EQ(four[0].request.members[0].endpoint, "w:11");
}

// The orchestrator outlives its workers, who may come back with another block size.
TEST_F(PlanningTest, ChunksEndOnTheBlocksOfTheInstancesThatAreThere) {
  for (const char* policy : {"random", "rolling"}) {
    Make(policy);
    shape_ = TestShape();
    std::vector<InstanceId> before = UpPrefill(4);
    before.push_back(Up(Role::kDecode, 2));
    Submit(1, 9000);
    for (const InstanceId id : before) Do(UnregisterCalled{Call(), {id, incarnations_.at(id)}});
    shape_.block_tokens = 96;
    UpPrefill(2);
    Up(Role::kDecode, 2);
    Place(2, 8000);  // two of four are busy: what comes begins on the others
    UpPrefill(2);
    bool cut = false;
    for (uint64_t serial = 3; serial < 30; ++serial) {
      const auto assigns = Of<CallAssign>(Submit(serial, 40000 + 7 * static_cast<int64_t>(serial)));
      if (assigns.empty()) continue;  // rolling: it waits
      int64_t boundary = 0;
      for (const PlanChunk& chunk : assigns[0].request.chunks) {
        boundary += chunk.tokens;
        if (boundary == 40000 + 7 * static_cast<int64_t>(serial)) continue;
        EXPECT_EQ(boundary % 96, 0) << policy;
        cut = true;
      }
    }
    EXPECT_TRUE(cut) << policy;
  }
}

TEST_F(PlanningTest, MembersAreToldHowLongAChunkShouldTake) {
  Make("fixed2");
  UpPrefill(2);
  Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(assigns.size(), 2u);
  const double ttft_s = core_->Explain("req-1", now_)[0].plans[0].ttft_s;
  ASSERT_GT(ttft_s, 0);
  for (const CallAssign& assign : assigns) {
    EXPECT_NEAR(static_cast<double>(assign.request.chunks[0].estimated_us) * 1e-6, ttft_s, 1e-5);
  }
}

TEST_F(PlanningTest, PoliciesPlanAsTheirNamesSay) {
  for (const auto& [policy, rate, members] : std::vector<std::tuple<const char*, double, size_t>>{
           {"greedy", 0.9, 4}, {"single", 0.8, 1}, {"single", 0.4, 4}, {"fixed2", 0, 2}}) {
    Make(policy, rate);
    UpPrefill(4);
    Up(Role::kDecode, 2);
    EXPECT_EQ(Of<CallAssign>(Submit(1, 4000)).size(), members) << policy << rate;
  }
  Make("fixed4");
  UpPrefill(3);
  Up(Role::kDecode, 2);
  EXPECT_EQ(Of<CallAssign>(Submit(1, 4000)).size(), 1u);  // no group is whole
}

TEST_F(PlanningTest, ImprovementRatesAreReplacedWhileRunning) {
  UpPrefill(4);
  Up(Role::kDecode, 2);
  EXPECT_EQ(Of<CallAssign>(Submit(1, 4000)).size(), 4u);
  Do(Closed({7, 1}));
  Do(ReplacePlanningTables{{ImprovementRateTable::Constant(0.9)}});
  EXPECT_EQ(Of<CallAssign>(Submit(2, 4000)).size(), 1u);
  EXPECT_EQ(core_->Explain("req-2", now_)[0].plans[0].improvement_rate, 0.9);
}

// A model's own table, also one that came before its instances, until all get another.
TEST_F(PlanningTest, ImprovementRatesAreReplacedForOneModel) {
  const auto rates = [](double rate) {
    return PlanningTables{.improvement_rates = ImprovementRateTable::Constant(rate)};
  };
  Do(ReplacePlanningTables{rates(0.9), "m"});
  Do(ReplacePlanningTables{rates(0.1), "another"});
  UpPrefill(4);
  Up(Role::kDecode, 2);
  const auto planned_with = [&](uint64_t number) {
    Submit(number, 4000);
    return core_->Explain(absl::StrCat("req-", number), now_)[0].plans[0].improvement_rate;
  };
  EXPECT_EQ(planned_with(1), 0.9);
  Do(ReplacePlanningTables{rates(0.2), "another"});
  EXPECT_EQ(planned_with(2), 0.9);
  Do(ReplacePlanningTables{rates(0.6), "m"});
  EXPECT_EQ(planned_with(3), 0.6);
  Do(ReplacePlanningTables{rates(0.3), ""});
  EXPECT_EQ(planned_with(4), 0.3);
}

TEST_F(PlanningTest, AnExplanationNamesAlternativesAndOutlivesItsRequest) {
  Make("single", 0.4);
  const auto prefill = UpPrefill(2);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto assigns = Place(1, 2000);
  const Explanation live = core_->Explain("cmpl-1", now_).at(0);
  EXPECT_EQ(live.state, "prefilling");
  EXPECT_EQ(live.policy, "single");
  EXPECT_EQ(live.prompt_tokens, 2000);
  const PlanExplanation& plan = live.plans.at(0);
  EXPECT_EQ(plan.queue_s.size(), 2u);
  ASSERT_EQ(plan.alternatives.size(), 2u);
  EXPECT_EQ(plan.alternatives[0].why, "SP 2 is 45.0 % faster");
  EXPECT_EQ(plan.alternatives[1].why, "chosen");
  EXPECT_NEAR(plan.alternatives[0].ttft_s, 2.0, 1e-9);
  now_ = kSecondUs;
  for (size_t i = 0; i < 2; ++i) Report(prefill[i], {}, {Ended(assigns[i])});
  now_ = 2 * kSecondUs;
  Report(decode, {}, {Ended(assigns[0])});
  now_ = 3 * kSecondUs;
  for (const char* name : {"cmpl-1", "req-1", "7/1"}) {
    const auto found = core_->Explain(name, now_);
    ASSERT_EQ(found.size(), 1u) << name;
    EXPECT_EQ(found[0].state, "completed: stop token");
    EXPECT_EQ(found[0].prefilled_us, kSecondUs);
    EXPECT_EQ(found[0].ended_us, 2 * kSecondUs);
    EXPECT_EQ(found[0].age_us, 3 * kSecondUs);
  }
  EXPECT_TRUE(core_->Explain("cmpl-2", now_).empty());
}

TEST_F(PlanningTest, ReportsThatComeAfterTheEndCorrectAnExplanation) {
  Make("fixed2");
  const auto prefill = UpPrefill(2);
  Up(Role::kDecode, 2);
  const std::vector<CallAssign> taken = Place(1, 2000);
  const std::vector<CallAssign> cancelled = Place(2, 2000);
  now_ = kSecondUs;
  for (uint64_t submit : {10001, 10002}) Do(Closed({7, submit - 10000}));
  Report(prefill[0], {}, {Ended(taken[0]), Ended(cancelled[0])});
  EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].prefilled_us, -1);
  EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].state, "client disconnected");
  now_ = 2 * kSecondUs;
  Report(prefill[1], {}, {Ended(taken[1]), Ended(cancelled[1], absl::CancelledError(""))});
  const Explanation whole = core_->Explain("cmpl-1", now_).at(0);
  EXPECT_EQ(whole.prefilled_us, kSecondUs);
  EXPECT_EQ(whole.ended_us, kSecondUs);
  EXPECT_EQ(whole.state, "client disconnected");
  const Explanation part = core_->Explain("cmpl-2", now_).at(0);
  EXPECT_EQ(part.prefilled_us, -1);
  EXPECT_EQ(part.state, "client disconnected");
}

TEST_F(PlanningTest, TheMemoryOfExplanationsIsBounded) {
  UpPrefill(2);
  Up(Role::kDecode, 2);
  for (uint64_t serial = 1; serial <= 1100; ++serial) {
    Submit(serial, 8);
    Do(Closed({7, serial}));
  }
  EXPECT_TRUE(core_->Explain("cmpl-100", now_).empty());
  EXPECT_EQ(core_->Explain("cmpl-101", now_).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
