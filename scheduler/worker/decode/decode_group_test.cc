// DecodeCores that bind and release at random while their requests run. The pools are small, so
// that sequences are preempted: those of the lead then run in the group. Each bind says how own
// sequences fare: they share the steps, end first, join the group or pause. Every stream gets its
// tokens, once each and in order, whatever the formation does.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/base/own_end_first.h"
#include "scheduler/worker/decode/decode_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

constexpr int64_t kBlocks = 10;  // of 4 tokens of an instance alone
constexpr Epoch kEpoch = {5};
constexpr TimeUs kKeepUs = 100'000, kKeepForOwnUs = 300'000;
constexpr OwnSequences kWays[] = {OwnSequences::kShare, OwnSequences::kSequential,
                                  OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt};

DecodeConfig ConfigOf(int rank, bool launch_ahead) {
  DecodeConfig config;
  WorkerIdentity& identity = config.membership.identity;
  identity = testing::Identity(Role::kDecode, kBlocks);
  identity.incarnation = {9 + static_cast<uint64_t>(rank)};
  identity.shape.kv_heads = 4;
  config.memory = "memory";
  config.lease_us = kSecondUs;
  config.batch = {.max_batch_tokens = 16,
                  .max_batch_sequences = 8,
                  .max_slice_tokens = 12,
                  .min_slice_tokens = 4};
  config.launch_ahead = launch_ahead;
  config.group.limits = {.answer_us = 200'000, .step_us = 400'000};
  config.group.step_max_us = 300'000;
  config.group.shift_tokens = 4;
  config.group.own_pause_us = 30'000;
  return config;
}

// A token that depends on the sequence and the index alone, as an engine's does.
int32_t TokenOf(RequestId id, int64_t index) {
  return static_cast<int32_t>(100 * static_cast<int64_t>(id.serial) + index);
}

struct Instance {
  std::unique_ptr<DecodeCore> core;
  std::deque<RunStep> engine;  // the first one runs
  std::deque<std::pair<int, FeedMessage>> inbox;
  std::deque<DecodeEvent> later;  // answers to effects
  std::map<uint64_t, int64_t> emitted;
  std::map<uint64_t, FinishReason> ended;
  std::map<uint64_t, absl::Status> refused;  // the group did not take it
  FormationTold told;
  std::set<std::pair<RequestId, Epoch>> admitted;           // by the engine
  std::map<std::pair<RequestId, Epoch>, KvLayout> layouts;  // likewise
  bool dead = false;
};

class Group {
 public:
  Group(int size, uint32_t seed)
      : random_(seed), slow_writers_(seed % 5 < 2), instances_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      At(rank).core = std::make_unique<DecodeCore>(ConfigOf(rank, seed % 2 == 0));
      Do(rank, Tick{});
      Do(rank, RegisterReplied{{absl::OkStatus(), {static_cast<uint64_t>(rank) + 3}, 1'000'000}});
    }
  }

  void Move() {
    now_ += Between(0, 200);
    const int rank = static_cast<int>(Between(0, Size() - 1));
    MoveWriters();
    switch (Between(0, 6)) {
      case 0:
        return Order();
      case 1:
      case 2:
        return Deliver(rank);
      case 3:
      case 4:
        return EndStep(rank);
      case 5:
        return Do(rank, Tick{});
      default:
        if (!arrivals_) return;
        if (Between(0, 2) == 0) Start(Between(0, 1) == 0 ? 0 : rank);
        if (Between(0, 3) == 0) StartInGroup();
        if (Between(0, 3) == 0) StartWithKv();
    }
  }
  // A request whose KV comes straight into the group's blocks.
  void StartWithKv() {
    if (At(0).told.phase != FormationTold::Phase::kBound || Live(0) >= 8) return;
    auto spec = Spec(++serial_, Between(2, 12), Between(1, 24));
    wanted_[spec->id.serial] = spec->max_tokens;
    Place(spec->id.serial, 0);
    const CallId call{++calls_};
    opening_[call.value] = spec;
    Do(0, AttachCalled{{++calls_}, spec->id, kEpoch, /*ahead=*/true});
    Do(0,
       AnnounceCalled{{.spec = spec, .epoch = kEpoch, .writers = {{2}}, .formation = epoch_}, {}});
    const HandoffShape shape = ConfigOf(0, false).membership.identity.shape;
    Do(0, OpenTransferCalled{call, {spec->id, kEpoch, {1}, {2}, shape}});
  }
  // Some of the writers are done, or give up.
  void MoveWriters() {
    if (writing_.empty() || Between(0, slow_writers_ ? 99 : 9) != 0) return;
    const SpecPtr spec = std::move(writing_.extract(writing_.begin()).mapped());
    if (Between(0, 4) == 0) {
      return Do(0, AbortCalled{{spec->id, kEpoch, absl::UnavailableError("gave up"), {1}, {2}}});
    }
    const int64_t bytes = (PromptTokens(*spec) + 3) / 4 * 4 * 128;
    came_ += At(0).core->StateOf(spec->id) == "granted";
    CommitRequest commit{.id = spec->id, .epoch = kEpoch, .bytes_per_layer = {bytes, bytes}};
    commit.token = TokenOf(spec->id, 0);
    commit.prefill = {1};
    Do(0, CommitCalled{{++calls_}, commit});
  }
  // A request that the group computes, from its first token on.
  void StartInGroup() {
    if (At(0).told.phase != FormationTold::Phase::kBound || Live(0) >= 8) return;
    auto spec = Spec(++serial_, Between(2, 12), Between(1, 24));
    wanted_[spec->id.serial] = spec->max_tokens;
    Place(spec->id.serial, 0);
    Do(0, AttachCalled{{++calls_}, spec->id, kEpoch, /*ahead=*/true});
    Do(0, AnnounceCalled{{.spec = spec, .epoch = kEpoch, .formation = epoch_}, absl::OkStatus()});
    const bool joined = At(0).core->StateOf(spec->id) != "";
    ++(joined ? computed_ : refused_);
    if (joined) return;  // the group was being released, or is no more
    EXPECT_TRUE(absl::IsUnavailable(At(0).refused[spec->id.serial]));
    Forget(spec->id.serial);
  }
  // A request whose KV is whole.
  void Start(int rank) {
    if (Live(rank) >= 8) return;
    auto spec = Spec(++serial_, Between(2, 12), Between(1, 24));
    spec->priority = static_cast<int32_t>(Between(0, 1));
    Do(rank, AnnounceCalled{{spec, kEpoch, {{2}}}, absl::OkStatus()});
    const HandoffShape shape = ConfigOf(0, false).membership.identity.shape;
    Do(rank, OpenTransferCalled{{++calls_}, {spec->id, kEpoch, {1}, {2}, shape}});
    if (At(rank).core->StateOf(spec->id) != "granted") {
      return Do(rank, WithdrawCalled{{spec->id, kEpoch}});
    }
    Do(rank, AttachCalled{{++calls_}, spec->id, kEpoch});
    const int64_t bytes = (PromptTokens(*spec) + 3) / 4 * 4 * 128;
    ++started_;
    wanted_[spec->id.serial] = spec->max_tokens;
    Place(spec->id.serial, rank);
    Do(rank, CommitCalled{{++calls_},
                          {.id = spec->id,
                           .epoch = kEpoch,
                           .bytes_per_layer = {bytes, bytes},
                           .has_token = true,
                           .token = TokenOf(spec->id, 0),
                           .payload = "",
                           .prompt_logprobs = "",
                           .prefill = {1},
                           .times = {}}});
  }
  void Order() {
    if (!orders_) return;
    const int64_t which = Between(0, writing_.empty() ? 40 : 45);
    const bool waits = !SomeHaveEnded() && now_ < prepared_us_ + kKeepForOwnUs;
    if (which < 4 && AllAreAlone() && (!waits || Between(0, 29) == 0)) return PrepareAll();
    if (which < 20 && AllArePrepared()) return Do(0, CommitFormation{epoch_});
    // While it is being prepared, seldom.
    if (which >= 40 && (At(0).told.epoch == epoch_ || Between(0, 9) == 0)) {
      Do(0, EndFormation{epoch_, Between(0, 1) == 0 ? Switch::kHard : Switch::kSequential,
                         absl::CancelledError("released")});
    }
  }
  void PrepareAll() {
    ++epoch_;
    own_ = kWays[Between(0, 3)];
    prepared_us_ = OwnEndFirst(Size() - 1) ? now_ : -kKeepForOwnUs;
    for (int rank = 0; rank < Size(); ++rank) {
      Do(rank, PrepareFormation{.epoch = epoch_,
                                .generation = 1,
                                .size = Size(),
                                .keep_us = OwnEndFirst(rank) ? kKeepForOwnUs : kKeepUs,
                                .own = own_});
    }
  }
  void Deliver(int rank) {
    Instance& self = At(rank);
    for (int64_t count = Between(1, 6); count > 0 && !self.dead; --count) {
      if (!self.later.empty()) {
        const DecodeEvent event = std::move(self.later.front());
        self.later.pop_front();
        Do(rank, event);
      } else if (!self.inbox.empty()) {
        const auto [from, message] = std::move(self.inbox.front());
        self.inbox.pop_front();
        Do(rank, FeedArrived{from, message});
      }
    }
  }
  // Ends the step that runs as an engine would.
  void EndStep(int rank) {
    Instance& self = At(rank);
    if (self.dead || self.engine.empty()) return;
    const RunStep& step = self.engine.front();
    const bool whole = !step.group.has_value() || AllRun(step);
    const bool broken = broken_ >= epoch_ || now_ > step.deadline_us;
    if (!whole && !broken) return;
    StepDone done{.step = step.step, .status = {}, .results = {}};
    if (!whole) done.status = absl::UnavailableError("the group has broken");
    for (const StepSequence& sequence : step.sequences) {
      self.admitted.insert({sequence.id, sequence.epoch});
      if (!whole) continue;
      done.results.push_back(
          {sequence.sample ? TokenOf(sequence.id, sequence.token_index) : -1, "", ""});
    }
    if (step.group.has_value() && whole) ++(step.group->sp > 1 ? sp_steps_ : tp_steps_);
    self.engine.pop_front();
    Do(rank, done);
  }
  // Every rank has entered it, or has ended it already. The steps of an epoch are the same at all
  // ranks, in one order: each counts its own.
  bool AllRun(const RunStep& step) {
    const int64_t mine = GroupSteps(step);
    for (Instance& other : instances_) {
      if (other.dead || group_steps_[&other] < mine) return false;
    }
    return true;
  }
  int64_t GroupSteps(const RunStep& step) { return numbers_.at(&step); }

  void Stop(int rank) { At(rank).dead = true; }
  void Kill(int rank) {
    At(rank).dead = true;
    broken_ = epoch_;
    for (int other = 0; other < Size(); ++other) {
      if (other != rank) Do(other, FeedLost{rank, absl::UnavailableError("it died")});
    }
  }

  // ---- what must be true ----

  bool AllAreAlone() const {
    for (const Instance& one : instances_) {
      if (!one.dead && one.told.phase != FormationTold::Phase::kEnded) return false;
    }
    return true;
  }
  bool SomeHaveEnded() const {
    for (const Instance& one : instances_) {
      if (one.told.epoch == epoch_ && one.told.phase == FormationTold::Phase::kEnded) return true;
    }
    return false;
  }
  bool AllArePrepared() const {
    for (const Instance& one : instances_) {
      if (one.told.epoch != epoch_ || one.told.phase != FormationTold::Phase::kPrepared) {
        return false;
      }
    }
    return true;
  }
  bool AllAreAnswered() const {
    for (const auto& [serial, rank] : open_) {
      if (!instances_[static_cast<size_t>(rank)].dead) return false;
    }
    return true;
  }
  template <class Condition>
  bool RunUntil(const Condition& condition) {
    for (int moves = 0; moves < 200'000; ++moves) {
      if (condition()) return true;
      Move();
    }
    return condition();
  }
  void ExpectWholeAnswers() {
    for (const auto& [serial, rank] : where_) {
      Instance& one = At(rank);
      if (one.dead) continue;
      EXPECT_EQ(one.ended[serial], FinishReason::kLength) << serial;
      EXPECT_EQ(one.emitted[serial], wanted_[serial]) << serial;
    }
    for (Instance& one : instances_) {
      if (one.dead) continue;
      EXPECT_EQ(one.core->Snapshot(now_).blocks.free, kBlocks);
      EXPECT_TRUE(one.admitted.empty()) << "a sequence was not released";
    }
  }
  void StopArrivals() { arrivals_ = false; }
  void StopOrders() { orders_ = false; }
  void ReleaseAll() {
    Do(0, EndFormation{epoch_, Switch::kSequential, absl::CancelledError("released")});
  }
  DecodeSnapshot Look(int rank) const {
    return instances_[static_cast<size_t>(rank)].core->Snapshot(now_);
  }
  int Size() const { return static_cast<int>(instances_.size()); }

  std::map<OwnSequences, int64_t> binds_;
  int64_t started_ = 0, tp_steps_ = 0, sp_steps_ = 0, joined_ = 0;
  int64_t handed_over_ = 0;                         // by a member, at most at once
  int64_t computed_ = 0, refused_ = 0;              // that the group was to compute
  int64_t came_ = 0, elsewhere_ = 0, cut_off_ = 0;  // whose KV was to come to the group

 private:
  Instance& At(int rank) { return instances_[static_cast<size_t>(rank)]; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  size_t Live(int rank) {
    size_t live = 0;
    for (const auto& [serial, where] : open_) live += where == rank;
    return live;
  }
  void Place(uint64_t serial, int rank) { where_[serial] = open_[serial] = rank; }
  void Forget(uint64_t serial) {
    where_.erase(serial);
    open_.erase(serial);
  }

  void Do(int rank, const DecodeEvent& event) {
    Instance& self = At(rank);
    if (self.dead) return;
    const auto prepared = [&] {
      const bool takes_on = OwnJoinGroup(own_);
      return self.told.phase == FormationTold::Phase::kPrepared && !takes_on;
    };
    const bool was_prepared = prepared();
    const size_t steps = self.engine.size();
    const std::vector<DecodeEffect> effects = self.core->Handle(event, now_);
    const absl::Status invariants = self.core->CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    for (const DecodeEffect& effect : effects) {
      std::visit([&](const auto& one) { On(rank, one); }, effect);
    }
    if (was_prepared && prepared()) {
      EXPECT_LE(self.engine.size(), std::max<size_t>(steps, 1)) << "the first step would wait";
    }
    joined_ = std::max(joined_, Look(0).bound);
    if (rank > 0) handed_over_ = std::max(handed_over_, Look(rank).bound);
  }
  template <class Effect>
  void On(int, const Effect&) {}
  void On(int rank, const CallReport& effect) {
    At(rank).later.push_back(ReportReplied{effect.request.serial, {}});
  }
  void On(int rank, const CloseGrant& effect) {
    At(rank).later.push_back(GrantClosed{effect.grant});
  }
  void On(int rank, const EmitToken& effect) {
    EXPECT_EQ(effect.token, TokenOf(effect.id, effect.index));
    EXPECT_EQ(effect.index, At(rank).emitted[effect.id.serial]++);
  }
  void On(int rank, const AnswerOpenTransfer& effect) {
    const auto opened = opening_.extract(effect.call.value);
    if (opened.empty()) return;
    const SpecPtr spec = opened.mapped();
    if (effect.reply.status.ok()) {
      EXPECT_EQ(effect.reply.others.size() + 1, instances_.size());
      writing_[spec->id] = spec;
      return;
    }
    ++elsewhere_;
    Forget(spec->id.serial);
    At(rank).later.push_back(WithdrawCalled{{spec->id, kEpoch}});
  }
  void On(int rank, const EndStream& effect) {
    if (absl::IsUnavailable(effect.status) && At(rank).emitted[effect.id.serial] == 0) {
      At(rank).refused[effect.id.serial] = effect.status;
      cut_off_ += writing_.erase(effect.id);
      Forget(effect.id.serial);
      return;
    }
    open_.erase(effect.id.serial);
    EXPECT_TRUE(At(rank).ended.emplace(effect.id.serial, effect.reason).second);
    EXPECT_TRUE(effect.status.ok()) << effect.status;
  }
  void On(int rank, const RunStep& effect) {
    Instance& self = At(rank);
    EXPECT_TRUE(!effect.group.has_value() || self.engine.empty()) << "beside another step";
    for (const StepSequence& one : effect.sequences) {
      if (effect.probe) break;
      const auto known = self.layouts.try_emplace({one.id, one.epoch}, one.layout).first;
      EXPECT_EQ(known->second, one.layout) << "the engine knows it with another layout";
    }
    self.engine.push_back(effect);
    if (effect.group.has_value()) numbers_[&self.engine.back()] = ++group_steps_[&self];
  }
  void On(int rank, const ReleaseSequence& effect) {
    for (const RunStep& step : At(rank).engine) {
      for (const StepSequence& one : step.sequences) {
        EXPECT_FALSE(one.id == effect.id && one.epoch == effect.epoch) << "it is in a step";
      }
    }
    At(rank).admitted.erase({effect.id, effect.epoch});
    At(rank).layouts.erase({effect.id, effect.epoch});
  }
  void On(int rank, const OpenFeed& effect) {
    At(rank).later.push_back(FeedOpened{
        effect.epoch, Between(0, 9) == 0 ? absl::StatusOr<int>(absl::UnavailableError("not made"))
                                         : absl::StatusOr<int>(rank)});
  }
  void On(int, const CloseFeed& effect) {
    if (effect.broken) broken_ = std::max(broken_, effect.epoch);
  }
  void On(int rank, const SendOnFeed& effect) {
    At(effect.rank).inbox.emplace_back(rank, effect.message);
  }
  void On(int rank, const TellFormation& effect) {
    const bool prepared =
        effect.told.phase == FormationTold::Phase::kPrepared && effect.told.epoch == epoch_;
    if (prepared && OwnEndFirst(rank)) ExpectOwnHaveEnded(rank);
    if (effect.told.phase == FormationTold::Phase::kBound) {
      binds_[own_] += rank == 0;
      group_steps_[&At(rank)] = static_cast<int64_t>(effect.told.epoch) * 1'000'000;
    }
    if (effect.told.epoch >= At(rank).told.epoch) At(rank).told = effect.told;
  }

  bool OwnEndFirst(int rank) const { return scheduler::OwnEndFirst(own_, /*leads=*/rank == 0); }
  void ExpectOwnHaveEnded(int rank) {
    const DecodeSnapshot seen = Look(rank);
    EXPECT_EQ(seen.granted + seen.running + seen.preempted, 0) << "rank " << rank;
  }

  std::mt19937 random_;
  const bool slow_writers_;
  TimeUs now_ = 1, prepared_us_ = 0;
  OwnSequences own_ = OwnSequences::kShare;  // of this epoch
  std::vector<Instance> instances_;
  uint64_t epoch_ = 0, broken_ = 0, serial_ = 0, calls_ = 0;
  std::map<uint64_t, int64_t> wanted_;
  std::map<uint64_t, int> where_, open_;  // by serial -> rank; open: not ended
  std::map<const Instance*, int64_t> group_steps_;
  std::map<const RunStep*, int64_t> numbers_;
  std::map<uint64_t, SpecPtr> opening_;   // by call
  std::map<RequestId, SpecPtr> writing_;  // KV that comes to the group
  bool arrivals_ = true, orders_ = true;
};

TEST(DecodeGroup, NoStreamNoticesTheFormation) {
  std::map<OwnSequences, int64_t> binds;
  int64_t started = 0, tp = 0, sp = 0, joined = 0, computed = 0, refused = 0;
  int64_t came = 0, elsewhere = 0, cut_off = 0, handed_over = 0;
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE(seed);
    Group group(seed % 3 == 0 ? 4 : 2, seed);
    for (int moves = 0; moves < 4'000; ++moves) group.Move();
    if (seed % 4 == 1) group.StopOrders();  // whatever the formation is, it stays
    if (seed % 4 == 2) {                    // arrivals go on
      group.StopOrders();
      group.ReleaseAll();
      EXPECT_TRUE(group.RunUntil([&] { return group.AllAreAlone(); })) << "a release does not end";
    }
    group.StopArrivals();
    EXPECT_TRUE(group.RunUntil([&] { return group.AllAreAnswered(); })) << "a stream starves";
    group.StopOrders();
    group.ReleaseAll();
    EXPECT_TRUE(group.RunUntil([&] { return group.AllAreAlone(); }));
    for (int moves = 0; moves < 500; ++moves) group.Move();
    group.ExpectWholeAnswers();
    started += group.started_;
    tp += group.tp_steps_;
    sp += group.sp_steps_;
    for (const auto& [way, count] : group.binds_) binds[way] += count;
    joined += group.joined_ > 0;
    handed_over += group.handed_over_ > 0;
    computed += group.computed_;
    refused += group.refused_;
    came += group.came_;
    elsewhere += group.elsewhere_;
    cut_off += group.cut_off_;
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(started, 2'000);
  EXPECT_GT(tp, 1'000);
  EXPECT_GT(sp, 500);
  for (const OwnSequences way : kWays) EXPECT_GT(binds[way], 50) << ToString(way);
  EXPECT_GT(joined, 60);
  EXPECT_GT(handed_over, 10);
  EXPECT_GT(computed, 1'000);
  EXPECT_GT(refused, 20);
  EXPECT_GT(came, 50);
  EXPECT_GT(elsewhere, 100);
  EXPECT_GT(cut_off, 10);
}

// It answers nothing any more, and nobody is told of a death. The lead hangs between steps, too.
TEST(DecodeGroup, WhoeverIsStoppedIsNotAwaitedForEver) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    Group group(size, seed);
    for (uint32_t moves = 500 + seed * 13 % 2'000; moves > 0; --moves) group.Move();
    group.StopArrivals();
    group.StopOrders();
    group.Stop(static_cast<int>(seed / 3) % size);
    EXPECT_TRUE(group.RunUntil([&] { return group.AllAreAnswered(); })) << "a stream starves";
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(DecodeGroup, WhoSurvivesAMemberAnswersAll) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    Group group(size, seed);
    for (uint32_t moves = 500 + seed * 13 % 2'000; moves > 0; --moves) group.Move();
    group.StopArrivals();
    group.StopOrders();
    group.Kill(static_cast<int>(seed / 3) % size);
    EXPECT_TRUE(group.RunUntil([&] { return group.AllAreAlone() && group.AllAreAnswered(); }));
    for (int moves = 0; moves < 500; ++moves) group.Move();
    group.ExpectWholeAnswers();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace skein::scheduler
