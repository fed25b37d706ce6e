#include "scheduler/worker/group/bound_member.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

BoundMember::BoundMember(uint64_t epoch, const FeedLimits& limits, GroupBatch* batch,
                         GroupOffers offers, std::function<void(GroupOffers::Answer)> answer)
    : epoch_(epoch),
      limits_(limits),
      batch_(batch),
      answer_(std::move(answer)),
      feed_(epoch, batch, limits),
      offers_(std::move(offers)) {}

void BoundMember::Take(const FeedMessage& message, TimeUs now, FeedEffects* effects) {
  if (const auto* plan = std::get_if<FeedPlan>(&message)) wanted_blocks_ = plan->wanted_blocks;
  if (const auto* offer = std::get_if<FeedOffer>(&message)) return TakeOffer(*offer, effects);
  if (const auto* withdraw = std::get_if<FeedWithdraw>(&message)) {
    batch_->Withdraw(withdraw->id, withdraw->request_epoch);
    return offers_.Withdraw({withdraw->id, withdraw->request_epoch});
  }
  if (const auto* reserve = std::get_if<FeedReserve>(&message)) {
    return answer_(offers_.Reserve(*reserve));
  }
  feed_.Take(message, now, effects);
}

void BoundMember::TakeOffer(const FeedOffer& part, FeedEffects* effects) {
  absl::StatusOr<std::optional<OfferedSequence>> offered = offers_.Take(part);
  if (!offered.ok()) return End(offered.status(), effects);
  if (offered->has_value()) batch_->Offer(**std::move(offered));
}

void BoundMember::Give(const SpecPtr& spec, Epoch epoch, TimeUs age_us,
                       const std::vector<int32_t>& output, FeedEffects* effects) {
  SKEIN_CHECK(!feed_.over() && handed_over_.emplace(spec->id, epoch).second);
  SendHandedOver(
      epoch_, {.epoch = epoch, .spec = spec, .blocks = nullptr, .kv_tokens = 0, .output = output},
      age_us, effects);
}

void BoundMember::Leave(RequestId id, Epoch epoch, FeedEffects* effects) {
  if (handed_over_.erase({id, epoch}) == 0 || feed_.over()) return;
  effects->push_back(SendFeed{0, FeedWithdraw{epoch_, id, epoch}});
}

void BoundMember::StepEnded(const absl::Status& status, const std::vector<int32_t>& sampled,
                            const OwnWork& own, FeedEffects* effects) {
  feed_.StepEnded(status, sampled, own.tokens, own.waits, effects);
}

void BoundMember::Lost(int rank, const absl::Status& why, FeedEffects* effects) {
  feed_.Lost(absl::UnavailableError(absl::StrCat("rank ", rank, ": ", std::string(why.message()))),
             effects);
}

void BoundMember::Tick(TimeUs now, FeedEffects* effects) {
  if (now < plan_due_us_) return feed_.Tick(now, effects);
  End(absl::DeadlineExceededError("the lead started no step in time"), effects);
}

void BoundMember::AwaitLead(bool waits, bool heard, TimeUs now) {
  if (!waits || feed_.over()) {
    plan_due_us_ = kNever;
  } else if (heard || plan_due_us_ == kNever) {
    plan_due_us_ = now + limits_.step_us + limits_.answer_us;
  }
}

}  // namespace skein::scheduler
