#include "scheduler/election/election_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

namespace {

constexpr TimeUs kAsideLeases = 2;
constexpr TimeUs kAsidesFirstLeases = 4, kAsidesLongestLeases = 64;

}  // namespace

ElectionCore::ElectionCore(TimeUs lease_us)
    : lease_us_(lease_us),
      ttl_us_(lease_us),
      claims_(lease_us / 32, lease_us / 4),
      asides_(kAsidesFirstLeases * lease_us, kAsidesLongestLeases * lease_us) {}

ElectionCore::Effects ElectionCore::Handle(const ElectionEvent::Any& event, TimeUs now) {
  now_ = std::max(now_, now);
  Lapse();  // before the event: a late renewal does not bring an ended leadership back
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  return std::exchange(effects_, {});
}

TimeUs ElectionCore::NextDeadline() const {
  if (leading_) {
    TimeUs next = until_us_;
    if (call_ == Call::kNone) {
      next = std::min(next, renew_at_us_);
      if (raise_to_ != 0) next = std::min(next, raise_at_us_);
    }
    return next;
  }
  return call_ == Call::kNone ? ClaimAt() : kNever;
}

template <class Effect>
void ElectionCore::Order(Call call, Effect effect) {
  call_ = call;
  ordered_us_ = now_;
  effects_.push_back(std::move(effect));
}

void ElectionCore::On(const ElectionEvent::Seen& event) {
  if (view_known_ && event.view.revision < view_.revision) return;
  const bool was_free = view_known_ && view_.leader_revision == 0;
  if (!was_free) free_since_us_ = now_;
  view_ = event.view;
  view_known_ = true;
  if (view_.leader_revision != 0) claims_.Succeeded();
  if (!leading_ || view_.revision < leader_revision_) return;  // from before the claim
  if (view_.leader_revision != leader_revision_) {
    Lose(absl::AbortedError(view_.leader_revision == 0 ? "the store has no leader any more"
                                                       : "the store has another leader"));
  }
}

void ElectionCore::On(const ElectionEvent::Unseen&) { view_known_ = false; }

void ElectionCore::On(const ElectionEvent::Granted& event) {
  call_ = Call::kNone;
  lease_ = event.lease;
  ttl_us_ = event.ttl_us;
  until_us_ = EndOf(event.ttl_us);
  renew_at_us_ = ordered_us_ + ttl_us_ / 4;
  // Others may have won meanwhile; the claim would fail.
  if (resigned_ || !Free() || now_ >= until_us_) {
    give_up_lease_ = true;
    return;
  }
  generation_ = view_.generation + 1;
  Order(Call::kClaim, ElectionEffect::Claim{lease_, view_.generation_revision, generation_,
                                            std::min(CallTimeout(), until_us_ - now_)});
}

void ElectionCore::On(const ElectionEvent::Committed& event) {
  const Call call = std::exchange(call_, Call::kNone);
  if (call == Call::kRaise) {
    generation_revision_ = event.revision;
    return;
  }
  claims_.Succeeded();
  stored_generation_ = generation_;
  leader_revision_ = generation_revision_ = event.revision;
  const bool replaced = view_known_ && view_.revision >= leader_revision_ &&
                        view_.leader_revision != leader_revision_;
  if (resigned_ || replaced || now_ >= until_us_) {
    give_up_lease_ = true;
    return;
  }
  leading_ = true;
  led_since_us_ = now_;
  aside_ = false;
  raise_to_ = 0;
  effects_.push_back(ElectionEffect::Led{generation_});
}

void ElectionCore::On(const ElectionEvent::Renewed& event) {
  call_ = Call::kNone;
  ttl_us_ = event.ttl_us;
  until_us_ = std::max(until_us_, EndOf(event.ttl_us));
}

void ElectionCore::On(const ElectionEvent::Revoked&) {
  call_ = Call::kNone;
  lease_ = 0;
}

void ElectionCore::On(const ElectionEvent::Failed& event) {
  const bool refused = event.failure == ElectionFailure::kRefused;
  switch (std::exchange(call_, Call::kNone)) {
    case Call::kNone:
      break;
    case Call::kGrant:
      ClaimFailed();
      break;
    case Call::kClaim:
      give_up_lease_ = true;
      ClaimFailed();
      break;
    case Call::kRenew:
      renew_at_us_ = now_ + ttl_us_ / 16;
      if (!refused) break;
      lease_ = 0;
      if (leading_) Lose(absl::AbortedError("the store has ended the lease"));
      break;
    case Call::kRaise:
      // Refused: the leadership has ended, or something else wrote the generation. The watch and
      // the next renewal find out.
      stored_generation_ = generation_;
      raise_at_us_ = now_ + ttl_us_ / 4;
      if (refused && view_known_) {
        generation_revision_ = view_.generation_revision;
        stored_generation_ = view_.generation;
      }
      break;
    case Call::kRevoke:
      // It ends by itself.
      lease_ = 0;
      if (resigned_ && !refused) gave_up_ = false;
      break;
  }
}

void ElectionCore::On(const ElectionEvent::Resign&) {
  resigned_ = true;
  if (leading_) Lose(absl::OkStatus());
}

void ElectionCore::On(const ElectionEvent::StepAside&) {
  if (!leading_ || now_ < may_step_aside_at_us_) return;
  if (now_ - led_since_us_ >= kAsidesLongestLeases * lease_us_) asides_.Succeeded();
  may_step_aside_at_us_ = now_ + asides_.Failed();
  aside_ = true;
  free_since_us_ = now_;  // the view may be from before the claim
  Lose(absl::CancelledError(
      "none of the workers and routers is heard any more, so another orchestrator may lead"));
}

void ElectionCore::On(const ElectionEvent::Raise& event) {
  if (!leading_ || event.generation <= std::max(stored_generation_, raise_to_)) return;
  raise_to_ = event.generation;
  raise_at_us_ = now_;
}

bool ElectionCore::Free() const {
  return view_known_ && view_.leader_revision == 0 && view_.generation < kGenerationMax - 1;
}

TimeUs ElectionCore::ClaimAt() const {
  if (resigned_ || !Free()) return kNever;
  return aside_ ? std::max(claim_at_us_, free_since_us_ + kAsideLeases * ttl_us_) : claim_at_us_;
}

void ElectionCore::ClaimFailed() { claim_at_us_ = now_ + claims_.Failed(); }

// UNAVAILABLE, unlike every other end of a leadership: nothing says that another one leads.
void ElectionCore::Lapse() {
  if (!leading_ || now_ < until_us_) return;
  Lose(absl::UnavailableError(absl::StrCat("the lease was not renewed for ",
                                           (now_ - until_us_ + ttl_us_ - ttl_us_ / 10) / 1000,
                                           " ms")));
}

void ElectionCore::Lose(absl::Status why) {
  leading_ = false;
  raise_to_ = 0;
  give_up_lease_ = lease_ != 0;
  effects_.push_back(ElectionEffect::Lost{std::move(why)});
}

void ElectionCore::Advance() {
  if (call_ != Call::kNone) return;
  if (leading_) return AdvanceLeader();
  if (std::exchange(give_up_lease_, false) && lease_ != 0) {
    return Order(Call::kRevoke, ElectionEffect::Revoke{lease_, CallTimeout()});
  }
  if (now_ < ClaimAt()) return;
  Order(Call::kGrant, ElectionEffect::Grant{lease_us_, lease_us_ / 2});
}

void ElectionCore::AdvanceLeader() {
  const TimeUs timeout_us = std::min(CallTimeout(), until_us_ - now_);
  if (now_ >= renew_at_us_) {
    renew_at_us_ = now_ + ttl_us_ / 4;
    return Order(Call::kRenew, ElectionEffect::Renew{lease_, timeout_us});
  }
  if (raise_to_ <= stored_generation_) raise_to_ = 0;
  if (raise_to_ == 0 || now_ < raise_at_us_) return;
  stored_generation_ = raise_to_;
  Order(Call::kRaise, ElectionEffect::PutGeneration{leader_revision_, generation_revision_,
                                                    raise_to_, timeout_us});
}

}  // namespace skein::scheduler
