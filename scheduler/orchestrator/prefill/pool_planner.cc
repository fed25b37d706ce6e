#include "scheduler/orchestrator/prefill/pool_planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/baselines.h"
#include "scheduler/plan/random_plan.h"

namespace skein::scheduler {
namespace {

using Kind = Policy::Kind;

// Plan calls CdspPlanner.
bool PlansByCdsp(const Policy& policy) {
  return policy.kind != Kind::kFixed && policy.kind != Kind::kRandom &&
         policy.kind != Kind::kRolling;
}

bool HeedsRate(const Policy& policy) {
  return policy.kind == Kind::kTetris || policy.kind == Kind::kSingle;
}

}  // namespace

int PoolLayout::SlotOf(InstanceId instance) const {
  const auto it = std::find(slots.begin(), slots.end(), instance);
  return it == slots.end() ? -1 : static_cast<int>(it - slots.begin());
}

PoolLayout LayOut(std::vector<std::pair<std::string, InstanceId>> by_label, int node_size) {
  std::sort(by_label.begin(), by_label.end());
  PoolLayout layout;
  const auto size = static_cast<size_t>(node_size);
  int of_label = 0;
  for (size_t i = 0; i < by_label.size(); ++i) {
    const bool next_label = i > 0 && by_label[i].first != by_label[i - 1].first;
    of_label = next_label ? 1 : of_label + 1;
    if (!by_label[i].first.empty()) layout.most_of_label = std::max(layout.most_of_label, of_label);
    while (next_label && layout.slots.size() % size != 0) layout.slots.push_back(InstanceId{});
    layout.slots.push_back(by_label[i].second);
  }
  layout.cluster = {static_cast<int>(layout.slots.size()), node_size};
  return layout;
}

absl::Status CheckPlanning(const PlanningConfig& config) {
  if (!config.latency.HasSp(1)) {
    return absl::InvalidArgumentError("profile: it has no SP size 1");
  }
  if (config.node_size < 1) return absl::InvalidArgumentError("node_size: less than 1");
  if (config.policy.SimulatedOnly()) {
    return absl::InvalidArgumentError(
        absl::StrCat("policy: '", config.policy.name, "' is for skeinctl simulate only"));
  }
  const bool fixed = config.policy.kind == Kind::kFixed;
  if (fixed && !config.latency.HasSp(config.policy.sp)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "policy: '", config.policy.name, "': the profile has no SP size ", config.policy.sp));
  }
  for (const RollingSetting& row : config.tables.rolling.rows()) {
    const CommitMode& commit = row.tuning.commit;
    if (commit.kind == CommitMode::Kind::kFixed && !config.latency.HasSp(commit.sp)) {
      return absl::InvalidArgumentError(
          absl::StrCat("profile: rolling: it has no SP size ", commit.sp));
    }
  }
  return absl::OkStatus();
}

PoolPlanner::PoolPlanner(std::shared_ptr<const PlanningConfig> config)
    : config_(std::move(config)),
      latency_(std::make_unique<LatencyModel>(config_->latency)),
      rates_(config_->tables.improvement_rates),
      rolling_settings_(config_->tables.rolling) {}

void PoolPlanner::OnArrival(TimeUs now) {
  rates_.OnArrival(now);
  rolling_settings_.OnArrival(now);
}

void PoolPlanner::ReplaceTables(const PlanningTables& tables) {
  rates_.Replace(tables.improvement_rates);
  rolling_settings_.Replace(tables.rolling);
}

void PoolPlanner::SetLayout(PoolLayout layout, int64_t block_tokens) {
  block_tokens_ = block_tokens;
  if (layout == layout_) return;
  layout_ = std::move(layout);
  planner_.reset();
  if (layout_.slots.empty()) return;
  ShapeLimits limits = config_->latency.limits();
  limits.tp_max = std::min(limits.tp_max, layout_.most_of_label);
  *latency_ = config_->latency.Within(limits);
  planner_.emplace(*latency_, layout_.cluster);
  if (config_->policy.kind != Kind::kRolling) return;
  if (rolling_ == nullptr) {
    RollingOptions options;
    options.tuning = config_->tables.rolling.At(0);
    options.token_multiple = block_tokens_;
    rolling_ = std::make_unique<RollingPlanner>(*latency_, layout_.cluster, options);
  } else {
    std::vector<int> index_of;
    for (const InstanceId instance : rolling_slots_) {
      index_of.push_back(instance == InstanceId{} ? -1 : layout_.SlotOf(instance));
    }
    rolling_->Reshape(layout_.cluster, index_of, block_tokens_);
  }
  rolling_slots_ = layout_.slots;
}

double PoolPlanner::ImprovementRate(TimeUs now) {
  const double rate = rates_.Rate(now);
  return HeedsRate(config_->policy) ? rate : 0;
}

std::optional<PrefillPlan> PoolPlanner::Plan(absl::Span<const double> queue_s,
                                             int64_t prompt_tokens, double improvement_rate) {
  PrefillPlan plan;
  PlanOptions options;
  options.improvement_rate = improvement_rate;
  switch (config_->policy.kind) {
    case Kind::kFixed:
      if (config_->policy.sp > layout_.cluster.instances) return std::nullopt;
      PlanFixedSp(*latency_, layout_.cluster, config_->policy.sp, queue_s, prompt_tokens, &plan);
      break;
    case Kind::kGreedy:
    case Kind::kSingle:
      planner_->PlanSingleChunk(queue_s, prompt_tokens, options, &plan);
      break;
    case Kind::kRandom:
      plan = PlanRandom(*latency_, queue_s, prompt_tokens, ++random_plans_);
      break;
    default:
      planner_->Plan(queue_s, prompt_tokens, options, &plan);
  }
  if (plan.ttft_s >= kAbsentQueueS) return std::nullopt;
  RoundToBlocks(block_tokens_, &plan);
  return plan;
}

PlanExplanation::Choice PoolPlanner::choice() const {
  switch (config_->policy.kind) {
    case Kind::kFixed:
      return PlanExplanation::Choice::kFixedSize;
    case Kind::kRolling:
      return PlanExplanation::Choice::kLater;
    default:
      return PlanExplanation::Choice::kSoonest;
  }
}

std::vector<AlternativeExplanation> PoolPlanner::Alternatives(absl::Span<const double> queue_s,
                                                              int64_t prompt_tokens) {
  std::vector<AlternativeExplanation> all;
  const auto add = [&](const std::vector<CdspPlanner::SingleChunk>& singles) {
    all.reserve(singles.size());
    for (const CdspPlanner::SingleChunk& single : singles) {
      if (single.ttft_s >= kAbsentQueueS) continue;
      all.push_back({single.sp, single.start_s, single.ttft_s, {}});
    }
  };
  PlansByCdsp(config_->policy) ? add(planner_->LastSingleChunks())
                               : add(planner_->SingleChunks(queue_s, prompt_tokens));
  return all;
}

}  // namespace skein::scheduler
