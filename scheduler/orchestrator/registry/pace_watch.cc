#include "scheduler/orchestrator/registry/pace_watch.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"

namespace skein::scheduler {

void PaceWatch::Streak::Note(bool is, const Sample& sample) {
  if (!is) {
    since_us = -1;
  } else if (since_us < 0) {
    since_us = sample.at_us;
    steps = sample.steps;
  }
}

bool PaceWatch::Holds(const Streak& streak, const Sample& sample) const {
  return streak.since_us >= 0 && sample.at_us - streak.since_us >= config_.evidence_us &&
         sample.steps - streak.steps >= config_.evidence_steps;
}

PaceWatch::Entry& PaceWatch::EntryOf(InstanceId id, const WorkerIdentity& identity) {
  const auto [it, is_new] = entries_.try_emplace(id, config_);
  if (is_new) {
    it->second.key = {identity.model, identity.role, identity.device_kind};
    pools_[it->second.key].members[id] = &it->second;
  }
  return it->second;
}

void PaceWatch::Forget(InstanceId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  const auto pool = pools_.find(it->second.key);
  pool->second.taking_nothing -= it->second.of.TakesNothing() ? 1 : 0;
  pool->second.members.erase(id);
  if (pool->second.members.empty()) pools_.erase(pool);
  entries_.erase(it);
}

const PaceOfInstance& PaceWatch::Of(InstanceId id) const {
  static constexpr PaceOfInstance kUnknown;
  const auto it = entries_.find(id);
  return it == entries_.end() ? kUnknown : it->second.of;
}

const PaceOfInstance& PaceWatch::Report(InstanceId id, const WorkerIdentity& identity,
                                        const WorkerLoad& load, bool comparable, bool others,
                                        TimeUs now) {
  Entry& entry = EntryOf(id, identity);
  Sample& sample = entry.sample;
  const bool measured =
      comparable && load.steps > sample.steps && load.mean_step_us > 0 && config_.slow_factor > 0;
  if (measured) {
    if (now - sample.at_us > 2 * config_.evidence_us) {
      entry.slow = entry.fair = entry.worse = entry.better = {};
    }
    const double step_s = static_cast<double>(load.mean_step_us) / kSecondUs;
    sample = {.at_us = now,
              .step_us = load.mean_step_us,
              .tokens = load.tokens_per_second * step_s,
              .kv_blocks = load.held_blocks,
              .steps = load.steps};
    Compare(id, &entry, now);
  } else {
    sample.steps = std::max(sample.steps, load.steps);
  }
  Move(&entry, measured, others, now);
  return entry.of;
}

// By how much more the step of `one` took than it may.
double PaceWatch::Beside(const Sample& one, const Sample& other) {
  const double tokens = one.tokens / std::max(other.tokens, 1e-9);
  const double kv = static_cast<double>(one.kv_blocks) /
                    static_cast<double>(std::max<int64_t>(other.kv_blocks, 1));
  return static_cast<double>(one.step_us) /
         (static_cast<double>(other.step_us) * std::max({1.0, tokens, kv}));
}

void PaceWatch::Compare(InstanceId id, Entry* entry, TimeUs now) {
  const auto& members = pools_.at(entry->key).members;
  std::array<double, kPeersLooked + 1> beside = {};
  size_t peers = 0;
  auto it = members.upper_bound(id);
  for (size_t looked = 1; looked < members.size() && looked <= kPeersLooked; ++looked) {
    SKEIN_LOOKED(1);
    if (it == members.end()) it = members.begin();
    const Sample& peer = (it++)->second->sample;
    const bool lately = peer.at_us >= 0 && now - peer.at_us <= 2 * config_.evidence_us;
    if (lately && peer.step_us > 0) beside[peers++] = Beside(entry->sample, peer);
  }
  entry->of.peers = static_cast<int64_t>(peers);
  entry->of.slowness = 0;
  if (peers == 0) return;
  beside[peers] = 1;  // itself
  auto* const median = beside.data() + peers / 2;
  std::nth_element(beside.data(), median, beside.data() + peers + 1);
  double slowness = *median;
  if (std::get<Role>(entry->key) == Role::kPrefill) slowness /= kPrefillAllowance;
  if (entry->sample.step_us < config_.step_min_us) slowness = std::min(slowness, 1.0);
  entry->of.slowness = slowness;
  const bool enough = config_.suspect_factor > 0 && peers >= config_.peers_min;
  entry->slow.Note(slowness >= config_.slow_factor, entry->sample);
  entry->fair.Note(slowness < kReturn * config_.slow_factor, entry->sample);
  entry->worse.Note(enough && slowness >= config_.suspect_factor, entry->sample);
  entry->better.Note(slowness < kReturn * config_.suspect_factor, entry->sample);
}

bool PaceWatch::MayTakeOneMoreOut(const Pool& pool) const {
  const double most = config_.share_max * static_cast<double>(pool.members.size());
  return static_cast<double>(pool.taking_nothing + 1) <= std::max(most, 1.0);
}

void PaceWatch::Set(Entry* entry, Pace pace, TimeUs now) {
  const bool before = entry->of.TakesNothing();
  entry->of.pace = pace;
  entry->of.since_us = now;
  pools_.at(entry->key).taking_nothing += (entry->of.TakesNothing() ? 1 : 0) - (before ? 1 : 0);
}

void PaceWatch::Move(Entry* entry, bool measured, bool others, TimeUs now) {
  PaceOfInstance& of = entry->of;
  const Sample& sample = entry->sample;
  switch (of.pace) {
    case Pace::kFair:
      if (measured && Holds(entry->slow, sample)) Set(entry, Pace::kSlow, now);
      return;
    case Pace::kSlow:
      if (now - std::max(sample.at_us, of.since_us) >= config_.forget_us) {
        entry->slow = entry->worse = {};
        return Set(entry, Pace::kFair, now);
      }
      if (!measured) return;
      if (Holds(entry->fair, sample)) {
        entry->pause.Succeeded();
        Set(entry, Pace::kFair, now);
      } else if (Holds(entry->worse, sample) && others &&
                 MayTakeOneMoreOut(pools_.at(entry->key))) {
        ++suspected_;
        Set(entry, Pace::kSuspect, now);
      }
      return;
    case Pace::kSuspect:
      if (!others || (measured && Holds(entry->better, sample))) {
        entry->worse = {};
        Set(entry, Pace::kSlow, now);
      } else if (now - of.since_us >= config_.aside_after_us) {
        ++set_aside_;
        Set(entry, Pace::kAside, now);
        of.until_us = now + entry->pause.Failed();
      }
      return;
    case Pace::kAside:
      if (others && now < of.until_us) return;
      entry->slow = entry->fair = entry->worse = entry->better = {};
      Set(entry, Pace::kSlow, now);
      return;
  }
}

absl::Status PaceWatch::CheckInvariants() const {
  size_t members = 0;
  for (const auto& [key, pool] : pools_) {
    members += pool.members.size();
    int64_t taking_nothing = 0;
    for (const auto& [id, entry] : pool.members) {
      taking_nothing += entry->of.TakesNothing() ? 1 : 0;
      if (entry->key == key && entries_.count(id) == 1) continue;
      return absl::InternalError(
          absl::StrCat("PaceWatch: instance ", id.value, " is in the pool of others"));
    }
    if (taking_nothing == pool.taking_nothing && !pool.members.empty()) continue;
    return absl::InternalError("PaceWatch: a pool miscounts its suspect instances");
  }
  if (members == entries_.size()) return absl::OkStatus();
  return absl::InternalError("PaceWatch: an instance is in no pool");
}

}  // namespace skein::scheduler
