#include "scheduler/worker/group/bound_group.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/group/group_offers.h"

namespace skein::scheduler {

BoundGroup::BoundGroup(const BoundGroupConfig& config, BlockPool* pool, ComingBlocks* coming,
                       RoomFor room, EmitBound emit)
    : config_(config),
      pool_(pool),
      coming_kv_(coming),
      room_(std::move(room)),
      emit_(std::move(emit)),
      held_(emit_),
      own_(config.own_pause_us) {}

// ---- orders ----

void BoundGroup::Commit(const CommitFormation& order, TimeUs now) {
  const bool held = held_.Holds(order.epoch) && (held_.may_bind() || bound()) && held_.leads();
  if (!held) {
    return held_.Refuse(order.epoch, absl::NotFoundError("this epoch is not prepared here"));
  }
  if (bound()) return;
  Bind(now);
  FeedEffects effects;
  lead_->ProposeFirst(now, &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

void BoundGroup::End(const EndFormation& order, TimeUs now) {
  if (!held_.Holds(order.epoch)) {
    return held_.Refuse(order.epoch, absl::NotFoundError("this epoch is not known here"));
  }
  if (!bound()) return held_.Forget(order.why);
  if (lead_.has_value()) {
    lead_->Release(order, now);
    return Drive(now);
  }
  // Only the lead can let the group's sequences end first.
  if (order.how == Switch::kHard) EndOf(order.why, now);
}

void BoundGroup::Abandon(const absl::Status& why, TimeUs now) {
  if (bound() && over_.ok()) EndOf(why, now);
  held_.Forget(why);
}

void BoundGroup::Registered(uint64_t told_epoch) {
  if (told_epoch == held_.order().epoch) return;
  held_.Forget(absl::CancelledError("a stream to the orchestrator began before it was told"));
}

void BoundGroup::Bind(TimeUs now) {
  held_.Bind(now);
  const PrepareFormation& order = held_.order();
  own_.Bind(order, now);
  has_run_ = false;
  const KvLayout layout{order.size};
  const int64_t tokens_per_block = TokensPerBlock(layout, config_.kv_heads, config_.block_tokens);
  batch_.emplace(pool_, layout, tokens_per_block);
  if (!held_.leads()) {
    member_.emplace(order.epoch, config_.limits, &*batch_,
                    GroupOffers({order.epoch, tokens_per_block, config_.memory}, coming_kv_, room_),
                    [this](GroupOffers::Answer answer) {
                      emit_(SendOnFeed{epoch(), 0, std::move(answer.reserved), answer.grant});
                    });
    return;
  }
  const ShiftRule shift = order.shift.value_or(ShiftRule{.tokens = config_.shift_tokens});
  lead_.emplace(order.epoch,
                GroupPlannerConfig{.ranks = order.size,
                                   .tokens_per_block = tokens_per_block,
                                   .total_blocks = pool_->own(),
                                   .batch = config_.batch,
                                   .full_tp = {1, order.size},
                                   .base = {order.size / shift.tp, shift.tp},
                                   .shift_tokens = shift.tokens,
                                   .own_share = config_.own_share},
                config_.limits, &*batch_, coming_kv_, room_,
                [this](RequestId id) { emit_(GroupAnswered{id}); });
}

// ---- the feed ----

void BoundGroup::FeedArrived(int rank, const FeedMessage& message, TimeUs now) {
  const uint64_t epoch = std::visit([](const auto& one) { return one.epoch; }, message);
  const bool ours = held_.HasFeed(epoch);
  const bool proposes = std::holds_alternative<FeedPlan>(message);
  if ((!ours || held_.draining()) && proposes) {
    return emit_(SendOnFeed{
        epoch, rank,
        FeedEnd{epoch, absl::FailedPreconditionError("the epoch is not prepared here")}});
  }
  if (!ours || !over_.ok()) return;
  if (!bound()) {
    if (const auto* end = std::get_if<FeedEnd>(&message)) return held_.Forget(end->why);
    if (!proposes || held_.leads() || rank != 0) return;
    Bind(now);
  }
  FeedEffects effects;
  if (lead_.has_value()) {
    lead_->Take(rank, message, now, &effects);
  } else if (rank == 0) {
    AwaitLead(/*heard=*/true, now);
    member_->Take(message, now, &effects);
  }
  Carry(std::move(effects), now);
  Drive(now);
}

void BoundGroup::FeedLost(int rank, const absl::Status& why, TimeUs now) {
  if (!held_.holds_any()) return;
  if (!bound()) {
    return held_.Forget(
        absl::UnavailableError(absl::StrCat("rank ", rank, ": ", std::string(why.message()))));
  }
  FeedEffects effects;
  lead_.has_value() ? lead_->Lost(rank, why, &effects) : member_->Lost(rank, why, &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

void BoundGroup::Carry(FeedEffects effects, TimeUs now) {
  for (FeedEffect& effect : effects) {
    if (auto* send = std::get_if<SendFeed>(&effect)) {
      emit_(SendOnFeed{epoch(), send->rank, std::move(send->message)});
    } else if (auto* enter = std::get_if<EnterGroupStep>(&effect)) {
      entered_ = std::move(enter->step);
      if (!has_run_) entered_us_ = now;
    } else if (const auto* failed = std::get_if<GroupFailed>(&effect)) {
      Carry(*failed);
    }
  }
}

// A step that runs anywhere ends with its communicators; Finish follows it.
void BoundGroup::Carry(const GroupFailed& failed) {
  if (!over_.ok()) return;
  over_ = failed.why;
  const bool steps = in_step_ || entered_.has_value();
  const bool released = lead_.has_value() && lead_->EndedAsOrdered(over_);
  const bool orderly = released || (leads() ? !steps && !has_run_ : !steps);
  emit_(CloseFeed{epoch(), /*broken=*/!orderly, over_});
}

// This rank ends the epoch for all.
void BoundGroup::EndOf(const absl::Status& why, TimeUs now) {
  FeedEffects effects;
  lead_.has_value() ? lead_->End(why, &effects) : member_->End(why, &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

// ---- time, and the end ----

void BoundGroup::Tick(TimeUs now) {
  if (!bound()) return held_.Tick(now);
  FeedEffects effects;
  lead_.has_value() ? lead_->Tick(now, &effects) : member_->Tick(now, &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

TimeUs BoundGroup::NextTick() const {
  if (!bound()) return held_.NextTick();
  return lead_.has_value() ? lead_->NextTick() : member_->NextTick();
}

// A member with sequences that could run waits for a plan of the lead, not without a bound.
void BoundGroup::AwaitLead(bool heard, TimeUs now) {
  if (!member_.has_value()) return;
  const bool could_run = own_.work().tokens > 0 || !member_->handed_over().empty();
  member_->AwaitLead(could_run && !in_step_ && !entered_.has_value(), heard, now);
}

void BoundGroup::Drive(TimeUs now) {
  if (!bound()) return;
  AwaitLead(/*heard=*/false, now);
  if (lead_.has_value()) {
    FeedEffects effects;
    lead_->Drive(own_.work(), own_.Pauses(now), now, &effects);
    Carry(std::move(effects), now);
  }
  if (!over_.ok() && !in_step_) Finish(now);
}

void BoundGroup::Finish(TimeUs now) {
  const absl::Status why = std::exchange(over_, absl::OkStatus());
  std::vector<ReleaseSequence> removed;
  if (entered_.has_value()) {
    removed = std::move(entered_->removed);
    batch_->Fail();
  }
  FormationOver over{why, batch_->Dissolve()};
  coming_kv_->DropAll();
  TimeUs drain_us = 0;
  if (lead_.has_value()) {
    preemptions_ += lead_->preemptions();
    over.coming = lead_->EndReservations();
    if (lead_->released_us().has_value()) drain_us = now - *lead_->released_us();
  }
  for (const ReleaseSequence& one : removed) over.left.emplace_back(one.id, one.epoch);
  if (member_.has_value()) AddHandedOver(&over);
  entered_.reset();
  lead_.reset();
  member_.reset();
  batch_.reset();
  held_.Ended(why, drain_us);
  emit_(std::move(over));
}

// Those that the lead has not offered yet are in no batch.
void BoundGroup::AddHandedOver(FormationOver* over) const {
  for (const auto& key : member_->handed_over()) {
    if (std::find(over->left.begin(), over->left.end(), key) == over->left.end()) {
      over->left.push_back(key);
    }
  }
}

// ---- sequences of the group ----

absl::Status BoundGroup::CheckFits(const RequestSpec& spec) const {
  return CheckOffer(
      spec, pool_->own(),
      TokensPerBlock(KvLayout{held_.order().size}, config_.kv_heads, config_.block_tokens));
}

absl::Status BoundGroup::Join(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                              const std::vector<int32_t>& output, TimeUs now) {
  SKEIN_CHECK(MayJoin() || MovesOwn());
  FeedEffects effects;
  if (lead_.has_value()) {
    absl::Status joined = lead_->Join(spec, epoch, arrived_us, output, &effects);
    if (!joined.ok()) return joined;
  } else {
    if (absl::Status fits = CheckFits(*spec); !fits.ok()) return fits;
    member_->Give(spec, epoch, now - arrived_us, output, &effects);
  }
  Carry(std::move(effects), now);
  Drive(now);
  return absl::OkStatus();
}

void BoundGroup::Leave(RequestId id, Epoch epoch, TimeUs now) {
  if (!bound()) return;
  FeedEffects effects;
  lead_.has_value() ? lead_->Leave(id, epoch) : member_->Leave(id, epoch, &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

// ---- KV that comes ----

absl::StatusOr<BoundGroup::Targets> BoundGroup::Reserve(uint64_t formation, const SpecPtr& spec,
                                                        Epoch epoch, TimeUs now) {
  const bool asked = lead_.has_value() && lead_->reservations().Has({spec->id, epoch});
  if (!asked && (!MayJoin() || this->epoch() != formation)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("formation: this instance leads no bound group of epoch ", formation,
                     " that takes new sequences"));
  }
  FeedEffects effects;
  absl::StatusOr<std::vector<TransferTarget>> others = lead_->Reserve(spec, epoch, now, &effects);
  Carry(std::move(effects), now);
  if (others.ok()) return Targets{KvLayout{size()}, *std::move(others)};
  // A rank's refusal has ended it: it may be what a release waits for.
  if (asked && !absl::IsUnavailable(others.status())) Drive(now);
  return others.status();
}

bool BoundGroup::Reserved(RequestId id, Epoch epoch) const {
  return lead_.has_value() && lead_->reservations().Given({id, epoch});
}

void BoundGroup::JoinWithKv(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                            const std::vector<int32_t>& output, BlockTable blocks, TimeUs now) {
  SKEIN_CHECK(Reserved(spec->id, epoch));
  FeedEffects effects;
  lead_->JoinWithKv(spec, epoch, arrived_us, output, std::move(blocks), &effects);
  Carry(std::move(effects), now);
  Drive(now);
}

void BoundGroup::Dismiss(RequestId id, TimeUs now) {
  FeedEffects effects;
  if (!lead_.has_value() || !lead_->Dismiss(id, &effects)) return;
  Carry(std::move(effects), now);
  Drive(now);  // it may be what a release waits for
}

// ---- steps ----

void BoundGroup::SetOwn(const OwnWork& own, TimeUs now) {
  const bool changed = own_.Set(own);
  if (held_.draining() && !own.any) return held_.OwnEnded(now);
  if (!changed || !bound() || !over_.ok()) return;
  if (leads()) return Drive(now);
  AwaitLead(/*heard=*/false, now);
  if (in_step_ || entered_.has_value()) return;  // steps tell it by themselves
  const std::optional<int64_t> tokens = own_.TakeUntold();
  if (tokens.has_value()) emit_(SendOnFeed{epoch(), 0, FeedOwn{epoch(), *tokens}});
}

std::optional<GroupStep> BoundGroup::TakeStep(TimeUs now) {
  while (bound() && over_.ok() && !in_step_ && entered_.has_value()) {
    GroupStep step = *std::exchange(entered_, std::nullopt);
    in_step_ = true;
    if (!std::exchange(has_run_, true)) held_.TellBound(entered_us_, now);
    const bool empty = step.mode.own() ? step.own_tokens == 0 : step.sequences.empty();
    if (!empty || !step.removed.empty()) return step;
    StepEnded(absl::OkStatus(), {}, now);
  }
  return std::nullopt;
}

void BoundGroup::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                           TimeUs now) {
  SKEIN_CHECK(in_step_);
  in_step_ = false;
  own_.ToldByStep();
  FeedEffects effects;
  if (lead_.has_value()) {
    lead_->StepEnded(status, sampled, now, &effects);
  } else {
    member_->StepEnded(status, sampled, own_.work(), &effects);
  }
  Carry(std::move(effects), now);
  Drive(now);
}

// ---- what it shows ----

int64_t BoundGroup::batch_blocks() const { return batch_.has_value() ? batch_->held_blocks() : 0; }

BatchKv BoundGroup::batch_kv() const {
  return batch_.has_value() ? batch_->Kv(config_.block_tokens) : BatchKv();
}

int64_t BoundGroup::wanted_blocks() const {
  if (lead_.has_value()) return lead_->wanted_blocks();
  return member_.has_value() ? member_->wanted_blocks() : 0;
}

absl::Status BoundGroup::CheckInvariants() const {
  const bool fits =
      bound() == batch_.has_value() && bound() == (lead_ || member_) && !(lead_ && member_);
  if (!fits) return absl::InternalError("BoundGroup 1: the parts of a bound group do not fit");
  for (const auto& [key, kept] : coming_kv_->all()) {
    const bool waits =
        lead_.has_value() && lead_->reservations().Has(key) && !lead_->reservations().Given(key);
    if (member_.has_value() || waits) continue;
    return absl::InternalError(absl::StrCat("BoundGroup 3: blocks are kept for the KV of ",
                                            ToString(key.first), ", which is not reserved"));
  }
  if (!bound()) return absl::OkStatus();
  if (absl::Status status = batch_->CheckInvariants(); !status.ok()) return status;
  return lead_.has_value() ? lead_->CheckInvariants() : member_->CheckInvariants();
}

}  // namespace skein::scheduler
