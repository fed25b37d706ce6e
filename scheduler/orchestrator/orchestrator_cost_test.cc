// What an event or a question costs OrchestratorCore while there are many requests or instances:
// counted in allocations and in the instances that are looked at, which do not depend on the
// machine.
#include <cstdlib>
#include <new>

#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace {
int64_t allocations = 0;
}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace skein::scheduler {
namespace {

class OrchestratorCostTest : public PlanningTest {
 protected:
  // Without the checks of Do, which walk over all.
  int64_t AllocationsOf(const OrchestratorEvent& event) {
    const int64_t before = allocations;
    core_->Handle(event, now_);
    return allocations - before;
  }
  void Begin(const char* policy) {
    Make(policy);
    serials_ = 0;
    UpPrefill(2);
    Up(Role::kDecode, ++last_incarnation_);
  }
  void SubmitMany(int count) {
    for (int i = 0; i < count; ++i) {
      core_->Handle(SubmitCalled{Spec(++serials_, 8)}, now_);
    }
  }

  uint64_t serials_ = 0;
};

TEST_F(OrchestratorCostTest, AQuestionByNameDoesNotGrowWithTheRequests) {
  const auto cost = [this](int requests) {
    Begin("single");
    SubmitMany(requests);
    const int64_t before = allocations;
    EXPECT_EQ(core_->Explain("cmpl-1", now_).size(), 1u);
    return allocations - before;
  };
  EXPECT_EQ(cost(1000), cost(10));
}

// The rolling planner decides where something has changed, and nowhere else.
TEST_F(OrchestratorCostTest, AnEventOfOneModelDoesNotPlanAnother) {
  const auto cost = [this](int requests) {
    Begin("rolling");
    SubmitMany(requests);  // of m: some of them wait
    EXPECT_EQ(core_->Totals().planning > 0, requests > 1);
    WorkerIdentity other = Identity(Role::kPrefill, ++last_incarnation_);
    other.model = "other";
    return AllocationsOf(RegisterCalled{Call(), {.identity = other}});
  };
  EXPECT_EQ(cost(200), cost(1));
}

// With its decode place. That its choice looks at few of them: freeness_order_test.
TEST_F(OrchestratorCostTest, WhatAPlanAllocatesDoesNotGrowWithTheInstances) {
  const auto cost = [this](int instances) {
    Make("single");
    serials_ = 0;
    UpPrefill(instances);
    for (int i = 0; i < instances; ++i) Up(Role::kDecode, ++last_incarnation_);
    SubmitMany(2);  // the pools are laid out
    return AllocationsOf(SubmitCalled{Spec(++serials_, 8)});
  };
  EXPECT_EQ(cost(512), cost(32));
}

// Of those that came in half a lease.
TEST_F(OrchestratorCostTest, AfterARestartEachTickPlansAFewOfTheSubmissionsThatWaited) {
  constexpr int kSubmissions = 500;
  const OrchestratorConfig config{.generation = 2};
  core_ = std::make_unique<OrchestratorCore>(config);
  UpPrefill(2);
  Up(Role::kDecode, ++last_incarnation_);
  SubmitMany(kSubmissions);
  ASSERT_EQ(core_->Totals().planning, kSubmissions);
  now_ += config.instance_lease_us / 2;
  const auto later = core_->Handle(SubmitCalled{Spec(++serials_, 8)}, now_);
  EXPECT_TRUE(Of<CallAssign>(later).empty()) << "a round may bring many messages";
  uint64_t planned = 0;
  for (int ticks = 0; planned < serials_ && ticks < kSubmissions; ++ticks) {
    ASSERT_LE(core_->NextDeadline(), now_) << "the next follow at once";
    const auto assigned = Of<CallAssign>(core_->Handle(OrchestratorTick{}, now_));
    EXPECT_LE(assigned.size(), 64u);
    for (const CallAssign& one : assigned) {
      EXPECT_EQ(one.request.spec->id.serial, ++planned) << "in the order in which they came";
    }
  }
  EXPECT_EQ(planned, serials_);
  EXPECT_EQ(core_->Totals().planning, 0);
}

#ifndef NDEBUG

// A pool of so many prefill and decode instances, and what each kind of event looks at there.
class LooksTest : public OrchestratorCostTest {
 protected:
  using Looks = std::map<std::string, int64_t>;

  void UpEach(int count) {
    prefill_.clear();
    decode_.clear();
    for (int i = 0; i < count; ++i) {
      for (const Role role : {Role::kPrefill, Role::kDecode}) {
        const WorkerIdentity identity = Identity(role, ++last_incarnation_);
        const CallId stream = Call();
        const auto effects = core_->Handle(
            RegisterCalled{stream, {.identity = identity, .load = LoadOf(false)}}, now_);
        const InstanceId id = Of<AnswerRegister>(effects)[0].reply.instance;
        (role == Role::kPrefill ? prefill_ : decode_).push_back(id);
        incarnations_[id] = identity.incarnation;
        streams_[id] = stream;
      }
    }
  }
  Effects Count(const std::string& name, const OrchestratorEvent& event) {
    const int64_t before = looks;
    Effects effects = core_->Handle(event, now_);
    counted_[name] = std::max(counted_[name], looks - before);
    return effects;
  }
  ReportCalled ReportOf(InstanceId instance, std::vector<HeldRequest> held = {},
                        bool draining = false) {
    const uint64_t digest = DigestOf(held);
    return {Call(),
            {.instance = instance,
             .incarnation = incarnations_[instance],
             .serial = ++serial_,
             .load = LoadOf(draining),
             .held = std::move(held),
             .full = true,
             .held_digest = digest}};
  }
  // A request's life, and everything that comes beside it.
  Looks LooksOf(int instances) {
    counted_.clear();
    serials_ = 0;
    UpEach(instances);
    Count("router connects",
          RouterConnected{Call(),
                          {.identity = {.router = 7, .endpoint = "r:1"}, .stream = ++hellos_}});
    SubmitMany(1);  // the pools are read for the first time
    const auto planned = Of<CallAssign>(Count("submit", SubmitCalled{Spec(++serials_, 8)}));
    const CallAssign& assign = planned.at(0);
    const RequestId id = assign.request.spec->id;
    const Epoch epoch = assign.request.epoch;
    for (const CallAssign& one : planned) {
      Count("answer", AssignReplied{one.instance, id, epoch, {}, one.request.sequence});
    }
    Count("opened", TransferOpened{assign.request.placed->decode, id, epoch});
    Count("progress", ReportOf(assign.instance, {{.id = id, .epoch = epoch, .opened = true}}));
    Count("heartbeat", ReportOf(prefill_.back()));
    Count("heartbeat", ReportOf(decode_.back()));
    Count("reconnects", RegisterCalled{Call(),
                                       {.identity = Identity(Role::kDecode, last_incarnation_),
                                        .load = LoadOf(false),
                                        .stream = ++hellos_}});
    Count("refused", PlaceDecodeCalled{Call(),
                                       {.instance = assign.instance,
                                        .incarnation = incarnations_[assign.instance],
                                        .id = id,
                                        .epoch = epoch,
                                        .refused_by = assign.request.placed->decode,
                                        .why = absl::ResourceExhaustedError("no room")}});
    Count("stream breaks", WorkerDisconnected{streams_[prefill_.front()]});
    now_ += kSecondUs;
    Count("tick", OrchestratorTick{});
    Count("ends", RouterEnded{{.id = id, .how = RouterEnd::How::kClientGone}});
    const int64_t before = looks;
    core_->NextDeadline();
    const OrchestratorSnapshot totals = core_->Totals();  // what ListModels answers, too
    counted_["metrics"] = looks - before;
    EXPECT_EQ(totals.models.at("m").prefill.instances, instances);
    EXPECT_EQ(totals.models.at("m").decode.instances, instances);
    return counted_;
  }

  Looks counted_;
  std::vector<InstanceId> prefill_, decode_;
};

TEST_F(LooksTest, WithoutAProfileNoEventLooksAtAllInstances) {
  const auto of = [this](int instances) {
    MakeWithoutProfile();
    return LooksOf(instances);
  };
  const Looks few = of(64);
  EXPECT_EQ(of(1024), few);
  for (const auto& [event, count] : few) EXPECT_LE(count, 4) << event;
}

TEST_F(LooksTest, OnlyAPlanWalksOverItsPoolAndOnlyOnce) {
  const auto of = [this](int instances) {
    Make("tetris");
    return LooksOf(instances);
  };
  Looks few = of(64), many = of(1024);
  EXPECT_EQ(many["submit"] - few["submit"], 1024 - 64);
  EXPECT_LE(few["submit"], 64 + 4);
  few.erase("submit");
  many.erase("submit");
  EXPECT_EQ(many, few);
  for (const auto& [event, count] : few) EXPECT_LE(count, 4) << event;
}

// What cannot fit is refused without a look at each instance.
TEST_F(LooksTest, APromptThatIsTooLargeIsRefusedWithoutAWalk) {
  const auto of = [this](int instances) {
    MakeWithoutProfile();
    total_blocks_ = 10;
    UpEach(instances);
    SubmitMany(1);
    auto spec = Spec(++serials_, 10 * kTestBlockTokens + 1);
    spec->want_prompt_logprobs = true;
    spec->max_tokens = 0;
    Count("too large", SubmitCalled{spec});
    return counted_.at("too large");
  };
  EXPECT_LE(of(1024), 4);
}

// Their prompts fit only into another instance, and that one is busy.
TEST_F(LooksTest, AReportTriesFewOfTheRequestsThatItsInstanceCannotTake) {
  const auto of = [this](int parked) {
    MakeWithoutProfile();
    serials_ = 0;
    counted_.clear();
    max_requests_ = 0;
    total_blocks_ = 2;
    UpEach(1);
    const InstanceId small = prefill_.back();
    max_requests_ = 1;
    total_blocks_ = 1000;
    UpEach(1);
    for (int i = 0; i < parked + 1; ++i) {
      core_->Handle(SubmitCalled{Spec(++serials_, 10 * kTestBlockTokens)}, now_);
    }
    EXPECT_EQ(core_->Totals().parked, parked);
    Count("report", ReportOf(small));
    EXPECT_EQ(core_->Totals().parked, parked);
    const Effects small_one = core_->Handle(SubmitCalled{Spec(++serials_, 4)}, now_);
    EXPECT_EQ(Of<CallAssign>(small_one).size(), 1u) << "it does not wait for them";
    return counted_.at("report");
  };
  EXPECT_EQ(of(500), of(20));
}

TEST_F(LooksTest, AReportOfAnInstanceThatDrainsLooksAtNothingThatItHolds) {
  const auto of = [this](int requests) {
    MakeWithoutProfile();
    serials_ = 0;
    counted_.clear();
    max_requests_ = 0;
    total_blocks_ = 1000;
    UpEach(1);
    SubmitMany(requests);
    core_->Handle(ReportOf(prefill_[0], {}, /*draining=*/true), now_);
    Count("report", ReportOf(prefill_[0], {}, /*draining=*/true));
    return counted_.at("report");
  };
  EXPECT_EQ(of(500), of(5));
}

#endif  // NDEBUG

}  // namespace
}  // namespace skein::scheduler
