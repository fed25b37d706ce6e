#include "scheduler/simulator/formations/formation_driver.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/groups/formation_config.h"
#include "scheduler/orchestrator/groups/formation_steps.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

using orchestrator::FormationChoice;
using orchestrator::FormationSize;
using orchestrator::ReleaseStep;
using orchestrator::SendCommit;
using orchestrator::SendEnd;
using orchestrator::SendPrepare;
using orchestrator::SwitchEffects;
using orchestrator::SwitchEnded;
using orchestrator::SwitchOutcome;

InstanceId IdOf(int32_t member) { return {static_cast<uint64_t>(member) + 1}; }
int32_t MemberOf(InstanceId id) { return static_cast<int32_t>(id.value) - 1; }

std::vector<FormationSize> SizesOf(const StepProfile& profile, int32_t members) {
  std::vector<FormationSize> sizes;
  for (int32_t size = 1; size <= members; size *= 2) {
    sizes.push_back({.size = size, .tokens_max = profile.KvTokens(size, size)});
    if (size > 1) sizes.back().gain = BindGain(profile, size);
  }
  return sizes;
}

}  // namespace

FormationDriver::FormationDriver(const StepProfile& profile, int32_t members,
                                 const DriverOptions& options, FormationWorld* world)
    : FormationDriver(SizesOf(profile, members), members, options, world) {}

FormationDriver::FormationDriver(std::vector<FormationSize> sizes, int32_t members,
                                 const DriverOptions& options, FormationWorld* world)
    : options_(options),
      world_(world),
      sizes_(std::move(sizes)),
      switch_(options.limits, &epochs_) {
  GroupOrder order;
  order.generation = 1;
  for (int32_t i = 0; i < members; ++i) {
    order.members.push_back({IdOf(i), absl::StrCat("member-", i)});
  }
  SwitchEffects effects;
  switch_.Regrouped(order, 0, &effects);
  Carry(std::move(effects), 0);
  since_us_ = -options.policy.min_dwell_us;
}

TimeUs FormationDriver::Next() const {
  TimeUs next = std::min(decide_at_us_, switch_.NextDeadline());
  if (!messages_.empty()) next = std::min(next, messages_.begin()->first);
  return next;
}

void FormationDriver::Advance(TimeUs now) {
  while (!messages_.empty() && messages_.begin()->first <= now) {
    const Message message = messages_.extract(messages_.begin()).mapped();
    Deliver(message, now);
  }
  SwitchEffects effects;
  switch_.Tick(now, &effects);
  Carry(std::move(effects), now);
  if (now < decide_at_us_) return;
  Decide(now);
  decide_at_us_ = now + options_.decide_us;
}

void FormationDriver::Collect(TimeUs now) {
  for (const auto& [member, told] : world_->TakeTold()) {
    messages_.emplace(now + options_.message_us, std::make_pair(IdOf(member), told));
  }
}

void FormationDriver::Deliver(const Message& message, TimeUs now) {
  if (const auto* prepare = std::get_if<SendPrepare>(&message)) {
    world_->Prepare(MemberOf(prepare->to), prepare->order);
  } else if (const auto* commit = std::get_if<SendCommit>(&message)) {
    const auto live = switch_.live().find(commit->order.epoch);
    if (live == switch_.live().end()) return;
    world_->SetReason(live->second.subset.first, reasons_[commit->order.epoch]);
    world_->Commit(commit->order.epoch, live->second.subset, now);
  } else if (const auto* end = std::get_if<SendEnd>(&message)) {
    world_->End(MemberOf(end->to), end->order.epoch, end->order.how, now);
  } else {
    const auto& [from, told] = std::get<std::pair<InstanceId, FormationTold>>(message);
    SwitchEffects effects;
    switch_.Take(from, told, now, &effects);
    Carry(std::move(effects), now);
  }
}

void FormationDriver::Carry(SwitchEffects effects, TimeUs now) {
  const TimeUs at = now + options_.message_us;
  for (orchestrator::SwitchEffect& effect : effects) {
    if (auto* ended = std::get_if<SwitchEnded>(&effect)) {
      Note(*ended, now);
    } else if (auto* prepare = std::get_if<SendPrepare>(&effect)) {
      messages_.emplace(at, std::move(*prepare));
    } else if (auto* commit = std::get_if<SendCommit>(&effect)) {
      messages_.emplace(at, std::move(*commit));
    } else {
      messages_.emplace(at, std::get<SendEnd>(std::move(effect)));
    }
  }
}

void FormationDriver::Note(const SwitchEnded& ended, TimeUs now) {
  if (ended.outcome == SwitchOutcome::kDone || ended.to == 1) since_us_ = now;
  if (ended.outcome != SwitchOutcome::kDone) {
    ++counts_.others;
  } else if (ended.to > 1) {
    ++counts_.binds;
    counts_.cut_over_s.push_back(static_cast<double>(ended.cut_over_us) / kSecondUs);
  } else {
    ++counts_.releases;
    counts_.drain_s.push_back(static_cast<double>(ended.drain_us) / kSecondUs);
  }
}

void FormationDriver::Decide(TimeUs now) {
  orchestrator::GroupLoad load = world_->Load();
  load.sizes = sizes_;
  load.since_us = since_us_;
  if (HasUrgent(options_.policy, load)) urgent_us_ = now;
  load.urgent_us = urgent_us_;
  load.bound = PresentIn(switch_, reasons_);
  const FormationChoice choice = ChooseFormation(options_.policy, load, now);
  std::vector<std::vector<InstanceId>> chosen;
  for (const FormationChoice::Bound& bound : choice.bound) {
    chosen.push_back(MembersOf(switch_.order(), bound.subset));
  }
  SwitchEffects effects;
  const Switch how = options_.release.value_or(choice.release);
  for (const ReleaseStep& step : ReleaseSteps(switch_, chosen, [&](const auto&) { return how; })) {
    const absl::Status ok = switch_.Release(step.lead, step.how, choice.why, now, &effects);
    SKEIN_CHECK(ok.ok());
    counts_.decisions.push_back({now, 1});
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (!IsFree(switch_, chosen[i])) continue;
    const FormationChoice::Bound& bound = choice.bound[i];
    const OwnSequences own =
        options_.own.value_or(orchestrator::FormationConfig{}.OwnFor(bound.reason));
    const auto epoch = switch_.Bind(bound.subset, bound.why, now, &effects, own);
    SKEIN_CHECK(epoch.ok());
    reasons_[*epoch] = bound.reason;
    counts_.decisions.push_back({now, bound.subset.size});
  }
  Carry(std::move(effects), now);
}

}  // namespace skein::scheduler
