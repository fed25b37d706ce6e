#include "scheduler/worker/group/bound_group.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// Nothing could run: blocks come free by what others end, so there is no hurry to ask again.
constexpr TimeUs kAskPauseUs = 1000;

bool IsSubset(const PrepareFormation& order) {
  return order.size >= 2 && std::has_single_bit(static_cast<uint32_t>(order.size)) &&
         order.first >= 0 && order.first % order.size == 0;
}

int64_t TokensOf(const FeedOffer& offer) { return offer.prompt_tokens + offer.output_tokens; }

}  // namespace

BoundGroup::BoundGroup(const BoundGroupConfig& config, BlockPool* pool, ComingBlocks* coming,
                       std::function<absl::Status(int64_t blocks)> room,
                       std::function<void(BoundEffect)> emit)
    : config_(config),
      pool_(pool),
      coming_kv_(coming),
      room_(std::move(room)),
      emit_(std::move(emit)) {}

// ---- orders ----

void BoundGroup::Prepare(const PrepareFormation& order, TimeUs now) {
  const auto refuse = [&](const absl::Status& why) {
    emit_(TellFormation{{.epoch = order.epoch, .phase = FormationTold::Phase::kEnded, .why = why}});
  };
  if (order.epoch <= order_.epoch) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("epoch: ", order.epoch, " is not above ", order_.epoch)));
  }
  if (!IsSubset(order)) {
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        "first, size: ", order.first, ", ", order.size, " are no aligned power of two")));
  }
  if (bound()) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("this instance is bound under epoch ", order_.epoch)));
  }
  Forget(absl::CancelledError("a newer epoch is being prepared"));
  order_ = order;
  phase_ = Phase::kOpening;
  keep_until_us_ = now + order.keep_us;
  emit_(OpenFeed{order.epoch, order.generation, order.first, order.size});
}

void BoundGroup::FeedOpened(uint64_t epoch, const absl::StatusOr<int>& rank, TimeUs now) {
  if (!IsOf(epoch) || phase_ != Phase::kOpening) return;
  if (!rank.ok()) {
    phase_ = Phase::kAlone;
    keep_until_us_ = kNever;
    return Tell(FormationTold::Phase::kEnded, rank.status());
  }
  rank_ = *rank;
  opened_us_ = now;
  // SetOwn goes on from there.
  phase_ = OwnEndFirst() ? Phase::kDraining : Phase::kPrepared;
  if (phase_ == Phase::kPrepared) Tell(FormationTold::Phase::kPrepared, absl::OkStatus());
}

void BoundGroup::Commit(const CommitFormation& order, TimeUs now) {
  if (!IsOf(order.epoch) || phase_ < Phase::kPrepared || rank_ != 0) {
    return emit_(TellFormation{{.epoch = order.epoch,
                                .phase = FormationTold::Phase::kEnded,
                                .why = absl::NotFoundError("this epoch is not prepared here")}});
  }
  if (bound()) return;
  Bind(now);
  FeedEffects effects;
  const absl::Status proposed = lead_->Propose(planner_->Ask(), now, &effects);
  SKEIN_CHECK_MSG(proposed.ok(), "a step of nothing needs no blocks");
  Carry(effects, now);
  Drive(now);
}

void BoundGroup::End(const EndFormation& order, TimeUs now) {
  if (!IsOf(order.epoch)) {
    return emit_(TellFormation{{.epoch = order.epoch,
                                .phase = FormationTold::Phase::kEnded,
                                .why = absl::NotFoundError("this epoch is not known here")}});
  }
  if (!bound()) return Forget(order.why);
  if (!leads()) {
    // Only the lead can let the group's sequences end first.
    if (order.how == Switch::kHard) EndOf(order.why, now);
    return;
  }
  const bool harder = ending_.has_value() && order.how == Switch::kHard;
  if (ending_.has_value() && !harder) return;
  if (!ending_.has_value()) ending_us_ = now;
  ending_ = order;
  Drive(now);
}

void BoundGroup::Abandon(const absl::Status& why, TimeUs now) {
  if (bound() && over_.ok()) EndOf(why, now);
  Forget(why);
}

void BoundGroup::Registered(uint64_t told_epoch) {
  if (told_epoch == order_.epoch) return;
  Forget(absl::CancelledError("a stream to the orchestrator began before it was told"));
}

void BoundGroup::Forget(const absl::Status& why) {
  if (phase_ == Phase::kAlone || bound()) return;
  if (phase_ == Phase::kPrepared && rank_ != 0) {  // the lead may have committed
    emit_(SendOnFeed{order_.epoch, 0, FeedEnd{order_.epoch, why}});
  }
  phase_ = Phase::kAlone;
  keep_until_us_ = kNever;
  emit_(CloseFeed{order_.epoch, /*broken=*/false, why});
  Tell(FormationTold::Phase::kEnded, why);
}

void BoundGroup::Tell(FormationTold::Phase phase, const absl::Status& why, TimeUs drain_us) {
  told_ = {
      .epoch = order_.epoch, .phase = phase, .why = why, .cut_over_us = 0, .drain_us = drain_us};
  emit_(TellFormation{told_});
}

void BoundGroup::TellBound(TimeUs now) {
  told_ = {.epoch = order_.epoch,
           .phase = FormationTold::Phase::kBound,
           .why = {},
           .cut_over_us = now - bind_us_,
           .drain_us = now - entered_us_};
  emit_(TellFormation{told_});
}

void BoundGroup::Bind(TimeUs now) {
  phase_ = Phase::kBound;
  keep_until_us_ = kNever;
  bind_us_ = now;
  has_run_ = false;
  own_told_ = 0;
  moves_own_ = leads() && order_.own == OwnSequences::kSoftPreempt;
  wanted_blocks_ = 0;
  plan_due_us_ = kNever;
  propose_from_us_ = 0;
  const KvLayout layout{order_.size};
  const int64_t tokens_per_block = TokensPerBlock(layout, config_.kv_heads, config_.block_tokens);
  batch_.emplace(pool_, layout, tokens_per_block);
  if (!leads()) return void(member_.emplace(order_.epoch, &*batch_, config_.limits));
  lead_.emplace(order_.epoch, order_.size, &*batch_, config_.limits);
  planner_.emplace(
      GroupPlannerConfig{.ranks = order_.size,
                         .tokens_per_block = tokens_per_block,
                         .total_blocks = pool_->Counts().total,
                         .batch = config_.batch,
                         .full_tp = {1, order_.size},
                         .base = {order_.size, 1},
                         .shift_tokens = order_.shift_tokens.value_or(config_.shift_tokens),
                         .own_share = config_.own_share});
}

// ---- the feed ----

void BoundGroup::FeedArrived(int rank, const FeedMessage& message, TimeUs now) {
  const uint64_t epoch = std::visit([](const auto& one) { return one.epoch; }, message);
  const bool ours = IsOf(epoch) && phase_ != Phase::kOpening;
  const bool proposes = std::holds_alternative<FeedPlan>(message);
  if ((!ours || phase_ == Phase::kDraining) && proposes) {
    return emit_(SendOnFeed{
        epoch, rank,
        FeedEnd{epoch, absl::FailedPreconditionError("the epoch is not prepared here")}});
  }
  if (!ours || !over_.ok()) return;
  if (!bound()) {
    if (proposes && !leads() && rank == 0) {
      Bind(now);
    } else if (std::holds_alternative<FeedEnd>(message)) {
      return Forget(std::get<FeedEnd>(message).why);
    } else {
      return;
    }
  }
  FeedEffects effects;
  if (lead_.has_value()) {
    const auto* own = std::get_if<FeedOwn>(&message);
    if (own != nullptr && rank > 0 && rank < size()) planner_->ToldOwn(rank, own->own_tokens);
    if (const auto* reserved = std::get_if<FeedReserved>(&message)) {
      TakeReserved(rank, *reserved, now);
    } else {
      lead_->Take(rank, message, now, &effects);
    }
  } else if (rank == 0) {
    AwaitLead(/*heard=*/true, now);
    if (proposes) wanted_blocks_ = std::get<FeedPlan>(message).wanted_blocks;
    if (const auto* offer = std::get_if<FeedOffer>(&message)) {
      TakeOffer(*offer, now);
    } else if (const auto* withdraw = std::get_if<FeedWithdraw>(&message)) {
      batch_->Withdraw(withdraw->id, withdraw->request_epoch);
      coming_kv_->Drop({withdraw->id, withdraw->request_epoch});
    } else if (const auto* reserve = std::get_if<FeedReserve>(&message)) {
      TakeReserve(*reserve);
    } else {
      member_->Take(message, now, &effects);
    }
  }
  Carry(effects, now);
  Drive(now);
}

void BoundGroup::FeedLost(int rank, const absl::Status& why, TimeUs now) {
  if (phase_ == Phase::kAlone) return;
  if (!bound()) {
    return Forget(
        absl::UnavailableError(absl::StrCat("rank ", rank, ": ", std::string(why.message()))));
  }
  FeedEffects effects;
  if (lead_.has_value()) {
    lead_->Lost(rank, why, &effects);
  } else {
    member_->Lost(
        absl::UnavailableError(absl::StrCat("rank ", rank, ": ", std::string(why.message()))),
        &effects);
  }
  Carry(effects, now);
  Drive(now);
}

// A part of an offer; the last one completes it.
void BoundGroup::TakeOffer(const FeedOffer& part, TimeUs now) {
  const std::pair key(part.id, part.request_epoch);
  FeedOffer& offer = part.first == 0 ? (coming_[key] = part) : coming_[key];
  if (part.first != 0) {
    if (part.first != static_cast<int64_t>(offer.tokens.size())) {
      return EndOf(absl::InternalError(absl::StrCat("an offer's part begins at token ", part.first,
                                                    " after ", offer.tokens.size())),
                   now);
    }
    offer.tokens.insert(offer.tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  if (static_cast<int64_t>(offer.tokens.size()) < TokensOf(offer)) return;
  const FeedOffer whole = std::move(coming_.extract(key).mapped());
  const absl::StatusOr<BlockTable> blocks = TakeWhole(whole);
  if (!blocks.ok()) return EndOf(blocks.status(), now);
  auto spec = std::make_shared<RequestSpec>();
  const auto output_begin = whole.tokens.begin() + whole.prompt_tokens;
  spec->id = whole.id;
  spec->prompt.assign(whole.tokens.begin(), output_begin);
  spec->max_tokens = whole.max_tokens;
  spec->min_tokens = whole.min_tokens;
  spec->sampling = whole.sampling;
  spec->stop_token_ids = whole.stop_token_ids;
  batch_->Offer({.epoch = whole.request_epoch,
                 .spec = std::move(spec),
                 .blocks = *blocks,
                 .kv_tokens = whole.kv_tokens,
                 .output = {output_begin, whole.tokens.end()}});
}

void BoundGroup::Carry(const FeedEffects& effects, TimeUs now) {
  for (const FeedEffect& effect : effects) {
    std::visit([&](const auto& one) { On(one, now); }, effect);
  }
}

void BoundGroup::On(const SendFeed& effect, TimeUs) {
  emit_(SendOnFeed{order_.epoch, effect.rank, effect.message});
}

void BoundGroup::On(const EnterGroupStep& effect, TimeUs now) {
  entered_ = effect.step;
  if (!has_run_) entered_us_ = now;
}

void BoundGroup::On(const StepRefused& effect, TimeUs now) {
  if (!absl::IsResourceExhausted(effect.why)) return EndOf(effect.why, now);
  planner_->Refused(effect);
  propose_from_us_ = now + kAskPauseUs;
}

void BoundGroup::On(const StepCommitted& effect, TimeUs) { planner_->Committed(effect.step); }
void BoundGroup::On(const StepCompleted& effect, TimeUs) { planner_->Completed(effect); }

// A step that runs anywhere ends with its communicators; Finish follows it.
void BoundGroup::On(const GroupFailed& effect, TimeUs) {
  if (!over_.ok()) return;
  over_ = effect.why;
  const bool steps = in_step_ || entered_.has_value();
  const bool released = leads() && ending_.has_value() && over_ == ending_->why;
  const bool orderly = released || (leads() ? !steps && !has_run_ : !steps);
  emit_(CloseFeed{order_.epoch, /*broken=*/!orderly, over_});
}

// This rank ends the epoch for all.
void BoundGroup::EndOf(const absl::Status& why, TimeUs now) {
  FeedEffects effects;
  lead_.has_value() ? lead_->End(why, &effects) : member_->End(why, &effects);
  Carry(effects, now);
  Drive(now);
}

// ---- time, and the end ----

void BoundGroup::Tick(TimeUs now) {
  if (!bound()) {
    if (now < keep_until_us_) return;
    return Forget(absl::DeadlineExceededError(phase_ == Phase::kDraining
                                                  ? "its own sequences did not end in time"
                                                  : "no step of the epoch came"));
  }
  if (now >= plan_due_us_) {
    return EndOf(absl::DeadlineExceededError("the lead started no step in time"), now);
  }
  FeedEffects effects;
  lead_.has_value() ? lead_->Tick(now, &effects) : member_->Tick(now, &effects);
  Carry(effects, now);
  TickReservations(now);
  Drive(now);
}

TimeUs BoundGroup::NextTick() const {
  if (!bound()) return keep_until_us_;
  if (member_.has_value()) return std::min(member_->NextTick(), plan_due_us_);
  const bool asks = over_.ok() && propose_from_us_ > 0 && lead_->MayPropose();
  return std::min({lead_->NextTick(), over_.ok() ? reservation_ends_.Next() : kNever,
                   asks ? propose_from_us_ : kNever});
}

// A member whose own sequences could run waits for a plan of the lead, not without a bound.
void BoundGroup::AwaitLead(bool heard, TimeUs now) {
  const bool waits =
      member_.has_value() && over_.ok() && own_.tokens > 0 && !in_step_ && !entered_.has_value();
  if (!waits) {
    plan_due_us_ = kNever;
  } else if (heard || plan_due_us_ == kNever) {
    plan_due_us_ = now + config_.limits.step_us + config_.limits.answer_us;
  }
}

void BoundGroup::Drive(TimeUs now) {
  if (!bound()) return;
  AwaitLead(/*heard=*/false, now);
  if (lead_.has_value() && over_.ok()) {
    Withdraw();
    const bool drained =
        ending_.has_value() && lead_->Idle() && (ending_->how == Switch::kHard || Drained());
    if (drained) return EndOf(ending_->why, now);
    Propose(now);
  }
  if (!over_.ok() && !in_step_) Finish(now);
}

void BoundGroup::Propose(TimeUs now) {
  if (now >= propose_from_us_) propose_from_us_ = 0;
  // To be idle, the lead proposes nothing behind the last step.
  const auto ends = [this] {
    return ending_.has_value() && (ending_->how == Switch::kHard || Drained());
  };
  while (bound() && over_.ok() && propose_from_us_ == 0 && !ends() && lead_->MayPropose()) {
    planner_->PauseOwn(OwnPauses(now));
    planner_->LetEnd(ending_.has_value());
    const std::optional<FeedPlan> plan = planner_->Next(*batch_, own_.tokens, own_.waits);
    if (!plan.has_value()) return;
    wanted_blocks_ = plan->wanted_blocks;
    if (GroupPlanner::Asks(*plan)) propose_from_us_ = now + kAskPauseUs;
    FeedEffects effects;
    const absl::Status proposed = lead_->Propose(*plan, now, &effects);
    if (!proposed.ok()) effects.push_back(StepRefused{0, 0, proposed, batch_->free_blocks()});
    Carry(effects, now);
  }
}

void BoundGroup::Finish(TimeUs now) {
  const absl::Status why = std::exchange(over_, absl::OkStatus());
  std::vector<ReleaseSequence> removed;
  if (entered_.has_value()) {
    removed = std::move(entered_->removed);
    batch_->Fail();
  }
  if (planner_.has_value()) preemptions_ += planner_->preemptions();
  FormationOver over{why, batch_->Dissolve(), EndReservations()};
  for (const ReleaseSequence& one : removed) over.left.emplace_back(one.id, one.epoch);
  const bool ordered = ending_.has_value();
  phase_ = Phase::kAlone;
  entered_.reset();
  ending_.reset();
  coming_.clear();
  wanted_blocks_ = 0;
  lead_.reset();
  member_.reset();
  planner_.reset();
  batch_.reset();
  Tell(FormationTold::Phase::kEnded, why, ordered ? now - ending_us_ : 0);
  emit_(std::move(over));
}

int64_t BoundGroup::batch_blocks() const { return batch_.has_value() ? batch_->held_blocks() : 0; }

absl::Status BoundGroup::CheckInvariants() const {
  const bool fits = bound() == batch_.has_value() && bound() == (lead_ || member_) &&
                    !(lead_ && member_) && lead_.has_value() == planner_.has_value();
  if (!fits) return absl::InternalError("BoundGroup 1: the parts of a bound group do not fit");
  for (const auto& [key, kept] : coming_kv_->all()) {
    const auto reservation = reservations_.find(key);
    const bool waits = reservation != reservations_.end() && !reservation->second.given;
    if (member_.has_value() || (lead_.has_value() && waits)) continue;
    return absl::InternalError(absl::StrCat("BoundGroup 3: blocks are kept for the KV of ",
                                            ToString(key.first), ", which is not reserved"));
  }
  if (!bound()) return absl::OkStatus();
  if (absl::Status status = batch_->CheckInvariants(); !status.ok()) return status;
  return lead_.has_value() ? lead_->CheckInvariants() : member_->CheckInvariants();
}

}  // namespace skein::scheduler
