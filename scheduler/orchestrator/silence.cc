// Instances that say nothing: what is known of them besides.
#include "scheduler/orchestrator/worker_side.h"

namespace skein::scheduler::orchestrator {

// A process that lives listens at its address, so this one has ended. If a stream of it, or of its
// successor there, has come meanwhile, the answer is out of date. A decode instance that routers
// hear lives: the address only is not reached from here.
void WorkerSide::On(const WorkerRefused& event, TimeUs now) {
  const Instance* instance = parts_.registry->Find(event.instance);
  const bool waits = instance != nullptr && !instance->connected() &&
                     instance->identity.incarnation == event.incarnation;
  if (!waits || MayMiss(*instance)) return;
  Lose(event.instance, "was lost: its stream broke, and its address refuses connections",
       Loss::kEnded, now);
}

}  // namespace skein::scheduler::orchestrator
