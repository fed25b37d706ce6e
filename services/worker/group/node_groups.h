// NodeGroups: a decode-worker's ends of the groups of its node, as the orchestrator orders them
// (scheduler::GroupOrder): the communicators and the feed wire of each aligned subset that it
// belongs to, made in the background.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/paths/comm_ledger.h"
#include "engine/comm/paths/path_fabric.h"
#include "engine/model/group/group_contexts.h"
#include "scheduler/base/messages.h"

namespace skein::services {

class NodeGroups {
 public:
  // `fabric` outlives this.
  explicit NodeGroups(engine::PathFabric* fabric);
  ~NodeGroups();  // does not wait for other instances

  // Any thread; does not block. A generation that is not higher than all before is ignored.
  void Take(const scheduler::GroupOrder& order);

  // As WorkerLoad has them; any thread.
  struct Generations {
    uint64_t made = 0;
    uint64_t failed = 0;
  };
  Generations generations() const;

  // Where a group that is bound takes its context.
  const engine::GroupContexts& contexts() const { return contexts_; }
  engine::FabricCounts made() const { return fabric_->Made(); }
  // How the bytes of the groups that are ready go, from small to large, and what those of that size
  // and path moved since the start. Any thread.
  std::vector<engine::CommTotals> Ways() const;

 private:
  engine::PathFabric* const fabric_;
  engine::GroupContexts contexts_;
};

}  // namespace skein::services
