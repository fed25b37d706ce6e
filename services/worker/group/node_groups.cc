#include "services/worker/group/node_groups.h"

#include <string>
#include <utility>

#include "engine/parallel/shard_layout.h"
#include "services/log/log.h"

namespace skein::services {
namespace {

void LogMade(uint64_t generation, const absl::Status& status) {
  if (status.ok()) {
    LogInfo("the groups of this node are ready", {{"generation", generation}});
  } else {
    LogWarning("the groups of this node are not ready",
               {{"generation", generation}, {"reason", std::string(status.message())}});
  }
}

// How the group's bytes go. Steps by kernels (PathFabric::StepGroups) have no way of the ledger:
// they go over CUDA IPC. A group that has to do without kernels although its GPUs have it is told
// in a warning; which way it takes instead only the bytes tell that groups of its size have
// `moved`.
engine::CommTotals WayOfGroup(const engine::GroupContext& group,
                              const std::vector<engine::CommTotals>& moved) {
  engine::CommTotals totals{.ranks = group.size(), .path = engine::CommPath::kIpc};
  const engine::GroupMode any = engine::ModesOf(group.size()).front();
  const engine::GroupWay* const way = engine::WayOf(*group.Part(any, {}).all);
  if (way != nullptr) {
    totals.path = way->path();
    totals.why_not = way->why_not();
    return totals;
  }
  for (const engine::CommTotals& one : moved) {
    if (one.ranks != totals.ranks) continue;
    totals.path = one.path;
    totals.why_not = one.why_not;
    if (one.path == engine::CommPath::kIpc) break;
  }
  return totals;
}

}  // namespace

NodeGroups::NodeGroups(engine::PathFabric* fabric)
    : fabric_(fabric), contexts_(fabric->StepGroups(), fabric->Hosts(), {.made = LogMade}) {}

NodeGroups::~NodeGroups() = default;

void NodeGroups::Take(const scheduler::GroupOrder& order) {
  engine::NodeMembers node{
      .generation = order.generation, .addresses = {}, .index = static_cast<int>(order.index)};
  for (const scheduler::GroupMember& member : order.members) {
    node.addresses.push_back(member.comm_address);
  }
  const absl::Status taken = contexts_.Make(std::move(node));
  if (taken.ok() || absl::IsFailedPrecondition(taken)) return;
  LogMade(order.generation, taken);
}

std::vector<engine::CommTotals> NodeGroups::Ways() const {
  const std::vector<engine::CommTotals> moved = fabric_->Totals();
  std::vector<engine::CommTotals> ways;
  for (const auto& group : contexts_.Ready()) {
    engine::CommTotals way = WayOfGroup(*group, moved);
    for (const engine::CommTotals& one : moved) {
      if (one.ranks != way.ranks || one.path != way.path) continue;
      way.bytes = one.bytes;
      way.busy_seconds = one.busy_seconds;
      way.best_gb_per_s = one.best_gb_per_s;
    }
    ways.push_back(std::move(way));
  }
  return ways;
}

NodeGroups::Generations NodeGroups::generations() const {
  const engine::GroupContexts::State state = contexts_.state();
  if (!state.failure.ok()) return {.made = 0, .failed = state.generation};
  return {.made = state.ready ? state.generation : 0, .failed = 0};
}

}  // namespace skein::services
