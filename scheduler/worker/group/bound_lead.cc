#include "scheduler/worker/group/bound_lead.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

// Nothing could run: blocks come free by what others end, so there is no hurry to ask again.
constexpr TimeUs kAskPauseUs = 1000;

}  // namespace

BoundLead::BoundLead(uint64_t epoch, const GroupPlannerConfig& config, const FeedLimits& limits,
                     GroupBatch* batch, ComingBlocks* coming, RoomFor room,
                     std::function<void(RequestId)> answered)
    : epoch_(epoch),
      config_(config),
      batch_(batch),
      room_(std::move(room)),
      feed_(epoch, config.ranks, batch, limits),
      planner_(config),
      reservations_({.epoch = epoch, .ranks = config.ranks, .answer_us = limits.answer_us}, coming,
                    std::move(answered)),
      handed_over_({.epoch = epoch, .tokens_per_block = config.tokens_per_block, .memory = ""},
                   coming, room_) {}

// ---- steps ----

void BoundLead::ProposeFirst(TimeUs now, FeedEffects* effects) {
  FeedEffects told;
  const absl::Status proposed = feed_.Propose(planner_.Ask(), now, &told);
  SKEIN_CHECK_MSG(proposed.ok(), "a step of nothing needs no blocks");
  Pass(std::move(told), now, effects);
}

void BoundLead::Take(int rank, const FeedMessage& message, TimeUs now, FeedEffects* effects) {
  if (feed_.over()) return;
  if (const auto* reserved = std::get_if<FeedReserved>(&message)) {
    const absl::Status taken = reservations_.Take(rank, *reserved, now, effects);
    if (!taken.ok()) End(taken, effects);
    return;
  }
  if (const auto* offer = std::get_if<FeedOffer>(&message)) {
    return TakeHandedOver(*offer, now, effects);
  }
  if (const auto* withdraw = std::get_if<FeedWithdraw>(&message)) {
    return Leave(withdraw->id, withdraw->request_epoch);
  }
  const auto* own = std::get_if<FeedOwn>(&message);
  if (own != nullptr && rank > 0 && rank < config_.ranks) planner_.ToldOwn(rank, own->own_tokens);
  FeedEffects told;
  feed_.Take(rank, message, now, &told);
  Pass(std::move(told), now, effects);
}

// From a member. Its stream stays there: this rank's core does not know the sequence, and the group
// computes it like any other. What contradicts the batch ends the epoch: then each rank goes on
// with what is its own.
void BoundLead::TakeHandedOver(const FeedOffer& part, TimeUs now, FeedEffects* effects) {
  if (part.kv_tokens != 0) {
    return End(absl::InternalError("a member handed a sequence over with KV"), effects);
  }
  const absl::StatusOr<std::optional<OfferedSequence>> whole = handed_over_.Take(part);
  if (!whole.ok()) return End(whole.status(), effects);
  if (!whole->has_value()) return;
  const OfferedSequence& sequence = **whole;
  absl::Status joined;
  if (reservations_.Has({sequence.spec->id, sequence.epoch})) {
    joined = absl::AlreadyExistsError(
        absl::StrCat("the KV of request ", ToString(sequence.spec->id), " is coming to the group"));
  } else {
    joined = Join(sequence.spec, sequence.epoch, now - part.age_us, sequence.output, effects);
  }
  if (!joined.ok()) End(joined, effects);
}

void BoundLead::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                          TimeUs now, FeedEffects* effects) {
  FeedEffects told;
  feed_.StepEnded(status, sampled, now, &told);
  Pass(std::move(told), now, effects);
}

void BoundLead::Lost(int rank, const absl::Status& why, FeedEffects* effects) {
  feed_.Lost(rank, why, effects);
}

void BoundLead::End(const absl::Status& why, FeedEffects* effects) { feed_.End(why, effects); }

void BoundLead::Tick(TimeUs now, FeedEffects* effects) {
  feed_.Tick(now, effects);
  if (feed_.over()) return;
  const absl::Status answered = reservations_.Tick(now, effects);
  if (!answered.ok()) End(answered, effects);
}

TimeUs BoundLead::NextTick() const {
  if (feed_.over()) return kNever;
  const bool asks = propose_from_us_ > 0 && feed_.MayPropose();
  return std::min({feed_.NextTick(), reservations_.NextTick(), asks ? propose_from_us_ : kNever});
}

void BoundLead::Pass(FeedEffects told, TimeUs now, FeedEffects* effects) {
  for (FeedEffect& effect : told) {
    if (const auto* refused = std::get_if<StepRefused>(&effect)) {
      TakeRefused(*refused, now, effects);
    } else if (const auto* committed = std::get_if<StepCommitted>(&effect)) {
      planner_.Committed(committed->step);
    } else if (const auto* completed = std::get_if<StepCompleted>(&effect)) {
      planner_.Completed(*completed);
    } else {
      effects->push_back(std::move(effect));
    }
  }
}

void BoundLead::TakeRefused(const StepRefused& refused, TimeUs now, FeedEffects* effects) {
  if (!absl::IsResourceExhausted(refused.why)) return End(refused.why, effects);
  planner_.Refused(refused);
  propose_from_us_ = now + kAskPauseUs;
}

void BoundLead::Drive(const OwnWork& own, bool own_pauses, TimeUs now, FeedEffects* effects) {
  if (feed_.over()) return;
  Withdraw(effects);
  if (MayEnd() && feed_.Idle()) return End(release_->why, effects);
  planner_.PauseOwn(own_pauses && !release_.has_value());
  Propose(own, now, effects);
}

void BoundLead::Withdraw(FeedEffects* effects) {
  for (const auto& [id, epoch] : planner_.TakeWithdrawn()) {
    batch_->Withdraw(id, epoch);
    SendToMembers(config_.ranks, FeedWithdraw{epoch_, id, epoch}, effects);
  }
}

// To be idle, the lead proposes nothing behind the last step.
void BoundLead::Propose(const OwnWork& own, TimeUs now, FeedEffects* effects) {
  if (now >= propose_from_us_) propose_from_us_ = 0;
  while (feed_.MayPropose() && propose_from_us_ == 0 && !MayEnd()) {
    const std::optional<FeedPlan> plan = planner_.Next(*batch_, own.tokens, own.waits);
    if (!plan.has_value()) return;
    wanted_blocks_ = plan->wanted_blocks;
    if (GroupPlanner::Asks(*plan)) propose_from_us_ = now + kAskPauseUs;
    FeedEffects told;
    const absl::Status proposed = feed_.Propose(*plan, now, &told);
    if (!proposed.ok()) told.push_back(StepRefused{0, 0, proposed, batch_->free_blocks()});
    Pass(std::move(told), now, effects);
  }
}

// ---- release ----

void BoundLead::Release(const EndFormation& order, TimeUs now) {
  if (release_.has_value() && order.how != Switch::kHard) return;
  if (!release_.has_value()) released_us_ = now;
  release_ = order;
}

// It is ordered to end, and no sequence keeps it from that.
bool BoundLead::MayEnd() const {
  if (!release_.has_value()) return false;
  return release_->how == Switch::kHard || (planner_.Empty() && reservations_.empty());
}

// ---- sequences ----

absl::Status BoundLead::CheckNew(const RequestSpec& spec, Epoch epoch) const {
  if (planner_.Has(spec.id, epoch)) {
    return absl::AlreadyExistsError(
        absl::StrCat("request ", ToString(spec.id), " runs in the bound group already"));
  }
  return CheckOffer(spec, config_.total_blocks, config_.tokens_per_block);
}

int64_t BoundLead::BlocksOf(int64_t tokens) const {
  return (tokens + config_.tokens_per_block - 1) / config_.tokens_per_block;
}

absl::Status BoundLead::Join(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                             const std::vector<int32_t>& output, FeedEffects* effects) {
  if (absl::Status status = CheckNew(*spec, epoch); !status.ok()) return status;
  planner_.Add(spec->id, epoch, spec->priority, arrived_us,
               PromptTokens(*spec) + static_cast<int64_t>(output.size()));
  Offer({.epoch = epoch, .spec = spec, .blocks = nullptr, .kv_tokens = 0, .output = output},
        effects);
  return absl::OkStatus();
}

// To the members, and here.
void BoundLead::Offer(OfferedSequence sequence, FeedEffects* effects) {
  SendOffer(epoch_, config_.ranks, sequence, effects);
  batch_->Offer(std::move(sequence));
}

// ---- KV that comes ----

absl::StatusOr<std::vector<TransferTarget>> BoundLead::Reserve(const SpecPtr& spec, Epoch epoch,
                                                               TimeUs now, FeedEffects* effects) {
  const Key key(spec->id, epoch);
  if (reservations_.Has(key)) return reservations_.Ask(key);
  if (absl::Status status = CheckNew(*spec, epoch); !status.ok()) return status;
  const int64_t tokens = PromptTokens(*spec);
  const int64_t blocks = BlocksOf(tokens);
  absl::Status status = planner_.HasRoom(*batch_, blocks);
  if (status.ok()) status = room_(blocks);
  if (status.ok()) status = reservations_.Start(key, tokens, blocks, now, effects);
  if (!status.ok()) return status;
  return reservations_.Ask(key);
}

void BoundLead::JoinWithKv(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                           const std::vector<int32_t>& output, BlockTable blocks,
                           FeedEffects* effects) {
  SKEIN_CHECK(reservations_.Given({spec->id, epoch}) && !output.empty());
  reservations_.Joined({spec->id, epoch});
  const int64_t prompt = PromptTokens(*spec);
  planner_.Add(spec->id, epoch, spec->priority, arrived_us,
               prompt + static_cast<int64_t>(output.size()), prompt);
  Offer({.epoch = epoch,
         .spec = spec,
         .blocks = std::move(blocks),
         .kv_tokens = prompt,
         .output = output},
        effects);
}

}  // namespace skein::scheduler
