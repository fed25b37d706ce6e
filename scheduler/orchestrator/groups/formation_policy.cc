#include "scheduler/orchestrator/groups/formation_policy.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "scheduler/orchestrator/groups/formation_chooser.h"

namespace skein::scheduler::orchestrator {

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
  std::sort(choice_.shared.begin(), choice_.shared.end(),
            [](const auto& a, const auto& b) { return a.subset < b.subset; });
  std::vector<std::string> whys;
  for (const std::vector<FormationChoice::Bound>* all : {&choice_.bound, &choice_.shared}) {
    for (const FormationChoice::Bound& one : *all) {
      if (std::find(whys.begin(), whys.end(), one.why) == whys.end()) whys.push_back(one.why);
    }
  }
  const bool all_pinned =
      choice_.bound.empty() && choice_.shared.empty() && taken_.size() == members_ && members_ > 0;
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

// One that serves: what is pinned and drains takes nothing that waits.
bool Chooser::HasPinned(int32_t size) const {
  return std::any_of(load_.pinned.begin(), load_.pinned.end(), [&](const Subset& pin) {
    return pin.size >= size && IsBindable(pin, members_) && Serves(pin);
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
  if (!(config.share_lines >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("share_lines: ", config.share_lines, " is below 0"));
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

bool HasUrgent(const FormationPolicyConfig& config, const GroupLoad& load) {
  return load.highest_priority.has_value() && *load.highest_priority >= config.dedicated_priority;
}

FormationChoice ChooseFormation(const FormationPolicyConfig& config, const GroupLoad& load,
                                TimeUs now) {
  return Chooser(config, load, now).Choose();
}

}  // namespace skein::scheduler::orchestrator
