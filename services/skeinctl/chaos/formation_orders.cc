#include "services/skeinctl/chaos/formation_orders.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "services/skeinctl/cluster/cluster_client.h"

namespace skein::services::chaos {
namespace {

using Order = v1::ChangeFormationRequest;

constexpr auto kWithin = std::chrono::seconds(60);
constexpr const char* kStands = "stands";

}  // namespace

std::string SwitchUnderWay(const v1::ListGroupsResponse& groups) {
  for (const v1::GroupStatus& group : groups.groups()) {
    for (const auto& one : group.formations()) {
      if (!one.stage().empty() && one.stage() != kStands) return one.stage();
    }
  }
  return "";
}

absl::Status FormationOrders::Bind() const { return Change({Order::ACT_BIND}); }

absl::Status FormationOrders::Release() const {
  return Change({Order::ACT_RELEASE, Order::ACT_UNPIN});
}

// A switch takes milliseconds: the connection is made before it is ordered.
absl::Status FormationOrders::Switch(
    bool bind, bool at_once, const std::function<void(const std::string& stage)>& seen) const {
  ClusterClient client(orchestrator_);
  if (const auto before = client.Groups(); !before.ok()) return before.status();
  auto ordered = std::async(std::launch::async, [&] { return bind ? Bind() : Release(); });
  while (ordered.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    std::string stage = "ordered";
    if (!at_once) {
      const auto groups = client.Groups();
      stage = groups.ok() ? SwitchUnderWay(*groups) : "";
    }
    if (stage.empty()) continue;
    seen(stage);
    break;
  }
  return ordered.get();
}

absl::Status FormationOrders::Change(const std::vector<Order::Act>& acts) const {
  if (orchestrator_.empty()) return absl::UnimplementedError("not with --kubernetes");
  ClusterClient client(orchestrator_);
  const auto groups = client.Groups();
  if (!groups.ok()) return groups.status();
  const auto decode = std::find_if(groups->groups().begin(), groups->groups().end(),
                                   [](const v1::GroupStatus& one) {
                                     return one.role() == v1::ROLE_DECODE && one.members_size() > 1;
                                   });
  if (decode == groups->groups().end()) {
    return absl::NotFoundError("no two decode instances of one node can be bound");
  }
  absl::Status done;
  for (const auto act : acts) {
    v1::ChangeFormationRequest order;
    order.set_act(act);
    order.set_group(decode->name());
    if (act == Order::ACT_BIND) order.set_size(2);
    done.Update(client.ChangeFormation(order, kWithin).status());
  }
  return done;
}

}  // namespace skein::services::chaos
