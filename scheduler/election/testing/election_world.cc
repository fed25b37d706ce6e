#include "scheduler/election/testing/election_world.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

ElectionWorld::ElectionWorld(Options options)
    : options_(options), random_(options.seed), candidates_(options.candidates) {
  for (int i = 0; i < options_.candidates; ++i) Restart(i);
}

void ElectionWorld::Restart(int index) {
  Candidate& candidate = candidates_[index];
  candidate.core.emplace(options_.lease_us);
  ++candidate.life;
  candidate.rate = 1 + options_.clock_spread * (2 * Chance() - 1);
  candidate.stopped_until = 0;
  candidate.tick_at = kNever;
  Tell(index);
}

void ElectionWorld::At(TimeUs time_us, std::function<void()> what) {
  queue_.emplace(std::max(time_us, now_), std::move(what));
}

TimeUs ElectionWorld::LocalTime(const Candidate& candidate, TimeUs time_us) const {
  return static_cast<TimeUs>(static_cast<double>(time_us) * candidate.rate);
}

void ElectionWorld::RunUntil(TimeUs time_us) {
  while (!queue_.empty() && queue_.begin()->first <= time_us) {
    auto node = queue_.extract(queue_.begin());
    now_ = node.key();
    node.mapped()();
    Check();
  }
  now_ = time_us;
  Check();
}

bool ElectionWorld::RunUntilLed(TimeUs within_us, size_t reigns) {
  const TimeUs until = now_ + within_us;
  while (reigns_.size() < reigns) {
    if (queue_.empty() || queue_.begin()->first > until) return false;
    RunUntil(queue_.begin()->first);
  }
  return true;
}

int ElectionWorld::Leader() const {
  for (int i = 0; i < options_.candidates; ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.core && LocalTime(candidate, now_) < candidate.core->LeadsUntil()) return i;
  }
  return -1;
}

void ElectionWorld::Check() {
  int leaders = 0;
  for (const Candidate& candidate : candidates_) {
    leaders += candidate.core && LocalTime(candidate, now_) < candidate.core->LeadsUntil() ? 1 : 0;
  }
  if (leaders > 1 && broken_.empty()) {
    broken_ = absl::StrCat(leaders, " candidates lead at ", now_, " us");
  }
}

void ElectionWorld::Give(int index, ElectionEvent::Any event) {
  GiveInLife(index, candidates_[index].life, event);
}

void ElectionWorld::GiveInLife(int index, int life, const ElectionEvent::Any& event) {
  Candidate& candidate = candidates_[index];
  if (!candidate.core || candidate.life != life) return;
  if (now_ < candidate.stopped_until) {
    return At(candidate.stopped_until, [=, this] { GiveInLife(index, life, event); });
  }
  for (const auto& effect : candidate.core->Handle(event, LocalTime(candidate, now_))) {
    std::visit([&](const auto& e) { Do(index, e); }, effect);
  }
  ScheduleTick(index);
}

void ElectionWorld::ScheduleTick(int index) {
  Candidate& candidate = candidates_[index];
  const TimeUs next = candidate.core->NextDeadline();
  if (next == kNever) {
    candidate.tick_at = kNever;
    return;
  }
  const TimeUs at = std::max(
      now_, static_cast<TimeUs>(std::ceil(static_cast<double>(next) / candidate.rate)) + 1);
  if (std::exchange(candidate.tick_at, at) == at) return;
  At(at, [this, index, at, life = candidate.life] {
    Candidate& now = candidates_[index];
    if (now.life != life || now.tick_at != at) return;
    now.tick_at = kNever;
    GiveInLife(index, life, ElectionEvent::Tick{});
  });
}

void ElectionWorld::Do(int index, const ElectionEffect::Led& effect) {
  for (const Reign& reign : reigns_) {
    if (reign.generation >= effect.generation && broken_.empty()) {
      broken_ = absl::StrCat("generation ", effect.generation, " after ", reign.generation);
    }
  }
  reigns_.push_back({index, effect.generation, now_, std::nullopt});
}

void ElectionWorld::Do(int index, const ElectionEffect::Lost& effect) {
  for (auto reign = reigns_.rbegin(); reign != reigns_.rend(); ++reign) {
    if (reign->candidate != index) continue;
    reign->lost = effect.why;
    return;
  }
  broken_ = absl::StrCat("candidate ", index, " lost what it never had");
}

template <class Call>
void ElectionWorld::Do(int index, const Call& call) {
  const int life = candidates_[index].life;
  const TimeUs timeout_at = now_ + call.timeout_us;
  auto answered = std::make_shared<bool>(false);
  const auto answer = [=, this](const ElectionEvent::Any& event) {
    if (!std::exchange(*answered, true)) GiveInLife(index, life, event);
  };
  At(timeout_at, [=] { answer(ElectionEvent::Failed{ElectionFailure::kUnknown}); });
  if (Chance() < lost_share_) return;
  At(now_ + Upto(options_.delay_max_us), [=, this] {
    if (now_ < cut_until_) return;
    ElectionEvent::Any event;
    ChangeStore([&] { event = register_.Handle(call, now_); });
    if (std::exchange(lose_next_answer_, false) || Chance() < lost_share_) return;
    At(now_ + Upto(options_.delay_max_us), [=] { answer(event); });
  });
}

void ElectionWorld::ChangeStore(const std::function<void()>& change) {
  const int64_t revision = register_.view().revision;
  change();
  if (register_.view().revision != revision) TellAll();
  const TimeUs next = register_.NextExpiry();
  if (next == kNever || next == expires_at_) return;
  expires_at_ = next;
  At(next, [this, next] {
    if (expires_at_ != next) return;
    expires_at_ = kNever;
    ChangeStore([this] { register_.Expire(now_); });
  });
}

void ElectionWorld::TellAll() {
  for (int i = 0; i < options_.candidates; ++i) Tell(i);
}

void ElectionWorld::Tell(int index) {
  Candidate& candidate = candidates_[index];
  const ElectionView view = register_.view();
  const TimeUs at = std::max({candidate.last_news, cut_until_, now_ + Upto(options_.delay_max_us)});
  candidate.last_news = at;
  At(at, [this, index, view, life = candidate.life] {
    GiveInLife(index, life, ElectionEvent::Seen{view});
  });
}

}  // namespace skein::scheduler
