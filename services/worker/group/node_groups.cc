#include "services/worker/group/node_groups.h"

#include <string>
#include <utility>

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

NodeGroups::Generations NodeGroups::generations() const {
  const engine::GroupContexts::State state = contexts_.state();
  if (!state.failure.ok()) return {.made = 0, .failed = state.generation};
  return {.made = state.ready ? state.generation : 0, .failed = 0};
}

}  // namespace skein::services
