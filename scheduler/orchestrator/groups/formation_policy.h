// The policy of formations (Flying Serving, section 3, use cases 1 to 3): which members of a group
// should be bound now, as a pure function of the group's load. FormationSwitch carries it out.
//
// In this order, each for the members that those before it have left:
//   pins      what an operator has pinned wins, whatever the load;
//   length    what runs a request that does not fit one instance stays bound until that has ended.
//             One that waits gets the smallest formation that it fits, of the members that are
//             left, those with the fewest running tokens; one that fits none is refused. It binds
//             with or without a gain in the profile: otherwise it could not be served at all;
//   priority  a request of high priority gets a bound group of at most half of the members, so that
//             the rest serves the others; a group of fewer than 4 binds none for it. Such requests
//             often follow one another, and each bind delays what its members run alone, so the
//             group stays bound for min_dwell_us after the last of them;
//   offline   lines of offline jobs wait: the rest shares its weights (SiDP), which frees memory
//   for
//             more sequences at a time. It ends when no lines are left, and at once when online
//             requests need the instances: one of them waits, or the group is busy with them;
//   load      quiet: the rest is bound with the size that gains most; busy, by the sequences or by
//             the tokens of prompts that wait: it works alone; between the thresholds: what load
//             has bound stays so; what a need has bound that is over is released. For a while after
//             each change all stays as it is.
// Priority and load bind only where the profile of this model and device says that binding gains.
//
// No state, no clock: equal arguments give equal choices.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation.h"

namespace skein::scheduler::orchestrator {

struct FormationPolicyConfig {
  // Sequences an instance, running and waiting, over all members. At or below the first the group
  // is quiet: few sequences gain more by short steps than they lose by sharing them. At or above
  // the second it is busy. Between them it stays as it is (hysteresis).
  double bind_sequences = 1;
  double release_sequences = 4;
  // Tokens of prompts an instance that wait to be computed. At or above so many the group is busy,
  // too: a burst shows there before it shows in the number of sequences. From half of it on it is
  // not quiet, and what is released may end by itself (FormationChoice::release). 0: not looked at.
  double release_waiting_tokens = 0;
  // For so long after a change neither load nor the end of a need changes the formation again, and
  // for so long after the last request of high priority its group stays bound. A pin, a long
  // request and one of high priority do not wait.
  TimeUs min_dwell_us = 10 * kSecondUs;
  // A size that makes tokens less than this many times as fast as one instance does is not used.
  double min_gain = 1.05;
  // A request of this priority or a higher one gets a bound group. The default priority is 0.
  int32_t dedicated_priority = 1;
  // Requests of a lower priority than this one are offline ones, all others online.
  int32_t online_priority = 0;
  // Lines of offline jobs that wait, an instance: from so many on the group shares its weights, if
  // its online requests are few (bind_sequences). 0: never. Few lines are computed before the
  // weights have moved.
  double share_lines = 64;
};
// INVALID_ARGUMENT names the field that is impossible.
absl::Status CheckFormationPolicy(const FormationPolicyConfig& config);

// Why members are bound.
enum class BindReason { kPin, kLength, kPriority, kOffline, kLoad };

// What is known of one size of formation. Size 1: an instance alone.
struct FormationSize {
  int32_t size = 1;
  int64_t tokens_max = 0;  // of one request, prompt and output, in all blocks of so many instances
  // How many times as fast as one instance it makes the tokens of few sequences, by the profile of
  // this model and device. Empty: not measured. Not used of size 1.
  std::optional<double> gain = {};
};

struct GroupLoad {
  struct Member {
    int64_t running_sequences = 0;
    int64_t running_tokens = 0;  // that its running sequences have in the KV
    bool serves = true;          // else no need binds it
  };
  struct Present {  // is bound now, or being bound, as chosen before
    Subset subset;
    BindReason reason = BindReason::kLoad;
    // Of the longest request that it runs and that no instance alone holds, prompt and output; 0:
    // none. Its members keep it whatever the load, unless a pin takes one or one does not serve.
    int64_t long_tokens = 0;
    uint64_t epoch = 0;  // of the FormationSwitch; not looked at
  };
  std::vector<Member> members;       // in the order of the GroupOrder
  int64_t waiting_requests = 0;      // for a place in the group
  int64_t waiting_tokens = 0;        // of prompts that are still to be computed, at all members
  std::vector<FormationSize> sizes;  // ascending, from 1 on
  // Aligned subsets of which that is another than of their size: their members have other pools.
  std::map<Subset, int64_t> tokens_max;
  // Aligned subsets that cannot be bound now and are not, with the reason, such as unequal pools.
  // Nothing but a pin chooses one.
  std::map<Subset, std::string> blocked;
  // The longest of the requests that wait for the group, prompt and output; 0: none.
  int64_t longest_tokens = 0;
  // Of those that wait for the group or run in it; empty: none.
  std::optional<int32_t> highest_priority;
  // When one of dedicated_priority or a higher one was there last; empty: none ever was.
  std::optional<TimeUs> urgent_us;
  // This group's share of the model's: lines of offline jobs that wait, offline requests that were
  // begun, and online requests. `online_waits`: one of these waits for a place.
  int64_t offline_lines = 0;
  int64_t offline_requests = 0;
  int64_t online_requests = 0;
  bool online_waits = false;
  std::vector<Subset> shared;  // share their weights now, as chosen before
  // Aligned subsets that cannot share their weights now and do not, with the reason.
  std::map<Subset, std::string> unshareable;
  std::vector<Subset> pinned;  // by operators; of size 1: works alone, or is pinned otherwise
  std::vector<Present> bound;
  TimeUs since_us = 0;  // of its latest change
};

struct FormationChoice {
  struct Bound {
    Subset subset;
    BindReason reason = BindReason::kLoad;
    std::string why;
  };
  struct Rejected {
    std::string formation;  // FormationName
    std::string why;
  };
  std::vector<Bound> bound;        // ascending, disjoint
  std::vector<Bound> shared;       // likewise, and with `bound`; all others work alone
  std::string why;                 // for people
  std::vector<Rejected> rejected;  // alternatives, with what speaks against each
  // How to release what is bound now and not chosen. kSequential: its sequences end first. kHard:
  // its lead computes them anew, which costs less in all, but delays the prompts that wait there.
  // So kHard only while few wait, by release_waiting_tokens; without that always kSequential.
  Switch release = Switch::kSequential;
  // The same of what shares its weights. kSequential only when its job is over.
  Switch release_shared = Switch::kHard;
  // INVALID_ARGUMENT: the longest request fits no formation; the text names the limit.
  absl::Status too_long;
};

// Whether a request of dedicated_priority or a higher one waits for the group or runs in it.
bool HasUrgent(const FormationPolicyConfig& config, const GroupLoad& load);

// REQUIRES: CheckFormationPolicy(config).ok().
FormationChoice ChooseFormation(const FormationPolicyConfig& config, const GroupLoad& load,
                                TimeUs now);

}  // namespace skein::scheduler::orchestrator
