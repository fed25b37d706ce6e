// ElectionWorld: candidates and a store in virtual time. Calls and news take time, and may be lost
// on either way; candidates stand still, die and come back; their clocks run at different speeds.
// After each event it is checked that at most one candidate leads by its own clock, and that no
// generation is used twice or sinks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"
#include "scheduler/election/election_core.h"
#include "scheduler/election/testing/election_register.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {

class ElectionWorld {
 public:
  struct Options {
    int candidates = 2;
    TimeUs lease_us = kSecondUs;
    TimeUs delay_max_us = 2 * kMillisecondUs;  // of a call's way, and of its answer's
    double clock_spread = 0;                   // clocks run at 1 +- this
    uint64_t seed = 1;
  };
  struct Reign {
    int candidate = 0;
    uint64_t generation = 0;
    TimeUs from_us = 0;
    std::optional<absl::Status> lost;  // as its candidate was told
  };

  explicit ElectionWorld(Options options);

  TimeUs now() const { return now_; }
  void RunFor(TimeUs time_us) { RunUntil(now_ + time_us); }
  void RunUntil(TimeUs time_us);
  // False: not within the time.
  bool RunUntilLed(TimeUs within_us, size_t reigns);

  void Kill(int candidate) { candidates_[candidate].core.reset(); }
  void Restart(int candidate);
  void Stop(int candidate, TimeUs for_us) { candidates_[candidate].stopped_until = now_ + for_us; }
  void Resign(int candidate) { Give(candidate, ElectionEvent::Resign{}); }
  void StepAside(int candidate) { Give(candidate, ElectionEvent::StepAside{}); }
  void Hear(int candidate) { Give(candidate, ElectionEvent::Heard{}); }
  void Raise(int candidate, uint64_t to) { Give(candidate, ElectionEvent::Raise{to}); }
  // The store answers nothing, and tells nothing, until then.
  void CutStore(TimeUs for_us) { cut_until_ = now_ + for_us; }
  // A share of the calls, and of their answers.
  void Lose(double share) { lost_share_ = share; }
  void LoseNextAnswer() { lose_next_answer_ = true; }

  const ElectionCore& core(int candidate) const { return *candidates_[candidate].core; }
  bool Lives(int candidate) const { return candidates_[candidate].core.has_value(); }
  // The candidate that leads now by its own clock, or -1.
  int Leader() const;
  const std::vector<Reign>& reigns() const { return reigns_; }
  uint64_t stored_generation() const { return register_.view().generation; }
  bool store_has_leader() const { return register_.view().leader_revision != 0; }
  // The first broken promise, or "".
  const std::string& broken() const { return broken_; }
  double Chance() { return random_.Uniform(); }
  TimeUs Upto(TimeUs most) {
    return static_cast<TimeUs>(random_.Below(static_cast<uint64_t>(most) + 1));
  }

 private:
  struct Candidate {
    std::optional<ElectionCore> core;
    int life = 0;  // calls of an earlier one are not answered
    double rate = 1;
    TimeUs stopped_until = 0;
    TimeUs tick_at = kNever;
    TimeUs last_news = 0;
  };

  void At(TimeUs time_us, std::function<void()> what);
  TimeUs LocalTime(const Candidate& candidate, TimeUs time_us) const;
  void Give(int candidate, ElectionEvent::Any event);
  void GiveInLife(int candidate, int life, const ElectionEvent::Any& event);
  void ScheduleTick(int candidate);
  void Check();

  // What a candidate wants.
  void Do(int candidate, const ElectionEffect::Led& effect);
  void Do(int candidate, const ElectionEffect::Lost& effect);
  template <class Call>
  void Do(int candidate, const Call& call);

  // The store. Whoever watches it is told what has changed.
  void ChangeStore(const std::function<void()>& change);
  void TellAll();
  void Tell(int candidate);

  const Options options_;
  Random random_;
  TimeUs now_ = 0;
  std::multimap<TimeUs, std::function<void()>> queue_;
  std::vector<Candidate> candidates_;
  std::vector<Reign> reigns_;
  std::string broken_;
  TimeUs cut_until_ = 0;
  double lost_share_ = 0;
  bool lose_next_answer_ = false;

  ElectionRegister register_;
  TimeUs expires_at_ = kNever;  // the next look at leases
};

}  // namespace skein::scheduler
