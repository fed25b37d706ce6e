// What long and urgent requests need of a group (Chooser).
#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/orchestrator/groups/formation_chooser.h"

namespace skein::scheduler::orchestrator {

// ---- length ----

// What runs a long request, so that it can end. After a member has left, that may be at places of
// the order that cannot be bound: such members are taken, but not chosen.
void Chooser::KeepLong() {
  pins_ = taken_.size();
  for (const GroupLoad::Present& present : load_.bound) {
    if (present.long_tokens == 0 || !IsWithin(present.subset)) continue;
    if (!IsFree(present.subset) || !Serves(present.subset)) continue;
    longs_.push_back(present.subset);
    if (IsBindable(present.subset, members_)) {
      Bind(present.subset, present.reason,
           absl::StrCat("a request of ", present.long_tokens,
                        " tokens runs in it, which fits no instance alone"));
    } else {
      taken_.push_back(present.subset);
    }
  }
}

void Chooser::TakeForLength() {
  const int64_t tokens = load_.longest_tokens;
  if (tokens == 0 || load_.sizes.empty()) return;
  const std::optional<FormationSize> fits = SmallestThatHolds(tokens);
  if (!fits || fits->size == 1 || HasPinned(fits->size)) return;
  const bool is_kept = std::any_of(longs_.begin(), longs_.end(), [&](const Subset& subset) {
    return TokensMax(subset) >= tokens;
  });
  if (is_kept) return;  // it waits for room there
  if (rule_ == Rule::kBind && Emptiest(best_->size, tokens)) return;
  const std::optional<Subset> subset = ForLength(fits->size, tokens);
  if (subset) {
    return Bind(*subset, BindReason::kLength,
                absl::StrCat("a request of ", tokens, " tokens fits ", FormationName(fits->size),
                             " (", fits->tokens_max, " tokens), but nothing smaller"));
  }
  RejectBlocked(fits->size);
  if (longs_.empty()) return;
  Reject(fits->size, absl::StrCat("a request of ", tokens,
                                  " tokens waits for it until other long ones have ended"));
}

// Among the formations that the pins leave possible, with what one of that size holds. Empty: none
// holds so many tokens.
std::optional<FormationSize> Chooser::SmallestThatHolds(int64_t tokens) {
  std::optional<FormationSize> widest;
  for (const FormationSize& size : load_.sizes) {
    FormationSize one = size;
    if (size.size > 1 && !HasPinned(size.size)) one.tokens_max = MostThatPinsLeave(size.size);
    if (one.tokens_max == 0) continue;
    if (one.tokens_max >= tokens) return one;
    widest = one;
  }
  if (!widest) return std::nullopt;
  choice_.too_long = absl::InvalidArgumentError(absl::StrCat(
      "a request of ", tokens, " tokens is longer than the limit of ", widest->tokens_max,
      " tokens of ", FormationName(widest->size), ", the widest formation of this group",
      load_.pinned.empty() ? "" : " with its pins"));
  return std::nullopt;
}

int64_t Chooser::TokensMax(const Subset& subset) const {
  const auto own = load_.tokens_max.find(subset);
  if (own != load_.tokens_max.end()) return own->second;
  for (const FormationSize& size : load_.sizes) {
    if (size.size == subset.size) return size.tokens_max;
  }
  return 0;
}

// What one of this size would hold at most if nothing but the pins were bound; 0: there is none.
int64_t Chooser::MostThatPinsLeave(int32_t size) const {
  const auto end = taken_.begin() + static_cast<std::ptrdiff_t>(pins_);
  int64_t most = 0;
  for (Subset subset = {0, size}; IsBindable(subset, members_); subset.first += size) {
    const auto overlaps = [&](const Subset& pin) { return pin.Overlaps(subset); };
    if (!Serves(subset) || std::any_of(taken_.begin(), end, overlaps)) continue;
    most = std::max(most, TokensMax(subset));
  }
  return most;
}

// One that is bound already, if it holds so much: it need not switch. Empty: none can be bound now.
std::optional<Subset> Chooser::ForLength(int32_t size, int64_t tokens) const {
  std::optional<Subset> present;
  for (const GroupLoad::Present& one : load_.bound) {
    const Subset& subset = one.subset;
    if (!IsBindable(subset, members_) || !IsFree(subset) || TokensMax(subset) < tokens) continue;
    if (!Serves(subset)) continue;
    if (!present || subset.size < present->size) present = subset;
  }
  if (present) return present;
  for (; IsBindable({0, size}, members_); size *= 2) {
    if (const std::optional<Subset> subset = Emptiest(size, tokens)) return subset;
  }
  return std::nullopt;
}

// ---- priority ----

void Chooser::TakeForPriority() {
  if (!HasUrgent(config_, load_)) return KeepForPriority();
  const bool is_bound_by_load =
      rule_ == Rule::kBind ||
      std::any_of(load_.bound.begin(), load_.bound.end(), [&](const GroupLoad::Present& present) {
        return present.reason == BindReason::kLoad && Stays(present);
      });
  const bool is_bound_for_it =
      std::any_of(choice_.bound.begin(), choice_.bound.end(),
                  [](const auto& bound) { return bound.reason == BindReason::kPriority; });
  // The request gets one of those.
  if (is_bound_by_load || is_bound_for_it || members_ < 2) return;
  // As clients count it: lower is more urgent.
  const std::string priority =
      absl::StrCat("a request of priority ", -int64_t{*load_.highest_priority});
  const auto half = static_cast<int32_t>(members_ / 2);
  if (half < 2) {
    return Reject(2,
                  absl::StrCat(priority, " waits, but the group is too small: others keep half"));
  }
  const FormationSize* size = BestSize(half, /*explain=*/false);
  if (size == nullptr) return Reject(2, absl::StrCat(priority, " waits, but it would not gain"));
  const std::optional<Subset> subset = Emptiest(size->size);
  if (!subset) return Reject(size->size, absl::StrCat(priority, " waits, but no members are free"));
  Bind(*subset, BindReason::kPriority, absl::StrCat(priority, " gets a bound group"));
}

// What was bound for urgent requests, for a while after the last of them.
void Chooser::KeepForPriority() {
  if (rule_ == Rule::kBind || !load_.urgent_us) return;
  const TimeUs age_us = now_ - *load_.urgent_us;
  if (age_us >= config_.min_dwell_us) return;
  for (const GroupLoad::Present& present : load_.bound) {
    const Subset& subset = present.subset;
    if (present.reason != BindReason::kPriority || !IsBindable(subset, members_)) continue;
    if (!IsFree(subset) || !Serves(subset)) continue;
    Bind(subset, BindReason::kPriority,
         absl::StrFormat("the last urgent request was there %.1f s ago, and its group is kept for "
                         "%.1f s",
                         static_cast<double>(age_us) / kSecondUs,
                         static_cast<double>(config_.min_dwell_us) / kSecondUs));
  }
}

}  // namespace skein::scheduler::orchestrator
