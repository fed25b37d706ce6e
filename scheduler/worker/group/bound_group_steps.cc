// BoundGroup's sequences at the lead, own sequences, and the steps of this rank.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/own_end_first.h"
#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/group/bound_group.h"

namespace skein::scheduler {

// ---- the lead's sequences ----

absl::Status BoundGroup::CheckFits(const RequestSpec& spec) const {
  const int64_t blocks = BlocksOf(PromptTokens(spec) + spec.max_tokens);
  if (blocks > pool_->Counts().total) {
    return absl::ResourceExhaustedError(absl::StrCat("KV blocks: the request needs ", blocks,
                                                     " at each rank, which has ",
                                                     pool_->Counts().total));
  }
  if (spec.sampling.size() > FeedOffer::kSamplingMax) {
    return absl::InvalidArgumentError(absl::StrCat("sampling: ", spec.sampling.size(),
                                                   " bytes, at most ", FeedOffer::kSamplingMax,
                                                   " in a bound group"));
  }
  return absl::OkStatus();
}

int64_t BoundGroup::BlocksOf(int64_t tokens) const {
  const int64_t tokens_per_block =
      TokensPerBlock(KvLayout{size()}, config_.kv_heads, config_.block_tokens);
  return (tokens + tokens_per_block - 1) / tokens_per_block;
}

absl::Status BoundGroup::Join(const SpecPtr& spec, Epoch epoch, TimeUs arrived_us,
                              const std::vector<int32_t>& output, TimeUs now) {
  SKEIN_CHECK(MayJoin());
  if (absl::Status status = CheckFits(*spec); !status.ok()) return status;
  planner_->Add(spec->id, epoch, spec->priority, arrived_us,
                PromptTokens(*spec) + static_cast<int64_t>(output.size()));
  Offer({.epoch = epoch, .spec = spec, .blocks = nullptr, .kv_tokens = 0, .output = output});
  Drive(now);
  return absl::OkStatus();
}

// To the members, and here.
void BoundGroup::Offer(OfferedSequence sequence) {
  const RequestSpec& spec = *sequence.spec;
  FeedOffer offer{.epoch = order_.epoch,
                  .id = spec.id,
                  .request_epoch = sequence.epoch,
                  .prompt_tokens = PromptTokens(spec),
                  .output_tokens = static_cast<int64_t>(sequence.output.size()),
                  .max_tokens = spec.max_tokens,
                  .min_tokens = spec.min_tokens,
                  .kv_tokens = sequence.kv_tokens,
                  .sampling = spec.sampling,
                  .stop_token_ids = spec.stop_token_ids};
  std::vector<int32_t> tokens = spec.prompt;
  tokens.insert(tokens.end(), sequence.output.begin(), sequence.output.end());
  SendOffer(std::move(offer), tokens);
  batch_->Offer(std::move(sequence));
}

void BoundGroup::SendOffer(FeedOffer part, const std::vector<int32_t>& tokens) {
  for (size_t first = 0; first < tokens.size(); first += FeedOffer::kTokensMax) {
    const size_t end = std::min(first + FeedOffer::kTokensMax, tokens.size());
    part.first = static_cast<int64_t>(first);
    part.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                       tokens.begin() + static_cast<std::ptrdiff_t>(end));
    for (int rank = 1; rank < size(); ++rank) emit_(SendOnFeed{order_.epoch, rank, part});
    part.sampling.clear();
    part.stop_token_ids.clear();
  }
}

void BoundGroup::Leave(RequestId id, Epoch epoch, TimeUs now) {
  if (!bound() || !leads()) return;
  planner_->Remove(id, epoch);
  Drive(now);
}

void BoundGroup::Withdraw() {
  for (const auto& [id, epoch] : planner_->TakeWithdrawn()) {
    batch_->Withdraw(id, epoch);
    SendWithdraw({id, epoch});
  }
}

void BoundGroup::SendWithdraw(const Key& key) {
  for (int rank = 1; rank < size(); ++rank) {
    emit_(SendOnFeed{order_.epoch, rank, FeedWithdraw{order_.epoch, key.first, key.second}});
  }
}

// ---- own sequences ----

bool BoundGroup::OwnEndFirst() const {
  return scheduler::OwnEndFirst(order_.own, leads());
}

bool BoundGroup::OwnPauses(TimeUs now) const {
  return order_.own == OwnSequences::kHardPreempt && !ending_.has_value() &&
         now < bind_us_ + config_.own_pause_us;
}

void BoundGroup::SetOwn(const OwnWork& own, TimeUs now) {
  const bool same = std::exchange(own_, own).tokens == own.tokens;
  if (phase_ == Phase::kDraining && !own.any) {
    phase_ = Phase::kPrepared;
    return Tell(FormationTold::Phase::kPrepared, absl::OkStatus(), now - opened_us_);
  }
  if (same || !bound() || !over_.ok()) return;
  if (leads()) return Drive(now);
  AwaitLead(/*heard=*/false, now);
  // Steps tell it by themselves.
  if (in_step_ || entered_.has_value() || own_told_ > 0 || own.tokens == 0) return;
  own_told_ = own.tokens;
  emit_(SendOnFeed{order_.epoch, 0, FeedOwn{order_.epoch, own.tokens}});
}

// ---- steps ----

std::optional<GroupStep> BoundGroup::TakeStep(TimeUs now) {
  while (bound() && over_.ok() && !in_step_ && entered_.has_value()) {
    GroupStep step = *std::exchange(entered_, std::nullopt);
    in_step_ = true;
    if (!std::exchange(has_run_, true)) TellBound(now);
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
  FeedEffects effects;
  own_told_ = own_.tokens;
  if (lead_.has_value()) {
    lead_->StepEnded(status, sampled, now, &effects);
  } else {
    member_->StepEnded(status, sampled, own_.tokens, own_.waits, &effects);
  }
  Carry(effects, now);
  Drive(now);
}

}  // namespace skein::scheduler
