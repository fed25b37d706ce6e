// Ranks that bind and release at random while sequences run in the group and at each rank alone:
// every answer is the one of a rank alone, no block is lost, steps have one order, own sequences
// fare as each bind says (share, end first, join, pause), and whoever dies or falls silent, the
// others work alone again. The KV of some prompts comes from outside into all ranks' blocks, by
// writers that may be late: no step ever reads a block that they reached since.
#include "scheduler/worker/group/bound_group.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "scheduler/base/own_end_first.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler {
namespace {

constexpr int32_t kKvHeads = 8;
constexpr int32_t kBlockTokens = 2;
constexpr int64_t kBlocks = 24;
constexpr int32_t kVocabulary = 1000;
constexpr TimeUs kKeepUs = 50'000, kKeepForOwnUs = 150'000;

BoundGroupConfig ConfigOf(uint32_t seed) {
  return {.limits = {.answer_us = 200'000, .step_us = 400'000},
          .batch = {.max_batch_tokens = 16,
                    .max_batch_sequences = 4,
                    .max_slice_tokens = 8,
                    .min_slice_tokens = 4},
          .kv_heads = kKvHeads,
          .block_tokens = kBlockTokens,
          .shift_tokens = seed % 2 == 0 ? 6 : 1000,
          .own_pause_us = seed % 5 == 0 ? 3'000 : 10 * kSecondUs};
}

// The next token: it depends on the whole sequence.
int32_t TokenAfter(uint64_t serial, const std::vector<int32_t>& prompt,
                   const std::vector<int32_t>& output, int64_t length) {
  uint64_t hash = serial;
  for (int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t token = at < prompt.size() ? prompt[at] : output.at(at - prompt.size());
    hash = Mix64((hash ^ static_cast<uint32_t>(token)) + kMix64Step);
  }
  return static_cast<int32_t>(hash % kVocabulary);
}

bool Stops(int32_t token) { return token % 23 == 0; }

// Which block of which request lies in a block.
using Content = std::pair<uint64_t, int64_t>;

// Where a rank keeps a prompt's KV.
struct Target {
  std::vector<BlockId> blocks;
  GrantId grant;
};

struct Request {
  SpecPtr spec;
  std::vector<int32_t> output;
  bool done = false;
  bool joined = false;
  bool kv_comes = false;        // until it has, or will not
  std::vector<Target> targets;  // by rank, while it is written
  BlockTable blocks;            // the lead's of them
  bool Waits() const { return !joined && !done; }

  void Take(int32_t token) {
    output.push_back(token);
    done = Stops(token) || static_cast<int64_t>(output.size()) >= spec->max_tokens;
  }
};

// A sequence of a rank's own: it holds a block for each two tokens until it ends.
struct OwnSequence {
  BlockTable blocks;
  int64_t tokens = 0, end = 0;
};

class Node {
 public:
  Node(int size, uint32_t seed) : random_(seed), ranks_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      At(rank).group = std::make_unique<BoundGroup>(
          ConfigOf(seed), &At(rank).pool, &At(rank).coming,
          [this, rank](int64_t blocks) {
            return blocks <= At(rank).pool.Counts().free ? absl::OkStatus()
                                                         : absl::ResourceExhaustedError("full");
          },
          [this, rank](BoundEffect effect) { std::visit([&](auto& e) { On(rank, e); }, effect); });
    }
  }

  // ---- what happens ----

  void Move() {
    now_ += Between(0, 200);
    const int rank = static_cast<int>(Between(0, Size() - 1));
    if (Between(0, 7) == 0) MoveKv();
    switch (Between(0, 7)) {
      case 0:
        return Order();
      case 1:
      case 2:
        return Deliver(rank);
      case 3:
      case 4:
        return EndStep(rank);
      case 5:
        return StartStep(rank);
      case 6:
        return Tick(rank);
      default:
        if (Between(0, 3) == 0) Arrive(rank);
    }
  }
  void Order() {
    if (!orders_) return;
    switch (Between(0, 5)) {
      case 0:
        return PrepareAll();
      case 1:
      case 2:
        return CommitIfAllArePrepared();
      default:
        if (Between(0, 80) == 0) EndIt(Between(0, 1) == 0 ? Switch::kHard : Switch::kSequential);
    }
  }
  void PrepareAll() {
    const int64_t patience = OwnEndFirst(Size() - 1) ? 30 : 3;
    if (!AllAreAlone() || (epoch_ > 0 && Between(0, patience) != 0)) return;
    ++epoch_;
    told_.clear();
    own_ = static_cast<OwnSequences>(Between(0, 3));
    for (int rank = 0; rank < Size(); ++rank) {
      Act(rank, [&](BoundGroup& group) {
        group.Prepare({.epoch = epoch_,
                       .generation = 1,
                       .size = Size(),
                       .keep_us = OwnEndFirst(rank) ? kKeepForOwnUs : kKeepUs,
                       .shift_tokens = ordered_shift_,
                       .own = own_},
                      now_);
      });
    }
  }
  bool OwnEndFirst(int rank) const {
    return scheduler::OwnEndFirst(own_, /*leads=*/rank == 0);
  }
  void CommitIfAllArePrepared() {
    if (static_cast<int>(told_.size()) < Size()) return;
    for (const auto& [rank, told] : told_) {
      if (told.epoch != epoch_ || told.phase != FormationTold::Phase::kPrepared) return;
    }
    ++commits_[own_];
    Act(0, [&](BoundGroup& group) { group.Commit({epoch_}, now_); });
  }
  void EndIt(Switch how) {
    Act(0, [&](BoundGroup& group) {
      group.End({epoch_, how, absl::CancelledError("released")}, now_);
    });
  }
  // A request, or a sequence of the rank's own.
  void Arrive(int rank) {
    if (!arrivals_) return;
    if (Between(0, 2) > 0) return NewRequest();
    if (At(rank).own.size() > 2 || At(rank).pool.Counts().free < 3) return;
    if (!At(rank).group->TakesOwn()) return;
    At(rank).own.push_back({*At(rank).pool.Allocate(1), 1, Between(2, 9)});
  }
  void NewRequest() {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = {7, ++serial_};
    for (int64_t left = Between(1, 30); left > 0; --left) {
      spec->prompt.push_back(static_cast<int32_t>(Between(0, kVocabulary - 1)));
    }
    spec->max_tokens = Between(1, 12);
    spec->priority = static_cast<int32_t>(Between(0, 1));
    requests_[serial_].spec = std::move(spec);
    requests_[serial_].kv_comes = Between(0, 3) > 0;
  }

  // ---- KV that comes ----

  void MoveKv() {
    for (Rank& rank : ranks_) {
      if (rank.closing.empty() || Between(0, 5) != 0) continue;
      rank.closed.insert(rank.closing.front());
      EXPECT_TRUE(rank.quarantine.Closed(rank.closing.front()).has_value());
      rank.closing.pop_front();
    }
    if (!late_.empty() && Between(0, 2) == 0) {
      const auto& [serial, targets] = late_[static_cast<size_t>(Between(0, Late() - 1))];
      Put(serial, targets);
    }
    for (auto& [serial, request] : requests_) {
      if (!request.kv_comes || !request.Waits() || Between(0, 3) != 0) continue;
      request.targets.empty() ? Ask(&request) : Write(&request);
    }
  }
  int64_t Late() const { return static_cast<int64_t>(late_.size()); }
  void Ask(Request* request) {
    if (Frozen(0)) return;
    const auto key = KeyOf(*request);
    const auto targets = At(0).group->Reserve(epoch_, request->spec, kEpochOfAll, now_);
    if (!targets.ok()) {
      refusals_ += absl::IsResourceExhausted(targets.status());
      if (absl::IsResourceExhausted(targets.status()) && Between(0, 3) == 0) {
        request->kv_comes = false;
      }
      return;
    }
    const ComingBlocks::Kept kept = At(0).coming.Take(key);
    request->blocks = kept.blocks;
    request->targets.push_back({*kept.blocks, kept.grant});
    for (const TransferTarget& other : targets->others) {
      request->targets.push_back({other.blocks, {std::stoull(other.memory)}});
    }
    EXPECT_EQ(targets->layout, KvLayout{Size()});
    EXPECT_EQ(request->targets.size(), ranks_.size());
  }
  // The rest of it is written; or its writer gives up.
  void Write(Request* request) {
    if (Frozen(0) || Between(0, 4) != 0) return;
    if (Between(0, 3) == 0) {
      GiveUp(request);
      return Act(0, [&](BoundGroup& group) { group.Dismiss(request->spec->id, now_); });
    }
    EXPECT_TRUE(At(0).group->Reserved(request->spec->id, kEpochOfAll));
    Put(request->spec->id.serial, request->targets);
    At(0).quarantine.Close(KeyOf(*request), request->targets[0].grant);
    request->targets.clear();
    request->kv_comes = false;
    request->Take(TokenAfter(request->spec->id.serial, request->spec->prompt, {},
                             PromptTokens(*request->spec)));
    BlockTable blocks = std::exchange(request->blocks, nullptr);
    if (request->done) {
      At(0).pool.Free(*blocks);
      return Act(0, [&](BoundGroup& group) { group.Dismiss(request->spec->id, now_); });
    }
    request->joined = true;
    ++came_;
    Act(0, [&](BoundGroup& group) {
      group.JoinWithKv(request->spec, kEpochOfAll, 0, request->output, std::move(blocks), now_);
    });
  }
  // It is computed by the group instead. Its writer does not know yet.
  void GiveUp(Request* request) {
    At(0).quarantine.Close(KeyOf(*request), request->targets[0].grant);
    At(0).quarantine.Add(KeyOf(*request), request->blocks, request->targets[0].grant, 0);
    late_.emplace_back(request->spec->id.serial, std::exchange(request->targets, {}));
    request->blocks = nullptr;
    request->kv_comes = false;
    ++given_up_;
  }
  void Put(uint64_t serial, const std::vector<Target>& targets) {
    for (size_t rank = 0; rank < targets.size(); ++rank) {
      if (ranks_[rank].closed.contains(targets[rank].grant)) continue;
      for (size_t i = 0; i < targets[rank].blocks.size(); ++i) {
        ranks_[rank].contents[targets[rank].blocks[i]] = Content(serial, static_cast<int64_t>(i));
      }
    }
  }
  static std::pair<RequestId, Epoch> KeyOf(const Request& request) {
    return {request.spec->id, kEpochOfAll};
  }
  // As an engine: what was before is read, the rest is written.
  void Touch(int rank, const GroupStep& step) {
    const int64_t tokens = int64_t{kBlockTokens} * Size();
    for (const StepSequence& one : step.sequences) {
      const auto known = (one.position + tokens - 1) / tokens;
      for (size_t i = 0; i < one.blocks->size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        Content& content = At(rank).contents[(*one.blocks)[i]];
        if (at < known) {
          EXPECT_EQ(content, Content(one.id.serial, at)) << "at rank " << rank;
        }
        content = Content(one.id.serial, at);
      }
    }
  }

  void Deliver(int rank) {
    for (int64_t count = Between(1, 6); count > 0; --count) DeliverOne(rank);
  }
  void DeliverOne(int rank) {
    if (Frozen(rank) || At(rank).inbox.empty()) return;
    const auto [from, bytes] = At(rank).inbox.front();
    At(rank).inbox.pop_front();
    const absl::StatusOr<FeedMessage> message = DecodeFeed(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(message.ok()) << message.status();
    if (bytes.size() > 400) ADD_FAILURE() << "a feed message of " << bytes.size() << " bytes";
    Act(rank, [&, from = from](BoundGroup& group) { group.FeedArrived(from, *message, now_); });
  }
  void Tick(int rank) {
    Open(rank);
    Act(rank, [&](BoundGroup& group) { group.Tick(now_); });
  }

  void Open(int rank) {
    const auto opening = opening_.extract(rank);
    if (opening.empty()) return;
    const bool there = Between(0, 9) != 0;
    Act(rank, [&](BoundGroup& group) {
      group.FeedOpened(opening.mapped(),
                       there ? absl::StatusOr<int>(rank)
                             : absl::UnavailableError("its communicators are being made"),
                       now_);
    });
  }

  // ---- engines: one step at a time ----

  void StartStep(int rank) {
    Rank& self = At(rank);
    if (Frozen(rank) || self.busy) return;
    if (rank == 0) MoveOwn();
    TellOwn(rank);
    if (!self.group->runs_steps()) {
      self.busy = !self.own.empty();
      return;
    }
    if (rank == 0) JoinAll();
    self.step = self.group->TakeStep(now_);
    if (!self.step.has_value()) return;
    EXPECT_TRUE(self.ran.empty() || self.ran.back() < std::pair(epoch_, self.step->step));
    self.ran.emplace_back(epoch_, self.step->step);
    self.step_until_us = now_ + 300'000;
    Touch(rank, *self.step);
    self.busy = true;
    if (self.step->mode.own()) {
      ++own_steps_;
      paused_steps_ += own_ == OwnSequences::kHardPreempt && !self.own.empty();
    }
    if (!self.step->mode.own() && !self.step->sequences.empty()) {
      ++(self.step->mode.sp > 1 ? sp_steps_ : tp_steps_);
    }
  }
  void EndStep(int rank) {
    Rank& self = At(rank);
    if (Frozen(rank) || !self.busy) return;
    if (!self.step.has_value() || self.step->mode.own()) {
      self.busy = false;
      RunOwn(rank);
      if (self.step.has_value()) {
        self.step.reset();
        Act(rank, [&](BoundGroup& group) { group.StepEnded(absl::OkStatus(), {}, now_); });
      }
      return;
    }
    // It ends when all ranks have entered it, somebody broke the group, or at its deadline.
    const bool whole = AllHaveEntered(self.ran.back());
    const bool broken = broken_.contains(self.ran.back().first) || now_ > self.step_until_us;
    if (!whole && !broken) return;
    const GroupStep step = *std::exchange(self.step, std::nullopt);
    self.busy = false;
    std::vector<int32_t> sampled;
    for (const StepSequence& one : step.sequences) {
      if (!one.sample) continue;
      sampled.push_back(
          TokenAfter(one.id.serial, one.spec->prompt, *one.output, one.position + one.count));
    }
    if (rank == 0 && whole) TakeTokens(step, sampled);
    const absl::Status status = whole ? absl::OkStatus() : absl::UnavailableError("broken");
    Act(rank, [&](BoundGroup& group) { group.StepEnded(status, sampled, now_); });
    if (rank == 0) LeaveAll();
  }
  bool AllHaveEntered(const std::pair<uint64_t, uint64_t>& step) const {
    for (const Rank& rank : ranks_) {
      if (rank.ran.empty() || rank.ran.back() < step) return false;
    }
    return true;
  }
  void TakeTokens(const GroupStep& step, const std::vector<int32_t>& sampled) {
    size_t next = 0;
    for (const StepSequence& one : step.sequences) {
      if (!one.sample) continue;
      Request& request = requests_.at(one.id.serial);
      const int32_t token = sampled[next++];
      if (request.done) continue;
      EXPECT_EQ(static_cast<size_t>(one.token_index), request.output.size());
      request.Take(token);
    }
  }
  void LeaveAll() {
    for (auto& [serial, one] : requests_) {
      Request& request = one;
      if (!request.joined || !request.done) continue;
      request.joined = false;
      Act(0, [&](BoundGroup& group) { group.Leave(request.spec->id, kEpochOfAll, now_); });
    }
  }
  void JoinAll() {
    for (auto& [serial, one] : requests_) {
      Request& request = one;
      if (!request.Waits() || request.kv_comes || !At(0).group->MayJoin()) continue;
      request.joined = true;
      ++joins_;
      Act(0, [&](BoundGroup& group) {
        EXPECT_TRUE(group.Join(request.spec, kEpochOfAll, 0, request.output, now_).ok());
      });
    }
  }
  // What the lead runs goes on in the group: as a request of it.
  void MoveOwn() {
    Rank& lead = At(0);
    if (!lead.group->MovesOwn()) return;
    lead.group->OwnMoved();
    for (const OwnSequence& own : std::exchange(lead.own, {})) {
      lead.pool.Free(*own.blocks);
      NewRequest();
      requests_[serial_].kv_comes = false;
      ++moved_;
    }
  }
  // Each own sequence gets a token; one that gets no block waits.
  void RunOwn(int rank) {
    Rank& self = At(rank);
    for (auto own = self.own.begin(); own != self.own.end();) {
      const auto table = self.pool.Extend(own->blocks, (own->tokens + 2) / 2);
      if (table.ok()) {
        own->blocks = *table;
        ++own->tokens;
      }
      if (own->tokens < own->end) {
        ++own;
        continue;
      }
      self.pool.Free(*own->blocks);
      own = self.own.erase(own);
    }
    TellOwn(rank);
  }
  void TellOwn(int rank) {
    const bool runs = At(rank).busy && (!At(rank).step || At(rank).step->mode.own());
    Act(rank, [&](BoundGroup& group) {
      const auto tokens = static_cast<int64_t>(At(rank).own.size());
      group.SetOwn({.tokens = tokens, .waits = false, .any = tokens > 0 || runs}, now_);
    });
  }

  // ---- faults ----

  void Kill(int rank) {
    At(rank).dead = true;
    broken_.insert(epoch_);
    for (int other = 0; other < Size(); ++other) {
      if (other == rank) continue;
      Act(other, [&](BoundGroup& group) {
        group.FeedLost(rank, absl::UnavailableError("it died"), now_);
      });
    }
  }
  void Stop(int rank) { At(rank).stopped = true; }
  void OrderShiftAbove(int64_t tokens) { ordered_shift_ = tokens; }
  void StopOrders() { orders_ = arrivals_ = false; }
  void OnlyOrders() { arrivals_ = false; }

  // ---- what must be true ----

  bool AllAreAlone() const {
    for (const Rank& rank : ranks_) {
      if (!rank.dead && !rank.stopped && rank.group->bound()) return false;
    }
    return true;
  }
  bool AllAreAnswered() const {
    for (const auto& [serial, request] : requests_) {
      if (!request.done) return false;
    }
    return true;
  }
  // Once every grant is closed.
  void ExpectNothingIsKept() {
    for (Rank& rank : ranks_) {
      if (rank.dead || rank.stopped) continue;
      for (; !rank.closing.empty(); rank.closing.pop_front()) {
        EXPECT_TRUE(rank.quarantine.Closed(rank.closing.front()).has_value());
      }
      int64_t held = 0;
      for (const OwnSequence& own : rank.own) held += static_cast<int64_t>(own.blocks->size());
      EXPECT_EQ(rank.pool.Counts().held, held);
    }
  }
  template <class Condition>
  bool RunUntil(const Condition& condition) {
    for (int moves = 0; moves < 300'000; ++moves) {
      if (condition()) return true;
      Move();
    }
    return condition();
  }
  void Check() const {
    for (const Rank& rank : ranks_) {
      EXPECT_TRUE(rank.group->CheckInvariants().ok()) << rank.group->CheckInvariants();
      EXPECT_TRUE(rank.pool.CheckInvariants().ok());
      int64_t held = rank.group->batch_blocks();
      for (const OwnSequence& own : rank.own) held += static_cast<int64_t>(own.blocks->size());
      for (const auto& [key, kept] : rank.coming.all()) {
        held += static_cast<int64_t>(kept.blocks->size());
      }
      for (const auto& [serial, request] : requests_) {
        if (&rank != &ranks_[0] || request.blocks == nullptr) continue;
        held += static_cast<int64_t>(request.blocks->size());
      }
      EXPECT_EQ(rank.pool.Counts().held, held + rank.pool.Counts().quarantined);
      EXPECT_TRUE(rank.quarantine.CheckInvariants().ok());
    }
  }
  void ExpectRightAnswers() const {
    for (const auto& [serial, request] : requests_) {
      Request alone{.spec = request.spec};
      while (!alone.done) {
        alone.Take(
            TokenAfter(serial, alone.spec->prompt, alone.output,
                       PromptTokens(*alone.spec) + static_cast<int64_t>(alone.output.size())));
      }
      EXPECT_EQ(request.output, alone.output) << "request " << serial;
    }
  }

  std::string Describe() const {
    std::string text;
    for (const Rank& rank : ranks_) {
      text += "bound " + std::to_string(rank.group->bound()) + " busy " +
              std::to_string(rank.busy) + " step " + std::to_string(rank.step.has_value()) +
              " own " + std::to_string(rank.own.size()) + " inbox " +
              std::to_string(rank.inbox.size()) + " ran " +
              (rank.ran.empty() ? "-"
                                : std::to_string(rank.ran.back().first) + "/" +
                                      std::to_string(rank.ran.back().second)) +
              " free " + std::to_string(rank.pool.Counts().free) + "\n";
    }
    for (const auto& [rank, told] : told_) {
      text += "told " + std::to_string(rank) + ": " + std::to_string(told.epoch) + " phase " +
              std::to_string(static_cast<int>(told.phase)) + " " + std::string(told.why.message()) +
              "\n";
    }
    return text + "epoch " + std::to_string(epoch_) + ", own " + std::string(ToString(own_)) +
           ", overs " + std::to_string(overs_);
  }
  int Size() const { return static_cast<int>(ranks_.size()); }
  bool LeadIsBound() const { return ranks_[0].group->bound(); }
  uint64_t Preemptions() const { return ranks_[0].group->preemptions(); }
  std::map<OwnSequences, int64_t> commits_;
  int64_t joins_ = 0, own_steps_ = 0, tp_steps_ = 0, sp_steps_ = 0, overs_ = 0;
  int64_t moved_ = 0, paused_steps_ = 0;  // own steps while own sequences pause
  int64_t came_ = 0, given_up_ = 0, refusals_ = 0, cut_off_ = 0;

 private:
  static constexpr Epoch kEpochOfAll = {1};

  struct Rank {
    BlockPool pool{kBlocks};
    std::deque<GrantId> closing;
    std::set<GrantId> closed;
    std::map<BlockId, Content> contents;
    uint64_t grants = 0;
    BlockQuarantine quarantine{&pool, [this](GrantId grant) { closing.push_back(grant); }};
    ComingBlocks coming{&pool, &quarantine, [this] { return GrantId{++grants}; }};
    std::unique_ptr<BoundGroup> group;
    std::deque<std::pair<int, std::string>> inbox;
    std::vector<OwnSequence> own;
    bool busy = false;
    std::optional<GroupStep> step;  // that runs; none: an own one of a rank that is alone
    std::vector<std::pair<uint64_t, uint64_t>> ran;  // epoch and step
    TimeUs step_until_us = 0;
    bool dead = false, stopped = false;
  };

  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  bool Frozen(int rank) { return At(rank).dead || At(rank).stopped; }
  template <class Action>
  void Act(int rank, const Action& action) {
    if (!Frozen(rank)) action(*At(rank).group);
  }

  void On(int rank, const OpenFeed& effect) { opening_[rank] = effect.epoch; }
  void On(int, const CloseFeed& effect) {
    if (effect.broken) broken_.insert(effect.epoch);
  }
  void On(int rank, SendOnFeed& effect) {
    if (effect.grant != GrantId{}) {
      std::get<FeedReserved>(effect.message).memory = std::to_string(effect.grant.value);
    }
    At(effect.rank).inbox.emplace_back(rank, Encode(effect.message));
  }
  void On(int, const GroupAnswered&) {}
  void On(int rank, const TellFormation& effect) {
    told_[rank] = effect.told;
    if (effect.told.phase != FormationTold::Phase::kPrepared || !OwnEndFirst(rank)) return;
    EXPECT_TRUE(At(rank).own.empty() && !At(rank).busy) << "rank " << rank << " is not empty";
  }
  void On(int rank, const FormationOver& effect) {
    ++overs_;
    if (rank != 0) return;
    for (const auto& [id, epoch] : effect.left) requests_.at(id.serial).joined = false;
    for (const auto& [id, epoch] : effect.coming) {
      GiveUp(&requests_.at(id.serial));
      ++cut_off_;
    }
  }

  std::mt19937 random_;
  TimeUs now_ = 1;
  std::vector<Rank> ranks_;
  uint64_t epoch_ = 0;
  OwnSequences own_ = OwnSequences::kShare;  // of this epoch
  std::optional<int64_t> ordered_shift_;
  std::map<int, FormationTold> told_;  // what each rank has told last
  std::map<int, uint64_t> opening_;
  std::set<uint64_t> broken_;  // epochs whose communicators are
  uint64_t serial_ = 0;
  std::map<uint64_t, Request> requests_;
  std::vector<std::pair<uint64_t, std::vector<Target>>> late_;  // their writers put on
  bool orders_ = true, arrivals_ = true;
};

TEST(BoundGroup, SwitchesUnderLoadChangeNoAnswer) {
  std::map<OwnSequences, int64_t> commits;
  int64_t own = 0, tp = 0, sp = 0, overs = 0, moved = 0, paused = 0;
  int64_t came = 0, given_up = 0, refusals = 0, cut_off = 0;
  uint64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    Node node(seed % 3 == 0 ? 4 : 2, seed);
    for (int moves = 0; moves < 3'000; ++moves) {
      node.Move();
      if (moves % 64 == 0) node.Check();
    }
    node.OnlyOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAnswered(); })) << "a sequence starves\n"
                                                                      << node.Describe();
    if (::testing::Test::HasFailure()) break;
    node.StopOrders();
    node.EndIt(Switch::kSequential);
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.Check();
    node.ExpectRightAnswers();
    node.ExpectNothingIsKept();
    came += node.came_;
    given_up += node.given_up_;
    refusals += node.refusals_;
    cut_off += node.cut_off_;
    for (const auto& [way, count] : node.commits_) commits[way] += count;
    moved += node.moved_;
    paused += node.paused_steps_;
    own += node.own_steps_;
    tp += node.tp_steps_;
    sp += node.sp_steps_;
    overs += node.overs_;
    preemptions += node.Preemptions();
    if (::testing::Test::HasFailure()) break;
  }
  for (const auto way : {OwnSequences::kShare, OwnSequences::kSequential,
                         OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
    EXPECT_GT(commits[way], 100) << ToString(way);
  }
  EXPECT_GT(moved, 20);
  EXPECT_GT(paused, 100);
  EXPECT_GT(own, 1'000);
  EXPECT_GT(tp, 1'000);
  EXPECT_GT(sp, 1'000);
  EXPECT_GT(overs, 1'000);
  EXPECT_GT(preemptions, 20u);
  EXPECT_GT(came, 300);
  EXPECT_GT(given_up, 100);
  EXPECT_GT(refusals, 200);
  EXPECT_GT(cut_off, 10);
}

// Without one, ConfigOf's is: SP of more than 6 tokens (seed 2), or TP of any number (seed 3).
TEST(BoundGroup, TheOrderToPrepareSaysAboveHowManyTokensStepsRunInSp) {
  for (const uint32_t seed : {2u, 3u}) {
    SCOPED_TRACE(seed);
    Node node(/*size=*/2, seed);
    node.OrderShiftAbove(seed == 2 ? 1'000 : 0);
    for (int moves = 0; moves < 3'000; ++moves) node.Move();
    node.OnlyOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAnswered(); })) << node.Describe();
    node.ExpectRightAnswers();
    EXPECT_GT(seed == 2 ? node.tp_steps_ : node.sp_steps_, 20);
    EXPECT_EQ(seed == 2 ? node.sp_steps_ : node.tp_steps_, 0);
  }
}

TEST(BoundGroup, WhoeverDiesWheneverTheOthersWorkAloneAgain) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    Node node(size, seed);
    for (uint32_t moves = seed * 13 % 2'000; moves > 0; --moves) node.Move();
    node.StopOrders();
    node.Kill(static_cast<int>(seed / 3) % size);
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.Check();
    node.ExpectNothingIsKept();
    if (::testing::Test::HasFailure()) break;
  }
}

// It answers nothing, and its death is not told.
TEST(BoundGroup, WhoeverIsStoppedIsNotAwaitedForEver) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    Node node(size, seed);
    for (uint32_t moves = seed * 13 % 2'000; moves > 0; --moves) node.Move();
    for (int i = 0; i < 4; ++i) node.NewRequest();
    node.Stop(1 + static_cast<int>(seed) % (size - 1));
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone() || !node.LeadIsBound(); }));
    node.StopOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.ExpectNothingIsKept();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace skein::scheduler
