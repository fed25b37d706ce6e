#include "scheduler/orchestrator/prefill/asked_shape.h"

#include <algorithm>
#include <map>
#include <string>

namespace skein::scheduler::orchestrator {
namespace {

struct Candidates {
  std::vector<InstanceId> taking;
  size_t serving = 0;
};

void Offer(const Candidates& some, const PrefillShape& shape, AskedInstances* asked) {
  asked->serving = std::max(asked->serving, some.serving);
  if (!asked->members.empty() || some.taking.size() < shape.instances) return;
  asked->members.assign(some.taking.begin(), some.taking.begin() + shape.instances);
}

}  // namespace

AskedInstances InstancesOfShape(const PoolView& pool, const PrefillShape& shape,
                                const std::set<InstanceId>& tried) {
  std::map<std::string, Candidates> by_node;
  Candidates all;
  for (const Instance* instance : pool) {
    if (instance->identity.comm_address.empty() || !instance->Serves()) continue;
    const bool takes = instance->TakesAssigns() && tried.count(instance->id) == 0;
    const std::string& node = instance->identity.node;  // without one it is near no other
    for (Candidates* some : {&all, node.empty() ? nullptr : &by_node[node]}) {
      if (some == nullptr) continue;
      ++some->serving;
      if (takes) some->taking.push_back(instance->id);
    }
  }
  AskedInstances asked;
  for (const auto& [node, of_node] : by_node) Offer(of_node, shape, &asked);
  if (shape.tp == 1) Offer(all, shape, &asked);
  return asked;
}

}  // namespace skein::scheduler::orchestrator
