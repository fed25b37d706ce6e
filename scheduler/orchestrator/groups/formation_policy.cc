#include "scheduler/orchestrator/groups/formation_policy.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skein::scheduler::orchestrator {

namespace {

// What load makes of the members that nothing else has a use for.
enum class Rule {
  kBind,
  kRelease,
  kKeep,  // what load has bound
  kHold,  // whatever is bound
};

class Chooser {
 public:
  Chooser(const FormationPolicyConfig& config, const GroupLoad& load, TimeUs now)
      : config_(config), load_(load), now_(now), members_(load.members.size()) {}

  FormationChoice Choose() {
    TakePins();
    best_ = BestSize(static_cast<int32_t>(members_), /*explain=*/true);
    DecideRule();
    KeepLong();
    TakeForLength();
    TakeForPriority();
    TakeByLoad();
    Conclude();
    return std::move(choice_);
  }

 private:
  void TakePins();
  const FormationSize* BestSize(int32_t limit, bool explain);
  void DecideRule();
  void DecideRuleByLoad(int32_t other);
  void Apply(Rule rule, std::string why, int32_t instead, std::string why_not);
  void KeepLong();
  void TakeForLength();
  void TakeForPriority();
  void TakeByLoad();
  void Conclude();

  double Sequences() const;
  double WaitingTokens() const;
  bool FewPromptsWait() const;
  bool IsFree(const Subset& subset) const;
  bool IsBoundNow(const Subset& subset) const;
  int64_t TokensIn(const Subset& subset) const;
  std::vector<Subset> FreeSubsets(int32_t size) const;
  bool Serves(const Subset& subset) const;
  std::optional<Subset> Emptiest(int32_t size, int64_t tokens = 0) const;
  std::optional<Subset> ForLength(int32_t size, int64_t tokens) const;
  std::optional<FormationSize> SmallestThatHolds(int64_t tokens);
  int64_t TokensMax(const Subset& subset) const;
  int64_t MostThatPinsLeave(int32_t size) const;
  void RejectBlocked(int32_t size);
  bool IsWithin(const Subset& subset) const;
  bool HasPinned(int32_t size) const;
  bool Stays(const GroupLoad::Present& present) const;
  void Bind(const Subset& subset, BindReason reason, std::string why);
  void Reject(int32_t size, std::string why);

  const FormationPolicyConfig& config_;
  const GroupLoad& load_;
  const TimeUs now_;
  const size_t members_;
  std::vector<Subset> taken_;  // pins, longs_ and choice_.bound
  size_t pins_ = 0;            // so many of them, the first
  std::vector<Subset> longs_;  // what runs long requests
  const FormationSize* best_ = nullptr;
  Rule rule_ = Rule::kRelease;
  std::string rule_why_;
  FormationChoice choice_;
};

// ---- pins ----

void Chooser::TakePins() {
  for (const Subset& pin : load_.pinned) {
    const bool alone = pin.size == 1 && pin.first >= 0 && static_cast<size_t>(pin.first) < members_;
    if (!(alone || IsBindable(pin, members_)) || !IsFree(pin)) {
      Reject(pin.size, absl::StrCat("members ", pin.first, " to ", pin.end() - 1, " of ", members_,
                                    " are pinned, but cannot be bound any more"));
    } else if (alone) {
      taken_.push_back(pin);
    } else {
      Bind(pin, BindReason::kPin, "pinned by an operator");
    }
  }
}

// ---- gain ----

// The size up to `limit` that gains most, the smallest of equals; null: none gains.
const FormationSize* Chooser::BestSize(int32_t limit, bool explain) {
  const FormationSize* best = nullptr;
  for (const FormationSize& size : load_.sizes) {
    if (size.size < 2 || size.size > limit) continue;
    if (!size.gain || *size.gain < config_.min_gain) {
      if (!explain) continue;
      Reject(size.size, !size.gain
                            ? "the profile of this model and device does not say that it gains"
                            : absl::StrFormat("its gain is %.2f, less than %.2f", *size.gain,
                                              config_.min_gain));
    } else if (best == nullptr || *size.gain > *best->gain) {
      best = &size;
    }
  }
  return best;
}

// ---- the rule of load ----

double Chooser::Sequences() const {
  int64_t sequences = load_.waiting_requests;
  for (const GroupLoad::Member& member : load_.members) sequences += member.running_sequences;
  return members_ == 0 ? 0 : static_cast<double>(sequences) / static_cast<double>(members_);
}

double Chooser::WaitingTokens() const {
  const auto tokens = static_cast<double>(load_.waiting_tokens);
  return members_ == 0 ? 0 : tokens / static_cast<double>(members_);
}

// By half of what makes the group busy (hysteresis); always, if nothing does.
bool Chooser::FewPromptsWait() const {
  return config_.release_waiting_tokens == 0 ||
         WaitingTokens() < config_.release_waiting_tokens / 2;
}

void Chooser::DecideRule() {
  if (members_ < 2) return Apply(Rule::kRelease, "the group has no second instance", 0, "");
  const int32_t other = load_.bound.empty() && best_ != nullptr ? best_->size : 1;
  const TimeUs age_us = now_ - load_.since_us;
  if (age_us < config_.min_dwell_us && (best_ != nullptr || !load_.bound.empty())) {
    return Apply(Rule::kHold, "each formation is kept for a while", other,
                 absl::StrFormat("the present formation is %.1f s old, and kept for %.1f s",
                                 static_cast<double>(age_us) / kSecondUs,
                                 static_cast<double>(config_.min_dwell_us) / kSecondUs));
  }
  if (best_ == nullptr) {
    return Apply(Rule::kRelease,
                 "the profile of this model and device names no size that gains by binding; "
                 "skeinctl profile measures it",
                 0, "");
  }
  DecideRuleByLoad(other);
}

// `other`: the size that the group does not have now.
void Chooser::DecideRuleByLoad(int32_t other) {
  const double sequences = Sequences();
  const std::string load = absl::StrFormat("%.2f sequences an instance", sequences);
  const double tokens = WaitingTokens();
  const double most = config_.release_waiting_tokens;
  if (most > 0 && tokens >= most) {
    return Apply(Rule::kRelease,
                 absl::StrFormat("busy: %.0f tokens of prompts wait at an instance, at least %.0f",
                                 tokens, most),
                 best_->size, "the group is busy");
  }
  if (sequences <= config_.bind_sequences && FewPromptsWait()) {
    return Apply(
        Rule::kBind,
        absl::StrFormat("quiet: %s, at most %.2f; %s makes tokens %.2f times as fast", load,
                        config_.bind_sequences, FormationName(best_->size), *best_->gain),
        1, "the group is quiet");
  }
  if (sequences >= config_.release_sequences) {
    return Apply(Rule::kRelease,
                 absl::StrFormat("busy: %s, at least %.2f", load, config_.release_sequences),
                 best_->size, "the group is busy");
  }
  Apply(Rule::kKeep,
        FewPromptsWait()
            ? absl::StrFormat("neither quiet nor busy: %s, between %.2f and %.2f", load,
                              config_.bind_sequences, config_.release_sequences)
            : absl::StrFormat("neither quiet nor busy: %.0f tokens of prompts wait at an instance, "
                              "between %.0f and %.0f",
                              tokens, most / 2, most),
        other, other == 1 ? "the group is not busy" : "the group is not quiet");
}

void Chooser::Apply(Rule rule, std::string why, int32_t instead, std::string why_not) {
  rule_ = rule;
  rule_why_ = std::move(why);
  if (instead != 0) Reject(instead, std::move(why_not));
}

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
  if (!load_.highest_priority || *load_.highest_priority < config_.dedicated_priority) return;
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

// ---- load ----

void Chooser::TakeByLoad() {
  for (const GroupLoad::Present& present : load_.bound) {
    if (Stays(present)) Bind(present.subset, present.reason, rule_why_);
  }
  if (rule_ != Rule::kBind) return;
  for (const Subset& subset : FreeSubsets(best_->size)) Bind(subset, BindReason::kLoad, rule_why_);
  RejectBlocked(best_->size);
}

void Chooser::Conclude() {
  if (config_.release_waiting_tokens > 0 && FewPromptsWait()) choice_.release = Switch::kHard;
  std::sort(choice_.bound.begin(), choice_.bound.end(),
            [](const auto& a, const auto& b) { return a.subset < b.subset; });
  std::vector<std::string> whys;
  for (const FormationChoice::Bound& bound : choice_.bound) {
    if (std::find(whys.begin(), whys.end(), bound.why) == whys.end()) whys.push_back(bound.why);
  }
  const bool all_pinned = choice_.bound.empty() && taken_.size() == members_ && members_ > 0;
  if (whys.empty()) whys.push_back(all_pinned ? "pinned by an operator" : rule_why_);
  for (const std::string& why : whys) {
    absl::StrAppend(&choice_.why, choice_.why.empty() ? "" : "; ", why);
  }
}

// ---- members ----

bool Chooser::IsFree(const Subset& subset) const {
  return std::none_of(taken_.begin(), taken_.end(),
                      [&](const Subset& taken) { return taken.Overlaps(subset); });
}

bool Chooser::IsWithin(const Subset& subset) const {
  return subset.first >= 0 && subset.size > 0 &&
         static_cast<size_t>(subset.first) + static_cast<size_t>(subset.size) <= members_;
}

bool Chooser::IsBoundNow(const Subset& subset) const {
  return std::any_of(load_.bound.begin(), load_.bound.end(),
                     [&](const GroupLoad::Present& present) { return present.subset == subset; });
}

int64_t Chooser::TokensIn(const Subset& subset) const {
  int64_t tokens = 0;
  for (int32_t i = subset.first; i < subset.end(); ++i) {
    tokens += load_.members[static_cast<size_t>(i)].running_tokens;
  }
  return tokens;
}

std::vector<Subset> Chooser::FreeSubsets(int32_t size) const {
  std::vector<Subset> subsets;
  for (Subset subset = {0, size}; IsBindable(subset, members_); subset.first += size) {
    if (IsFree(subset) && !load_.blocked.contains(subset)) subsets.push_back(subset);
  }
  return subsets;
}

// Of those that hold so many tokens and whose members all serve: one that is bound already, else
// the one with the fewest running tokens; the first of equals.
std::optional<Subset> Chooser::Emptiest(int32_t size, int64_t tokens) const {
  std::optional<Subset> best;
  for (const Subset& subset : FreeSubsets(size)) {
    if (!Serves(subset) || TokensMax(subset) < tokens) continue;
    if (IsBoundNow(subset)) return subset;
    if (!best || TokensIn(subset) < TokensIn(*best)) best = subset;
  }
  return best;
}

bool Chooser::Serves(const Subset& subset) const {
  const auto first = load_.members.begin() + subset.first;
  return std::all_of(first, first + subset.size,
                     [](const GroupLoad::Member& member) { return member.serves; });
}

bool Chooser::HasPinned(int32_t size) const {
  return std::any_of(load_.pinned.begin(), load_.pinned.end(), [&](const Subset& pin) {
    return pin.size >= size && IsBindable(pin, members_);
  });
}

// Whether the rule of load leaves it bound.
bool Chooser::Stays(const GroupLoad::Present& present) const {
  const bool kept =
      rule_ == Rule::kHold || (rule_ == Rule::kKeep && present.reason == BindReason::kLoad);
  return kept && IsBindable(present.subset, members_) && IsFree(present.subset);
}

void Chooser::Bind(const Subset& subset, BindReason reason, std::string why) {
  taken_.push_back(subset);
  choice_.bound.push_back({subset, reason, std::move(why)});
}

// Says once what keeps those from being bound that nothing else has taken.
void Chooser::RejectBlocked(int32_t size) {
  std::vector<std::string> whys;
  for (const auto& [subset, why] : load_.blocked) {
    if (subset.size != size || !IsFree(subset)) continue;
    if (std::find(whys.begin(), whys.end(), why) != whys.end()) continue;
    whys.push_back(why);
    Reject(size, why);
  }
}

void Chooser::Reject(int32_t size, std::string why) {
  choice_.rejected.push_back({FormationName(size), std::move(why)});
}

}  // namespace

absl::Status CheckFormationPolicy(const FormationPolicyConfig& config) {
  if (!(config.bind_sequences >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bind_sequences: ", config.bind_sequences, " is below 0"));
  }
  if (!(config.release_sequences > config.bind_sequences)) {
    return absl::InvalidArgumentError(absl::StrCat("release_sequences: ", config.release_sequences,
                                                   " is not above bind_sequences, ",
                                                   config.bind_sequences));
  }
  if (!(config.release_waiting_tokens >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("release_waiting_tokens: ", config.release_waiting_tokens, " is below 0"));
  }
  if (config.min_dwell_us < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_dwell_us: ", config.min_dwell_us, " is below 0"));
  }
  if (!(config.min_gain >= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_gain: ", config.min_gain, " is below 1: it would bind what loses by it"));
  }
  return absl::OkStatus();
}

FormationChoice ChooseFormation(const FormationPolicyConfig& config, const GroupLoad& load,
                                TimeUs now) {
  return Chooser(config, load, now).Choose();
}

}  // namespace skein::scheduler::orchestrator
