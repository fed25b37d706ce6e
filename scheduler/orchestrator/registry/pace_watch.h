// PaceWatch: which instances are slow beside their peers: those of the same model, role and kind of
// device. A device that is throttled, or whose machine others use, answers, reports and holds its
// lease, and delays every request that it gets. Part of OrchestratorCore; no clock of its own.
//
// Rule. The time of a step is at most linear in what the step does: t = a + b * tokens + c * KV. So
// an instance that is as fast as another one takes at most max(1, its tokens / the other's, its KV
// / the other's) times as long. What it takes beyond that is its slowness beside the other one,
// and 1 beside itself. Its slowness is the median of these, over itself and its peers that have
// measured lately; of an even number the lower one. So more load than its peers have does not make
// it slow, nor does a machine that slows half of a pool down, and of two instances neither is ever
// slow. Prefill instances do not tell how long the contexts of their steps were, so they are
// allowed twice the time.
//
//   fair -> slow        slowness >= slow_factor: it gets less (Weight)
//   slow -> suspect     slowness >= suspect_factor beside peers_min peers at least: it gets nothing
//                       new
//   suspect -> aside    still so after aside_after_us: it keeps nothing; its requests go on
//                       elsewhere
//   aside -> slow       after a pause, which doubles each time: it is tried with little
//   slow -> fair, suspect -> slow   its slowness fell below kReturn times the bound
//
// Each step of a level needs evidence: the slowness was on that side for evidence_us and over
// evidence_steps steps without a break. A step below step_min_us is never slow. At most share_max
// of a pool, but always one, are suspect or aside at a time, and none where no other instance can
// be placed at. A slow instance that has measured nothing for forget_us is taken for fair.
//
// Cost. A report with new steps looks at kPeersLooked peers at most; others at none.
//
// Invariants (CheckInvariants): each instance is in the pool of its key; each pool counts those
// that are suspect or aside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "scheduler/base/backoff.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/registry/pace.h"

namespace skein::scheduler {

struct PaceConfig {
  double slow_factor = 2;                    // > 1; 0: no instance is ever slow
  double suspect_factor = 5;                 // >= slow_factor; 0: none is ever suspect
  TimeUs step_min_us = 50 * kMillisecondUs;  // of a step that may be slow
  TimeUs evidence_us = 5 * kSecondUs;        // > 0
  int64_t evidence_steps = 8;
  size_t peers_min = 2;
  double share_max = 0.25;  // of a pool
  TimeUs aside_after_us = 10 * kSecondUs;
  TimeUs pause_us = 60 * kSecondUs;           // the first one, > 0
  TimeUs pause_longest_us = 900 * kSecondUs;  // >= pause_us
  TimeUs forget_us = 60 * kSecondUs;
};

class PaceWatch {
 public:
  static constexpr size_t kPeersLooked = 32;
  static constexpr double kReturn = 0.7;
  static constexpr double kPrefillAllowance = 2;

  explicit PaceWatch(const PaceConfig& config) : config_(config) {}

  // A report of the instance. `comparable`: what it measured is of steps that it runs alone.
  // `others`: another one of its pool can be placed at.
  const PaceOfInstance& Report(InstanceId id, const WorkerIdentity& identity,
                               const WorkerLoad& load, bool comparable, bool others, TimeUs now);
  void Forget(InstanceId id);  // ignored if unknown
  const PaceOfInstance& Of(InstanceId id) const;

  // How often an instance became suspect, and how often one was set aside.
  uint64_t suspected() const { return suspected_; }
  uint64_t set_aside() const { return set_aside_; }

  absl::Status CheckInvariants() const;

 private:
  using Key = std::tuple<std::string, Role, std::string>;  // model, role, kind of device

  // Of an instance's recent steps.
  struct Sample {
    TimeUs at_us = -1;  // of the report; -1: none yet
    TimeUs step_us = 0;
    double tokens = 0;  // of one step
    int64_t kv_blocks = 0;
    int64_t steps = 0;  // so far
  };
  // Since when something has been so without a break.
  struct Streak {
    TimeUs since_us = -1;  // -1: it is not so
    int64_t steps = 0;     // at that time
    void Note(bool is, const Sample& sample);
  };
  struct Entry {
    explicit Entry(const PaceConfig& config) : pause(config.pause_us, config.pause_longest_us) {}
    Key key;
    Sample sample;
    PaceOfInstance of;
    Streak slow, fair, worse, better;  // than slow_factor, than suspect_factor
    Backoff pause;
  };
  struct Pool {
    absl::btree_map<InstanceId, Entry*> members;
    int64_t taking_nothing = 0;
  };

  Entry& EntryOf(InstanceId id, const WorkerIdentity& identity);
  static double Beside(const Sample& one, const Sample& other);
  void Compare(InstanceId id, Entry* entry, TimeUs now);
  bool Holds(const Streak& streak, const Sample& sample) const;
  bool MayTakeOneMoreOut(const Pool& pool) const;
  void Move(Entry* entry, bool measured, bool others, TimeUs now);
  void Set(Entry* entry, Pace pace, TimeUs now);

  const PaceConfig config_;
  std::map<InstanceId, Entry> entries_;  // their addresses hold
  std::map<Key, Pool> pools_;
  uint64_t suspected_ = 0;
  uint64_t set_aside_ = 0;
};

}  // namespace skein::scheduler
