// PoolPlanner: how the prompts of one model's pool are planned: the planners of scheduler/plan, the
// improvement rate in force and the numbers that instances have there. Part of OrchestratorCore.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/policy.h"
#include "scheduler/plan/rolling/rolling.h"
#include "scheduler/plan/rolling/rolling_table.h"
#include "scheduler/plan/round.h"

namespace skein::scheduler {

// Which number a planner gives to an instance. Planners number instances so that node_size
// neighbours are a node (plan.h); here the numbers are called slots.
struct PoolLayout {
  Cluster cluster;                // .instances is the number of slots
  std::vector<InstanceId> slots;  // none: a slot without an instance, which fills up a small node
  int most_of_label = 1;          // instances that share a node label, at most; "" is none

  int SlotOf(InstanceId instance) const;  // -1: it has none
  bool operator==(const PoolLayout& other) const {
    return slots == other.slots && most_of_label == other.most_of_label;
  }
};

// The instances of one node label are cut into nodes of `node_size`, by id; labels are in order.
// Nodes that stay smaller are filled up with slots without an instance, but for the last one.
// REQUIRES node_size >= 1.
PoolLayout LayOut(std::vector<std::pair<std::string, InstanceId>> by_label, int node_size);

// What may be replaced while plans are made with it.
struct PlanningTables {
  // Heeded by tetris and single; the default is that of the simulator.
  ImprovementRateTable improvement_rates = ImprovementRateTable::Constant(0.25);
  RollingTable rolling = RollingTable::Constant({});  // heeded by rolling
};

struct PlanningConfig {
  LatencyModel latency;
  Policy policy = {};
  PlanningTables tables = {};
  int node_size = 8;
};

// INVALID_ARGUMENT names the field: a policy of the simulator only; the profile has no SP size 1 (a
// plain plan needs it), or not
// that of fixedN, as the policy or in the table of rolling; a node size below 1.
absl::Status CheckPlanning(const PlanningConfig& config);

// Queue time of a slot that nothing may be planned on.
inline constexpr double kAbsentQueueS = 1e9;

class PoolPlanner {
 public:
  explicit PoolPlanner(std::shared_ptr<const PlanningConfig> config);

  const PlanningConfig& config() const { return *config_; }
  const PoolLayout& layout() const { return layout_; }
  // That of the config, for the layout: tensor groups are not larger than the instances of a label.
  const LatencyModel& latency() const { return *latency_; }
  // `block_tokens`: of its instances, on whose blocks chunks end.
  void SetLayout(PoolLayout layout, int64_t block_tokens);

  // A request arrived: the load is counted.
  void OnArrival(TimeUs now);
  double ImprovementRate(TimeUs now);
  // REQUIRES CheckPlanning of the config with these tables. In force from the next plan on.
  void ReplaceTables(const PlanningTables& tables);

  // By every policy but rolling. Boundaries are rounded to blocks. Nullopt: the plan would need a
  // slot that is absent. REQUIRES a slot that is not; queue_s by slot.
  std::optional<PrefillPlan> Plan(absl::Span<const double> queue_s, int64_t prompt_tokens,
                                  double improvement_rate);
  // What else there was, without its texts. REQUIRES: with these, Plan was called last, unless the
  // policy is rolling.
  std::vector<AlternativeExplanation> Alternatives(absl::Span<const double> queue_s,
                                                   int64_t prompt_tokens);
  PlanExplanation::Choice choice() const;  // the policy's

  // Null unless the policy is rolling and there ever was an instance. Its instances are the slots
  // of layout(), but while that has none.
  RollingPlanner* rolling() { return rolling_.get(); }
  // Has it plan from now on as the table says for the load.
  void TuneRolling(TimeUs now) { rolling_->Tune(rolling_settings_.Current(now)); }
  const RollingPlanner* rolling() const { return rolling_.get(); }

 private:
  std::shared_ptr<const PlanningConfig> config_;
  std::unique_ptr<LatencyModel> latency_;  // stays where it is: the planners refer to it
  int64_t block_tokens_ = 1;
  PoolLayout layout_;
  ImprovementRateSelector rates_;
  RollingSelector rolling_settings_;
  std::optional<CdspPlanner> planner_;
  uint64_t random_plans_ = 0;  // made so far: their seeds
  std::unique_ptr<RollingPlanner> rolling_;
  std::vector<InstanceId> rolling_slots_;  // of its instances
};

}  // namespace skein::scheduler
