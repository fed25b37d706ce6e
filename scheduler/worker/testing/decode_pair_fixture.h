// Two DecodeCores that are bound as a group, the first one leads. Messages between them arrive at
// once; steps end when the test says so, those of the group at both. Pools of 10 blocks of 4
// tokens, 4 heads: a block of the group has 8 tokens.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler::testing {

class DecodePairTest : public ::testing::Test {
 protected:
  static constexpr Epoch kEpoch{5};  // of requests

  explicit DecodePairTest(int64_t max_requests = 3) {
    for (int rank = 0; rank < 2; ++rank) {
      DecodeConfig config;
      config.membership.identity = Identity(Role::kDecode, 10);
      config.membership.identity.incarnation = {9 + static_cast<uint64_t>(rank)};
      config.membership.identity.shape = Shape();
      config.membership.report_spacing_us = 0;
      config.membership.report_spacing_per_request_us = 0;
      config.memory = "memory";
      config.attach_lease_us = kSecondUs;
      config.launch_ahead = false;
      config.max_requests = max_requests;
      config.max_sequence_tokens = 100;
      config.group.can_share = absl::OkStatus();
      At(rank).core = std::make_unique<DecodeCore>(config);
      Do(rank, Tick{});
      Do(rank, RegisterReplied{{absl::OkStatus(), {3 + static_cast<uint64_t>(rank)}, 1'000'000}});
    }
  }

  // ---- formations ----

  void Prepare(OwnSequences own, TimeUs keep_us = kSecondUs) {
    ++formation_;
    for (int rank = 0; rank < 2; ++rank) {
      Do(rank, PrepareFormation{.epoch = formation_,
                                .generation = 1,
                                .size = 2,
                                .keep_us = keep_us,
                                .own = own,
                                .own_pause_us = own_pause_us_});
      Do(rank, FeedOpened{formation_, rank});
    }
  }
  bool Prepared(int rank) {
    return At(rank).told.epoch == formation_ &&
           At(rank).told.phase == FormationTold::Phase::kPrepared;
  }
  // REQUIRES: no own sequence has to end before.
  void Bind(OwnSequences own = OwnSequences::kShare) {
    Prepare(own);
    Commit();
  }
  void Commit() {
    Do(0, CommitFormation{formation_});
    Pass();
    const bool bound = At(0).told.phase == FormationTold::Phase::kBound &&
                       At(1).told.phase == FormationTold::Phase::kBound;
    if (!bound) Step();  // the own steps that ran
    EXPECT_EQ(At(0).told.phase, FormationTold::Phase::kBound);
    EXPECT_EQ(At(1).told.phase, FormationTold::Phase::kBound);
  }
  void Release(Switch how) {
    Do(0, EndFormation{formation_, how, absl::CancelledError("released")});
  }
  void Kill(int rank) {
    At(rank).dead = true;
    Do(1 - rank, FeedLost{rank, absl::UnavailableError("it died")});
  }

  // ---- requests ----

  void Announce(const SpecPtr& spec, uint64_t formation, absl::Status checked = {}) {
    Do(0, AnnounceCalled{{.spec = spec, .epoch = kEpoch, .formation = formation}, checked});
  }
  // One that has blocks at the rank, if it has room, and waits for its KV.
  void OpenOwn(int rank, const SpecPtr& spec) {
    ++now_;  // so that it is younger than those before
    Do(rank, AnnounceCalled{{spec, kEpoch, {{2}}}, absl::OkStatus()});
    Do(rank, OpenTransferCalled{{++calls_}, {spec->id, kEpoch, {1}, {2}, Shape()}});
  }
  // One that has its KV there, and its first token.
  void StartOwn(int rank, const SpecPtr& spec) {
    OpenOwn(rank, spec);
    if (StateOf(spec->id.serial, rank) == "granted") CommitOwn(rank, spec);
  }
  // The KV of a request that OpenOwn gave blocks has come, with its first token.
  void CommitOwn(int rank, const SpecPtr& spec) {
    const int64_t bytes = (PromptTokens(*spec) + 3) / 4 * 4 * 128;
    Do(rank, CommitCalled{{++calls_},
                          {.id = spec->id,
                           .epoch = kEpoch,
                           .bytes_per_layer = {bytes, bytes},
                           .has_token = true,
                           .token = TokenOf(spec->id, 0),
                           .prefill = {1}}});
    Attach(spec->id.serial, rank);
  }
  void Attach(uint64_t serial, int rank = 0) {
    Do(rank, AttachCalled{{++calls_}, {7, serial}, kEpoch, /*ahead=*/true});
  }
  std::string StateOf(uint64_t serial, int rank = 0) {
    return std::string(At(rank).core->StateOf({7, serial}));
  }

  // ---- what came of it ----

  // The first tokens of a request.
  static std::vector<int32_t> Expected(uint64_t serial, int64_t tokens) {
    std::vector<int32_t> expected;
    for (int64_t i = 0; i < tokens; ++i) expected.push_back(TokenOf({7, serial}, i));
    return expected;
  }
  // As the lead has reported it.
  absl::Status EndOf(uint64_t serial) {
    if (!At(0).ended.contains(serial)) return absl::UnknownError("it has not ended");
    return At(0).ended[serial].status;
  }
  DecodeSnapshot Look(int rank) { return At(rank).core->Snapshot(now_); }
  int64_t FreeBlocks(int rank) { return Look(rank).blocks.free; }
  void ExpectAllFree() {
    for (int rank = 0; rank < 2; ++rank) {
      if (At(rank).dead) continue;
      EXPECT_EQ(FreeBlocks(rank), 10) << "rank " << rank;
    }
  }

  // ---- time ----

  static HandoffShape Shape() {
    HandoffShape shape = Identity(Role::kDecode, 10).shape;
    shape.kv_heads = 4;
    return shape;
  }
  // A token that depends on the sequence and the index alone, as an engine's does.
  static int32_t TokenOf(RequestId id, int64_t index) {
    return static_cast<int32_t>(1000 * static_cast<int64_t>(id.serial) + index);
  }
  // Ends the steps that run, the group's at both. False: none runs.
  bool Step() {
    const std::array<bool, 2> runs = {!At(0).engine.empty(), !At(1).engine.empty()};
    for (int rank = 0; rank < 2; ++rank) {
      if (runs[static_cast<size_t>(rank)] && !At(rank).dead) EndStep(rank);
    }
    Pass();
    return runs[0] || runs[1];
  }
  // Until nothing runs any more.
  void RunAll() {
    for (int steps = 0; steps < 2'000 && Step(); ++steps) {
    }
  }
  // What is due within the pause that the lead makes when nothing can run.
  void Pass() {
    for (int rounds = 0; rounds < 3; ++rounds) {
      now_ += 2 * kMillisecondUs;
      for (int rank = 0; rank < 2; ++rank) Do(rank, Tick{});
    }
  }
  void Do(int rank, const DecodeEvent& event) {
    inbox_.emplace_back(rank, event);
    if (std::exchange(delivering_, true)) return;
    while (!inbox_.empty()) {
      const int to = inbox_.front().first;
      const DecodeEvent next = std::move(inbox_.front().second);
      inbox_.pop_front();
      if (At(to).dead) continue;
      for (const DecodeEffect& effect : At(to).core->Handle(next, now_)) {
        std::visit([&](const auto& one) { On(to, one); }, effect);
      }
      EXPECT_TRUE(At(to).core->CheckInvariants().ok()) << At(to).core->CheckInvariants();
    }
    delivering_ = false;
  }

  struct Instance {
    std::unique_ptr<DecodeCore> core;
    std::deque<RunStep> engine;
    std::deque<SharingCall> sharing;  // that the engine has not answered
    std::vector<ModeTold> modes;      // told
    FormationTold told;
    TimeUs told_us = 0;
    bool dead = false;
    int64_t group_steps = 0, own_steps = 0;
    std::vector<RequestId> opened;
    std::map<uint64_t, std::vector<int32_t>> tokens;  // as routers got them
    std::map<uint64_t, std::vector<TimeUs>> token_times;
    std::vector<StreamGap> gaps;
    std::map<uint64_t, EndStream> streams_ended;
    std::map<uint64_t, EndedRequest> ended;  // as reported
    std::vector<AnswerOpenTransfer> opens;
    std::deque<GrantId> closing;  // with late_writers_
    std::vector<SequenceNote> notes;
    std::map<uint64_t, TimeUs> waits_us;  // for the first decode step
  };
  Instance& At(int rank) { return instances_[static_cast<size_t>(rank)]; }

  TimeUs now_ = 1;
  uint64_t formation_ = 0;
  std::optional<TimeUs> own_pause_us_;  // of each order to prepare
  bool late_writers_ = false;           // their grants are not closed at once

 private:
  void EndStep(int rank) {
    auto& engine = At(rank).engine;
    StepDone done{.step = engine.front().step, .status = {}, .results = {}};
    for (const StepSequence& one : engine.front().sequences) {
      if (engine.front().probe) break;
      done.results.push_back({one.sample ? TokenOf(one.id, one.token_index) : -1, "", ""});
    }
    ++(engine.front().group.has_value() ? At(rank).group_steps : At(rank).own_steps);
    engine.pop_front();
    Do(rank, done);
  }
  template <class Effect>
  void On(int, const Effect&) {}
  void On(int rank, const CallReport& effect) {
    for (const EndedRequest& ended : effect.request.ended) At(rank).ended[ended.id.serial] = ended;
    Do(rank, ReportReplied{effect.request.serial, {}});
  }
  void On(int rank, const CloseGrant& effect) {
    if (late_writers_) return At(rank).closing.push_back(effect.grant);
    Do(rank, GrantClosed{effect.grant});
  }
  void On(int rank, const AnswerOpenTransfer& effect) { At(rank).opens.push_back(effect); }
  void On(int rank, const TellOpened& effect) { At(rank).opened.push_back(effect.opened.id); }
  void On(int rank, const EmitToken& effect) {
    std::vector<int32_t>& tokens = At(rank).tokens[effect.id.serial];
    EXPECT_EQ(effect.index, static_cast<int64_t>(tokens.size()));
    tokens.push_back(effect.token);
    At(rank).token_times[effect.id.serial].push_back(now_);
  }
  void On(int rank, const StreamGap& effect) { At(rank).gaps.push_back(effect); }
  void On(int rank, const EndStream& effect) {
    EXPECT_TRUE(At(rank).streams_ended.emplace(effect.id.serial, effect).second);
  }
  void On(int rank, const RunStep& effect) { At(rank).engine.push_back(effect); }
  void On(int rank, const SendOnFeed& effect) {
    Do(effect.rank, FeedArrived{rank, effect.message});
  }
  void On(int rank, const TellFormation& effect) {
    At(rank).told = effect.told;
    At(rank).told_us = now_;
  }
  void On(int rank, const CallSharing& effect) {
    EXPECT_TRUE(At(rank).engine.empty() || !WantsNoStep(effect.call)) << "a step runs";
    At(rank).sharing.push_back(effect.call);
  }
  void On(int rank, const TellMode& effect) { At(rank).modes.push_back(effect.told); }
  static bool WantsNoStep(const SharingCall& call) {
    return !std::holds_alternative<PrepareShared>(call) && !std::holds_alternative<ReadyMode>(call);
  }
  void On(int rank, const SequenceNote& effect) { At(rank).notes.push_back(effect); }
  void On(int rank, const DecodeBegan& effect) {
    EXPECT_TRUE(At(rank).waits_us.emplace(effect.spec->id.serial, effect.waited_us).second);
  }

  std::array<Instance, 2> instances_;
  std::deque<std::pair<int, DecodeEvent>> inbox_;
  bool delivering_ = false;
  uint64_t calls_ = 0;
};

}  // namespace skein::scheduler::testing
