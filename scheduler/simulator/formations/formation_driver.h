// FormationDriver: the orchestrator's group control over a simulated group: ChooseFormation says
// what should be bound, formation_steps.h what is left to do for it, FormationSwitch carries it
// out, all as they run in an orchestrator; a message takes a fixed time each way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/groups/formation_policy.h"
#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/simulator/formations/formation_world.h"
#include "scheduler/simulator/formations/step_time.h"

namespace skein::scheduler {

struct DriverOptions {
  orchestrator::FormationPolicyConfig policy;
  orchestrator::FormationLimits limits;
  // Of all binds. Empty: by the reason of each, as an orchestrator without flags (FormationConfig).
  std::optional<OwnSequences> own;
  // How what is not chosen is released. Empty: as the policy says (FormationChoice::release).
  std::optional<Switch> release;
  TimeUs message_us = kMillisecondUs;       // between the orchestrator and a member
  TimeUs decide_us = 250 * kMillisecondUs;  // between two looks at the load (Formations::kChooseUs)
};

struct SwitchDecision {
  TimeUs at_us = 0;
  int32_t to = 1;  // size; 1: a release
};

struct SwitchCounts {
  std::vector<SwitchDecision> decisions;  // in order, whatever came of them
  int64_t binds = 0, releases = 0;        // that ended well
  int64_t others = 0;                     // aborted, forced or failed
  std::vector<double> cut_over_s;         // of binds
  std::vector<double> drain_s;            // of releases
};

class FormationDriver {
 public:
  // `world` outlives this. Formations of sizes that gain by the profile are known to the policy.
  FormationDriver(const StepProfile& profile, int32_t members, const DriverOptions& options,
                  FormationWorld* world);
  // With these sizes, ascending from 1 on, as GroupLoad has them.
  FormationDriver(std::vector<orchestrator::FormationSize> sizes, int32_t members,
                  const DriverOptions& options, FormationWorld* world);

  TimeUs Next() const;       // when Advance is due
  void Advance(TimeUs now);  // delivers messages, and decides when it is time
  // What members told in this moment is on its way. After each step of the world.
  void Collect(TimeUs now);

  const SwitchCounts& counts() const { return counts_; }
  absl::Status CheckInvariants() const { return switch_.CheckInvariants(); }

 private:
  using Message = std::variant<orchestrator::SendPrepare, orchestrator::SendCommit,
                               orchestrator::SendEnd, std::pair<InstanceId, FormationTold>>;

  void Decide(TimeUs now);
  void Carry(orchestrator::SwitchEffects effects, TimeUs now);
  void Note(const orchestrator::SwitchEnded& ended, TimeUs now);
  void Deliver(const Message& message, TimeUs now);

  const DriverOptions options_;
  FormationWorld* const world_;
  std::vector<orchestrator::FormationSize> sizes_;
  orchestrator::FormationEpochs epochs_;
  orchestrator::FormationSwitch switch_;
  std::multimap<TimeUs, Message> messages_;               // by arrival; equal ones in order
  std::map<uint64_t, orchestrator::BindReason> reasons_;  // by epoch
  TimeUs decide_at_us_ = 0;
  TimeUs since_us_ = 0;              // of the latest change
  std::optional<TimeUs> urgent_us_;  // GroupLoad::urgent_us
  SwitchCounts counts_;
};

}  // namespace skein::scheduler
