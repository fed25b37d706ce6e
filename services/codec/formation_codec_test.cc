// The codec: formations and groups.
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"

namespace skein::services {
namespace {

TEST(FormationCodec, OrdersOfAFormationAndWhatIsToldOfItComeAsTheyWereSent) {
  const auto prepare = FromProto(ToProto(scheduler::PrepareFormation{5, 7, 2, 2, 1'000'000}));
  ASSERT_TRUE(prepare.ok()) << prepare.status();
  EXPECT_EQ(prepare->epoch, 5u);
  EXPECT_EQ(prepare->generation, 7u);
  EXPECT_EQ(prepare->first, 2);
  EXPECT_EQ(prepare->size, 2);
  EXPECT_EQ(prepare->keep_us, 1'000'000);
  EXPECT_EQ(prepare->own, scheduler::OwnSequences::kShare);
  EXPECT_FALSE(prepare->own_pause_us.has_value());
  for (const auto own :
       {scheduler::OwnSequences::kSequential, scheduler::OwnSequences::kSoftPreempt,
        scheduler::OwnSequences::kHardPreempt}) {
    const scheduler::PrepareFormation order = {.epoch = 5,
                                               .generation = 7,
                                               .size = 2,
                                               .shift = scheduler::ShiftRule{.tokens = 64},
                                               .own = own,
                                               .own_pause_us = 0};
    const auto decoded = FromProto(ToProto(order));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->own, own);
    EXPECT_EQ(decoded->shift, scheduler::ShiftRule{.tokens = 64});
    EXPECT_EQ(decoded->own_pause_us, 0);
  }
  EXPECT_EQ(FromProto(ToProto(scheduler::CommitFormation{5}))->epoch, 5u);
  const absl::Status why = absl::UnavailableError("rank 1: it died");
  for (const auto how : {scheduler::Switch::kSequential, scheduler::Switch::kHard}) {
    const auto end = FromProto(ToProto(scheduler::EndFormation{5, how, why}));
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->how, how);
    EXPECT_EQ(end->why, why);
  }
  using Phase = scheduler::FormationTold::Phase;
  for (const auto phase : {Phase::kPrepared, Phase::kBound, Phase::kEnded}) {
    const auto told = FromProto(ToProto(scheduler::FormationTold{5, phase, why, 20, 10}));
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->phase, phase);
    EXPECT_EQ(told->why, why);
    EXPECT_EQ(told->cut_over_us, 20);
    EXPECT_EQ(told->drain_us, 10);
  }
}

TEST(FormationCodec, OrdersAboutSharedWeightsComeAsTheyWereSent) {
  using scheduler::SharedMode;
  scheduler::PrepareFormation prepare{.epoch = 5, .generation = 7, .size = 4};
  EXPECT_FALSE(FromProto(ToProto(prepare))->shared.has_value());
  for (const SharedMode mode : {SharedMode::kWas, SharedMode::kCas}) {
    prepare.shared = mode;
    EXPECT_EQ(FromProto(ToProto(prepare))->shared, mode);
    using Act = scheduler::OrderMode::Act;
    for (const Act act : {Act::kReady, Act::kSet, Act::kDrop}) {
      const auto order = FromProto(ToProto(scheduler::OrderMode{5, 3, mode, act}));
      ASSERT_TRUE(order.ok()) << order.status();
      EXPECT_EQ(order->epoch, 5u);
      EXPECT_EQ(order->turn, 3u);
      EXPECT_EQ(order->mode, mode);
      EXPECT_EQ(order->act, act);
    }
  }
  using Phase = scheduler::ModeTold::Phase;
  const absl::Status why = absl::ResourceExhaustedError("no slots");
  for (const Phase phase : {Phase::kReady, Phase::kSet, Phase::kRefused}) {
    const auto told = FromProto(ToProto(scheduler::ModeTold{5, 3, phase, why}));
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->epoch, 5u);
    EXPECT_EQ(told->turn, 3u);
    EXPECT_EQ(told->phase, phase);
    EXPECT_EQ(told->why, why);
  }
  EXPECT_EQ(FromProto(v1::ModeOrder()).status().message(), "epoch: is 0");
  v1::ModeOrder order = ToProto(scheduler::OrderMode{5, 3});
  order.set_mode(v1::SHARED_MODE_UNSPECIFIED);
  EXPECT_EQ(FromProto(order).status().message(), "mode: is missing");
  order.set_mode(static_cast<v1::SharedMode>(9));
  EXPECT_EQ(FromProto(order).status().message(), "mode: 9 is unknown");
}

TEST(FormationCodec, TheBaseOfStepsComesAsItWasSentAndOneThatDoesNotFitNamesItsField) {
  scheduler::PrepareFormation order{.epoch = 5, .generation = 7, .size = 8};
  EXPECT_FALSE(FromProto(ToProto(order))->shift.has_value());
  for (const int32_t tp : {1, 2, 4}) {
    order.shift = scheduler::ShiftRule{.tokens = 64, .tp = tp};
    const auto decoded = FromProto(ToProto(order));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->shift, order.shift);
  }
  v1::PrepareFormation message = ToProto(order);
  for (const uint32_t tp : {3u, 8u, 16u}) {
    message.set_shift_tp(tp);
    EXPECT_EQ(FromProto(message).status().message(),
              absl::StrCat("shift_tp: ", tp, " is not a power of two below the size 8"));
  }
  message.set_shift_tp(~0u);
  EXPECT_TRUE(absl::StrContains(FromProto(message).status().message(), "shift_tp: 4294967295"));
  message.set_shift_tp(2);
  message.clear_shift_tokens();
  EXPECT_EQ(FromProto(message).status().message(), "shift_tp: 2 comes without shift_tokens");
}

TEST(FormationCodec, AnOrderOfAnOperatorSaysHowItsStepsRun) {
  v1::ChangeFormationRequest request;
  request.set_act(v1::ChangeFormationRequest::ACT_BIND);
  request.set_group("m@a");
  EXPECT_FALSE(FromProto(request)->shift.has_value());
  request.set_shift_tokens(0);
  EXPECT_EQ(FromProto(request)->shift, scheduler::ShiftRule{.tokens = 0});
  request.set_shift_tp(2);
  EXPECT_EQ(FromProto(request)->shift, (scheduler::ShiftRule{.tokens = 0, .tp = 2}));
  request.set_shift_tokens(~0ull);
  EXPECT_TRUE(absl::StrContains(FromProto(request).status().message(), "shift_tokens: "));
  request.clear_shift_tokens();
  EXPECT_EQ(FromProto(request).status().message(), "shift_tp: 2 comes without shift_tokens");
}

// Through staging buffers KV comes to the lead alone, in its own layout.
TEST(FormationCodec, AnExplanationNamesTheGroupWhereItComputesTheRequest) {
  scheduler::Explanation explanation;
  explanation.plans.push_back({.decode = {3}, .formation = 2, .formation_epoch = 7});
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 7u);
  EXPECT_EQ(ToProto(explanation).plans(0).formation_instances(), 2u);
  explanation.plans[0].handoffs.push_back({.prefill = {1}});
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 7u);
  explanation.plans[0].handoffs[0].path.staging_buffer = true;
  EXPECT_EQ(ToProto(explanation).plans(0).formation_epoch(), 0u);
  EXPECT_EQ(ToProto(explanation).plans(0).decode_instance(), 3u);
}

TEST(FormationCodec, AnExplanationTellsTheSwitchesOfTheGroup) {
  scheduler::Explanation explanation;
  explanation.plans.push_back({.decode = {3}});
  EXPECT_TRUE(ToProto(explanation).plans(0).switches().empty());
  scheduler::PlanExplanation& plan = explanation.plans[0];
  plan.switches_left_out = 2;
  plan.switches.resize(2);
  plan.switches[0] = {.epoch = 7,
                      .from = 1,
                      .to = 4,
                      .shared = scheduler::SharedMode::kCas,
                      .began_us = -500'000,
                      .ended_us = 250'000,
                      .cause = scheduler::SwitchCause::kContext,
                      .why = "long",
                      .own = scheduler::OwnSequences::kSoftPreempt,
                      .outcome = scheduler::orchestrator::SwitchOutcome::kAborted,
                      .reason = "instance 4 left",
                      .meaning = scheduler::SwitchMeaning::kTakenBack};
  const v1::PlanExplanation told = ToProto(explanation).plans(0);
  EXPECT_EQ(told.switches_left_out(), 2u);
  ASSERT_EQ(told.switches_size(), 2);
  EXPECT_EQ(told.switches(0).formation_epoch(), 7u);
  EXPECT_EQ(told.switches(0).from_instances(), 1u);
  EXPECT_EQ(told.switches(0).to_instances(), 4u);
  EXPECT_EQ(told.switches(0).shared(), v1::SHARED_MODE_CAS);
  EXPECT_EQ(told.switches(1).shared(), v1::SHARED_MODE_UNSPECIFIED);
  EXPECT_EQ(told.switches(0).start_s(), -0.5);
  EXPECT_EQ(told.switches(0).end_s(), 0.25);
  EXPECT_EQ(told.switches(0).cause(), "context");
  EXPECT_EQ(told.switches(0).why(), "long");
  EXPECT_EQ(told.switches(0).own(), "soft");
  EXPECT_EQ(told.switches(0).outcome(), "aborted");
  EXPECT_EQ(told.switches(0).reason(), "instance 4 left");
  EXPECT_EQ(told.switches(0).meaning(), "taken_back");
  EXPECT_FALSE(told.switches(1).has_end_s());
  EXPECT_EQ(told.switches(1).outcome(), "") << "it has not ended";
}

TEST(FormationCodec, AMalformedOrderOfAFormationNamesItsField) {
  const auto field = [](const auto& edit) {
    v1::PrepareFormation bad = ToProto(scheduler::PrepareFormation{5, 7, 2, 2, 1'000'000});
    edit(bad);
    return std::string(FromProto(bad).status().message());
  };
  EXPECT_EQ(field([](auto& bad) { bad.set_epoch(0); }), "epoch: is 0");
  EXPECT_EQ(field([](auto& bad) { bad.set_generation(0); }), "generation: is 0");
  EXPECT_EQ(field([](auto& bad) { bad.set_size(1); }), "size: 1 is below 2");
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_first(~0u); }), "first: 4294967295"));
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_keep_us(~0ull); }), "keep_us: "));
  EXPECT_TRUE(
      absl::StrContains(field([](auto& bad) { bad.set_own_pause_us(~0ull); }), "own_pause_us: "));
  EXPECT_EQ(field([](auto& bad) { bad.set_own(static_cast<v1::PrepareFormation::Own>(9)); }),
            "own: 9 is unknown");
  v1::EndFormation end = ToProto(scheduler::EndFormation{.epoch = 5});
  end.set_how(static_cast<v1::EndFormation::Switch>(9));
  EXPECT_EQ(std::string(FromProto(end).status().message()), "how: 9 is unknown");
  v1::FormationTold told = ToProto(scheduler::FormationTold{.epoch = 5});
  told.set_phase(static_cast<v1::FormationTold::Phase>(9));
  EXPECT_EQ(std::string(FromProto(told).status().message()), "phase: 9 is unknown");
}

TEST(FormationCodec, AGroupOrderKeepsItsMembersAndNamesABadField) {
  const scheduler::GroupOrder order{.generation = uint64_t{1} << 60,
                                    .index = 1,
                                    .members = {{{3}, "a"}, {{9}, std::string("b\0c", 3)}}};
  const auto decoded = FromProto(ToProto(order));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->generation, order.generation);
  EXPECT_EQ(decoded->index, 1u);
  ASSERT_EQ(decoded->members.size(), 2u);
  EXPECT_EQ(decoded->members[1].instance, scheduler::InstanceId{9});
  EXPECT_EQ(decoded->members[1].comm_address, order.members[1].comm_address);
  const auto field = [&order](const auto& edit) {
    v1::GroupOrder bad = ToProto(order);
    edit(bad);
    return std::string(FromProto(bad).status().message());
  };
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_generation(0); }), "generation"));
  EXPECT_TRUE(absl::StrContains(field([](auto& bad) { bad.set_index(2); }), "index: 2 of 2"));
  const auto twice = [](auto& bad) { bad.mutable_members(1)->set_instance(3); };
  EXPECT_TRUE(absl::StrContains(field(twice), "members.instance"));
  const auto nowhere = [](auto& bad) { bad.mutable_members(0)->clear_comm_address(); };
  EXPECT_TRUE(absl::StrContains(field(nowhere), "members.comm_address"));
}

}  // namespace
}  // namespace skein::services
