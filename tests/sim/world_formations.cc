// What a world does about formations: orders of operators, and the release of all at its end.
#include <algorithm>

#include "tests/sim/world.h"

namespace skein::sim {
namespace {

constexpr TimeUs kSwitchUs = 5 * scheduler::kSecondUs;  // for every switch to end

}  // namespace

std::vector<scheduler::InstanceId> World::DecodeInstances() const {
  std::vector<scheduler::InstanceId> instances;
  for (const auto& worker : decode_) {
    if (!worker->alive()) continue;
    const auto snapshot = worker->core()->Snapshot(worker->LocalNow());
    if (snapshot.registered) instances.push_back(snapshot.instance);
  }
  std::sort(instances.begin(), instances.end());
  return instances;
}

// What cannot be is refused, which is fine.
void World::Act(const FormationAct& act) {
  if (!Leader().Serves()) return;
  scheduler::orchestrator::FormationOrder order = act.order;
  if (act.size == 0) {
    order.group = "m@h";
    return Leader().Order(order);
  }
  const std::vector<scheduler::InstanceId> instances = DecodeInstances();
  const size_t first = std::min(static_cast<size_t>(act.first), instances.size());
  const size_t end = std::min(first + static_cast<size_t>(act.size), instances.size());
  order.instances.assign(instances.begin() + static_cast<std::ptrdiff_t>(first),
                         instances.begin() + static_cast<std::ptrdiff_t>(end));
  if (!order.instances.empty()) Leader().Order(order);
}

// All groups are released for good: within bounded time all work alone, and serve.
void World::RunAlone() {
  if (!scenario_.formations.has_value() || !verdict_.ok()) return;
  using scheduler::orchestrator::FormationOrder;
  Act({.order = {.act = FormationOrder::Act::kPin}});
  Act({.order = {.act = FormationOrder::Act::kRelease}});
  const TimeUs until = time_.now() + kSwitchUs * scenario_.time_scale;
  while (verdict_.ok() && time_.now() < until) {
    RunAction();
    if (Leader().open_orders() == 0 && Leader().AllWorkAlone()) break;
  }
  verdict_.Require(Leader().AllWorkAlone(), "a switch of a group never ended");
  verdict_.Require(Leader().open_orders() == 0, "an order about a formation has no answer");
  const int64_t steps = group_steps_.run();
  RunProbes(alone_probes_);
  verdict_.Require(group_steps_.run() == steps, "a released group goes on to run steps");
}

}  // namespace skein::sim
